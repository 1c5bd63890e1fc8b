//! The default chat model, where it is at hand: `$ROPEWAY_TEST_MODEL_DIR`, or the cache `ropeway pull` fills.

use crate::{open, values};
use ropeway_weights::{Checkpoint, Config, Form};
use std::path::PathBuf;

const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

fn model_file() -> Option<PathBuf> {
    let given = std::env::var_os("ROPEWAY_TEST_MODEL_DIR").map(|folder| PathBuf::from(folder).join(FILE));
    let home = std::env::var_os("ROPEWAY_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/ropeway")));
    let cached = home.map(|home| home.join("models/smollm2-135m").join(FILE));
    given.into_iter().chain(cached).find(|path| path.is_file())
}

fn with_model(check: impl FnOnce(&Checkpoint)) {
    match model_file() {
        Some(path) => check(&open(&path)),
        None => {
            eprintln!("skipped: no {FILE}; set ROPEWAY_TEST_MODEL_DIR or run `ropeway pull smollm2:135m`");
        }
    }
}

#[test]
fn its_metadata_describes_a_small_llama() {
    with_model(|checkpoint| {
        let Config::Gguf(metadata) = checkpoint.config() else { panic!("not a GGUF file") };
        assert_eq!(metadata.str("general.architecture"), Some("llama"));
        assert_eq!(metadata.u32("llama.block_count"), Some(30));
        assert_eq!(metadata.u32("llama.embedding_length"), Some(576));
        let tokens = metadata.strs("tokenizer.ggml.tokens").unwrap();
        assert_eq!(tokens.len(), 49_152);
        assert_eq!(tokens.clone().next(), Some("<|endoftext|>"));
        assert_eq!(metadata.i32s("tokenizer.ggml.token_type").unwrap().len(), 49_152);
        assert!(tokens.map(str::len).sum::<usize>() > 49_152);
    });
}

#[test]
fn its_tensors_are_all_there_and_finite() {
    with_model(|checkpoint| {
        assert_eq!(checkpoint.names().count(), 272);
        let embedding = checkpoint.tensor("token_embd.weight").unwrap();
        assert_eq!(embedding.shape(), [49_152, 576]);
        for name in checkpoint.names() {
            let tensor = checkpoint.tensor(name).unwrap();
            let last = values(&tensor.slice_rows(tensor.rows() - 1..tensor.rows()));
            assert!(last.iter().all(|value| value.is_finite() && value.abs() < 1000.0), "{name}");
        }
        assert!(matches!(checkpoint.tensor("blk.0.attn_q.weight").unwrap().form(), Form::Affine(_)));
    });
}
