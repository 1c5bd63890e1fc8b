//! Files that rotted, that nobody may write, or that are none of a client's business.

#[path = "../../../tests/default_models.rs"]
mod default_models;
mod support;

use std::fs;

use ropeway_hub::checksum::Sha256;
use serde_json::{Value, json};
use support::Sandbox;
use support::server::Server;
use support::tiny_gguf::tiny_gguf;

/// Puts a model into the store as a pull would.
fn install(sandbox: &Sandbox, folder: &str, name: &str, bytes: &[u8]) {
    let path = sandbox.path("home/models").join(folder);
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("model.gguf"), bytes).unwrap();
    let file =
        json!({"path": "model.gguf", "bytes": bytes.len(), "sha256": Sha256::of(bytes), "owner": "ropeway"});
    let manifest = json!({"name": name, "source": "a test", "pulled_at": 1, "files": [file]});
    fs::write(path.join("manifest.json"), manifest.to_string()).unwrap();
}

#[test]
fn one_flipped_bit_is_found_by_verify_and_before_loading_if_asked() {
    let sandbox = Sandbox::new();
    let mut bytes = tiny_gguf();
    install(&sandbox, "org--tiny", "org/tiny", &bytes);
    install(&sandbox, "org--other", "org/other", &bytes);
    let good = sandbox.run(&["verify"]).ok();
    assert!(good.contains("org/tiny: good (1 file, ") && good.contains("org/other: good"), "{good}");

    let last = bytes.len() - 1;
    bytes[last] ^= 0x10;
    fs::write(sandbox.path("home/models/org--tiny/model.gguf"), &bytes).unwrap();
    let ran = sandbox.run(&["verify"]);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.out.contains("org/tiny: 1 of 1 damaged") && ran.out.contains("has the sha256"),
        "{}",
        ran.out
    );
    assert!(ran.out.contains("org/other: good"), "{}", ran.out);
    assert!(ran.err.contains("error: org/tiny is damaged\nhint: run `ropeway pull org/tiny`"), "{}", ran.err);
    assert_eq!(sandbox.run(&["verify", "org/other"]).code, Some(0));

    let err = sandbox.run(&["run", "--verify", "org/tiny", "hello"]).failed();
    assert!(err.contains("is damaged") && err.contains("hint: run `ropeway pull org/tiny`"), "{err}");
}

#[test]
fn a_damaged_manifest_is_named_and_hides_no_other_model() {
    let sandbox = Sandbox::new();
    install(&sandbox, "org--tiny", "org/tiny", &tiny_gguf());
    fs::create_dir_all(sandbox.path("home/models/org--broken")).unwrap();
    fs::write(sandbox.path("home/models/org--broken/manifest.json"), "{").unwrap();
    let list = sandbox.run(&["list"]).ok();
    assert!(list.contains("org/tiny") && list.contains("`org/broken` is damaged"), "{list}");
    assert!(list.contains("run `ropeway pull org/broken`"), "{list}");
    let ran = sandbox.run(&["verify"]);
    assert!(ran.code == Some(1) && ran.err.contains("org/broken is damaged"), "{}", ran.err);
}

#[test]
fn a_broken_file_of_names_is_named_in_a_warning_and_skipped() {
    let sandbox = Sandbox::new();
    install(&sandbox, "org--tiny", "org/tiny", &tiny_gguf());
    fs::write(sandbox.path("home/aliases.json"), "{").unwrap();
    for command in [&["list"][..], &["show", "org/tiny"], &["tokenize", "--model", "org/tiny", "ab"]] {
        let ran = sandbox.run(command);
        assert_eq!(ran.code, Some(0), "{command:?}: {}", ran.err);
        assert_eq!(ran.err.matches("aliases.json").count(), 1, "{command:?}: {}", ran.err);
    }
}

/// The default model in a home where neither locks nor downloads can be written, and with a broken file of names.
fn unwritable_home() -> Option<Sandbox> {
    let model = default_models::smollm2()?;
    let sandbox = Sandbox::new();
    install(&sandbox, "smollm2-135m", "smollm2:135m", &fs::read(model).unwrap());
    for file in ["home/locks", "home/staging", "home/aliases.json"] {
        fs::write(sandbox.path(file), "{").unwrap();
    }
    Some(sandbox)
}

#[test]
fn an_installed_model_is_run_and_served_from_a_home_that_cannot_be_written() {
    let Some(sandbox) = unwritable_home() else { return };
    let said = sandbox.run(&["run", "smollm2", "--max-tokens", "2", "--temperature", "0", "Hello"]).ok();
    assert!(!said.trim().is_empty());
    let server = Server::start_in(sandbox, "smollm2", &["--kv-memory", "32MiB"], &[]);
    let (status, body) = server.post("/api/copy", r#"{"source": "smollm2", "destination": "mine"}"#);
    assert_eq!(status, 500, "{body}");
    assert!(body.contains("see the server's log") && !body.contains("home"), "{body}");
    let (status, body) = server.post("/api/chat", r#"{"model": "smollm2", "messages": [{"role": "user", "content": "Hi"}], "stream": false, "options": {"num_predict": 1}}"#);
    assert_eq!(status, 200, "{body}");
}

#[test]
fn a_client_cannot_tell_a_path_that_exists_from_one_that_does_not() {
    let Some(model) = default_models::smollm2() else { return };
    let sandbox = Sandbox::new();
    // The server's working directory: a repository-like path, a file and a folder.
    fs::create_dir_all(sandbox.path("org/here")).unwrap();
    fs::create_dir(sandbox.path("stuff")).unwrap();
    fs::write(sandbox.path("here.gguf"), tiny_gguf()).unwrap();
    let folder = sandbox.path("").display().to_string();
    let server = Server::start_in(sandbox, model.to_str().unwrap(), &["--kv-memory", "32MiB"], &[]);
    let pairs = [
        ("/etc/passwd".to_owned(), "/etc/nothing".to_owned()),
        ("here.gguf".into(), "gone.gguf".into()),
        ("./here.gguf".into(), "./gone.gguf".into()),
        (format!("{folder}here.gguf"), format!("{folder}gone.gguf")),
        (format!("{folder}org"), format!("{folder}gro")),
        ("org/here".into(), "org/gone".into()),
        ("stuff".into(), "nothing-at-all".into()),
        ("~/.cache".into(), "~/.nothing".into()),
        ("file:///etc/passwd".into(), "file:///etc/nothing".into()),
        ("../../../etc/passwd".into(), "../../../etc/nothing".into()),
        ("..".into(), "....".into()),
    ];
    for (here, gone) in &pairs {
        for ask in [pull, copy, delete, generate, chat, show, embed] {
            let (there, nowhere) = (ask(&server, here), ask(&server, gone));
            let plain = |(status, body): &(u16, String), name: &str| {
                (*status, body.replace(&json!(name).to_string().replace('"', ""), "NAME"))
            };
            assert_eq!(plain(&there, here), plain(&nowhere, gone));
            assert!((400..500).contains(&there.0) || there.1.contains("\"error\""), "{here}: {there:?}");
        }
    }
}

fn ask(server: &Server, path: &str, body: &Value) -> (u16, String) {
    server.post(path, body.to_string())
}

fn pull(server: &Server, name: &str) -> (u16, String) {
    ask(server, "/api/pull", &json!({"model": name}))
}

fn copy(server: &Server, name: &str) -> (u16, String) {
    ask(server, "/api/copy", &json!({"source": name, "destination": "mine"}))
}

fn delete(server: &Server, name: &str) -> (u16, String) {
    server.request("DELETE", "/api/delete", json!({"model": name}).to_string())
}

fn generate(server: &Server, name: &str) -> (u16, String) {
    ask(server, "/api/generate", &json!({"model": name}))
}

fn chat(server: &Server, name: &str) -> (u16, String) {
    ask(
        server,
        "/v1/chat/completions",
        &json!({"model": name, "messages": [{"role": "user", "content": "Hi"}]}),
    )
}

fn show(server: &Server, name: &str) -> (u16, String) {
    ask(server, "/api/show", &json!({"model": name}))
}

fn embed(server: &Server, name: &str) -> (u16, String) {
    ask(server, "/api/embed", &json!({"model": name, "input": "text"}))
}
