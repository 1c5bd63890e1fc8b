//! The official openai, anthropic and ollama libraries against a real server: `tests/clients/conformance.py`.
//!
//! The libraries are installed once, by name, into an environment in the user's cache. Without Python or a package index the
//! test prints why it is skipped and passes.

#[path = "../../../tests/default_models.rs"]
mod default_models;
mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::Sandbox;
use support::server::Server;

/// What the checks need.
const LIBRARIES: [&str; 3] = ["openai", "anthropic", "ollama"];

/// The keys that the checks know.
const KEYS: &[u8] = b"sk-everything name=all admin\nsk-one-at-a-time name=one concurrency=1\n";

#[test]
fn the_official_libraries_find_what_they_expect() {
    let (Some(model), Some(embedder)) = (default_models::smollm2(), default_models::minilm()) else { return };
    let python = match environment() {
        Ok(python) => python,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let (sandbox, model) = (Sandbox::new(), model.display().to_string());
    let embedder = embedder.display().to_string();
    let (keys, alias) = (sandbox.write("keys", KEYS), format!("claude-*={model}"));
    let given = ["--api-keys-file", &keys, "--alias", &alias, "--embed-model", &embedder];
    let server = Server::start(&model, &given);
    find_what_they_expect(&python, &server);
}

#[test]
fn the_official_libraries_find_the_same_through_a_pool() {
    let (Some(model), Some(embedder)) = (default_models::smollm2(), default_models::minilm()) else { return };
    let python = match environment() {
        Ok(python) => python,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let (model, embedder) = (model.display().to_string(), embedder.display().to_string());
    let behind = Server::start(&model, &["--fixed-models", "--embed-model", &embedder]);
    let sandbox = Sandbox::new();
    let upstream = format!("[[upstream]]\nurl = {:?}\ntokenizer = {model:?}\n", behind.url());
    sandbox.write("ropeway.toml", upstream.as_bytes());
    let keys = sandbox.write("keys", KEYS);
    let name = Path::new(&model).file_stem().unwrap().to_str().unwrap();
    let alias = format!("claude-*={name}");
    let command =
        sandbox.command(&["serve", "--listen", "127.0.0.1:0", "--api-keys-file", &keys, "--alias", &alias]);
    find_what_they_expect(&python, &Server::launch(sandbox, command));
}

fn find_what_they_expect(python: &Path, server: &Server) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/clients/conformance.py");
    let status = Command::new(python).args([script, &server.url()]).status().unwrap();
    assert!(status.success(), "a client was disappointed: see above");
}

/// The Python that has the libraries, or why there is none.
fn environment() -> Result<PathBuf, String> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache")));
    let cache = cache.ok_or("neither XDG_CACHE_HOME nor HOME says where to install clients")?.join("ropeway");
    let place = cache.join("clients");
    let python = place.join("bin/python");
    let imports = LIBRARIES.map(|library| format!("import {library}")).join("\n");
    if run(Command::new(&python).args(["-c", &imports])).is_ok() {
        return Ok(python);
    }
    // Made beside and moved, so that another run never sees half of it.
    let making = cache.join(format!("clients-{}", std::process::id()));
    let made = run(Command::new("python3").args(["-m", "venv"]).arg(&making)).and_then(|()| {
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        run(Command::new(making.join("bin/python")).args(pip).args(LIBRARIES))
    });
    if made.is_ok() {
        let _ = std::fs::remove_dir_all(&place);
        let _ = std::fs::rename(&making, &place);
    }
    let _ = std::fs::remove_dir_all(&making);
    made.and_then(|()| run(Command::new(&python).args(["-c", &imports]))).map(|()| python)
}

/// Runs a command to its end; what it complained about if it failed.
fn run(command: &mut Command) -> Result<(), String> {
    let done = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    let complaint = String::from_utf8_lossy(&done.stderr);
    if done.status.success() { Ok(()) } else { Err(format!("{command:?}: {}", complaint.trim())) }
}
