//! What operators write about upstreams, and what they are told about mistakes.

use super::support::Sandbox;

fn mistake(arguments: &[&str], file: &str) -> String {
    let sandbox = Sandbox::new();
    sandbox.write("ropeway.toml", file.as_bytes());
    let ran = sandbox.run(&[&["serve", "--listen", "127.0.0.1:0"], arguments].concat());
    assert_ne!(ran.code, Some(0), "{}", ran.err);
    ran.err
}

#[test]
fn mistakes_are_told_with_what_to_do() {
    let cases = [
        (mistake(&["--upstream", "gpu1"], ""), "http"),
        (mistake(&["--upstream", "http://user:secret@gpu1:8000"], ""), "key-file"),
        (
            mistake(&["--upstream", "a=http://x:1", "--upstream", "a=http://y:1"], ""),
            "two upstreams are called a",
        ),
        (mistake(&[], "[[upstream]]\nurl = \"http://x:1\"\nkey = \"abc\""), "key-file"),
        (mistake(&[], "[[upstream]]\nurl = \"http://x:1\"\nkindd = \"vllm\""), "kindd"),
        (mistake(&[], "[[upstream]]\nurl = \"http://x:1\"\nkey-file = \"no-such-file\""), "no-such-file"),
    ];
    for (told, expected) in cases {
        assert!(told.contains(expected), "{expected:?} is not in: {told}");
        assert!(!told.contains("secret@"), "{told}");
    }
}

#[test]
fn a_missing_vllm_is_told_with_how_to_get_it() {
    let sandbox = Sandbox::new();
    let ran = sandbox.command(&["serve", "--vllm", "m"]).env("PATH", "/nonexistent").output().unwrap();
    let told = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(!ran.status.success() && told.contains("pip install vllm"), "{told}");
}

#[test]
fn without_upstreams_a_server_has_none_to_list() {
    let ran = Sandbox::new().run(&["upstreams", "--server", "http://127.0.0.1:9"]);
    assert!(ran.failed().contains("can't be reached"));
}
