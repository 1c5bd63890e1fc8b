//! `--vllm`: a child that is started, fronted, started again and ended. What is started is called `vllm` and is a Ropeway, which
//! takes the same flags; the real one is tried by `tests/upstreams/vllm.sh`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::support::Sandbox;
use super::support::server::{Server, until};
use super::{greedy, model, text, upstreams};

/// A program called `vllm` that notes the number of its process.
fn program(sandbox: &Sandbox) -> String {
    let script = format!(
        "#!/bin/sh\nshift\necho $$ >> {}\nexec {} serve --no-embeddings --kv-memory 16MiB \"$@\"\n",
        sandbox.path("pids").display(),
        env!("CARGO_BIN_EXE_ropeway")
    );
    let path = sandbox.write("vllm", script.as_bytes());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn start() -> Server {
    let sandbox = Sandbox::new();
    let program = program(&sandbox);
    let model = model().display().to_string();
    let mut command =
        sandbox.command(&["serve", "--listen", "127.0.0.1:0", "--alias", "m=llama", "--vllm", &model]);
    command.env("ROPEWAY_VLLM_PROGRAM", program);
    Server::launch(sandbox, command)
}

/// The processes that were started, oldest first.
fn pids(server: &Server) -> Vec<String> {
    let noted = fs::read_to_string(server.sandbox.path("pids")).unwrap_or_default();
    noted.lines().map(str::to_owned).collect()
}

fn lives(pid: &str) -> bool {
    let state = fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    !state.is_empty() && !state.contains(") Z ")
}

#[test]
fn a_child_is_fronted_and_started_again_when_it_dies() {
    let front = start();
    let before = text(&front, &greedy(1, 10));
    let first = pids(&front).remove(0);
    assert!(std::process::Command::new("kill").args(["-s", "KILL", &first]).status().unwrap().success());
    until("it was started again", || pids(&front).len() == 2);
    until("it answers again", || upstreams(&front)["upstreams"][0]["models"][0]["up"] == true);
    assert_eq!(text(&front, &greedy(1, 10)), before);
}

#[test]
fn a_child_ends_with_the_server_however_that_ends() {
    for signal in ["TERM", "KILL"] {
        let mut front = start();
        let child = pids(&front).remove(0);
        assert!(lives(&child));
        front.signal(signal);
        front.wait();
        until("the child has ended", || !lives(&child));
    }
}

#[test]
fn a_child_that_can_not_start_ends_the_server_with_what_it_said() {
    let sandbox = Sandbox::new();
    let program = sandbox.write("vllm", b"#!/bin/sh\necho no such flag: $6\nexit 2\n");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--vllm", "m", "--", "--bad"];
    let ran = sandbox.command(&arguments).env("ROPEWAY_VLLM_PROGRAM", program).output().unwrap();
    let told = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(!ran.status.success() && told.contains("no such flag"), "{told}");
}
