//! Attention on an emulated GPU: both forms of prompts' give the same bits over random shapes, windows, caps, pieces of prompts and forms
//! of keys and values; every kernel for decoded rows writes all of them.

mod emulator;

use ropeway_cuda::kv::KvForm;
use ropeway_cuda::prompts::PromptForm;
use ropeway_cuda::prompts::trial::{Bounds, Laboratory, Piece, Trial};
use ropeway_cuda::sections::Decodes;

/// The bits of a form's results; NaN would be a token that was not written or that saw what it must not.
fn results(laboratory: &Laboratory, trial: &Trial, form: PromptForm) -> Vec<u16> {
    let kernel = laboratory.kernel(form, trial).expect("a kernel");
    let uploaded = trial.upload(&laboratory.stream).expect("memory");
    let results = uploaded.run(&laboratory.stream, &kernel).expect("a launch");
    assert!(no_nan(&results), "{trial:?} {form:?}: NaN");
    results
}

fn no_nan(results: &[u16]) -> bool {
    results.iter().all(|half| half & 0x7fff <= 0x7f80)
}

fn compare(laboratory: &Laboratory, trial: &Trial) {
    let warps = results(laboratory, trial, PromptForm::Warps);
    let warpgroups = results(laboratory, trial, PromptForm::Warpgroups);
    assert!(warps == warpgroups, "{trial:?}: other bits");
}

#[test]
fn warpgroups_give_the_bits_of_warps_for_random_heads_windows_caps_and_pieces() {
    let Some(options) = emulator::options() else { return };
    let laboratory = Laboratory::open(&options).expect("a GPU");
    for seed in 0..20 {
        let trial = Trial::random(seed, Bounds { kv_heads: 2, group: 3, tokens: 300, pieces: 2 });
        compare(&laboratory, &trial);
    }
}

#[test]
fn warpgroups_of_a_block_may_see_different_segments() {
    let Some(options) = emulator::options() else { return };
    let laboratory = Laboratory::open(&options).expect("a GPU");
    // Half a segment off: the first warpgroup sees one segment less than the second, and with the window one more at the beginning.
    let pieces = vec![Piece { after: 320, tokens: 130 }, Piece { after: 0, tokens: 50 }];
    for kv in KvForm::ALL {
        let pieces = pieces.clone();
        let trial =
            Trial { heads: 3, kv_heads: 1, head_dim: 128, window: Some(190), cap: None, pieces, kv, seed: 1 };
        compare(&laboratory, &trial);
    }
}

#[test]
fn decoded_rows_are_written_by_the_kernel_that_their_number_and_segments_ask_for() {
    let Some(options) = emulator::options() else { return };
    let laboratory = Laboratory::open(&options).expect("a GPU");
    let stream = &laboratory.stream;
    for (rows, keys, wanted) in [
        (1, 300, Decodes::Few),
        (40, 70, Decodes::Short(1)),
        (40, 200, Decodes::Short(2)),
        (2, 700, Decodes::Segments),
    ] {
        let pieces = vec![Piece { after: keys - 1, tokens: 1 }; rows];
        let trial = Trial {
            heads: 8,
            kv_heads: 4,
            head_dim: 128,
            window: None,
            cap: None,
            pieces,
            kv: KvForm::Bf16,
            seed: 1,
        };
        let kernels = laboratory.decode_kernels(&trial).expect("kernels");
        let uploaded = trial.upload_layers(stream, 2).expect("memory");
        assert_eq!(uploaded.decodes(), wanted);
        let results = uploaded.results(stream, || uploaded.launch_decodes(stream, &kernels));
        assert!(no_nan(&results.expect("a launch")), "{wanted:?}: NaN");
    }
}
