//! Models split into several GGUF files: as whole as the file they were cut from.

use std::fs;
use std::path::{Path, PathBuf};

use crate::gguf_writer::{F32, Gguf, Info, entry, kind, string};
use crate::{open, values};
use ropeway_weights::{Checkpoint, Config};
use tempfile::TempDir;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn number(key: &str, value: u32) -> Vec<u8> {
    entry(key, kind::U32, &value.to_le_bytes())
}

/// Eight values that are the tensor's own.
fn data_of(tensor: usize) -> Vec<u8> {
    (0..8).flat_map(|i| (tensor as f32 * 100.0 + i as f32).to_le_bytes()).collect()
}

/// A file with some of the tensors; offsets are into its own data.
fn file_with(tensors: &[usize], entries: Vec<Vec<u8>>) -> Gguf {
    let infos = tensors.iter().enumerate();
    Gguf {
        entries,
        tensors: infos.map(|(i, tensor)| Info::new(NAMES[*tensor], &[8], F32, 32 * i as u64)).collect(),
        data: tensors.iter().flat_map(|tensor| data_of(*tensor)).collect(),
        ..Gguf::valid()
    }
}

fn general() -> Vec<Vec<u8>> {
    vec![entry("general.name", kind::STRING, &string(b"cut")), number("llama.context_length", 64)]
}

/// The entries of part `no`; only the first part has those of the model.
fn split_entries(no: u32, count: u32) -> Vec<Vec<u8>> {
    let mut entries = if no == 0 { general() } else { Vec::new() };
    entries.extend([
        number("split.no", no),
        number("split.count", count),
        number("split.tensors.count", NAMES.len() as u32),
    ]);
    entries
}

/// Cuts the model into parts with these tensors, named as the format's own tool names them.
fn write_parts(folder: &Path, cuts: &[&[usize]]) -> Vec<PathBuf> {
    let count = cuts.len();
    let paths: Vec<_> = (1..=count).map(|no| folder.join(format!("m-{no:05}-of-{count:05}.gguf"))).collect();
    for (no, tensors) in cuts.iter().enumerate() {
        let part = file_with(tensors, split_entries(no as u32, count as u32));
        fs::write(&paths[no], part.bytes()).unwrap();
    }
    paths
}

fn all_values(checkpoint: &Checkpoint) -> Vec<(String, Vec<f32>)> {
    checkpoint.names().map(|name| (name.to_owned(), values(&checkpoint.tensor(name).unwrap()))).collect()
}

#[test]
fn a_split_model_equals_the_whole_one_however_it_is_cut_and_by_whichever_part_it_is_opened() {
    let whole = TempDir::new().unwrap();
    let path = whole.path().join("m.gguf");
    fs::write(&path, file_with(&[0, 1, 2, 3, 4], general()).bytes()).unwrap();
    let whole = open(&path);
    for cuts in [&[&[0, 1][..], &[2, 3], &[4]][..], &[&[4], &[0, 1, 2, 3]], &[&[], &[0, 1, 2, 3, 4]]] {
        let folder = TempDir::new().unwrap();
        let paths = write_parts(folder.path(), cuts);
        for path in paths.iter().map(PathBuf::as_path).chain([folder.path()]) {
            let parts = open(path);
            assert_eq!(all_values(&parts), all_values(&whole), "{}", path.display());
            let Config::Gguf(metadata) = parts.config() else { panic!("not GGUF") };
            assert_eq!(metadata.u32("llama.context_length"), Some(64));
            let bytes: u64 = paths.iter().map(|path| fs::metadata(path).unwrap().len()).sum();
            assert_eq!(parts.file_bytes(), bytes);
        }
    }
}

/// What opening says after something was done to three good parts.
fn refusal(spoil: impl FnOnce(&[PathBuf])) -> String {
    let folder = TempDir::new().unwrap();
    let paths = write_parts(folder.path(), &[&[0, 1], &[2, 3], &[4]]);
    spoil(&paths);
    Checkpoint::open(&paths[0]).unwrap_err().to_string()
}

#[test]
fn parts_that_are_missing_exchanged_or_of_another_model_are_refused() {
    let missing = refusal(|paths| fs::remove_file(&paths[1]).unwrap());
    assert!(missing.contains("m-00002-of-00003.gguf"), "{missing}");
    let exchanged = refusal(|paths| assert!(fs::copy(&paths[2], &paths[1]).is_ok()));
    assert!(exchanged.contains("says it is part 3 of 3"), "{exchanged}");
    let other = file_with(&[2, 4], split_entries(1, 3)).bytes();
    let twice = refusal(|paths| fs::write(&paths[1], other).unwrap());
    assert!(twice.contains("`e` appears twice"), "{twice}");
    let fewer = file_with(&[2], split_entries(1, 3)).bytes();
    let lacking = refusal(|paths| fs::write(&paths[1], fewer).unwrap());
    assert!(lacking.contains("4 tensors instead of 5"), "{lacking}");
}

#[test]
fn a_folder_with_two_split_models_is_not_guessed_at() {
    let folder = TempDir::new().unwrap();
    write_parts(folder.path(), &[&[0, 1], &[2, 3, 4]]);
    fs::write(folder.path().join("other.gguf"), file_with(&[0], general()).bytes()).unwrap();
    let error = Checkpoint::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("holds 2 .gguf files"), "{error}");
}
