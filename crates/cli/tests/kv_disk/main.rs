//! Keys and values on disk, with the real server and the default model: what survives, and that nothing wrong is ever used.

mod circumstances;
#[path = "../support/mod.rs"]
mod support;

use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use support::server::{Server, until};
use support::{Sandbox, smollm2};

/// Tokens of a prompt, all in full blocks but the last few.
const PROMPT: u32 = 330;

/// Of these, those of full blocks before the last token.
const BLOCKS: u64 = 320;

/// Starts a server that keeps keys and values in this folder.
fn start(model: &str, folder: &Path, more: &[&str]) -> Server {
    start_with(model, folder, "2GiB", more)
}

fn start_with(model: &str, folder: &Path, size: &str, more: &[&str]) -> Server {
    Server::start(model, &[&keeping(folder, size), more].concat())
}

/// Flags of a server that keeps so much in this folder.
fn keeping<'a>(folder: &'a Path, size: &'a str) -> [&'a str; 7] {
    let folder = folder.to_str().unwrap();
    ["--no-embeddings", "--kv-memory", "64MiB", "--kv-disk", size, "--kv-disk-dir", folder]
}

/// An answer, and how many tokens of the prompt were cached.
#[derive(Debug, PartialEq)]
struct Answer {
    text: String,
    cached: u64,
}

fn prompt(number: u32) -> Vec<u32> {
    (0..PROMPT).map(|token| 1000 + (number * 7919 + token * 31) % 30_000).collect()
}

fn ask(server: &Server, prompt: &[u32]) -> Answer {
    let body = json!({"model": "m", "prompt": prompt, "max_tokens": 6, "temperature": 0}).to_string();
    let (status, answer) = server.post("/v1/completions", body);
    assert_eq!(status, 200, "{answer}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    Answer {
        text: answer["choices"][0]["text"].as_str().unwrap().to_owned(),
        cached: answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap(),
    }
}

/// The files that hold blocks.
fn segments(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|file| file.path());
    files.filter(|path| path.extension().is_some_and(|end| end == "kv")).collect()
}

fn file_bytes(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).unwrap().flatten();
    files.map(|file| file.metadata().map_or(0, |data| data.len())).sum()
}

fn end(mut server: Server) {
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
}

/// A server that answered one prompt and ended well, and what it said.
fn filled(model: &str, folder: &Path) -> Answer {
    let server = start(model, folder, &[]);
    let answer = ask(&server, &prompt(1));
    assert_eq!(answer.cached, 0);
    end(server);
    answer
}

#[test]
fn a_prompt_is_warm_after_a_restart_and_the_answer_the_same() {
    let Some(model) = smollm2() else { return };
    let home = Sandbox::new();
    let first = filled(&model, &home.path("kv"));
    let server = start(&model, &home.path("kv"), &[]);
    assert_eq!(ask(&server, &prompt(1)), Answer { cached: BLOCKS, text: first.text });
}

#[test]
fn what_is_a_moment_old_survives_being_killed() {
    let Some(model) = smollm2() else { return };
    let home = Sandbox::new();
    let folder = home.path("kv");
    let server = start(&model, &folder, &[]);
    let first = ask(&server, &prompt(1));
    until("its blocks are on disk", || file_bytes(&folder) > 7_000_000);
    // What the file system still holds back is lost with the machine, not with the process.
    std::thread::sleep(Duration::from_millis(300));
    server.signal("KILL");
    drop(server);
    let server = start(&model, &folder, &[]);
    let again = ask(&server, &prompt(1));
    assert_eq!(again.text, first.text);
    assert!(again.cached > 0, "{again:?}");
}

#[test]
fn a_server_killed_at_any_moment_leaves_nothing_that_is_wrong() {
    let Some(model) = smollm2() else { return };
    let home = Sandbox::new();
    let folder = home.path("kv");
    let truth: Vec<String> = {
        let server = Server::start(&model, &["--no-embeddings"]);
        (0..3).map(|number| ask(&server, &prompt(number)).text).collect()
    };
    for moment in [900, 1400, 2100] {
        let server = start(&model, &folder, &[]);
        std::thread::scope(|scope| {
            for number in 0..3 {
                let body = json!({"model": "m", "prompt": prompt(number), "max_tokens": 6}).to_string();
                let server = &server;
                scope.spawn(move || server.send("/v1/completions", body));
            }
        });
        std::thread::sleep(Duration::from_millis(moment));
        server.signal("KILL");
    }
    let server = start(&model, &folder, &[]);
    for (number, text) in truth.iter().enumerate() {
        assert_eq!(ask(&server, &prompt(number as u32)).text, *text);
    }
}

#[test]
fn two_servers_share_a_folder_and_the_second_only_reads() {
    let Some(model) = smollm2() else { return };
    let home = Sandbox::new();
    let folder = home.path("kv");
    let first = filled(&model, &folder);
    let (one, two) = (start(&model, &folder, &[]), start(&model, &folder, &[]));
    for server in [&one, &two] {
        assert_eq!(ask(server, &prompt(1)), Answer { cached: BLOCKS, text: first.text.clone() });
    }
    ask(&two, &prompt(2));
    end(two);
    assert_eq!(ask(&one, &prompt(2)).cached, 0, "the second one wrote nothing");
}

#[test]
fn damaged_and_cut_files_cost_time_and_no_answer() {
    let Some(model) = smollm2() else { return };
    for damage in [flip as fn(&Path), cut] {
        let home = Sandbox::new();
        let folder = home.path("kv");
        let first = filled(&model, &folder);
        for path in segments(&folder) {
            damage(&path);
        }
        let server = start(&model, &folder, &[]);
        let again = ask(&server, &prompt(1));
        assert_eq!(again.text, first.text);
        assert!(again.cached < BLOCKS, "{again:?}");
    }
}

/// Changes bytes all over a file.
fn flip(path: &Path) {
    let length = path.metadata().unwrap().len();
    let mut file = OpenOptions::new().write(true).open(path).unwrap();
    for part in 1..64 {
        file.seek(SeekFrom::Start(part * length / 64)).unwrap();
        file.write_all(&[0xA5; 16]).unwrap();
    }
}

fn cut(path: &Path) {
    let length = path.metadata().unwrap().len();
    OpenOptions::new().write(true).open(path).unwrap().set_len(length / 2).unwrap();
}

#[test]
fn blocks_of_another_format_are_not_used() {
    let Some(model) = smollm2() else { return };
    let home = Sandbox::new();
    let folder = home.path("kv");
    filled(&model, &folder);
    for more in [&["--kv", "q8"][..], &["--context", "12000", "--rope-scaling", "yarn"]] {
        let server = start(&model, &folder, more);
        assert_eq!(ask(&server, &prompt(1)).cached, 0, "{more:?}");
    }
}

#[test]
fn a_small_area_stays_small() {
    let Some(model) = smollm2() else { return };
    let home = Sandbox::new();
    let folder = home.path("kv");
    let server = start_with(&model, &folder, "12MiB", &[]);
    for number in 0..4 {
        ask(&server, &prompt(number));
        assert!(file_bytes(&folder) <= 12 << 20);
    }
    end(server);
    assert!(file_bytes(&folder) <= 12 << 20);
}

#[test]
fn a_folder_that_can_not_be_one_is_named_with_what_to_do() {
    let Some(model) = smollm2() else { return };
    let home = Sandbox::new();
    let file = home.write("file", b"in the way");
    let serve = ["serve", "--listen", "127.0.0.1:0", "--no-embeddings", "--model", &model];
    let refused = home.run(&[&serve[..], &["--kv-disk", "1GiB", "--kv-disk-dir", &file]].concat());
    assert_eq!(refused.code, Some(1), "{}", refused.err);
    assert!(refused.err.contains("--kv-disk-dir"), "{}", refused.err);
}
