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
    let folder = folder()?;
    Some(CudaOptions {
        search: Search::only(folder),
        step_tokens: 64,
        step_rows: 64,
        kv_tokens: Some(256),
        // Shared by the tests of a run: kernels are compiled once.
        cache: Some(folder.join("kernels")),
        ..CudaOptions::default()
    })
}

/// Where the emulator's libraries are, for programs that are run with `ROPEWAY_CUDA_LIBS`.
pub fn folder() -> Option<&'static Path> {
    static EMULATOR: OnceLock<Result<Emulator, String>> = OnceLock::new();
    match EMULATOR.get_or_init(build) {
        Ok(emulator) => Some(emulator.folder.path()),
        Err(problem) => {
            println!("skipped: {problem}");
            None
        }
    }
}

/// The file that makes the device lost when it is next waited for; `always` in it makes every later one lost, too.
pub fn loss() -> PathBuf {
    std::env::var_os("ROPEWAY_EMULATED_LOSS").expect("an emulator was built").into()
}

/// The file that says how many bytes of memory the device has.
pub fn memory() -> PathBuf {
    std::env::var_os("ROPEWAY_EMULATED_MEMORY").expect("an emulator was built").into()
}

fn build() -> Result<Emulator, String> {
    if !cfg!(target_arch = "x86_64") {
        return Err("the emulator switches stacks on x86-64 only".into());
    }
    // Other crates' tests use it too.
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cuda/tests/emulator");
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    compile(&sources.join("driver.cpp"), &folder.path().join("libcuda.so.1"))?;
    compile(&sources.join("compiler.cpp"), &folder.path().join("libnvrtc.so.13"))?;
    // SAFETY: set once, before the emulator that reads it is opened; nothing else in these tests reads the environment.
    unsafe {
        std::env::set_var("ROPEWAY_EMULATOR", &sources);
        std::env::set_var("ROPEWAY_EMULATED_LOSS", folder.path().join("loss"));
        std::env::set_var("ROPEWAY_EMULATED_MEMORY", folder.path().join("memory"));
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
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
