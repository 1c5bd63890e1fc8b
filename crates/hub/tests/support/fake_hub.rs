//! A stand-in for the Hugging Face hub, its content network and the Ollama registry: plain HTTP, ranges, and the faults a test asks
//! for.
//!
//! ```text
//! /api/models/<repo>/revision/<revision>        the listing
//! /<repo>/resolve/<revision>/<file>             the file, or a redirect to the second port with X-Linked-ETag and X-Linked-Size
//! /v2/library/<name>/manifests/<tag>, /blobs/   a registry with the same behaviour
//! second port: /cdn/<file>                      the bytes; whoever sends a token here is noted
//! ```

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use ropeway_hub::checksum::Sha256;
use serde_json::json;

/// The repository that is offered.
pub const REPO: &str = "org/tiny";

/// The commit every file belongs to.
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What the server has, what it shall do wrong, and what it was asked.
#[derive(Default)]
pub struct Behaviour {
    /// The repository's files.
    pub files: BTreeMap<String, Vec<u8>>,
    /// The registry's models: weights by `name:tag`.
    pub ollama: BTreeMap<String, Vec<u8>>,
    /// Further names in the listing.
    pub also_listed: Vec<String>,
    /// Revisions besides `main`.
    pub revisions: Vec<String>,
    /// How many transfers break off, each after `cut_after` bytes.
    pub cuts: usize,
    pub cut_after: usize,
    /// How many transfers fall silent, each after `cut_after` bytes.
    pub stalls: usize,
    /// It takes connections and never says anything.
    pub is_silent: bool,
    /// It knows no ranges: every transfer is of the whole file.
    pub ignores_ranges: bool,
    /// How many transfers are answered with 416.
    pub refused_ranges: usize,
    /// It sends these bytes too late: a range that begins so much after the one asked for.
    pub shifted_by: usize,
    /// Statuses, with `Retry-After`, of the next requests for listings, manifests and transfers.
    pub busy: Vec<(u16, Option<u64>)>,
    /// The repository's former name: whoever asks for it is sent on.
    pub formerly: Option<String>,
    /// Large files are redirected to the second port.
    pub has_cdn: bool,
    /// The size to claim instead of the true one.
    pub size: Option<u64>,
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
    /// Whether it came to the second port.
    pub to_cdn: bool,
    pub path: String,
    pub range: Option<String>,
    pub authorization: Option<String>,
}

pub struct FakeHub {
    pub url: String,
    behaviour: Arc<Mutex<Behaviour>>,
    stop: Arc<AtomicBool>,
    addresses: Vec<String>,
    threads: Vec<JoinHandle<()>>,
}

/// What is sent, decided while the behaviour is locked and written afterwards.
struct Reply {
    head: String,
    body: Vec<u8>,
    /// The connection stays open and silent.
    holds: bool,
}

impl Reply {
    fn status(status: &str, headers: &str) -> Reply {
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n{headers}Connection: close\r\n\r\n");
        Reply { head, body: Vec::new(), holds: false }
    }

    fn json(body: &serde_json::Value) -> Reply {
        let body = body.to_string().into_bytes();
        let length = body.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        Reply { head, body, holds: false }
    }
}

impl FakeHub {
    /// Serves these files of [`REPO`] until dropped.
    pub fn start(files: &[(&str, &[u8])]) -> FakeHub {
        let files = files.iter().map(|(name, bytes)| (name.to_string(), bytes.to_vec())).collect();
        FakeHub::with(Behaviour { files, ..Behaviour::default() })
    }

    /// The same, with large files on a second port.
    pub fn with_cdn(files: &[(&str, &[u8])]) -> FakeHub {
        let hub = FakeHub::start(files);
        hub.behaviour().has_cdn = true;
        hub
    }

    /// A registry with these models, named as `tiny:1b`.
    pub fn registry(models: &[(&str, &[u8])]) -> FakeHub {
        let ollama = models.iter().map(|(name, bytes)| (name.to_string(), bytes.to_vec())).collect();
        FakeHub::with(Behaviour { ollama, has_cdn: true, ..Behaviour::default() })
    }

    fn with(behaviour: Behaviour) -> FakeHub {
        let (behaviour, stop) = (Arc::new(Mutex::new(behaviour)), Arc::new(AtomicBool::new(false)));
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let addresses = listeners.iter().map(|listener| listener.local_addr().unwrap().to_string());
        let addresses: Vec<String> = addresses.collect();
        let cdn = format!("http://{}", addresses[1]);
        let serve = |(i, listener): (usize, TcpListener)| {
            let (shared, stopped, cdn) = (behaviour.clone(), stop.clone(), cdn.clone());
            thread::spawn(move || listen(&listener, i == 1, &cdn, &shared, &stopped))
        };
        let threads = listeners.into_iter().enumerate().map(serve).collect();
        FakeHub { url: format!("http://{}", addresses[0]), behaviour, stop, addresses, threads }
    }

    /// What it does and has seen; locks the server while held.
    pub fn behaviour(&self) -> MutexGuard<'_, Behaviour> {
        self.behaviour.lock().unwrap()
    }

    /// The ranges asked for when a file itself was transferred (not when its size was asked).
    pub fn transfers(&self) -> Vec<String> {
        let seen = self.behaviour().seen.clone();
        seen.into_iter()
            .filter(|request| !request.path.starts_with("/org/") || !self.behaviour().has_cdn)
            .filter_map(|request| request.range)
            .filter(|range| range != "bytes=0-0")
            .collect()
    }
}

impl Drop for FakeHub {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        for address in &self.addresses {
            // Wakes the thread from `accept`.
            let _ = TcpStream::connect(address);
        }
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// Answers connections side by side, each on a thread of its own.
fn listen(
    listener: &TcpListener,
    is_cdn: bool,
    cdn: &str,
    shared: &Arc<Mutex<Behaviour>>,
    stop: &AtomicBool,
) {
    for stream in listener.incoming().flatten() {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let (shared, cdn) = (shared.clone(), cdn.to_owned());
        thread::spawn(move || {
            // A client that hangs up early is a fault under test, not of the test.
            let _ = answer(stream, is_cdn, &cdn, &shared);
        });
    }
}

fn answer(mut stream: TcpStream, is_cdn: bool, cdn: &str, shared: &Mutex<Behaviour>) -> std::io::Result<()> {
    let request = Request { to_cdn: is_cdn, ..read_request(&stream)? };
    let reply = {
        let mut behaviour = shared.lock().unwrap();
        behaviour.seen.push(request.clone());
        if behaviour.is_silent {
            behaviour.held.push(stream);
            return Ok(());
        }
        reply(&mut behaviour, &request, cdn)
    };
    stream.write_all(reply.head.as_bytes())?;
    stream.write_all(&reply.body)?;
    if reply.holds {
        shared.lock().unwrap().held.push(stream);
    }
    Ok(())
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

fn reply(behaviour: &mut Behaviour, request: &Request, cdn: &str) -> Reply {
    if !request.to_cdn && behaviour.wants.is_some() && behaviour.wants != request.authorization {
        return Reply::status("401 Unauthorized", "");
    }
    let range = request.range.as_deref();
    let asks_for_size = range == Some("bytes=0-0");
    if !asks_for_size && !behaviour.busy.is_empty() {
        let (status, after) = behaviour.busy.remove(0);
        let after = after.map_or(String::new(), |seconds| format!("Retry-After: {seconds}\r\n"));
        return Reply::status(&format!("{status} Busy"), &after);
    }
    let missing = || Reply::status("404 Not Found", "");
    if let Some(name) = request.path.strip_prefix("/cdn/") {
        let bytes = behaviour.bytes(name);
        return bytes.map_or_else(missing, |bytes| send(behaviour, &bytes, range));
    }
    if let Some(path) = request.path.strip_prefix("/v2/library/") {
        return registry(behaviour, path, range, cdn).unwrap_or_else(missing);
    }
    if let Some(old) = behaviour.formerly.as_ref().filter(|old| request.path.contains(old.as_str())) {
        let location = format!("Location: {}\r\n", request.path.replace(old, REPO));
        return Reply::status("307 Temporary Redirect", &location);
    }
    let is_known = |revision: &str| {
        let revision = revision.replace("%2F", "/");
        revision == "main" || behaviour.revisions.contains(&revision)
    };
    if request.path.strip_prefix(&format!("/api/models/{REPO}/revision/")).is_some_and(is_known) {
        return listing(behaviour);
    }
    let path = request.path.strip_prefix(&format!("/{REPO}/resolve/")).and_then(|path| path.split_once('/'));
    let Some((_, name)) = path.filter(|(revision, _)| is_known(revision)) else { return missing() };
    match behaviour.files.get(name).cloned() {
        Some(bytes) if behaviour.has_cdn && is_large(name) => {
            redirect(behaviour, &bytes, &format!("{cdn}/cdn/{name}"))
        }
        Some(bytes) => send(behaviour, &bytes, range),
        None => missing(),
    }
}

impl Behaviour {
    /// The bytes of a file, or of a blob by its digest.
    fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let blob = || self.ollama.values().find(|bytes| format!("sha256:{}", Sha256::of(bytes)) == name);
        self.files.get(name).or_else(blob).cloned()
    }
}

/// Whether the hub keeps such a file in its large-file store.
fn is_large(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, kind)| matches!(kind, "gguf" | "safetensors"))
}

fn listing(behaviour: &Behaviour) -> Reply {
    let names = behaviour.files.keys().chain(&behaviour.also_listed);
    let siblings: Vec<_> = names.map(|name| json!({ "rfilename": name })).collect();
    Reply::json(&json!({ "sha": COMMIT, "siblings": siblings }))
}

fn registry(behaviour: &mut Behaviour, path: &str, range: Option<&str>, cdn: &str) -> Option<Reply> {
    let (name, rest) = path.split_once('/')?;
    if let Some(digest) = rest.strip_prefix("blobs/") {
        let bytes = behaviour.bytes(digest)?;
        let is_redirected = behaviour.has_cdn;
        let location = format!("Location: {cdn}/cdn/{digest}\r\n");
        return Some(if is_redirected {
            Reply::status("307 Temporary Redirect", &location)
        } else {
            send(behaviour, &bytes, range)
        });
    }
    let tag = rest.strip_prefix("manifests/")?;
    let weights = behaviour.ollama.get(&format!("{name}:{tag}"))?;
    Some(Reply::json(&ollama_manifest(weights)))
}

/// What Ollama says of a model with these weights.
pub fn ollama_manifest(weights: &[u8]) -> serde_json::Value {
    let layer = |kind: &str, bytes: &[u8]| {
        let media = format!("application/vnd.ollama.image.{kind}");
        json!({ "mediaType": media, "digest": format!("sha256:{}", Sha256::of(bytes)), "size": bytes.len() })
    };
    json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": { "mediaType": "application/vnd.docker.container.image.v1+json", "digest": "sha256:0", "size": 2 },
        "layers": [layer("model", weights), layer("template", b"{{ .Prompt }}"), layer("params", b"{}"), layer("license", b"MIT")],
    })
}

fn redirect(behaviour: &Behaviour, bytes: &[u8], location: &str) -> Reply {
    let etag = behaviour.etag.clone().unwrap_or_else(|| Sha256::of(bytes).to_string());
    let size = behaviour.size.unwrap_or(bytes.len() as u64);
    let headers = format!(
        "Location: {location}\r\nX-Linked-ETag: \"{etag}\"\r\nX-Linked-Size: {size}\r\nX-Repo-Commit: {COMMIT}\r\n\
         ETag: \"of-the-redirect\"\r\n"
    );
    Reply::status("302 Found", &headers)
}

/// What `bytes=A-` or `bytes=A-B` asks for, or less if a fault is due.
fn send(behaviour: &mut Behaviour, bytes: &[u8], range: Option<&str>) -> Reply {
    let is_transfer = range != Some("bytes=0-0");
    let asked = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-')).unwrap_or(("0", ""));
    let mut from: usize = asked.0.parse().unwrap();
    let end = asked.1.parse().map_or(bytes.len(), |last: usize| (last + 1).min(bytes.len()));
    if is_transfer && behaviour.refused_ranges > 0 && from > 0 {
        behaviour.refused_ranges -= 1;
        return Reply::status("416 Range Not Satisfiable", "");
    }
    if from >= end {
        return Reply::status("416 Range Not Satisfiable", "");
    }
    let etag = behaviour.etag.clone().unwrap_or_else(|| Sha256::of(bytes).to_string());
    if behaviour.ignores_ranges {
        let length = bytes.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nETag: \"{etag}\"\r\nX-Repo-Commit: {COMMIT}\r\nConnection: close\r\n\r\n"
        );
        return Reply { head, body: bytes.to_vec(), holds: false };
    }
    if is_transfer {
        from = (from + behaviour.shifted_by).min(end - 1);
    }
    let (length, last, whole) = (end - from, end - 1, bytes.len());
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\nContent-Length: {length}\r\nContent-Range: bytes {from}-{last}/{whole}\r\n\
         ETag: \"{etag}\"\r\nX-Repo-Commit: {COMMIT}\r\nConnection: close\r\n\r\n"
    );
    let cut = bytes[from..(from + behaviour.cut_after).min(end)].to_vec();
    if is_transfer && behaviour.stalls > 0 {
        behaviour.stalls -= 1;
        return Reply { head, body: cut, holds: true };
    }
    if is_transfer && behaviour.cuts > 0 {
        behaviour.cuts -= 1;
        return Reply { head, body: cut, holds: false };
    }
    Reply { head, body: bytes[from..end].to_vec(), holds: false }
}
