//! Folders that are wrong in one way each. Every one must be refused with a text that names the trouble.

use crate::safetensors_writer::{Folder, file, mlx_config, mlx_header, raw_file, tensor};
use ropeway_weights::{Checkpoint, WeightsError};
use serde_json::{Value, json};

/// What is wrong, the folder, and a part of the error's text.
type Case = (&'static str, Folder, &'static str);

fn good_file() -> Vec<u8> {
    file(&json!({ "a": tensor("F32", &[4], 0, 16) }), 16)
}

/// A file with one tensor `a` over 16 bytes of data.
fn one(described: &Value) -> Folder {
    Folder::of(file(&json!({ "a": described }), 16))
}

fn headers() -> Vec<Case> {
    let claims = |len: u64| Folder::of([&len.to_le_bytes()[..], b"{}"].concat());
    let raw = |header: &[u8]| Folder::of(raw_file(header, 16));
    let twice = br#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}"#;
    vec![
        ("an empty file", Folder::of(vec![]), "too few for a header"),
        ("seven bytes", Folder::of(vec![0; 7]), "too few for a header"),
        ("a header longer than the file", claims(3), "header claims 3 bytes"),
        ("a header length of all ones", claims(u64::MAX), "header claims 18446744073709551615 bytes"),
        ("a header that is not JSON", raw(b"{\"a\":"), "header is not valid"),
        ("a header that is not an object", raw(b"[1, 2]"), "header is not valid"),
        ("a header that is not UTF-8", raw(b"{\"\xff\":1}"), "header is not valid"),
        ("a header nested too deeply", raw("[".repeat(100_000).as_bytes()), "header is not valid"),
        ("a tensor without offsets", one(&json!({ "dtype": "F32", "shape": [4] })), "missing field"),
        (
            "a negative dimension",
            one(&json!({ "dtype": "F32", "shape": [-4], "data_offsets": [0, 16] })),
            "header is",
        ),
        ("a name that appears twice", raw(twice), "`a` appears twice"),
        ("a GGUF file under this name", Folder::of(b"GGUF\x03\0\0\0\0\0\0\0".to_vec()), "header claims"),
    ]
}

fn layouts() -> Vec<Case> {
    let two = |a: Value, b: Value| Folder::of(file(&json!({ "a": a, "b": b }), 16));
    let vast = (1_u64 << 61) - 1;
    let piles = |count: u64| {
        let header: Value = (0..count)
            .map(|pile| (format!("t{pile}"), tensor("U8", &[vast], pile * vast, (pile + 1) * vast)))
            .collect::<serde_json::Map<_, _>>()
            .into();
        Folder::of(file(&header, 16))
    };
    vec![
        ("a dimension of zero", one(&tensor("F32", &[4, 0], 0, 16)), "impossible shape"),
        (
            "a dimension product past 64 bits",
            one(&tensor("F32", &[1 << 32, 1 << 32], 0, 16)),
            "impossible shape",
        ),
        ("a byte count past 64 bits", one(&tensor("F32", &[1 << 63], 0, 16)), "need 18446744073709551615"),
        ("more bytes than the shape needs", one(&tensor("F32", &[3], 0, 16)), "need 12"),
        ("fewer bytes than the shape needs", one(&tensor("F16", &[9], 0, 16)), "need 18"),
        ("offsets that run backwards", one(&tensor("F32", &[4], 16, 0)), "lies at 16..0"),
        ("offsets past the end", one(&tensor("F32", &[8], 0, 32)), "lies at 0..32 of 16"),
        ("offsets that add up past 64 bits", piles(8), "of 16 data bytes"),
        ("a hole before the first", one(&tensor("F32", &[3], 4, 16)), "not at 0"),
        ("two that overlap", two(tensor("F32", &[3], 0, 12), tensor("F32", &[3], 4, 16)), "not at 12"),
        ("two at one place", two(tensor("F32", &[4], 0, 16), tensor("F32", &[4], 0, 16)), "not at 16"),
        ("a hole between two", two(tensor("F32", &[1], 0, 4), tensor("F32", &[2], 8, 16)), "not at 4"),
        ("bytes that belong to none", one(&tensor("F32", &[3], 0, 12)), "4 bytes follow the last"),
        ("a file cut short", Folder::of(good_file()[..good_file().len() - 1].to_vec()), "cut short"),
    ]
}

fn shards() -> Vec<Case> {
    let sharded = || Folder::new(&json!({})).with("one.safetensors", good_file());
    let pointing = |shard: &str| sharded().with_index(&json!({ "a": shard }));
    let index = |bytes: &[u8]| sharded().with("model.safetensors.index.json", bytes);
    let same = sharded().with("two.safetensors", good_file());
    vec![
        ("a shard in the folder above", pointing("../one.safetensors"), "not a file name inside the folder"),
        ("a shard at an absolute path", pointing("/etc/passwd"), "not a file name inside the folder"),
        ("a shard in a folder below", pointing("sub/one.safetensors"), "not a file name inside the folder"),
        ("a shard that is the folder", pointing("."), "not a file name inside the folder"),
        ("a shard without a name", pointing(""), "not a file name inside the folder"),
        ("a shard that ends in a slash", pointing("one.safetensors/"), "not a file name inside the folder"),
        ("a shard that is missing", pointing("three.safetensors"), "three.safetensors"),
        ("a tensor its shard lacks", sharded().with_index(&json!({ "b": "one.safetensors" })), "not there"),
        ("an index without tensors", sharded().with_index(&json!({})), "lists no tensors"),
        ("an index whose map is a list", sharded().with_index(&json!([])), "not valid JSON"),
        ("an index that is not JSON", index(b"weights"), "not valid JSON"),
        ("an index that is empty", index(b""), "not valid JSON"),
        ("one tensor in two files", same, "also in another file"),
    ]
}

fn configs() -> Vec<Case> {
    let config = |text: &str| Folder::of(good_file()).with("config.json", text);
    let bare = |name: &str| Folder::new(&json!({})).with(name, "x");
    let ggufs = bare("a.gguf").with("b.gguf", "x").without("config.json");
    let folder_as_file = Folder::new(&json!({}));
    std::fs::create_dir(folder_as_file.path().join("model.safetensors")).unwrap();
    vec![
        ("a config that is not JSON", config("{"), "not valid JSON"),
        ("a config that is a list", config("[]"), "not a JSON object"),
        ("a config nested too deeply", config(&"[".repeat(100_000)), "not valid JSON"),
        ("a config without weights", bare("pytorch_model.bin"), "neither a .gguf file nor config.json"),
        ("two GGUF files", ggufs, "holds 2 .gguf files"),
        ("a folder where a file should be", folder_as_file, "not a regular file"),
        ("weights quantised by GPTQ", config(r#"{"quantization_config":{"quant_method":"gptq"}}"#), "`gptq`"),
    ]
}

fn mlx_with(config: &Value) -> Folder {
    let (header, data) = mlx_header();
    Folder::new(config).with("model.safetensors", file(&header, data))
}

fn mlx_descriptions() -> Vec<Case> {
    let described = |quantization: Value| mlx_with(&json!({ "quantization": quantization }));
    vec![
        ("no description", mlx_with(&json!({})), "has no `quantization` for it"),
        ("a description that is a number", described(json!(4)), "not an object"),
        ("no width", described(json!({ "group_size": 32 })), "`bits` is missing"),
        ("a width that is text", described(json!({ "bits": "4", "group_size": 32 })), "`bits` is missing"),
        ("no group", described(json!({ "bits": 4 })), "`group_size` is missing"),
        ("a width of 3", described(json!({ "bits": 3, "group_size": 32 })), "3 bits"),
        ("a group of 0", described(json!({ "bits": 4, "group_size": 0 })), "groups of 0"),
        (
            "another mode",
            described(json!({ "bits": 4, "group_size": 32, "mode": "mxfp4" })),
            "mode \"mxfp4\"",
        ),
        (
            "a module said to be plain",
            described(json!({ "bits": 4, "group_size": 32, "m": false })),
            "for it",
        ),
        (
            "an override that is text",
            described(json!({ "bits": 4, "group_size": 32, "m": "x" })),
            "not an object",
        ),
        ("another width than packed", described(json!({ "bits": 8, "group_size": 32 })), "do not fit 8 bits"),
        ("another group than packed", described(json!({ "bits": 4, "group_size": 64 })), "groups of 64"),
    ]
}

fn mlx_tensors() -> Vec<Case> {
    let changed = |name: &str, described: Value| {
        let (mut header, _) = mlx_header();
        header[name] = described;
        let end =
            header.as_object().unwrap().values().filter_map(|entry| entry["data_offsets"][1].as_u64()).max();
        Folder::new(&mlx_config()).with("model.safetensors", file(&header, end.unwrap() as usize))
    };
    let without_biases =
        json!({ "m.weight": tensor("U32", &[2, 8], 0, 64), "m.scales": tensor("F16", &[2, 2], 64, 72) });
    let only_weight = json!({ "m.weight": tensor("U32", &[2, 8], 0, 64) });
    let of = |header: &Value, data| Folder::new(&mlx_config()).with("model.safetensors", file(header, data));
    vec![
        ("no biases", of(&without_biases, 72), "no `biases`"),
        ("no scales", of(&only_weight, 64), "no `scales`"),
        ("biases of another shape", changed("m.biases", tensor("F16", &[4], 72, 80)), "do not fit"),
        ("scales and biases that are bytes", changed("m.scales", tensor("U8", &[2, 4], 64, 72)), "type U8"),
        (
            "biases of another type",
            changed("m.biases", tensor("BF16", &[2, 2], 72, 80)),
            "biases of type BF16",
        ),
        ("a weight with other rows", changed("m.weight", tensor("U32", &[4, 4], 0, 64)), "do not fit"),
        (
            "a weight without dimensions",
            {
                let header = json!({
                    "m.weight": tensor("U32", &[], 0, 4),
                    "m.scales": tensor("F16", &[], 4, 6),
                    "m.biases": tensor("F16", &[], 6, 8),
                });
                of(&header, 8)
            },
            "do not fit",
        ),
    ]
}

#[test]
fn every_bad_folder_is_refused_with_a_text_that_names_the_trouble() {
    let cases = [headers(), layouts(), shards(), configs(), mlx_descriptions(), mlx_tensors()];
    for (trouble, folder, says) in cases.into_iter().flatten() {
        let error = Checkpoint::open(folder.path()).err().unwrap_or_else(|| panic!("{trouble}: accepted"));
        let text = error.to_string();
        assert!(text.contains(says), "{trouble}: {text}");
        assert!(
            text.contains(folder.path().to_str().unwrap()),
            "{trouble}: the text must name the place: {text}"
        );
    }
}

#[test]
fn a_path_that_does_not_exist_is_unreadable() {
    let folder = tempfile::tempdir().unwrap();
    let error = Checkpoint::open(&folder.path().join("nothing")).unwrap_err();
    assert!(matches!(error, WeightsError::Unreadable { .. }), "{error}");
}

#[test]
fn an_empty_folder_holds_no_model() {
    let folder = tempfile::tempdir().unwrap();
    let error = Checkpoint::open(folder.path()).unwrap_err();
    assert!(matches!(error, WeightsError::NoModel { .. }), "{error}");
}

#[test]
#[cfg(unix)]
fn a_device_is_refused_before_it_is_read() {
    let error = Checkpoint::open(std::path::Path::new("/dev/zero")).unwrap_err();
    assert!(matches!(error, WeightsError::NotAFile { .. }), "{error}");
}

#[test]
fn a_safetensors_file_cut_anywhere_is_refused() {
    let whole = good_file();
    for len in 0..whole.len() {
        let folder = Folder::of(whole[..len].to_vec());
        let error =
            Checkpoint::open(folder.path()).err().unwrap_or_else(|| panic!("accepted with {len} bytes"));
        assert!(matches!(error, WeightsError::Safetensors { .. }), "{error}");
    }
}
