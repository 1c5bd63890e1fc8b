//! Row 9: answers that tell which files a machine has.

use std::fs;
use std::path::Path;

use serde_json::json;
use tempfile::TempDir;

use crate::client::{Answer, Client, read};
use crate::home::{INSTALLED, client, server_with_store};
use crate::my_turn;
use crate::names::OPERATOR;

fn ask_everywhere(client: &Client, name: &str) -> Vec<(&'static str, Answer)> {
    let delete = json!({"model": name}).to_string();
    vec![
        ("copy", client.post("/api/copy", &json!({"source": name, "destination": "mine"}))),
        ("copy to", client.post("/api/copy", &json!({"source": INSTALLED, "destination": name}))),
        ("generate", client.post("/api/generate", &json!({"model": name, "prompt": "Hi"}))),
        ("load", client.post("/api/generate", &json!({"model": name}))),
        ("show", client.post("/api/show", &json!({"model": name}))),
        ("pull", client.post("/api/pull", &json!({"model": name, "stream": false}))),
        ("chat", client.post("/v1/completions", &json!({"model": name, "prompt": "Hi"}))),
        ("delete", read(client.send("DELETE", "/api/delete", &[], delete.as_bytes()))),
    ]
}

/// Paths of the same form to a file or folder that is there, and to one that is not: absolute, and from where the server runs.
fn pairs(folder: &Path) -> [[String; 2]; 3] {
    let absolute = |name: &str| folder.join(name).display().to_string();
    let relative = |name: &str| format!("../../../../../../../..{}", absolute(name));
    fs::write(folder.join("a.gguf"), "not a model").unwrap();
    fs::create_dir(folder.join("c")).unwrap();
    [
        [absolute("a.gguf"), absolute("b.gguf")],
        [absolute("c"), absolute("d")],
        [relative("a.gguf"), relative("b.gguf")],
    ]
}

#[test]
fn existing_and_missing_paths_get_the_same_answers() {
    let _turn = my_turn();
    let Some(server) = server_with_store() else { return };
    let folder = TempDir::new().unwrap();
    // With every right: what the operator's key does not learn, no other does.
    let client = client(&server).with_key(OPERATOR);
    for [existing, missing] in pairs(folder.path()) {
        let pairs = ask_everywhere(&client, &existing).into_iter().zip(ask_everywhere(&client, &missing));
        for ((what, one), (_, other)) in pairs {
            assert_eq!(one.status, other.status, "{what} {existing}: {} / {}", one.body, other.body);
            let said = |answer: &Answer, name: &str| without_id(&answer.body.replace(name, "NAME"));
            assert_eq!(said(&one, &existing), said(&other, &missing), "{what}");
        }
    }
    assert!(
        folder.path().join("a.gguf").is_file() && folder.path().join("c").is_dir(),
        "nothing was deleted"
    );
}

/// A body without its request's id, which differs.
fn without_id(body: &str) -> String {
    let words = body.split(|letter: char| !letter.is_alphanumeric() && letter != '_' && letter != '-');
    let id = words.into_iter().find(|word| word.starts_with("req_")).unwrap_or("req_");
    body.replace(id, "ID")
}
