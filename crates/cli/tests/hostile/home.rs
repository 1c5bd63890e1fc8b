//! Servers to attack: of the default model by its path, or of a store of their own that it is installed in.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use crate::client::Client;
use crate::default_models;
use crate::names;
use crate::support::Sandbox;
use crate::support::server::Server;

/// Its name in the store.
pub const INSTALLED: &str = "smollm2:135m";

/// Small enough for many servers on one machine: 2,000 tokens of keys and values.
const SMALL: [&str; 4] = ["--context", "2048", "--kv-memory", "48MiB"];

/// Everyone may ask, and bodies in flight are bounded.
pub fn open_server() -> Option<Server> {
    let model = default_models::smollm2()?;
    let bound = [names::MEMORY_IN_FLIGHT, names::MEMORY_IN_FLIGHT_VALUE, "--no-embeddings"];
    Some(Server::start(model.to_str()?, &[&SMALL[..], &bound].concat()))
}

/// A model of random weights, with memory for more answers than a step has rows, so that rows are what is short. With the default
/// model a step of so many rows takes seconds.
pub fn tiny_server() -> Server {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/models/llama");
    let much = ["--kv-memory", "1GiB", "--max-n", "128", "--no-embeddings"];
    Server::start(model.to_str().unwrap(), &much)
}

/// Holders of [`names::KEYS`] may ask.
pub fn server_with_keys(more: &[&str]) -> Option<Server> {
    let model = default_models::smollm2()?;
    let sandbox = Sandbox::new();
    let keys = sandbox.write("keys", names::KEYS.as_bytes());
    let alias = format!("m={}", model.to_str()?);
    let fixed = ["serve", "--listen", "127.0.0.1:0", "--model", model.to_str()?, "--alias", &alias];
    let keyed = ["--api-keys-file", &keys, "--no-embeddings"];
    let command = sandbox.command(&[&fixed[..], &keyed, &SMALL, more].concat());
    Some(Server::launch(sandbox, command))
}

/// The same on a store that the model is installed in, so that it can be unloaded, loaded and deleted.
pub fn server_with_store() -> Option<Server> {
    let sandbox = Sandbox::new();
    install(&sandbox)?;
    let keys = sandbox.write("keys", names::KEYS.as_bytes());
    let fixed = ["serve", "--listen", "127.0.0.1:0", "--model", INSTALLED, "--no-embeddings"];
    let command = sandbox.command(&[&fixed[..], &["--api-keys-file", &keys], &SMALL].concat());
    Some(Server::launch(sandbox, command))
}

/// Puts the default model into a sandbox's store.
pub fn install(sandbox: &Sandbox) -> Option<()> {
    let file = default_models::smollm2()?;
    let folder = sandbox.path("home/models/smollm2-135m");
    fs::create_dir_all(&folder).unwrap();
    for path in [&file, &file.parent()?.join("manifest.json")] {
        link(path, &folder.join(path.file_name()?));
    }
    Some(())
}

/// Without a second copy where the file system can.
fn link(from: &Path, to: &Path) {
    if fs::hard_link(from, to).is_err() {
        fs::copy(from, to).unwrap();
    }
}

/// A client without a key.
pub fn client(server: &Server) -> Client {
    client_of(server.address)
}

fn client_of(server: SocketAddr) -> Client {
    Client { server, key: None }
}
