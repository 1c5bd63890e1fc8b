//! The default chat model, where it is at hand.

#[path = "../../../../tests/default_models.rs"]
mod default_models;

use crate::{open, values};
use ropeway_weights::{Checkpoint, Config, Form};

fn with_model(check: impl FnOnce(&Checkpoint)) {
    if let Some(path) = default_models::smollm2() {
        check(&open(&path));
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
