//! `ropeway config`, and where the settings of a server come from.

mod support;

use std::process::Command;

use support::{Ran, Sandbox};

/// A command that finds no settings but the test's own.
fn config(sandbox: &Sandbox, arguments: &[&str]) -> Command {
    let words: Vec<_> = ["config"].iter().chain(arguments).copied().collect();
    let mut command = sandbox.command(&words);
    command.env("XDG_CONFIG_HOME", sandbox.path("xdg")).env_remove("ROPEWAY_API_KEYS");
    for name in ["HOST", "ORIGINS", "KEEP_ALIVE", "CONTEXT_LENGTH"] {
        command.env_remove(format!("OLLAMA_{name}"));
    }
    command
}

fn run(command: &mut Command) -> Ran {
    command.output().unwrap().into()
}

/// The printed value of a setting and where it comes from.
fn setting(out: &str, name: &str) -> (String, String) {
    let line = out
        .lines()
        .find(|line| line.starts_with(&format!("{name} =")))
        .unwrap_or_else(|| panic!("{name}: {out}"));
    let (value, origin) = line.split_once("  # ").unwrap();
    (value[name.len() + 2..].trim().to_owned(), origin.to_owned())
}

#[test]
fn flags_win_over_the_environment_which_wins_over_the_file_which_wins_over_defaults() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "ropeway.toml",
        b"drain-timeout = 1\nmax_n = 1\nqueue = 1\nspeculate = 4\nlisten = [\"127.0.0.1:1\", \"127.0.0.1:2\"]\nlog-batches = true\n",
    );
    let mut command = config(&sandbox, &["--drain-timeout", "3"]);
    command.env("ROPEWAY_DRAIN_TIMEOUT", "2").env("ROPEWAY_MAX_N", "2").env("ROPEWAY_ANY_MODEL", "yes");
    let out = run(command.env("ROPEWAY_ALIAS", "a=smollm2, b*=smollm2")).ok();
    for (name, value, origin) in [
        ("drain-timeout", "3", "command line"),
        ("max-n", "2", "ROPEWAY_MAX_N"),
        ("any-model", "true", "ROPEWAY_ANY_MODEL"),
        ("alias", "[\"a=smollm2\", \"b*=smollm2\"]", "ROPEWAY_ALIAS"),
        ("queue", "1", "ropeway.toml"),
        ("listen", "[\"127.0.0.1:1\", \"127.0.0.1:2\"]", "ropeway.toml"),
        ("log-batches", "true", "ropeway.toml"),
        ("log-format", "\"text\"", "default"),
        ("speculate", "4", "ropeway.toml"),
        ("insecure", "false", "default"),
    ] {
        assert_eq!(setting(&out, name), (value.into(), origin.into()), "{name}");
    }
    assert!(out.contains("# threads ="), "{out}");
}

#[test]
fn ollamas_variables_hold_where_nothing_else_was_said() {
    let sandbox = Sandbox::new();
    let ollama = |command: &mut Command| -> Ran {
        command.env("OLLAMA_HOST", "localhost").env("OLLAMA_ORIGINS", "https://a.example,app://*");
        run(command.env("OLLAMA_KEEP_ALIVE", "-1").env("OLLAMA_CONTEXT_LENGTH", "4096"))
    };
    let out = ollama(&mut config(&sandbox, &[])).ok();
    for (name, value, origin) in [
        ("listen", "[\"127.0.0.1:11434\"]", "OLLAMA_HOST"),
        ("cors-origin", "[\"https://a.example\", \"app://*\"]", "OLLAMA_ORIGINS"),
        ("keep-alive", "\"-1\"", "OLLAMA_KEEP_ALIVE"),
        ("context", "4096", "OLLAMA_CONTEXT_LENGTH"),
    ] {
        assert_eq!(setting(&out, name), (value.into(), origin.into()), "{name}");
    }
    sandbox.write("ropeway.toml", b"keep-alive = \"1h\"\n");
    let mut command = config(&sandbox, &["--listen", "127.0.0.1:1"]);
    let out = ollama(command.env("ROPEWAY_CONTEXT", "512")).ok();
    for (name, origin) in
        [("listen", "command line"), ("context", "ROPEWAY_CONTEXT"), ("keep-alive", "ropeway.toml")]
    {
        assert_eq!(setting(&out, name).1, origin, "{name}");
    }
    let err = run(config(&sandbox, &[]).env("OLLAMA_CONTEXT_LENGTH", "long")).failed();
    assert!(err.contains("OLLAMA_CONTEXT_LENGTH: invalid value 'long'"), "{err}");
}

#[test]
fn what_is_printed_is_a_file_that_gives_the_same() {
    let sandbox = Sandbox::new();
    let out = run(&mut config(&sandbox, &["--alias", "claude-*=smollm2", "--queue-timeout", "9"])).ok();
    let own = sandbox.write("own.toml", out.as_bytes());
    let again = run(&mut config(&sandbox, &["--config", &own])).ok();
    let values = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split("  # ").next().unwrap().trim().to_owned()).collect()
    };
    assert_eq!(values(&out), values(&again));
    assert_eq!(setting(&again, "queue-timeout").1, own);
}

#[test]
fn the_users_own_file_is_found_and_one_that_was_named_must_be_there() {
    let sandbox = Sandbox::new();
    std::fs::create_dir_all(sandbox.path("xdg/ropeway")).unwrap();
    sandbox.write("xdg/ropeway/ropeway.toml", b"max-n = 7");
    let out = run(&mut config(&sandbox, &[])).ok();
    assert_eq!(setting(&out, "max-n").0, "7");
    let err = run(&mut config(&sandbox, &["--config=absent.toml"])).failed();
    assert!(err.contains("absent.toml can't be read"), "{err}");
}

#[test]
fn mistakes_are_told_with_their_place_and_what_was_meant() {
    let sandbox = Sandbox::new();
    for (text, parts) in [
        (
            "drain-timout = 3",
            &["ropeway.toml: there is no setting `drain-timout`", "did you mean `drain-timeout`?"][..],
        ),
        ("drain-timeout = \"soon\"", &["ropeway.toml: invalid value 'soon' for '--drain-timeout", "hint:"]),
        ("[serve]\nmax-n = 1", &["`serve` is neither a text, a number nor a switch"]),
        ("max-n = ", &["ropeway.toml: TOML parse error"]),
        ("config = \"x\"", &["can't stand in the file itself"]),
        ("listen = \"everywhere\"", &["invalid value 'everywhere'"]),
        ("speculate = 17", &["ropeway.toml: invalid value '17' for '--speculate", "1 to 16"]),
    ] {
        sandbox.write("ropeway.toml", text.as_bytes());
        let err = run(&mut config(&sandbox, &[])).failed();
        assert!(parts.iter().all(|part| err.contains(part)), "{text}: {err}");
    }
    sandbox.write("ropeway.toml", b"");
    let err = run(config(&sandbox, &[]).env("ROPEWAY_INSECURE", "maybe")).failed();
    assert!(err.contains("ROPEWAY_INSECURE is \"maybe\""), "{err}");
    let err = run(config(&sandbox, &[]).env("ROPEWAY_MAX_N", "many")).failed();
    assert!(err.contains("ROPEWAY_MAX_N: invalid value 'many'"), "{err}");
}

#[test]
fn a_public_address_needs_keys_or_a_word_that_it_does_not() {
    let sandbox = Sandbox::new();
    let public = ["--listen", "0.0.0.0:8000"];
    let err = run(&mut config(&sandbox, &public)).failed();
    assert!(
        err.contains("0.0.0.0:8000 can be reached by others") && err.contains("--api-keys-file FILE"),
        "{err}"
    );
    run(&mut config(&sandbox, &[&public[..], &["--insecure"]].concat())).ok();
    run(config(&sandbox, &public).env("ROPEWAY_API_KEYS", "sk-12345678;sk-23456789 name=b")).ok();
    let keys = sandbox.write("keys", b"sk-12345678 name=a\n");
    run(&mut config(&sandbox, &[&public[..], &["--api-keys-file", &keys]].concat())).ok();
    for (text, part) in [("# none\n", "there is no key"), ("sk-12345678 nme=a", "line 1: \"nme\"")] {
        let keys = sandbox.write("keys", text.as_bytes());
        let err = run(&mut config(&sandbox, &["--api-keys-file", &keys])).failed();
        assert!(err.contains(part) && !err.contains("sk-12345678"), "{err}");
    }
    let err = run(&mut config(&sandbox, &["--tls-cert", "cert.pem"])).failed();
    assert!(err.contains("needs both"), "{err}");
}
