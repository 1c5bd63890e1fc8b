//! Row 11: homes that can't be written, files that are damaged.

use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;

use serde_json::json;

use crate::home::{INSTALLED, client, install};
use crate::my_turn;
use crate::names::VERIFY;
use crate::support::Sandbox;
use crate::support::server::Server;

/// A user who owns nothing: what tests run as may ignore permissions.
const NOBODY: u32 = 65534;

const SERVE: [&str; 6] = ["serve", "--listen", "127.0.0.1:0", "--model", INSTALLED, "--no-embeddings"];

fn allow(sandbox: &Sandbox, name: &str, mode: u32) {
    fs::set_permissions(sandbox.path(name), fs::Permissions::from_mode(mode)).unwrap();
}

fn answers(server: &Server) {
    let answer = client(server).post("/v1/completions", &json!({"prompt": "Hi", "max_tokens": 2}));
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[test]
fn a_home_that_cannot_be_written_serves_what_is_installed() {
    let _turn = my_turn();
    let sandbox = Sandbox::new();
    let Some(()) = install(&sandbox) else { return };
    let mut command = sandbox.copied_command(&SERVE);
    for folder in ["home/models/smollm2-135m", "home/models", "home", ""] {
        allow(&sandbox, folder, 0o555);
    }
    command.env("HOME", sandbox.path(""));
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    let server = Server::launch(sandbox, command);
    answers(&server);
}

#[test]
fn a_broken_alias_file_stops_nobody() {
    let _turn = my_turn();
    let sandbox = Sandbox::new();
    let Some(()) = install(&sandbox) else { return };
    fs::write(sandbox.path("home/aliases.json"), "{\"half\": \"a fi").unwrap();
    let listed = sandbox.run(&["list"]);
    assert_eq!(listed.code, Some(0), "{}", listed.err);
    assert!(listed.out.contains(INSTALLED), "{}", listed.out);
    let command = sandbox.command(&SERVE);
    answers(&Server::launch(sandbox, command));
}

/// Changes one bit in the middle of a file, in a copy of its own.
fn rot(sandbox: &Sandbox, name: &str) {
    let (path, copy) = (sandbox.path(name), sandbox.path("copy"));
    fs::copy(&path, &copy).unwrap();
    fs::rename(&copy, &path).unwrap();
    let mut file = OpenOptions::new().write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(fs::metadata(&path).unwrap().len() / 2)).unwrap();
    file.write_all(&[0x5a; 4]).unwrap();
}

#[test]
fn verify_finds_bit_rot_and_names_the_file() {
    let _turn = my_turn();
    let sandbox = Sandbox::new();
    let Some(()) = install(&sandbox) else { return };
    assert_eq!(sandbox.run(&[VERIFY, INSTALLED]).code, Some(0));
    rot(&sandbox, "home/models/smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf");
    let found = sandbox.run(&[VERIFY, INSTALLED]);
    assert_ne!(found.code, Some(0), "{}", found.out);
    let said = format!("{}{}", found.out, found.err);
    assert!(said.contains("SmolLM2-135M-Instruct.Q4_1.gguf"), "{said}");
}
