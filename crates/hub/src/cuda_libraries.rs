//! NVIDIA's libraries, which a GPU needs beside its driver: fetched as wheels by the machine's own pip, which compares them with the
//! checksums of its index.
//!
//! ```text
//! cuda/libs/libnvrtc.so.13 ...        what is there is not fetched again
//! staging/cuda/scratch/<package>/     the wheel; its libraries are moved to cuda/libs once they are unpacked
//! ```
//! Nothing else of a wheel is looked at, and nothing of it is run.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cancel::Cancel;
use crate::error::{Attempt, HubError, SourceError};
use crate::lock::Lock;
use crate::progress::{Progress, Report};
use crate::pull::Outcome;
use crate::source::{Surroundings, pip, wheel::Wheel};
use crate::staging::{Staging, sync_folder};
use crate::{Config, Hub};

/// What it is called in errors, and the name of its lock and staging folder. No model has this name.
const NAME: &str = "cuda";

/// A major version of CUDA whose libraries can be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CudaMajor {
    /// For drivers from 550 on.
    Twelve,
    /// For drivers from 580 on.
    Thirteen,
}

impl CudaMajor {
    /// The newest whose libraries run with a driver that knows CUDA up to this major version.
    pub fn known_to(driver: i32) -> Option<CudaMajor> {
        match driver {
            13.. => Some(CudaMajor::Thirteen),
            12 => Some(CudaMajor::Twelve),
            _ => None,
        }
    }

    /// Its number.
    pub fn number(self) -> u32 {
        match self {
            CudaMajor::Twelve => 12,
            CudaMajor::Thirteen => 13,
        }
    }

    /// What pip is asked for. Since CUDA 13 packages have no version in their names.
    fn requirement(self, stem: &str) -> String {
        match self {
            CudaMajor::Twelve => format!("{stem}-cu12"),
            CudaMajor::Thirteen => format!("{stem}>=13,<14"),
        }
    }
}

/// A package, and what is taken out of its wheel.
struct Package {
    stem: &'static str,
    /// How the names of its libraries begin; the first is the one that programs open.
    libraries: &'static [&'static str],
    /// Bytes of its wheel and of its libraries, about: for the bar, and for a look at the free space.
    wheel_bytes: u64,
    unpacked_bytes: u64,
}

const PACKAGES: [Package; 2] = [
    Package {
        stem: "nvidia-cuda-nvrtc",
        libraries: &["libnvrtc.so.", "libnvrtc-builtins.so."],
        wheel_bytes: 60_000_000,
        unpacked_bytes: 140_000_000,
    },
    Package {
        stem: "nvidia-cublas",
        libraries: &["libcublasLt.so."],
        wheel_bytes: 420_000_000,
        unpacked_bytes: 600_000_000,
    },
];

impl Package {
    /// The library that is there once all of the package is.
    fn opened(&self, major: CudaMajor) -> String {
        format!("{}{}", self.libraries[0], major.number())
    }
}

impl Config {
    /// Where NVIDIA's libraries are kept.
    pub fn cuda_libraries(&self) -> PathBuf {
        self.home.join("cuda").join("libs")
    }
}

impl Hub {
    /// Makes sure that NVRTC and cuBLASLt are on this machine; gives their folder with what was done. Two pulls do not collide:
    /// the second waits, then finds them there.
    pub fn pull_cuda_libraries(
        &self,
        major: CudaMajor,
        cancel: &Cancel,
        report: Report<'_>,
    ) -> Result<(PathBuf, Outcome), HubError> {
        let folder = self.config.cuda_libraries();
        let missing = || PACKAGES.iter().filter(|package| !folder.join(package.opened(major)).is_file());
        if missing().next().is_none() {
            return Ok((folder, Outcome::AlreadyThere));
        }
        let lock = self.config.home.join("locks").join(format!("{NAME}.lock"));
        let _lock = Lock::acquire(&lock, cancel, || report(Progress::Waiting))?;
        fs::create_dir_all(&folder).map_err(HubError::io("create the folder", &folder))?;
        let around = Surroundings { config: &self.config, cancel };
        // Whoever held the lock may have done the work.
        for package in missing() {
            let requirement = major.requirement(package.stem);
            let source = format!("pip package {requirement}");
            report(Progress::Trying { source: &source });
            let staging = Staging::create(self.config.home.join("staging").join(NAME))?;
            match fetch(package, &requirement, &staging, &around, report) {
                Ok(libraries) => install(&libraries, &staging, &folder)?,
                Err(SourceError::Cancelled) => return Err(HubError::Cancelled),
                Err(error) => return Err(HubError::all_failed(NAME, vec![Attempt { source, error }])),
            }
        }
        Ok((folder, Outcome::Fetched))
    }
}

/// Downloads a package and unpacks its libraries into the staging folder; gives their names.
fn fetch(
    package: &Package,
    requirement: &str,
    staging: &Staging,
    around: &Surroundings<'_>,
    report: Report<'_>,
) -> Result<Vec<String>, SourceError> {
    let download = pip::Download { requirement, bytes: package.wheel_bytes, scratch: staging.scratch() };
    let wheel = download.run(around, package.unpacked_bytes, report)?;
    around.cancel.check()?;
    Wheel::open(&wheel)?.unpack_libraries(package.libraries, &staging.model(), report)
}

/// Moves libraries to where they stay, the one that programs open last: once it is there, all of them are.
fn install(libraries: &[String], staging: &Staging, folder: &Path) -> Result<(), HubError> {
    for name in libraries.iter().rev() {
        let to = folder.join(name);
        fs::rename(staging.model().join(name), &to).map_err(HubError::io("move a library to", &to))?;
    }
    sync_folder(folder)
}
