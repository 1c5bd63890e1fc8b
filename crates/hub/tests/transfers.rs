//! Large files in pieces, from a content network on another port, with everything that goes wrong on the way.

mod support;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use proptest::prelude::*;
use ropeway_hub::checksum::Sha256;
use ropeway_hub::{Hub, Progress, SourceError};
use support::fake_hub::{COMMIT, FakeHub};
use support::{IMPATIENT, REPO, Sandbox, failure, pull, weights};

/// Ten pieces of the file that tests fetch.
const PIECE: u64 = 10_000;

fn hub_for(server: &FakeHub) -> (Sandbox, Hub) {
    let sandbox = Sandbox::new().with_hugging_face(&server.url).with_pieces(PIECE);
    let hub = sandbox.hub(&[]);
    (sandbox, hub)
}

/// Where the bytes of a file go.
fn blob(sandbox: &Sandbox, bytes: &[u8]) -> PathBuf {
    sandbox.config.hugging_face.cache.join("models--org--tiny/blobs").join(Sha256::of(bytes).to_string())
}

fn pulled_bytes(hub: &Hub) -> Vec<u8> {
    fs::read(pull(hub, REPO).unwrap().files.checkpoint()).unwrap()
}

#[test]
fn a_large_file_comes_in_pieces_from_the_content_network_which_never_sees_the_token() {
    let weights = weights();
    let server = FakeHub::with_cdn(&[("m.gguf", &weights)]);
    server.behaviour().wants = Some("Bearer hf_secret".into());
    let sandbox = Sandbox::new().with_hugging_face(&server.url).with_pieces(PIECE).with_token("hf_secret");
    let mut last = (0, 0);
    let mut report = |progress: Progress<'_>| {
        if let Progress::Bytes { done, total, .. } = progress {
            last = (done, total);
        }
    };
    let files = sandbox.hub(&[]).pull(REPO, &mut report).unwrap().files;
    assert_eq!(fs::read(files.checkpoint()).unwrap(), weights);
    assert_eq!(last, (100_000, 100_000));
    let mut ranges = server.transfers();
    ranges.sort();
    assert_eq!(ranges.len(), 10);
    assert_eq!((ranges[0].as_str(), ranges[9].as_str()), ("bytes=0-9999", "bytes=90000-"));
    let seen = server.behaviour().seen.clone();
    assert!(seen.iter().any(|request| request.to_cdn));
    for request in seen {
        assert_eq!(request.authorization.is_some(), !request.to_cdn, "{request:?}");
    }
    let left: Vec<_> = fs::read_dir(blob(&sandbox, &weights).parent().unwrap()).unwrap().flatten().collect();
    assert!(left.iter().all(|entry| !entry.path().to_string_lossy().contains(".pie")), "{left:?}");
}

#[test]
fn pieces_that_were_here_before_a_failure_are_not_fetched_again() {
    let weights = weights();
    let server = FakeHub::with_cdn(&[("m.gguf", &weights)]);
    let (sandbox, hub) = hub_for(&server);
    // Every transfer of the first pull breaks after 1,000 of its 10,000 bytes, until nobody tries any more.
    (server.behaviour().cuts, server.behaviour().cut_after) = (1000, 1_000);
    let error = failure(pull(&hub, REPO).unwrap_err());
    assert!(matches!(error, SourceError::Network { .. }), "{error}");
    let noted: serde_json::Value =
        serde_json::from_slice(&fs::read(blob(&sandbox, &weights).with_extension("pieces")).unwrap())
            .unwrap();
    let done: u64 = noted["done"].as_array().unwrap().iter().map(|done| done.as_u64().unwrap()).sum();
    assert!(done > 0, "{noted}");

    server.behaviour().cuts = 0;
    let before = server.transfers().len();
    assert_eq!(pulled_bytes(&hub), weights);
    let asked: u64 = server.transfers()[before..].iter().map(|range| length(range)).sum();
    assert_eq!(asked, 100_000 - done);
}

/// How many bytes of the file a range asks for.
fn length(range: &str) -> u64 {
    let (start, end) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
    let start: u64 = start.parse().unwrap();
    end.parse().map_or(100_000, |end: u64| end + 1) - start
}

#[test]
fn a_file_that_was_whole_when_the_program_ended_is_still_ours() {
    for is_linked in [false, true] {
        let server = FakeHub::with_cdn(&[("m.gguf", b"weights")]);
        let (sandbox, hub) = hub_for(&server);
        let blob = blob(&sandbox, b"weights");
        let snapshot = blob.with_file_name("../snapshots").join(COMMIT);
        for folder in [blob.parent().unwrap(), &snapshot] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(&blob, "weights").unwrap();
        fs::write(blob.with_extension("pieces"), r#"{"size":7,"piece":7,"done":[7]}"#).unwrap();
        if is_linked {
            std::os::unix::fs::symlink(&blob, snapshot.join("m.gguf")).unwrap();
        }
        assert_eq!(pulled_bytes(&hub), b"weights");
        assert!(server.transfers().is_empty() && !blob.with_extension("pieces").exists());
        assert_eq!(hub.remove(REPO).unwrap().freed, 7);
    }
}

#[test]
fn a_note_that_lies_costs_one_failed_pull_and_never_wrong_bytes() {
    let weights = weights();
    let server = FakeHub::with_cdn(&[("m.gguf", &weights)]);
    let (sandbox, hub) = hub_for(&server);
    let blob = blob(&sandbox, &weights);
    fs::create_dir_all(blob.parent().unwrap()).unwrap();
    fs::write(blob.with_extension("part"), vec![0; 100_000]).unwrap();
    let note = serde_json::json!({ "size": 100_000, "piece": PIECE, "done": vec![PIECE; 10] });
    fs::write(blob.with_extension("pieces"), note.to_string()).unwrap();
    let error = failure(pull(&hub, REPO).unwrap_err());
    assert!(matches!(error, SourceError::WrongChecksum { .. }), "{error}");
    assert_eq!(pulled_bytes(&hub), weights);
}

#[test]
fn a_server_that_ignores_ranges_sends_the_file_in_one_piece() {
    let weights = weights();
    for start in [FakeHub::start, FakeHub::with_cdn] {
        let server = start(&[("m.gguf", &weights)]);
        server.behaviour().ignores_ranges = true;
        let (_sandbox, hub) = hub_for(&server);
        assert_eq!(pulled_bytes(&hub), weights);
    }
}

#[test]
fn a_server_that_refuses_ranges_is_asked_for_the_whole_file() {
    let weights = weights();
    let server = FakeHub::with_cdn(&[("m.gguf", &weights)]);
    server.behaviour().refused_ranges = 1000;
    let (_sandbox, hub) = hub_for(&server);
    assert_eq!(pulled_bytes(&hub), weights);
    assert_eq!(server.transfers().last().unwrap(), "bytes=0-");
}

#[test]
fn bytes_that_were_not_asked_for_are_refused() {
    let weights = weights();
    let server = FakeHub::with_cdn(&[("m.gguf", &weights)]);
    server.behaviour().shifted_by = 7;
    let (_sandbox, hub) = hub_for(&server);
    let error = failure(pull(&hub, REPO).unwrap_err());
    assert!(matches!(error, SourceError::BadAnswer { .. }), "{error}");
}

#[test]
fn busy_servers_are_asked_again_and_those_that_want_rest_for_hours_are_not() {
    let weights = weights();
    let server = FakeHub::with_cdn(&[("m.gguf", &weights)]);
    let (_sandbox, hub) = hub_for(&server);
    server.behaviour().busy = vec![(503, None), (429, Some(0)), (500, None)];
    assert_eq!(pulled_bytes(&hub), weights);

    let other = FakeHub::start(&[("m.gguf", b"weights")]);
    other.behaviour().busy = vec![(429, Some(7200))];
    let (_sandbox, hub) = hub_for(&other);
    let error = failure(pull(&hub, REPO).unwrap_err());
    let wait = Some(Duration::from_secs(7200));
    assert!(
        matches!(error, SourceError::Busy { status: 429, retry_after } if retry_after == wait),
        "{error}"
    );
    assert!(error.to_string().contains("7200 seconds"), "{error}");
}

#[test]
fn connections_that_fall_silent_in_the_middle_are_replaced() {
    let weights = weights();
    let server = FakeHub::with_cdn(&[("m.gguf", &weights)]);
    (server.behaviour().stalls, server.behaviour().cut_after) = (5, 6_000);
    let sandbox = Sandbox::new().with_hugging_face(&server.url).with_pieces(PIECE).with_patience(IMPATIENT);
    assert_eq!(pulled_bytes(&sandbox.hub(&[])), weights);
}

#[test]
fn a_download_larger_than_the_disk_is_refused_before_a_byte_of_it_is_fetched() {
    let server = FakeHub::with_cdn(&[("m.gguf", b"weights")]);
    server.behaviour().size = Some(1 << 60);
    let (sandbox, hub) = hub_for(&server);
    let error = failure(pull(&hub, REPO).unwrap_err());
    assert!(matches!(error, SourceError::NoSpace { needed, .. } if needed == 1 << 60), "{error}");
    let text = error.to_string();
    assert!(text.starts_with("it needs 1152921504.6 GB and ") && text.contains(" are free in "), "{text}");
    assert!(server.transfers().is_empty() && !blob(&sandbox, b"weights").with_extension("part").exists());
}

proptest! {
    // Every case waits for the pauses between attempts.
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_network_does_a_pull_brings_the_file_or_fails_and_the_next_one_brings_it(
        size in 1_usize..200_000,
        piece in 1_000_u64..300_000,
        connections in 1_usize..9,
        cuts in 0_usize..12,
        cut_after in 0_usize..60_000,
        busy in prop::collection::vec((prop::sample::select(vec![429_u16, 500, 503]), Just(None)), 0..3),
        ignores_ranges in any::<bool>(),
    ) {
        let bytes: Vec<u8> = (0..size).map(|i| (i * 31 % 251) as u8).collect();
        let server = FakeHub::with_cdn(&[("m.gguf", &bytes)]);
        {
            let mut behaviour = server.behaviour();
            (behaviour.cuts, behaviour.cut_after, behaviour.busy) = (cuts, cut_after, busy);
            behaviour.ignores_ranges = ignores_ranges;
        }
        let mut sandbox = Sandbox::new().with_hugging_face(&server.url).with_pieces(piece);
        sandbox.config.transfers.connections = connections;
        let hub = sandbox.hub(&[]);
        let first = pull(&hub, REPO);
        if let Ok(pulled) = &first {
            prop_assert_eq!(&fs::read(pulled.files.checkpoint()).unwrap(), &bytes);
        } else {
            (server.behaviour().cuts, server.behaviour().ignores_ranges) = (0, false);
            prop_assert_eq!(&pulled_bytes(&hub), &bytes);
        }
    }
}
