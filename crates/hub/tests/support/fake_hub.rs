//! A stand-in for the Hugging Face hub: one thread, plain HTTP, ranges, and the faults a test asks for.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use ropeway_hub::checksum::Sha256;
use serde_json::json;

use super::REPO;

/// The commit every file belongs to.
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What the server has, what it shall do wrong, and what it was asked.
#[derive(Default)]
pub struct Behaviour {
    /// The repository's files.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Further names in the listing.
    pub also_listed: Vec<String>,
    /// How many transfers break off, each after `cut_after` bytes.
    pub cuts: usize,
    pub cut_after: usize,
    /// How many transfers fall silent, each after `cut_after` bytes.
    pub stalls: usize,
    /// It takes connections and never says anything.
    pub is_silent: bool,
    /// It knows no ranges: every transfer is of the whole file.
    pub ignores_ranges: bool,
    /// Connections that are open and will never say anything more.
    pub held: Vec<TcpStream>,
    /// The etag to claim instead of the true checksum.
    pub etag: Option<String>,
    /// The only `Authorization` header let in.
    pub wants: Option<String>,
    /// Every request seen.
    pub seen: Vec<Request>,
}

/// One request, as far as it matters here.
#[derive(Debug, Clone, Default)]
pub struct Request {
    pub path: String,
    pub range: Option<String>,
    pub authorization: Option<String>,
}

pub struct FakeHub {
    pub url: String,
    behaviour: Arc<Mutex<Behaviour>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl FakeHub {
    /// Serves these files of [`REPO`] until dropped.
    pub fn start(files: &[(&str, &[u8])]) -> FakeHub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let files = files.iter().map(|(name, bytes)| (name.to_string(), bytes.to_vec())).collect();
        let behaviour = Arc::new(Mutex::new(Behaviour { files, ..Behaviour::default() }));
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, stopped) = (behaviour.clone(), stop.clone());
        let thread = thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                // A client that hangs up early is a fault under test, not of the test.
                let _ = answer(stream, &mut shared.lock().unwrap());
            }
        });
        FakeHub { url, behaviour, stop, thread: Some(thread) }
    }

    /// What it does and has seen; locks the server while held.
    pub fn behaviour(&self) -> MutexGuard<'_, Behaviour> {
        self.behaviour.lock().unwrap()
    }

    /// The ranges asked for when a file itself was transferred (not when its size was asked).
    pub fn transfers(&self) -> Vec<String> {
        let seen = self.behaviour().seen.clone();
        seen.into_iter().filter_map(|request| request.range).filter(|range| range != "bytes=0-0").collect()
    }
}

impl Drop for FakeHub {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the thread from `accept`.
        let _ = TcpStream::connect(self.url.trim_start_matches("http://"));
        self.thread.take().map(JoinHandle::join);
    }
}

fn answer(mut stream: TcpStream, behaviour: &mut Behaviour) -> std::io::Result<()> {
    let request = read_request(&stream)?;
    behaviour.seen.push(request.clone());
    if behaviour.is_silent {
        behaviour.held.push(stream);
        return Ok(());
    }
    if behaviour.wants.is_some() && behaviour.wants != request.authorization {
        return write!(stream, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
    if request.path == format!("/api/models/{REPO}/revision/main") {
        return send_listing(&mut stream, behaviour);
    }
    let file = request.path.strip_prefix(&format!("/{REPO}/resolve/main/")).map(str::to_owned);
    match file.and_then(|name| behaviour.files.get(&name).cloned()) {
        Some(bytes) => send_file(&mut stream, behaviour, &bytes, request.range.as_deref()),
        None => write!(stream, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
    }
}

fn read_request(stream: &TcpStream) -> std::io::Result<Request> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut request = Request { path, ..Request::default() };
    for line in lines {
        let line = line?;
        match line.split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("range") => request.range = Some(value.into()),
            Some((name, value)) if name.eq_ignore_ascii_case("authorization") => {
                request.authorization = Some(value.into());
            }
            Some(_) => {}
            None => break,
        }
    }
    Ok(request)
}

fn send_listing(stream: &mut TcpStream, behaviour: &Behaviour) -> std::io::Result<()> {
    let names = behaviour.files.keys().chain(&behaviour.also_listed);
    let siblings: Vec<_> = names.map(|name| json!({ "rfilename": name })).collect();
    let body = json!({ "sha": COMMIT, "siblings": siblings }).to_string();
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

/// Sends what `bytes=A-` or `bytes=A-B` asks for, or breaks off if a cut is due.
fn send_file(
    stream: &mut TcpStream,
    behaviour: &mut Behaviour,
    bytes: &[u8],
    range: Option<&str>,
) -> std::io::Result<()> {
    let (from, to) =
        range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-')).unwrap_or(("0", ""));
    let from: usize = from.parse().unwrap();
    let end = to.parse().map_or(bytes.len(), |last: usize| last + 1);
    if from >= end {
        return write!(
            stream,
            "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
    }
    if behaviour.ignores_ranges && to.is_empty() {
        let length = bytes.len();
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")?;
        return stream.write_all(bytes);
    }
    let etag = behaviour.etag.clone().unwrap_or_else(|| Sha256::of(bytes).to_string());
    let (length, last, whole) = (end - from, end - 1, bytes.len());
    write!(
        stream,
        "HTTP/1.1 206 Partial Content\r\nContent-Length: {length}\r\nContent-Range: bytes {from}-{last}/{whole}\r\n\
         ETag: \"{etag}\"\r\nX-Repo-Commit: {COMMIT}\r\nConnection: close\r\n\r\n"
    )?;
    let is_transfer = to.is_empty();
    if is_transfer && behaviour.stalls > 0 {
        behaviour.stalls -= 1;
        behaviour.held.push(stream.try_clone()?);
        return stream.write_all(&bytes[from..(from + behaviour.cut_after).min(end)]);
    }
    if is_transfer && behaviour.cuts > 0 {
        behaviour.cuts -= 1;
        return stream.write_all(&bytes[from..(from + behaviour.cut_after).min(end)]);
    }
    stream.write_all(&bytes[from..end])
}
