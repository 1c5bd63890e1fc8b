//! Models that are split into several GGUF files.
//!
//! ```text
//! model-00001-of-00003.gguf   all metadata, split.count 3, split.no 0, split.tensors.count, the first tensors
//! model-00002-of-00003.gguf   split.count 3, split.no 1, more tensors; offsets are into this file's own data
//! model-00003-of-00003.gguf   split.count 3, split.no 2, the rest
//! ```
//! Relies on the parts lying in one folder under these names. Must never open a file that the name of the given part does not
//! imply.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{GgufError, Metadata};
use crate::mapping::Mapping;
use crate::{Tensor, WeightsError};

/// The most parts: five digits are written, and published models have up to a few hundred.
const MOST_PARTS: u64 = 4096;

/// A model's files, opened.
pub(crate) struct Parts {
    pub metadata: Metadata,
    pub mappings: Vec<Arc<Mapping>>,
    pub tensors: BTreeMap<String, Tensor>,
}

/// What the name of a part says: `PREFIX-00002-of-00003.gguf`.
#[derive(Debug, PartialEq, Eq)]
struct PartName<'a> {
    prefix: &'a str,
    /// Counted from 1.
    number: u64,
    count: u64,
}

/// Whether a model is opened by this file: a whole one, or the first of its parts.
pub(crate) fn begins_a_model(file: &Path) -> bool {
    name_of(file).is_none_or(|part| part.number == 1)
}

/// Opens a file, and where it is one part of a model, all parts.
pub(crate) fn open(file: &Path) -> Result<Parts, WeightsError> {
    let (mapping, metadata, tensors) = open_one(file)?;
    let count = metadata.u64("split.count").unwrap_or(1);
    if count <= 1 {
        return Ok(Parts { metadata, mappings: vec![mapping], tensors });
    }
    let bad = |source| WeightsError::Gguf { path: file.to_owned(), source };
    let named = name_of(file).filter(|part| part.count == count && count <= MOST_PARTS);
    let Some(named) = named else { return Err(bad(GgufError::PartName { parts: count })) };
    open_all(&named, file)
}

fn open_all(named: &PartName<'_>, given: &Path) -> Result<Parts, WeightsError> {
    let mut all: Option<Parts> = None;
    for number in 1..=named.count {
        let path = named.path(number, given);
        let (mapping, metadata, tensors) = open_one(&path)?;
        check_number(&metadata, number, named.count)
            .map_err(|source| WeightsError::Gguf { path: path.clone(), source })?;
        match &mut all {
            None => all = Some(Parts { metadata, mappings: vec![mapping], tensors }),
            Some(parts) => parts.add(mapping, tensors, &path)?,
        }
    }
    let parts = all.ok_or_else(|| WeightsError::UnknownFile { path: given.to_owned() })?;
    parts.check_tensors().map_err(|source| WeightsError::Gguf { path: given.to_owned(), source })?;
    Ok(parts)
}

type One = (Arc<Mapping>, Metadata, BTreeMap<String, Tensor>);

fn open_one(file: &Path) -> Result<One, WeightsError> {
    let mapping = Mapping::open(file)?;
    if !super::recognises(mapping.bytes()) {
        return Err(WeightsError::UnknownFile { path: file.to_owned() });
    }
    let (metadata, tensors) =
        super::parse(&mapping).map_err(|source| WeightsError::Gguf { path: file.to_owned(), source })?;
    Ok((mapping, metadata, tensors))
}

/// `split.no` counts from 0, names count from 1.
fn check_number(metadata: &Metadata, number: u64, count: u64) -> Result<(), GgufError> {
    let found = metadata.u64("split.no").unwrap_or(0).saturating_add(1);
    let parts = metadata.u64("split.count").unwrap_or(1);
    if (found, parts) == (number, count) { Ok(()) } else { Err(GgufError::WrongPart { found, parts }) }
}

impl Parts {
    fn add(
        &mut self,
        mapping: Arc<Mapping>,
        tensors: BTreeMap<String, Tensor>,
        path: &Path,
    ) -> Result<(), WeightsError> {
        self.mappings.push(mapping);
        for (name, tensor) in tensors {
            if self.tensors.insert(name.clone(), tensor).is_some() {
                let source = GgufError::DuplicateTensor { name };
                return Err(WeightsError::Gguf { path: path.to_owned(), source });
            }
        }
        Ok(())
    }

    fn check_tensors(&self) -> Result<(), GgufError> {
        let found = self.tensors.len();
        match self.metadata.u64("split.tensors.count") {
            Some(promised) if promised != found as u64 => Err(GgufError::PartsTensors { found, promised }),
            _ => Ok(()),
        }
    }
}

impl PartName<'_> {
    fn path(&self, number: u64, beside: &Path) -> PathBuf {
        beside.with_file_name(format!("{}-{number:05}-of-{:05}.gguf", self.prefix, self.count))
    }
}

fn name_of(file: &Path) -> Option<PartName<'_>> {
    let stem = file.file_name()?.to_str()?.strip_suffix(".gguf")?;
    let (rest, count) = stem.rsplit_once("-of-")?;
    let (prefix, number) = rest.rsplit_once('-')?;
    let part = PartName { prefix, number: five_digits(number)?, count: five_digits(count)? };
    (1..=part.count).contains(&part.number).then_some(part)
}

fn five_digits(text: &str) -> Option<u64> {
    (text.len() == 5 && text.bytes().all(|digit| digit.is_ascii_digit())).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_known_by_its_name() {
        let part = |name: &'static str| name_of(Path::new(name)).map(|part| (part.number, part.count));
        assert_eq!(part("dir/m-Q4-00002-of-00003.gguf"), Some((2, 3)));
        for whole in
            ["m.gguf", "m-2-of-3.gguf", "m-00004-of-00003.gguf", "m-00000-of-00003.gguf", "m-00001-of-00003"]
        {
            assert_eq!(part(whole), None, "{whole}");
        }
    }
}
