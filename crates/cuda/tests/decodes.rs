//! Decode attention on an emulated GPU: every kernel gives a row the bits that it has as a row of a prompt, whatever its segments, its
//! company, windows, caps, groups of heads and forms of keys and values.

mod emulator;

use ropeway_cuda::attention::trial::{AttentionBench, AttentionCase, Bounds, Piece};
use ropeway_cuda::attention::{DecodeStrategy, PromptForm};
use ropeway_cuda::kv::KvForm;

/// Rows with so many keys each.
fn rows(keys: &[usize]) -> Vec<Piece> {
    keys.iter().map(|keys| Piece { after: keys - 1, tokens: 1 }).collect()
}

/// Compares the decoded rows of two layers with the same rows as prompts; how they were decoded.
fn compare(laboratory: &AttentionBench, trial: &AttentionCase) -> DecodeStrategy {
    let stream = &laboratory.stream;
    let as_prompts = trial.upload_as_prompts(stream).expect("memory");
    let prompt_kernel = laboratory.kernel(PromptForm::Warps, trial).expect("a kernel");
    let wanted = as_prompts.run(stream, &prompt_kernel).expect("a launch");
    assert!(wanted.iter().all(|half| half & 0x7fff <= 0x7f80), "{trial:?}: NaN");
    let uploaded = trial.upload_layers(stream, 2).expect("memory");
    for form in trial.decode_forms(stream.device()) {
        let kernels = laboratory.decode_kernels(*form, trial).expect("kernels");
        let decoded =
            uploaded.results(stream, || uploaded.launch_decodes(stream, &kernels)).expect("a launch");
        assert!(decoded == wanted, "{trial:?} {:?} by {form:?}: other bits", uploaded.decodes());
    }
    uploaded.decodes()
}

const TRIAL: AttentionCase = AttentionCase {
    heads: 4,
    kv_heads: 4,
    head_dim: 128,
    window: None,
    cap: None,
    pieces: Vec::new(),
    kv: KvForm::Bf16,
    seed: 1,
};

#[test]
fn every_kernel_that_numbers_of_rows_and_segments_ask_for_gives_the_bits_of_a_prompt() {
    let Some(options) = emulator::options() else { return };
    let laboratory = AttentionBench::open(&options).expect("a GPU");
    // The emulated GPU has three multiprocessors: a few rows have up to three units, many at least five.
    for (kv_heads, count, keys, wanted) in [
        (1, 1, 300, DecodeStrategy::Few),
        (4, 1, 70, DecodeStrategy::Segments),
        (1, 7, 70, DecodeStrategy::Rows),
        (1, 2, 700, DecodeStrategy::Segments),
    ] {
        let trial = AttentionCase { kv_heads, pieces: rows(&vec![keys; count]), ..TRIAL };
        assert_eq!(compare(&laboratory, &trial), wanted);
    }
}

#[test]
fn warps_that_take_several_rows_one_after_the_other_give_each_the_bits_of_a_prompt() {
    let Some(options) = emulator::options() else { return };
    let laboratory = AttentionBench::open(&options).expect("a GPU");
    // There are 24 warps with heads of 128 values, and 36 with smaller ones.
    for (head_dim, count, window) in [(128, 30, None), (64, 40, Some(50))] {
        let keys: Vec<usize> = (0..count).map(|row| 100 + row * 7 % 90).collect();
        let trial = AttentionCase { kv_heads: 1, head_dim, window, pieces: rows(&keys), ..TRIAL };
        assert_eq!(compare(&laboratory, &trial), DecodeStrategy::Rows);
    }
}

#[test]
fn decoded_rows_have_the_bits_of_a_prompt_for_random_heads_windows_caps_and_lengths() {
    let Some(options) = emulator::options() else { return };
    let laboratory = AttentionBench::open(&options).expect("a GPU");
    let mut by_segments = 0;
    for seed in 0..8 {
        let trial =
            AttentionCase::random_decodes(seed, Bounds { kv_heads: 2, group: 3, tokens: 1000, pieces: 2 });
        by_segments += usize::from(compare(&laboratory, &trial) == DecodeStrategy::Segments);
    }
    assert!(by_segments >= 2, "{by_segments} of the cases have many segments");
}

#[test]
fn rows_of_one_segment_and_of_more_than_a_warp_merges_at_once_share_a_step() {
    let Some(options) = emulator::options() else { return };
    let laboratory = AttentionBench::open(&options).expect("a GPU");
    for kv in KvForm::ALL {
        // 71 segments are merged in three turns, 32 in one, 33 in two.
        let pieces = rows(&[5, 71 * 128 - 3, 128, 32 * 128, 129, 33 * 128]);
        let trial = AttentionCase { heads: 3, kv_heads: 1, head_dim: 16, pieces, kv, ..TRIAL };
        assert_eq!(compare(&laboratory, &trial), DecodeStrategy::Segments);
    }
}

#[test]
fn groups_of_more_than_8_heads_attend_by_segments_where_a_warp_would_take_a_row() {
    let Some(options) = emulator::options() else { return };
    let laboratory = AttentionBench::open(&options).expect("a GPU");
    for (heads, wanted) in [(64, DecodeStrategy::Rows), (72, DecodeStrategy::Segments)] {
        let trial = AttentionCase { heads, kv_heads: 8, head_dim: 16, pieces: rows(&[140; 3]), ..TRIAL };
        assert_eq!(compare(&laboratory, &trial), wanted);
    }
}

#[test]
fn groups_of_more_than_16_heads_are_computed_in_parts() {
    let Some(options) = emulator::options() else { return };
    let laboratory = AttentionBench::open(&options).expect("a GPU");
    for (heads, window) in [(40, None), (32, Some(600))] {
        let trial =
            AttentionCase { heads, kv_heads: 2, head_dim: 16, window, pieces: rows(&[700, 650]), ..TRIAL };
        assert_eq!(compare(&laboratory, &trial), DecodeStrategy::Segments);
    }
}
