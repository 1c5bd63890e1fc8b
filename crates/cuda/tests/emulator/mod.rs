//! A GPU made of the C++ compiler: `libcuda` and NVRTC as far as this crate uses them, built once per test run.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(unsafe_code, reason = "the emulator's compiler finds its header by an environment variable")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use ropeway_cuda::CudaOptions;
use ropeway_cuda::libraries::Search;

struct Emulator {
    folder: tempfile::TempDir,
}

/// Options that run a model on the emulator; `None`, with a printed reason, where there is none.
pub fn options() -> Option<CudaOptions> {
    static EMULATOR: OnceLock<Result<Emulator, String>> = OnceLock::new();
    match EMULATOR.get_or_init(build) {
        Ok(emulator) => Some(CudaOptions {
            search: Search::only(emulator.folder.path()),
            step_tokens: 64,
            step_rows: 64,
            kv_tokens: Some(256),
            // Shared by the tests of a run: kernels are compiled once.
            cache: Some(emulator.folder.path().join("kernels")),
            ..CudaOptions::default()
        }),
        Err(problem) => {
            println!("skipped: {problem}");
            None
        }
    }
}

/// The file whose existence means that the device is lost.
pub fn loss() -> PathBuf {
    std::env::var_os("ROPEWAY_EMULATED_LOSS").expect("an emulator was built").into()
}

fn build() -> Result<Emulator, String> {
    if !cfg!(target_arch = "x86_64") {
        return Err("the emulator switches stacks on x86-64 only".into());
    }
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/emulator");
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    compile(&sources.join("driver.cpp"), &folder.path().join("libcuda.so.1"))?;
    compile(&sources.join("compiler.cpp"), &folder.path().join("libnvrtc.so.13"))?;
    // SAFETY: set once, before the emulator that reads it is opened; nothing else in these tests reads the environment.
    unsafe {
        std::env::set_var("ROPEWAY_EMULATOR", &sources);
        std::env::set_var("ROPEWAY_EMULATED_LOSS", folder.path().join("loss"));
    }
    Ok(Emulator { folder })
}

fn compile(source: &Path, library: &Path) -> Result<(), String> {
    let output = Command::new("c++")
        .args(["-std=c++17", "-O1", "-shared", "-fPIC", "-o"])
        .args([library, source])
        .arg("-ldl")
        .output()
        .map_err(|error| format!("no C++ compiler: {error}"))?;
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(log) }
}
