//! Models by name, from stand-ins for the hubs: `search`, `pull`, `list`, offline, and after the program was killed.

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ropeway_hub::checksum::Sha256;
use serde_json::Value;
use support::fake_hub::{FakeHub, ollama_manifest};
use support::tiny_gguf::tiny_gguf;
use support::{Ran, Sandbox, smollm2};

/// Longer than anything here takes on a busy machine: only a test that fails waits so long.
const PATIENCE: Duration = Duration::from_secs(120);

/// A command that asks this hub.
fn asking(sandbox: &Sandbox, server: &FakeHub, arguments: &[&str]) -> Command {
    let mut command = sandbox.command(arguments);
    command.env("HF_ENDPOINT", &server.url);
    command
}

fn run(command: &mut Command) -> Ran {
    command.output().unwrap().into()
}

#[test]
fn a_search_lists_names_sizes_licences_and_how_to_name_anything_else() {
    let sandbox = Sandbox::new();
    let out = sandbox.run(&["search", "llama3.2"]).ok();
    assert!(out.contains("llama3.2:1b") && out.contains("Llama 3.2 Community"), "{out}");
    assert!(out.contains("org/repo:Q4_K_M") && out.contains("ollama:NAME:TAG"), "{out}");
    let json: Value = serde_json::from_str(&sandbox.run(&["search", "--json"]).ok()).unwrap();
    assert!(json.as_array().unwrap().len() >= 40);
    assert_eq!((&json[0]["name"], &json[0]["quantization"]), (&"smollm2:135m".into(), &"Q4_1".into()));
    let err = sandbox.run(&["search", "gpt-oss"]).failed();
    assert!(err.contains("no model in the catalogue is like `gpt-oss`") && err.contains("org/repo"), "{err}");
}

#[test]
fn a_pull_takes_the_usual_quantization_says_so_and_is_listed_with_its_place() {
    let server = FakeHub::with_cdn(&[("m-Q4_K_M.gguf", &tiny_gguf()), ("m-Q8_0.gguf", b"eight")]);
    let sandbox = Sandbox::new();
    let ran = run(&mut asking(&sandbox, &server, &["pull", "org/tiny"]));
    let said = "taking m-Q4_K_M.gguf; there are also Q8_0 (as org/tiny:Q8_0)";
    assert!(ran.err.contains(said), "{}", ran.err);
    assert!(ran.ok().starts_with("pulled org/tiny ("));
    let listed = sandbox.run(&["list"]).ok();
    let row = listed.lines().find(|line| line.starts_with("org/tiny")).unwrap();
    assert!(
        row.contains("Hugging Face org/tiny") && row.contains("huggingface/hub/models--org--tiny"),
        "{row}"
    );
    assert!(sandbox.run(&["show", "org/tiny"]).ok().contains("architecture   llama"));
}

#[test]
fn a_repository_of_the_catalogue_that_is_gone_is_said_to_have_moved() {
    let server = FakeHub::start(&[]);
    let err = run(&mut asking(&Sandbox::new(), &server, &["pull", "gemma3:1b"])).failed();
    for part in ["could not get `gemma3:1b`", "has moved", "ropeway pull org/repo:Q4_K_M"] {
        assert!(err.contains(part), "{part} is missing in:\n{err}");
    }
}

#[test]
fn a_gated_repository_says_where_its_terms_are_accepted() {
    let server = FakeHub::start(&[("m.gguf", b"weights")]);
    server.behaviour().wants = Some("Bearer hf_me".into());
    let sandbox = Sandbox::new();
    let err = run(&mut asking(&sandbox, &server, &["pull", "org/tiny"])).failed();
    assert!(err.contains(&format!("accept its terms at {}/org/tiny and set HF_TOKEN", server.url)), "{err}");
    assert!(
        run(asking(&sandbox, &server, &["pull", "org/tiny"]).env("HF_TOKEN", "hf_me"))
            .ok()
            .contains("pulled")
    );
}

/// A file of four pieces.
fn large() -> Vec<u8> {
    (0..112_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// The note of a transfer under way, with the bytes that are here.
fn noted(folder: &Path) -> Option<(PathBuf, u64)> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    let note = entries
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|kind| kind == "pieces"))?;
    let json: Value = serde_json::from_slice(&fs::read(&note).ok()?).ok()?;
    let done = json["done"].as_array()?.iter().filter_map(Value::as_u64).sum();
    Some((note, done))
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "it never came");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Ends the program as a power cut of its own would: nothing is tidied up.
fn kill_9(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_pull_that_was_killed_goes_on_where_it_was() {
    let weights = large();
    let server = FakeHub::with_cdn(&[("m.gguf", &weights)]);
    // Every connection of the first pull stands still after 10 MB.
    (server.behaviour().stalls, server.behaviour().cut_after) = (4, 10_000_000);
    let sandbox = Sandbox::new();
    let mut pull = asking(&sandbox, &server, &["pull", "org/tiny"]);
    let child = pull.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let blobs = sandbox.path("huggingface/hub/models--org--tiny/blobs");
    wait_until(|| noted(&blobs).is_some_and(|(_, done)| done == 40_000_000));
    kill_9(child);
    let before = server.transfers().len();
    assert_eq!(before, 4, "four pieces at once");

    let out = run(&mut asking(&sandbox, &server, &["pull", "org/tiny"])).ok();
    assert!(out.starts_with("pulled org/tiny (112.00 MB)"), "{out}");
    let mut ranges = server.transfers()[before..].to_vec();
    ranges.sort();
    let piece = 32 << 20;
    let rest = |i: usize| {
        format!(
            "bytes={}-{}",
            i * piece + 10_000_000,
            if i == 3 { String::new() } else { ((i + 1) * piece - 1).to_string() }
        )
    };
    let mut expected: Vec<_> = (0..4).map(rest).collect();
    expected.sort();
    assert_eq!(ranges, expected);
    let file = out.lines().nth(1).unwrap();
    assert!(Sha256::of(&fs::read(file).unwrap()) == Sha256::of(&weights));
    assert!(noted(&blobs).is_none());
}

#[test]
fn what_was_pulled_once_runs_offline_and_the_rest_says_why_it_does_not() {
    let server = FakeHub::start(&[("m.gguf", &tiny_gguf())]);
    let sandbox = Sandbox::new();
    run(&mut asking(&sandbox, &server, &["pull", "org/tiny"])).ok();
    // The store has forgotten it; the cache that all Hugging Face tools share has not.
    fs::remove_dir_all(sandbox.path("home")).unwrap();
    let before = server.behaviour().seen.len();
    let mut pull = asking(&sandbox, &server, &["pull", "org/tiny"]);
    assert!(run(pull.env("HF_HUB_OFFLINE", "1")).ok().contains("pulled org/tiny"));
    let mut other = asking(&sandbox, &server, &["pull", "llama3.2:1b"]);
    assert!(run(other.env("HF_HUB_OFFLINE", "1")).failed().contains("unset HF_HUB_OFFLINE"));
    assert_eq!(server.behaviour().seen.len(), before, "nobody was asked");
}

#[test]
fn the_cache_is_where_its_variable_says() {
    let server = FakeHub::start(&[("m.gguf", &tiny_gguf())]);
    let sandbox = Sandbox::new();
    let mut pull = asking(&sandbox, &server, &["pull", "org/tiny"]);
    let out = run(pull.env("HF_HUB_CACHE", sandbox.path("shared"))).ok();
    assert!(out.contains(&sandbox.path("shared/models--org--tiny").display().to_string()), "{out}");
}

#[test]
fn a_proxy_of_the_environment_is_asked_instead_of_the_hub() {
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = proxy.local_addr().unwrap();
    let first_line = thread::spawn(move || {
        let (stream, _) = proxy.accept().unwrap();
        BufReader::new(stream).lines().next().unwrap().unwrap()
    });
    let sandbox = Sandbox::new();
    let mut pull = sandbox.command(&["pull", "org/tiny"]);
    pull.env("HF_ENDPOINT", "http://hub.invalid").env("ALL_PROXY", format!("http://{address}"));
    assert!(run(&mut pull).failed().contains("could not get `org/tiny`"));
    let line = first_line.join().unwrap();
    assert!(line.contains("hub.invalid"), "{line}");
}

#[test]
fn a_model_of_ollama_s_is_listed_used_in_place_and_only_forgotten_by_rm() {
    let sandbox = Sandbox::new();
    let blob = give_ollama(&sandbox, "llama3.2", "1b", &tiny_gguf());
    assert!(sandbox.run(&["list"]).ok().contains("ollama:llama3.2:1b"));
    let ran = sandbox.run(&["pull", "llama3.2:1b"]);
    assert!(ran.err.contains("from Ollama's store, where it is"), "{}", ran.err);
    assert!(ran.ok().contains(&blob.display().to_string()));
    assert!(sandbox.run(&["show", "llama3.2:1b"]).ok().contains("architecture   llama"));
    let removed = sandbox.run(&["rm", "llama3.2:1b"]).ok();
    assert!(removed.contains("0 B freed") && removed.contains("left where they are"), "{removed}");
    assert!(blob.exists());
}

/// Puts weights where Ollama would have them; gives the file.
fn give_ollama(sandbox: &Sandbox, name: &str, tag: &str, weights: &[u8]) -> PathBuf {
    let manifests = sandbox.path("ollama/manifests/registry.ollama.ai/library").join(name);
    for folder in [&manifests, &sandbox.path("ollama/blobs")] {
        fs::create_dir_all(folder).unwrap();
    }
    fs::write(manifests.join(tag), ollama_manifest(weights).to_string()).unwrap();
    let blob = sandbox.path("ollama/blobs").join(format!("sha256-{}", Sha256::of(weights)));
    fs::write(&blob, weights).unwrap();
    blob
}

#[test]
fn a_model_of_ollama_s_answers_as_the_same_file_does() {
    let Some(model) = smollm2() else { return };
    let sandbox = Sandbox::new();
    give_ollama(&sandbox, "llama3.2", "latest", &fs::read(&model).unwrap());
    let ask =
        |model: &str| sandbox.run(&["run", model, "Why?", "--temperature", "0", "--max-tokens", "16"]).ok();
    assert_eq!(ask("llama3.2"), ask(&model));
    assert!(!ask("llama3.2").trim().is_empty());
}

#[test]
fn a_model_of_the_ollama_registry_is_pulled_by_its_own_name() {
    let server = FakeHub::registry(&[("tiny:1b", &tiny_gguf())]);
    let sandbox = Sandbox::new();
    let mut pull = sandbox.command(&["pull", "ollama:tiny:1b"]);
    let ran = run(pull.env("ROPEWAY_OLLAMA_REGISTRY", &server.url));
    assert!(ran.err.contains("from the Ollama registry's tiny:1b"), "{}", ran.err);
    assert!(ran.ok().starts_with("pulled ollama:tiny:1b ("));
    assert!(sandbox.run(&["show", "ollama:tiny:1b"]).ok().contains("architecture   llama"));
}
