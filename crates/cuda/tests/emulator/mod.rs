//! A GPU made of the C++ compiler: `libcuda` and NVRTC as far as this crate uses them, built once per test run.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(unsafe_code, reason = "the emulator's compiler finds its header by an environment variable")]

pub mod bench;

use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use ropeway_cuda::CudaOptions;
use ropeway_cuda::libraries::Search;

/// What there is of it on disk.
struct Emulator {
    /// The libraries, and kernels that were compiled by them: shared by all test programs of a build.
    folder: PathBuf,
}

/// Options that run a model on the emulator; `None`, with a printed reason, where there is none.
pub fn options() -> Option<CudaOptions> {
    let folder = folder()?;
    Some(CudaOptions {
        search: Search::only(folder),
        step_tokens: 64,
        step_rows: 64,
        kv_tokens: Some(256),
        cache: Some(folder.join("kernels")),
        ..CudaOptions::default()
    })
}

/// Where the emulator's libraries are, for programs that are run with `ROPEWAY_CUDA_LIBS`.
pub fn folder() -> Option<&'static Path> {
    static EMULATOR: OnceLock<Result<Emulator, String>> = OnceLock::new();
    match EMULATOR.get_or_init(build) {
        Ok(emulator) => Some(&emulator.folder),
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

/// The file that says which capability and how many bytes of shared memory the device has.
pub fn card() -> PathBuf {
    std::env::var_os("ROPEWAY_EMULATED_CARD").expect("an emulator was built").into()
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
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("emulator-{:016x}", digest(&sources)?));
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let process = std::process::id();
    for (source, library) in [("driver.cpp", "libcuda.so.1"), ("compiler.cpp", "libnvrtc.so.13")] {
        if !folder.join(library).exists() {
            // Never half there, whoever else builds it.
            let own = folder.join(format!("{library}.{process}"));
            compile(&sources.join(source), &own)?;
            std::fs::rename(&own, folder.join(library)).map_err(|error| error.to_string())?;
        }
    }
    // SAFETY: set once, before the emulator that reads it is opened; nothing else in these tests reads the environment.
    unsafe {
        std::env::set_var("ROPEWAY_EMULATOR", &sources);
        std::env::set_var("ROPEWAY_EMULATED_LOSS", folder.join(format!("loss.{process}")));
        std::env::set_var("ROPEWAY_EMULATED_CARD", folder.join(format!("card.{process}")));
        std::env::set_var("ROPEWAY_EMULATED_MEMORY", folder.join(format!("memory.{process}")));
    }
    Ok(Emulator { folder })
}

/// Of everything that the libraries and compiled kernels depend on, besides the kernels' own sources.
fn digest(sources: &Path) -> Result<u64, String> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(sources)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
        .map_err(|error| error.to_string())?;
    files.sort();
    let mut hasher = std::hash::DefaultHasher::new();
    // Flags that kernels are compiled with, besides the usual ones.
    std::env::var_os("ROPEWAY_EMULATOR_FLAGS").hash(&mut hasher);
    for file in files {
        std::fs::read(&file).map_err(|error| error.to_string())?.hash(&mut hasher);
    }
    Ok(hasher.finish())
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
