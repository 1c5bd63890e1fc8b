//! Metadata written by the `gguf` Python package, read through the typed getters.

use crate::{fixture, open};
use ropeway_weights::gguf::{Kind, Metadata};
use ropeway_weights::{Checkpoint, Config};

fn metadata(checkpoint: &Checkpoint) -> &Metadata {
    match checkpoint.config() {
        Config::Gguf(metadata) => metadata,
        Config::HuggingFace(_) => panic!("not a GGUF file"),
    }
}

fn with_metadata(check: impl FnOnce(&Metadata)) {
    check(metadata(&open(&fixture("gguf/metadata.gguf"))));
}

#[test]
fn integers_are_read_whatever_their_width_when_they_fit() {
    with_metadata(|metadata| {
        assert_eq!(metadata.u32("u8"), Some(200));
        assert_eq!(metadata.u32("u16"), Some(60_000));
        assert_eq!(metadata.u32("u32"), Some(4_000_000_000));
        assert_eq!(metadata.u64("u32"), Some(4_000_000_000));
        assert_eq!(metadata.u64("u64"), Some((1 << 63) + 1));
        assert_eq!(metadata.u32("u64"), None);
        for negative in ["i8", "i16", "i32", "i64"] {
            assert_eq!(metadata.u64(negative), None, "{negative}");
        }
    });
}

#[test]
fn floats_bools_and_strings_are_read_as_their_own_type_only() {
    with_metadata(|metadata| {
        assert_eq!(metadata.f32("f32"), Some(0.25));
        assert_eq!(metadata.f32("f64"), Some(0.5));
        assert_eq!(metadata.f32("u32"), None);
        assert_eq!(metadata.bool("bool"), Some(true));
        assert_eq!(metadata.bool("u8"), None);
        assert_eq!(metadata.str("string"), Some("grüße, 世界"));
        assert_eq!(metadata.str("strings"), None);
        assert_eq!(metadata.u32("bool"), None);
    });
}

#[test]
fn arrays_are_walked_in_place_and_know_their_length() {
    with_metadata(|metadata| {
        let strings = metadata.strs("strings").unwrap();
        assert_eq!(strings.len(), 4);
        assert_eq!(strings.collect::<Vec<_>>(), ["", "a", "日本", "ĠHello"]);
        assert_eq!(metadata.i32s("ints").unwrap().collect::<Vec<_>>(), [-3, 0, 7]);
        assert_eq!(metadata.f32s("floats").unwrap().collect::<Vec<_>>(), [0.5, -2.0]);
        assert_eq!(metadata.bools("bools").unwrap().collect::<Vec<_>>(), [true, false, true]);
        assert_eq!(metadata.array_len("strings"), Some(4));
    });
}

#[test]
fn arrays_of_another_type_and_missing_keys_are_none() {
    with_metadata(|metadata| {
        assert!(metadata.strs("ints").is_none());
        assert!(metadata.i32s("strings").is_none());
        assert!(metadata.f32s("ints").is_none());
        assert!(metadata.i32s("nowhere").is_none());
        assert_eq!(metadata.kind("nowhere"), None);
        assert_eq!(metadata.kind("i16"), Some(Kind::I16));
        assert_eq!(metadata.kind("floats"), Some(Kind::Array));
    });
}

#[test]
fn keys_come_sorted() {
    with_metadata(|metadata| {
        let keys: Vec<_> = metadata.keys().collect();
        assert!(keys.is_sorted() && keys.contains(&"general.architecture"));
    });
}

#[test]
fn a_file_with_only_a_vocabulary_has_no_tensors() {
    assert_eq!(open(&fixture("gguf/metadata.gguf")).names().count(), 0);
}
