//! GGUF files that are wrong in one way each. Every one must be refused with a text that names the trouble.

use crate::gguf_writer::{ALIGNMENT, F32, Gguf, Info, Q4_0, array, entry, kind, string};
use ropeway_weights::{Checkpoint, WeightsError};

/// What is wrong, the file, and a part of the error's text.
type Case = (&'static str, Vec<u8>, &'static str);

fn headers() -> Vec<Case> {
    let valid = Gguf::valid;
    let cut = |len: usize| valid().bytes()[..len].to_vec();
    vec![
        ("an empty file", vec![], "is not a GGUF file"),
        ("another magic", Gguf { magic: *b"GGML", ..valid() }.bytes(), "is not a GGUF file"),
        ("only the magic", cut(4), "inside version"),
        ("version 1", Gguf { version: 1, ..valid() }.bytes(), "version 1 is not readable"),
        ("version 4", Gguf { version: 4, ..valid() }.bytes(), "version 4 is not readable"),
        ("a big-endian file", Gguf { version: 3_u32.swap_bytes(), ..valid() }.bytes(), "big-endian"),
        ("cut inside the tensor count", cut(12), "inside tensors"),
        ("cut inside the entry count", cut(20), "claims 2 tensors"),
        (
            "more tensors than bytes",
            Gguf { tensor_count: Some(1 << 60), ..valid() }.bytes(),
            "tensors, more than",
        ),
        (
            "more entries than bytes",
            Gguf { entry_count: Some(u64::MAX), ..valid() }.bytes(),
            "entries, more than",
        ),
        ("one tensor too many", Gguf { tensor_count: Some(3), ..valid() }.bytes(), "is damaged"),
        ("one entry too many", Gguf { entry_count: Some(3), ..valid() }.bytes(), "is damaged"),
    ]
}

fn metadata() -> Vec<Case> {
    let with = |kind, value: &[u8]| Gguf::with_entry(entry("k", kind, value)).bytes();
    let long = |len: u64| [&len.to_le_bytes()[..], b"abc"].concat();
    let long_key = Gguf { entries: vec![long(u64::MAX)], ..Gguf::valid() };
    let bad_key = Gguf { entries: vec![[&string(b"\xff\xfe")[..], &[0; 8]].concat()], ..Gguf::valid() };
    let twice = Gguf::with_entry(entry("general.name", kind::STRING, &string(b"again")));
    let alignment = |value: u32| Gguf {
        entries: vec![entry("general.alignment", kind::U32, &value.to_le_bytes())],
        ..Gguf::valid()
    };
    let text_alignment =
        Gguf { entries: vec![entry("general.alignment", kind::STRING, &string(b"32"))], ..Gguf::valid() };
    vec![
        ("an unknown value type", with(13, &[0; 8]), "unknown value type 13"),
        ("a key longer than the file", long_key.bytes(), "inside metadata key"),
        ("a key that is not UTF-8", bad_key.bytes(), "metadata key at byte 32 is not UTF-8"),
        ("a key that appears twice", twice.bytes(), "`general.name` appears twice"),
        ("a string longer than the file", with(kind::STRING, &long(1 << 40)), "inside metadata string"),
        ("a string that is not UTF-8", with(kind::STRING, &string(b"\xc3\x28")), "is not UTF-8"),
        ("a bool of 2", with(kind::BOOL, &[2]), "bool 2"),
        ("an array of bools with a 7", with(kind::ARRAY, &array(kind::BOOL, 3, &[0, 1, 7])), "bool 7"),
        ("an array of arrays", with(kind::ARRAY, &array(kind::ARRAY, 1, &[0; 16])), "array of arrays"),
        ("an array of an unknown type", with(kind::ARRAY, &array(99, 1, &[0; 16])), "unknown value type 99"),
        (
            "an array longer than the file",
            with(kind::ARRAY, &array(kind::U32, 1 << 62, &[])),
            "array elements, more",
        ),
        (
            "an array of too many strings",
            with(kind::ARRAY, &array(kind::STRING, 1 << 50, &[])),
            "elements, more",
        ),
        (
            "a long string in an array",
            with(kind::ARRAY, &array(kind::STRING, 1, &long(999))),
            "string of an array",
        ),
        (
            "a bad string in an array",
            with(kind::ARRAY, &array(kind::STRING, 1, &string(b"\x80"))),
            "not UTF-8",
        ),
        ("an alignment of 0", alignment(0).bytes(), "general.alignment must be"),
        ("an alignment of 24", alignment(24).bytes(), "general.alignment must be"),
        ("an alignment of 2 GiB", alignment(1 << 31).bytes(), "general.alignment must be"),
        ("an alignment that is text", text_alignment.bytes(), "general.alignment must be"),
        (
            "one part of a split model",
            Gguf::with_entry(entry("split.count", kind::U32, &3_u32.to_le_bytes())).bytes(),
            "its name does not end with -00001-of-00003.gguf",
        ),
    ]
}

fn tensors() -> Vec<Case> {
    let one = |dims: &[u64], kind, data| Gguf::with_tensor(Info::new("t", dims, kind, 0), data).bytes();
    let at = |offset| Gguf::with_tensor(Info::new("t", &[8], F32, offset), 32).bytes();
    let two =
        |second: Info| Gguf { tensors: vec![Info::new("a", &[8], F32, 0), second], ..Gguf::valid() }.bytes();
    let bad_name = Info { name: b"\xff".to_vec(), ..Info::new("", &[8], F32, 0) };
    let mut long_name = Gguf { tensors: vec![], tensor_count: Some(1), ..Gguf::valid() }.header();
    long_name.extend((1_u64 << 33).to_le_bytes());
    long_name.extend([0; 64]);
    vec![
        ("no dimensions", one(&[], F32, 32), "has 0 dimensions"),
        ("five dimensions", one(&[1; 5], F32, 32), "has 5 dimensions"),
        ("a dimension of zero", one(&[8, 0], F32, 32), "impossible shape [8, 0]"),
        ("a dimension product past 64 bits", one(&[1 << 40, 1 << 40], F32, 32), "impossible shape"),
        ("a byte count past 64 bits", one(&[1 << 31, 1 << 32], F32, 32), "impossible shape"),
        ("an unknown tensor type", one(&[8], 77, 32), "type number 77"),
        ("a tensor type that is not read", one(&[256], 16, 66), "type IQ2_XXS"),
        ("a removed tensor type", one(&[32], 4, 66), "type number 4"),
        ("rows that are not whole blocks", one(&[48, 2], Q4_0, 64), "rows of 48 values"),
        ("a tensor larger than the file", one(&[1 << 20], F32, 32), "past the end of the file"),
        ("a tensor one byte short", one(&[8], F32, 31), "past the end of the file"),
        ("an offset past the file", at(1 << 40), "past the end of the file"),
        ("an offset past 64 bits", at(u64::MAX - 31), "past the end of the file"),
        ("a misaligned offset", at(4), "not a multiple of 32"),
        ("two tensors at one place", two(Info::new("b", &[8], F32, 0)), "`a` and `b` overlap"),
        (
            "a tensor inside another",
            {
                let outer = Info::new("outer", &[16], F32, 0);
                Gguf { tensors: vec![Info::new("inner", &[8], F32, 32), outer], ..Gguf::valid() }.bytes()
            },
            "overlap",
        ),
        ("a tensor name that appears twice", two(Info::new("a", &[8], F32, 32)), "`a` appears twice"),
        ("a tensor name that is not UTF-8", two(bad_name), "tensor name"),
        ("a tensor name longer than the file", long_name, "inside tensor name"),
        (
            "a second file behind the first",
            [Gguf::valid().bytes(), Gguf::valid().bytes()].concat(),
            "follow the last",
        ),
    ]
}

fn refusal(bytes: &[u8]) -> Option<WeightsError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.gguf");
    std::fs::write(&path, bytes).unwrap();
    Checkpoint::open(&path).err()
}

#[test]
fn the_file_all_bad_ones_are_made_from_is_good() {
    for version in [2, 3] {
        let error = refusal(&Gguf { version, ..Gguf::valid() }.bytes());
        assert!(error.is_none(), "{error:?}");
    }
}

#[test]
fn every_bad_file_is_refused_with_a_text_that_names_the_trouble() {
    let cases = [headers(), metadata(), tensors()].concat();
    assert!(cases.len() >= 50, "{} cases", cases.len());
    for (trouble, bytes, says) in cases {
        let error = refusal(&bytes).unwrap_or_else(|| panic!("{trouble}: accepted"));
        let text = error.to_string();
        assert!(text.contains(says), "{trouble}: {text}");
        assert!(text.contains("bad.gguf"), "{trouble}: the text must name the file: {text}");
    }
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let whole = Gguf::valid().bytes();
    for len in 0..whole.len() {
        let error = refusal(&whole[..len]).unwrap_or_else(|| panic!("accepted with {len} bytes"));
        assert!(matches!(error, WeightsError::Gguf { .. } | WeightsError::UnknownFile { .. }), "{error}");
    }
}

#[test]
fn padding_after_the_last_tensor_is_allowed_below_the_alignment() {
    let mut bytes = Gguf::valid().bytes();
    bytes.extend([0; ALIGNMENT - 1]);
    assert!(refusal(&bytes).is_none());
}
