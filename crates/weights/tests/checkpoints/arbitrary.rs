//! Arbitrary bytes and mutated valid files: opened and, where that works, read to the last row. Nothing may panic.

use crate::gguf_writer::Gguf;
use crate::safetensors_writer::{Folder, file, mlx_config, mlx_header, raw_file};
use crate::{fixture, open_and_read_everything};
use proptest::prelude::*;
use proptest::sample::Index;

/// Replaces, inserts or cuts at arbitrary places.
#[derive(Debug, Clone)]
enum Mutation {
    Replace(Index, u8),
    ReplaceWord(Index, u64),
    Insert(Index, u8),
    Cut(Index),
}

impl Mutation {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let len = bytes.len();
        if len == 0 {
            return;
        }
        match self {
            Mutation::Replace(at, byte) => bytes[at.index(len)] = *byte,
            Mutation::ReplaceWord(at, word) => {
                let at = at.index(len);
                let end = len.min(at + 8);
                bytes[at..end].copy_from_slice(&word.to_le_bytes()[..end - at]);
            }
            Mutation::Insert(at, byte) => bytes.insert(at.index(len), *byte),
            Mutation::Cut(at) => bytes.truncate(at.index(len)),
        }
    }
}

/// Numbers near the limits a parser trips over.
fn telling_word() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), 0..64_u64, Just(u64::MAX), (0..64_u32).prop_map(|bit| 1 << bit)]
}

fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
    let one = prop_oneof![
        8 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Mutation::Replace(at, byte)),
        8 => (any::<Index>(), telling_word()).prop_map(|(at, word)| Mutation::ReplaceWord(at, word)),
        2 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Mutation::Insert(at, byte)),
        1 => any::<Index>().prop_map(Mutation::Cut),
    ];
    proptest::collection::vec(one, 1..6)
}

fn mutated(mut bytes: Vec<u8>, mutations: &[Mutation]) -> Vec<u8> {
    for mutation in mutations {
        mutation.apply(&mut bytes);
    }
    bytes
}

fn try_gguf(bytes: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("any.gguf");
    std::fs::write(&path, bytes).unwrap();
    open_and_read_everything(&path);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn arbitrary_bytes_after_the_magic_never_panic(tail in proptest::collection::vec(any::<u8>(), 0..200)) {
        try_gguf(&[b"GGUF\x03\0\0\0", &tail[..]].concat());
    }

    #[test]
    fn a_mutated_gguf_never_panics(changes in mutations()) {
        try_gguf(&mutated(Gguf::valid().bytes(), &changes));
    }

    #[test]
    fn a_mutated_gguf_with_packed_blocks_never_panics(changes in mutations()) {
        try_gguf(&mutated(std::fs::read(fixture("gguf/Q3_K.gguf")).unwrap(), &changes));
    }

    #[test]
    fn mutated_metadata_never_panics(changes in mutations()) {
        try_gguf(&mutated(std::fs::read(fixture("gguf/metadata.gguf")).unwrap(), &changes));
    }

    #[test]
    fn an_arbitrary_safetensors_header_never_panics(header in "\\PC{0,120}", data in 0..64_usize) {
        open_and_read_everything(Folder::of(raw_file(header.as_bytes(), data)).path());
    }

    #[test]
    fn a_mutated_mlx_folder_never_panics(weights in mutations(), config in proptest::option::of(mutations())) {
        let (header, data) = mlx_header();
        let config = mutated(mlx_config().to_string().into_bytes(), &config.unwrap_or_default());
        let folder = Folder::of(mutated(file(&header, data), &weights)).with("config.json", config);
        open_and_read_everything(folder.path());
    }

    #[test]
    fn a_mutated_shard_index_never_panics(changes in mutations()) {
        let (header, data) = mlx_header();
        let names: Vec<_> = header.as_object().unwrap().keys().cloned().collect();
        let map: serde_json::Map<_, _> = names.into_iter().map(|name| (name, "one.safetensors".into())).collect();
        let index = serde_json::json!({ "weight_map": map }).to_string().into_bytes();
        let folder = Folder::new(&mlx_config())
            .with("one.safetensors", file(&header, data))
            .with("model.safetensors.index.json", mutated(index, &changes));
        open_and_read_everything(folder.path());
    }
}
