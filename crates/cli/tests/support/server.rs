//! A real `ropeway serve` in a process of its own, and a client that can misbehave.

use std::fmt::Display;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::Sandbox;

/// Longest time that a test waits for anything: generous, machines may be busy.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// How often something awaited is looked at.
const GLANCE: Duration = Duration::from_millis(5);

/// A server that ends with the test.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
    /// Where it keeps its files.
    pub sandbox: Sandbox,
}

impl Server {
    /// Starts a server of this model, as `m`, and waits until it is ready.
    pub fn start(model: &str, more: &[&str]) -> Server {
        Server::start_in(Sandbox::new(), model, more, &[])
    }

    /// The same in a home of the test's own, with these variables in its environment.
    pub fn start_in(sandbox: Sandbox, model: &str, more: &[&str], environment: &[(&str, &str)]) -> Server {
        let alias = format!("m={model}");
        let fixed = ["serve", "--listen", "127.0.0.1:0", "--model", model, "--alias", &alias];
        let mut command = sandbox.command(&[&fixed, more].concat());
        command.envs(environment.iter().copied());
        Server::launch(sandbox, command)
    }

    /// Starts a server by this command, which keeps its files in `sandbox`, and waits until it is ready.
    pub fn launch(sandbox: Sandbox, mut command: Command) -> Server {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut all = String::new();
        let address = loop {
            let mut line = String::new();
            assert_ne!(said.read_line(&mut line).unwrap(), 0, "the server ended:\n{all}");
            all.push_str(&line);
            // What a child of its own says is a line of the log.
            if let Some((_, url)) =
                line.split_once(" on http://").filter(|_| line.starts_with("ropeway serves"))
            {
                // The first of several is enough.
                break url.split(',').next().unwrap().trim().parse().unwrap();
            }
        };
        // Whatever else it says must not block it.
        thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        Server { child, address, sandbox }
    }

    /// Sends it a signal, such as `TERM`.
    pub fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// How it ended, when it does.
    pub fn wait(&mut self) -> Option<i32> {
        wait(&mut self.child)
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How long it takes from now to end by itself, if that is less than `limit`.
    pub fn ends_within(&mut self, limit: Duration) -> Option<Duration> {
        let start = Instant::now();
        while start.elapsed() < limit {
            if self.child.try_wait().unwrap().is_some() {
                return Some(start.elapsed());
            }
            thread::sleep(GLANCE);
        }
        None
    }

    /// A connection to it.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends a request on a connection of its own and leaves the answer unread.
    pub fn send(&self, path: &str, body: impl AsRef<[u8]>) -> TcpStream {
        self.send_as("POST", path, body)
    }

    fn send_as(&self, method: &str, path: &str, body: impl AsRef<[u8]>) -> TcpStream {
        let (mut stream, body) = (self.connect(), body.as_ref());
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        // A server may answer and close before it read everything.
        let _ = stream.write_all(body);
        stream
    }

    /// Sends a request, reads the whole answer.
    pub fn post(&self, path: &str, body: impl AsRef<[u8]>) -> (u16, String) {
        answer(self.send(path, body))
    }

    /// The same with another method.
    pub fn request(&self, method: &str, path: &str, body: impl AsRef<[u8]>) -> (u16, String) {
        answer(self.send_as(method, path, body))
    }

    /// The sum of a metric over all its labels that contain `label`.
    fn metric(&self, name: &str, label: &str) -> f64 {
        let mut stream = self.connect();
        let head = format!("GET /metrics HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.address);
        stream.write_all(head.as_bytes()).unwrap();
        let (status, page) = answer(stream);
        assert_eq!(status, 200);
        let start = format!("ropeway_{name}{{");
        let values = page.lines().filter(|line| line.starts_with(&start) && line.contains(label));
        values.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    }

    /// The same for a metric that counts.
    pub fn count(&self, name: &str, label: &str) -> u64 {
        self.metric(name, label) as u64
    }

    pub fn running(&self) -> u64 {
        self.count("num_requests_running", "")
    }

    pub fn waiting(&self) -> u64 {
        self.count("num_requests_waiting", "")
    }

    /// Waits until nobody runs or waits and no block is in use.
    pub fn settle(&self) {
        let holds_blocks = || self.metric("kv_cache_usage_ratio", "") > 0.0;
        until("the server is idle", || self.running() + self.waiting() == 0 && !holds_blocks());
    }

    /// Processes that the server started; none where the system does not tell.
    pub fn children(&self) -> Vec<String> {
        let threads =
            std::fs::read_dir(format!("/proc/{}/task", self.child.id())).into_iter().flatten().flatten();
        let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
        lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
    }

    /// Memory of the server that is in RAM, in MB; 0 where the system does not tell.
    pub fn resident_mb(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0 kB");
        line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1e3
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a process a signal, such as `TERM`.
pub fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
}

/// How a process ended, when it does; one that a signal killed has no code.
pub fn wait(child: &mut Child) -> Option<i32> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain for the end of a process");
        thread::sleep(GLANCE);
    }
}

/// Takes connections and never says anything.
pub struct SilentHub {
    pub url: String,
    asked: Arc<AtomicUsize>,
}

impl SilentHub {
    /// Listens until the test program ends.
    pub fn start() -> SilentHub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        thread::spawn(move || {
            let mut held = Vec::new();
            for stream in listener.incoming().flatten() {
                held.push(stream);
                count.store(held.len(), Ordering::SeqCst);
            }
        });
        SilentHub { url, asked }
    }

    /// How many connections it holds.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// Status and body of an answer, read to the end of the connection.
pub fn answer(mut stream: TcpStream) -> (u16, String) {
    let mut bytes = Vec::new();
    // A server that turns a body away may reset the connection; what it said before counts.
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, text.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned()))
}

/// Waits until something is so.
pub fn until(what: impl Display, so: impl Fn() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        thread::sleep(GLANCE);
    }
}
