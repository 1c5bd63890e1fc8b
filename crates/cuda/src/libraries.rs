//! NVIDIA's libraries, found and opened at run time: the driver (`libcuda`), the compiler (NVRTC) and matrix products (cuBLASLt).
//!
//! ```text
//! where       ROPEWAY_CUDA_LIBS and LD_LIBRARY_PATH (folders, separated by ':'), what `ropeway pull cuda` fetched, the toolkit's usual
//!             folders, `nvidia/*/lib` of python3's packages; the driver also where the loader finds it
//! versions    NVRTC and cuBLASLt of a major version that the driver knows: the newest of those found
//! ```
//! A program that never asks for a GPU never opens any of them. What is missing is named with how to get it.

#![allow(unsafe_code, reason = "opening a library runs its initialisers")]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};

/// Folders to search first, separated by `:`.
pub const FOLDERS_VARIABLE: &str = "ROPEWAY_CUDA_LIBS";

/// Where drivers and toolkits are installed on the usual systems.
const USUAL_FOLDERS: [&str; 7] = [
    "/usr/local/cuda/lib64",
    "/usr/local/cuda/targets/x86_64-linux/lib",
    "/usr/local/nvidia/lib64",
    "/opt/cuda/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/wsl/lib",
];

/// A library that is not there, or not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LibraryError {
    /// No driver: most likely no NVIDIA GPU.
    #[error(
        "no NVIDIA driver was found ({0}); install the driver of your GPU, or run on the CPU with `--device cpu`"
    )]
    NoDriver(String),
    /// A library that a package brings.
    #[error(
        "{name} was not found; fetch it with `ropeway pull cuda`, install it with `pip install {package}`, or name its folder in \
         ROPEWAY_CUDA_LIBS"
    )]
    Missing {
        /// What it is called.
        name: &'static str,
        /// The package that brings it.
        package: String,
    },
    /// A library without a function that it should have.
    #[error(
        "{library} has no function `{symbol}`; it is older than CUDA 12.4 (driver 550), or damaged: update it"
    )]
    Symbol {
        /// What was opened.
        library: String,
        /// What it lacks.
        symbol: String,
    },
}

/// Where libraries are looked for.
#[derive(Clone, Debug, Default)]
pub struct Search {
    first: Vec<PathBuf>,
    /// Whether only `first` is searched: not the loader's path, the usual folders or Python's packages.
    only_first: bool,
}

impl Search {
    /// As the environment says.
    pub fn from_environment() -> Self {
        let variables =
            [FOLDERS_VARIABLE, "LD_LIBRARY_PATH"].map(|name| std::env::var_os(name).unwrap_or_default());
        let folders = variables.iter().flat_map(std::env::split_paths).filter(|folder| folder.is_absolute());
        Self { first: folders.collect(), only_first: false }
    }

    /// The same, and in this folder before the usual ones.
    pub fn with_folder(mut self, folder: PathBuf) -> Self {
        self.first.push(folder);
        self
    }

    /// In one folder and nowhere else: for tests.
    pub fn only(folder: &Path) -> Self {
        Self { first: vec![folder.to_owned()], only_first: true }
    }

    /// Opens the driver.
    pub fn driver(&self) -> Result<Opened, LibraryError> {
        let name = "libcuda.so.1";
        let candidates = self.folders().into_iter().map(|folder| folder.join(name));
        let by_name = (!self.only_first).then(|| PathBuf::from(name));
        let mut problem = format!("{name} is in none of the usual folders");
        for path in by_name.into_iter().chain(candidates) {
            match open(&path, RTLD_LOCAL) {
                Ok(opened) => return Ok(opened),
                Err(error) if path.exists() => problem = error,
                Err(_) => {}
            }
        }
        Err(LibraryError::NoDriver(problem))
    }

    /// Opens the compiler; `major` is the newest CUDA version that the driver knows.
    pub fn compiler(&self, major: i32) -> Result<Opened, LibraryError> {
        let missing = || LibraryError::Missing {
            name: "NVRTC (libnvrtc)",
            package: package("nvidia-cuda-nvrtc", major),
        };
        let path = self.newest("libnvrtc.so", major).ok_or_else(missing)?;
        if let Some(builtins) = builtins_beside(&path) {
            // NVRTC opens it by its plain name; opened before by its full path, it is found.
            std::mem::forget(open(&builtins, RTLD_GLOBAL));
        }
        open(&path, RTLD_LOCAL).map_err(|_| missing())
    }

    /// Opens the library of matrix products.
    pub fn products(&self, major: i32) -> Result<Opened, LibraryError> {
        let missing = || LibraryError::Missing {
            name: "cuBLASLt (libcublasLt)",
            package: package("nvidia-cublas", major),
        };
        let path = self.newest("libcublasLt.so", major).ok_or_else(missing)?;
        open(&path, RTLD_LOCAL).map_err(|_| missing())
    }

    /// The newest `<stem>.<version>` whose major version is 12 up to `major`.
    fn newest(&self, stem: &str, major: i32) -> Option<PathBuf> {
        let names: Vec<String> = (12..=major).rev().map(|major| format!("{stem}.{major}")).collect();
        let find = |folders: Vec<PathBuf>| {
            names.iter().find_map(|name| {
                let path = folders.iter().map(|folder| folder.join(name)).find(|path| path.exists())?;
                Some(path)
            })
        };
        find(self.folders()).or_else(|| {
            let ask_python = !self.only_first;
            ask_python.then(python_folders).and_then(find)
        })
    }

    fn folders(&self) -> Vec<PathBuf> {
        let mut folders = self.first.clone();
        if !self.only_first {
            folders.extend(USUAL_FOLDERS.iter().map(PathBuf::from));
        }
        folders
    }
}

/// An open library and where it came from.
#[derive(Debug)]
pub struct Opened {
    library: Library,
    path: PathBuf,
}

impl Opened {
    /// Where it came from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A function of it.
    ///
    /// # Safety
    /// - `F` is the type of a function pointer, with the signature that the library documents for `symbol`.
    /// - The function is not called once `self` is gone.
    pub(crate) unsafe fn function<F: Copy>(&self, symbol: &str) -> Result<F, LibraryError> {
        debug_assert_eq!(size_of::<F>(), size_of::<*const ()>());
        // SAFETY: the caller vouches for the signature and the lifetime.
        let found = unsafe { self.library.get::<F>(symbol.as_bytes()) };
        found.map(|function| *function).map_err(|_| LibraryError::Symbol {
            library: self.path.display().to_string(),
            symbol: symbol.to_owned(),
        })
    }
}

fn open(path: &Path, flags: i32) -> Result<Opened, String> {
    // SAFETY: NVIDIA's libraries may be opened at any time; their initialisers only set up their own state.
    let library = unsafe { Library::open(Some(path.as_os_str()), RTLD_NOW | flags) };
    library.map(|library| Opened { library, path: path.to_owned() }).map_err(|error| error.to_string())
}

fn package(stem: &str, major: i32) -> String {
    if major >= 13 { stem.to_owned() } else { format!("{stem}-cu{major}") }
}

fn builtins_beside(compiler: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(compiler.parent()?).ok()?;
    // Several versions may lie side by side: `libnvrtc.so.13` goes with `libnvrtc-builtins.so.13.x`.
    let major = compiler.file_name()?.to_string_lossy().split(".so.").nth(1)?.split('.').next()?.to_owned();
    let start = format!("libnvrtc-builtins.so.{major}");
    let is_builtins = |name: &OsStr| name.to_string_lossy().starts_with(&start);
    entries.flatten().map(|entry| entry.path()).find(|path| path.file_name().is_some_and(is_builtins))
}

/// `nvidia/*/lib` in the packages of `python3`.
fn python_folders() -> Vec<PathBuf> {
    let script = "import sys; print('\\n'.join(sys.path))";
    let Ok(output) = Command::new("python3").args(["-c", script]).output() else { return Vec::new() };
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let packages = listed.lines().filter(|line| !line.is_empty()).map(|line| Path::new(line).join("nvidia"));
    let entries = packages.filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    entries.map(|entry| entry.path().join("lib")).filter(|folder| folder.is_dir()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_the_package_that_brings_it() {
        let nowhere = Search::only(Path::new("/nonexistent"));
        let compiler = nowhere.compiler(13).expect_err("nothing is there").to_string();
        assert!(compiler.contains("pip install nvidia-cuda-nvrtc`"), "{compiler}");
        assert!(compiler.contains("`ropeway pull cuda`"), "{compiler}");
        let products = nowhere.products(12).expect_err("nothing is there").to_string();
        assert!(products.contains("pip install nvidia-cublas-cu12"), "{products}");
        let driver = nowhere.driver().expect_err("nothing is there").to_string();
        assert!(driver.contains("--device cpu"), "{driver}");
    }

    #[test]
    fn a_library_newer_than_the_driver_is_not_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        for version in ["12", "13", "14"] {
            std::fs::write(folder.path().join(format!("libnvrtc.so.{version}")), b"").expect("a file");
        }
        let search = Search::only(folder.path());
        let chosen = |major| search.newest("libnvrtc.so", major).expect("one of them");
        assert!(chosen(12).ends_with("libnvrtc.so.12"));
        assert!(chosen(13).ends_with("libnvrtc.so.13"));
        assert_eq!(search.newest("libnvrtc.so", 11), None);
    }
}
