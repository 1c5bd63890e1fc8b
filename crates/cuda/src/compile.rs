//! Kernel sources to machine code of this GPU: NVRTC, and a folder that remembers what it made.
//!
//! The cache's key is a digest of everything that decides the result: source, options and NVRTC's version. A file is written beside its
//! place and renamed, so that a half-written one is never read.

#![allow(unsafe_code, reason = "NVRTC is a C library")]

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use sha2::{Digest, Sha256};

use crate::driver::functions;
use crate::libraries::{LibraryError, Opened};

functions! {
    /// What is used of NVRTC.
    Api {
        version = "nvrtcVersion"(*mut c_int, *mut c_int);
        create = "nvrtcCreateProgram"(*mut *mut c_void, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char);
        destroy = "nvrtcDestroyProgram"(*mut *mut c_void);
        compile = "nvrtcCompileProgram"(*mut c_void, c_int, *const *const c_char);
        log_size = "nvrtcGetProgramLogSize"(*mut c_void, *mut usize);
        log = "nvrtcGetProgramLog"(*mut c_void, *mut c_char);
        image_size = "nvrtcGetCUBINSize"(*mut c_void, *mut usize);
        image = "nvrtcGetCUBIN"(*mut c_void, *mut c_char);
    }
}

/// A source that does not compile: a bug of ours, or a compiler we don't know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "NVRTC {version} could not compile the kernels `{name}` for {architecture}; please report this:\n{log}"
)]
pub struct CompileError {
    name: &'static str,
    architecture: String,
    version: String,
    log: String,
}

/// What is compiled together.
#[derive(Clone, Debug)]
pub struct KernelSource {
    /// For messages.
    pub name: &'static str,
    /// All of its text.
    pub text: String,
    /// Constants, as `NAME=value`.
    pub defines: Vec<String>,
}

/// Machine code and what the compiler said about it.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// For the driver.
    pub image: Vec<u8>,
    /// Registers and spills of every kernel; empty where the code came from the cache.
    pub log: String,
}

/// NVRTC for one architecture.
pub struct Compiler {
    api: Api,
    version: String,
    architecture: String,
    cache: Option<PathBuf>,
}

impl Compiler {
    /// A compiler for GPUs of this capability; `cache` is the folder that remembers.
    pub fn new(library: Opened, capability: u32, cache: Option<PathBuf>) -> Result<Self, LibraryError> {
        let api = Api::load(library)?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both pointers are to locals.
        unsafe { (api.version)(&raw mut major, &raw mut minor) };
        let architecture = architecture(capability);
        Ok(Self { api, version: format!("{major}.{minor}"), architecture, cache })
    }

    /// The cached code of a source, or freshly compiled code.
    pub fn compiled(&self, source: &KernelSource) -> Result<Compiled, CompileError> {
        let place = self.cache.as_ref().map(|folder| folder.join(self.key(source)));
        if let Some(image) = place.as_ref().and_then(|place| std::fs::read(place).ok()) {
            return Ok(Compiled { image, log: String::new() });
        }
        let compiled = self.compile(source)?;
        if let Some(place) = place {
            // A cache that can't be written costs time at the next start, nothing else.
            let _ = write_atomically(&place, &compiled.image);
        }
        Ok(compiled)
    }

    fn options(&self, source: &KernelSource) -> Vec<String> {
        let mut options = vec![
            format!("--gpu-architecture={}", self.architecture),
            "-std=c++17".to_owned(),
            "--ptxas-options=-v".to_owned(),
        ];
        options.extend(source.defines.iter().map(|define| format!("-D{define}")));
        options
    }

    fn key(&self, source: &KernelSource) -> String {
        let mut digest = Sha256::new_with_prefix(&self.version);
        for part in self.options(source).iter().chain([&source.text]) {
            digest.update(part.len().to_le_bytes());
            digest.update(part);
        }
        let number =
            digest.finalize()[..16].iter().fold(0u128, |number, byte| number << 8 | u128::from(*byte));
        format!("{number:032x}.cubin")
    }

    fn compile(&self, source: &KernelSource) -> Result<Compiled, CompileError> {
        let options: Vec<CString> =
            self.options(source).into_iter().filter_map(|option| CString::new(option).ok()).collect();
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let text = CString::new(source.text.as_str()).unwrap_or_default();
        let mut program = std::ptr::null_mut();
        let none = std::ptr::null();
        // SAFETY: all strings end with a zero and outlive the calls; buffers have the size that NVRTC asked for; the program is
        // destroyed once, at the end.
        unsafe {
            (self.api.create)(&raw mut program, text.as_ptr(), none, 0, std::ptr::null(), std::ptr::null());
            let status = (self.api.compile)(program, options.len() as c_int, options.as_ptr());
            let log = read(|bytes| (self.api.log_size)(program, bytes), |to| (self.api.log)(program, to));
            let log = String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned();
            let image =
                read(|bytes| (self.api.image_size)(program, bytes), |to| (self.api.image)(program, to));
            (self.api.destroy)(&raw mut program);
            if status == 0 { Ok(Compiled { image, log }) } else { Err(self.error(source, log)) }
        }
    }

    fn error(&self, source: &KernelSource, log: String) -> CompileError {
        CompileError {
            name: source.name,
            architecture: self.architecture.clone(),
            version: self.version.clone(),
            log,
        }
    }
}

/// Two calls: one that tells a size, one that fills that many bytes.
fn read(size: impl FnOnce(*mut usize) -> c_int, fill: impl FnOnce(*mut c_char) -> c_int) -> Vec<u8> {
    let mut bytes = 0;
    if size(&raw mut bytes) != 0 {
        return Vec::new();
    }
    let mut out = vec![0u8; bytes];
    fill(out.as_mut_ptr().cast());
    out
}

pub(crate) fn write_atomically(place: &Path, image: &[u8]) -> std::io::Result<()> {
    // Several models of a process may keep the same at the same time.
    static KEPT: AtomicUsize = AtomicUsize::new(0);
    let folder = place.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let number = KEPT.fetch_add(1, Ordering::Relaxed);
    let beside = place.with_extension(format!("{}-{number}.part", std::process::id()));
    std::fs::write(&beside, image)?;
    std::fs::rename(&beside, place)
}

/// The target's name; from 9.0 on with the instructions that only that very generation has.
fn architecture(capability: u32) -> String {
    let suffix = if capability >= 90 { "a" } else { "" };
    format!("sm_{capability}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_from_hopper_on_are_compiled_for_themselves() {
        assert_eq!(architecture(80), "sm_80");
        assert_eq!(architecture(90), "sm_90a");
        assert_eq!(architecture(100), "sm_100a");
    }
}
