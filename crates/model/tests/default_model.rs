//! The default chat model, where it is at hand.

#[path = "../../../tests/default_models.rs"]
mod default_models;

use ropeway_model::{DecoderSpec, Part, Role, TensorNames, spec::RopeLayout};
use ropeway_weights::Checkpoint;

#[test]
fn smollm2_135m_describes_itself_and_has_every_tensor_its_spec_calls_for() {
    let Some(file) = default_models::smollm2() else { return };
    let checkpoint = Checkpoint::open(&file).expect("the default model opens");
    let spec = DecoderSpec::from_checkpoint(&checkpoint).expect("a supported family");
    assert_eq!((spec.family, spec.vocab, spec.hidden, spec.layers.len()), ("llama", 49152, 576, 30));
    assert_eq!((spec.heads, spec.kv_heads, spec.head_dim, spec.max_context), (9, 3, 64, 8192));
    assert_eq!((spec.ropes[0].theta, spec.ropes[0].layout), (100_000.0, RopeLayout::Interleaved));
    assert!(spec.tied_embeddings);

    let names = TensorNames::of(&checkpoint);
    let shape = |role| names.tensor(&checkpoint, role).expect("a tensor").shape().to_vec();
    assert_eq!(shape(Role::Embedding), [spec.vocab, spec.hidden]);
    for layer in 0..spec.layers.len() {
        assert_eq!(shape(Role::Layer(layer, Part::Q)), [spec.q_width(), spec.hidden]);
        assert_eq!(shape(Role::Layer(layer, Part::V)), [spec.kv_width(), spec.hidden]);
        assert_eq!(shape(Role::Layer(layer, Part::MlpNorm)), [spec.hidden]);
        assert_eq!(shape(Role::Layer(layer, Part::Down)), [spec.hidden, 1536]);
    }
    assert!(names.find(&checkpoint, Role::Head).is_none());
    let error = names.tensor(&checkpoint, Role::Layer(0, Part::Router)).expect_err("no experts here");
    assert!(error.to_string().contains("blk.0.ffn_gate_inp.weight"), "{error}");
}
