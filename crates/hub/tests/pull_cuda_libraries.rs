//! Pulling NVIDIA's libraries out of wheels, with a stand-in for pip.

mod support;

use std::fs;

use ropeway_hub::{Cancel, CudaMajor, Hub, HubError, Outcome, SourceError};
use support::Sandbox;

/// A wheel that has what both packages bring, and more.
const MEMBERS: &[(&str, &[u8])] = &[
    ("nvidia/cu13/lib/libnvrtc.so.13", b"compiler"),
    ("nvidia/cu13/lib/libnvrtc-builtins.so.13.2", b"builtins"),
    ("nvidia/cu13/lib/libnvrtc.alt.so.13", b"another compiler"),
    ("nvidia/cu13/lib/libcublasLt.so.13", b"products"),
    ("nvidia/cu13/lib/libcublas.so.13", b"other products"),
    ("nvidia/cu13/include/nvrtc.h", b"header"),
];

fn pull(hub: &Hub) -> Result<Outcome, HubError> {
    let pulled = hub.pull_cuda_libraries(CudaMajor::Thirteen, &Cancel::default(), &mut |_| ());
    pulled.map(|(_, outcome)| outcome)
}

fn failure(sandbox: &Sandbox) -> SourceError {
    match pull(&sandbox.hub(&[])).unwrap_err() {
        HubError::AllSourcesFailed { attempts, .. } => attempts.into_iter().next().unwrap().error,
        other => panic!("not a failed pull: {other}"),
    }
}

fn names(sandbox: &Sandbox) -> Vec<String> {
    let entries = fs::read_dir(sandbox.home("cuda/libs")).unwrap().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_is_opened_is_taken_out_of_the_wheels_and_fetched_once() {
    let sandbox = Sandbox::new().with_wheel(MEMBERS);
    let hub = sandbox.hub(&[]);
    assert_eq!(pull(&hub).unwrap(), Outcome::Fetched);
    assert_eq!(names(&sandbox), ["libcublasLt.so.13", "libnvrtc-builtins.so.13.2", "libnvrtc.so.13"]);
    assert_eq!(fs::read(sandbox.home("cuda/libs/libnvrtc.so.13")).unwrap(), b"compiler");
    assert_eq!(pull(&hub).unwrap(), Outcome::AlreadyThere);
    assert_eq!(sandbox.pip_runs(), 2, "one for each package");
    sandbox.assert_no_leftovers();
}

#[test]
fn only_what_is_missing_is_fetched() {
    let sandbox = Sandbox::new().with_wheel(MEMBERS);
    let hub = sandbox.hub(&[]);
    pull(&hub).unwrap();
    fs::remove_file(sandbox.home("cuda/libs/libcublasLt.so.13")).unwrap();
    assert_eq!(pull(&hub).unwrap(), Outcome::Fetched);
    assert_eq!(sandbox.pip_runs(), 3);
}

#[test]
fn names_in_the_archive_never_become_paths() {
    let evil: &[(&str, &[u8])] =
        &[("nvidia/../../libnvrtc.so.13", b"compiler"), ("x/libnvrtc-builtins.so.\\..\\y", b"x")];
    let sandbox = Sandbox::new().with_wheel(evil);
    let error = failure(&sandbox).to_string();
    assert!(error.contains("it holds no `libnvrtc-builtins.so.*`"), "{error}");
    assert!(names(&sandbox).is_empty());
    sandbox.assert_no_leftovers();
}

#[test]
fn what_keeps_pip_from_it_is_told_with_a_way_out() {
    let no_python = failure(&Sandbox::new());
    assert!(no_python.hint().contains("ROPEWAY_PYTHON"), "{no_python}");
    let no_pip = failure(&Sandbox::new().with_failing_pip("/usr/bin/python3: No module named pip"));
    assert!(matches!(no_pip, SourceError::NoPip { .. }), "{no_pip}");
    let no_network = failure(&Sandbox::new().with_failing_pip("WARNING: Retrying after NewConnectionError"));
    assert!(matches!(no_network, SourceError::Network { .. }), "{no_network}");
    let full = failure(&Sandbox::new().with_failing_pip("OSError: [Errno 28] No space left on device"));
    assert!(matches!(full, SourceError::DiskFull { .. }), "{full}");
    let offline = failure(&Sandbox::new().with_wheel(MEMBERS).offline());
    assert!(matches!(offline, SourceError::Offline), "{offline}");
}

#[test]
fn a_driver_gets_the_newest_libraries_that_it_knows() {
    assert_eq!(CudaMajor::known_to(14), Some(CudaMajor::Thirteen));
    assert_eq!(CudaMajor::known_to(13), Some(CudaMajor::Thirteen));
    assert_eq!(CudaMajor::known_to(12), Some(CudaMajor::Twelve));
    assert_eq!(CudaMajor::known_to(11), None);
}
