//! Prompt attention on an emulated GPU: both forms give the same bits over random shapes, windows, caps, pieces of prompts and forms of keys
//! and values.

mod emulator;

use ropeway_cuda::attention::PromptForm;
use ropeway_cuda::attention::trial::{AttentionBench, AttentionCase, Bounds, Piece};
use ropeway_cuda::kv::KvForm;

/// The bits of a form's results; NaN would be a token that was not written or that saw what it must not.
fn results(laboratory: &AttentionBench, trial: &AttentionCase, form: PromptForm) -> Vec<u16> {
    let kernel = laboratory.kernel(form, trial).expect("a kernel");
    let uploaded = trial.upload(&laboratory.stream).expect("memory");
    let results = uploaded.run(&laboratory.stream, &kernel).expect("a launch");
    assert!(results.iter().all(|half| half & 0x7fff <= 0x7f80), "{trial:?} {form:?}: NaN");
    results
}

fn compare(laboratory: &AttentionBench, trial: &AttentionCase) {
    let warps = results(laboratory, trial, PromptForm::Warps);
    let warpgroups = results(laboratory, trial, PromptForm::Warpgroups);
    assert!(warps == warpgroups, "{trial:?}: other bits");
}

#[test]
fn warpgroups_give_the_bits_of_warps_for_random_heads_windows_caps_and_pieces() {
    let Some(options) = emulator::options() else { return };
    let laboratory = AttentionBench::open(&options).expect("a GPU");
    for seed in 0..20 {
        let trial = AttentionCase::random(seed, Bounds { kv_heads: 2, group: 3, tokens: 300, pieces: 2 });
        compare(&laboratory, &trial);
    }
}

#[test]
fn warpgroups_of_a_block_may_see_different_segments() {
    let Some(options) = emulator::options() else { return };
    let laboratory = AttentionBench::open(&options).expect("a GPU");
    // Half a segment off: the first warpgroup sees one segment less than the second, and with the window one more at the beginning.
    let pieces = vec![Piece { after: 320, tokens: 130 }, Piece { after: 0, tokens: 50 }];
    for kv in KvForm::ALL {
        let pieces = pieces.clone();
        let trial = AttentionCase {
            heads: 3,
            kv_heads: 1,
            head_dim: 128,
            window: Some(190),
            cap: None,
            pieces,
            kv,
            seed: 1,
        };
        compare(&laboratory, &trial);
    }
}
