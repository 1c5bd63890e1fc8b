//! A GPU with less shared memory than a Hopper has, as cards for gaming. A process of its own: the card is the same for all tests of a process.

mod emulator;
mod fixtures;

use std::sync::{Mutex, MutexGuard, PoisonError};

use fixtures::rows::LongCase;
use ropeway_cuda::{CudaOptions, KvForm};
use ropeway_model::Quantize;

/// A card, for the test whose turn it is.
struct Card {
    options: CudaOptions,
    _turn: MutexGuard<'static, ()>,
}

/// A card of this capability, with so many bytes of shared memory in a block.
fn card(capability: u32, shared_bytes: usize) -> Option<Card> {
    static TURN: Mutex<()> = Mutex::new(());
    let options = emulator::options()?;
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    std::fs::write(emulator::card(), format!("{capability} {shared_bytes}")).expect("a file");
    Some(Card { options, _turn: turn })
}

/// As an RTX 40 has it.
fn card_for_gaming() -> Option<Card> {
    card(89, 101_376)
}

#[test]
fn a_smaller_gpu_computes_what_fits_it_with_the_same_bits_in_prompts_and_decoded() {
    let Some(Card { options, .. }) = &card_for_gaming() else { return };
    let case = LongCase { head_dim: 64, window: None, quantize: None, kv: KvForm::Bf16, crowds: &[0] };
    for case in [
        case,
        LongCase { head_dim: 128, window: Some(200), ..case },
        LongCase { quantize: Some(Quantize::Q4), ..case },
        LongCase { head_dim: 128, kv: KvForm::Q8, ..case },
    ] {
        case.check(options);
    }
}

#[test]
fn heads_that_do_not_fit_are_an_error_that_says_what_they_need() {
    let Some(Card { options, .. }) = &card_for_gaming() else { return };
    let case = LongCase { head_dim: 256, window: None, quantize: None, kv: KvForm::Bf16, crowds: &[0] };
    let error = case.load(options).err().expect("too large").to_string();
    assert!(error.contains("heads of 256 values") && error.contains("--device cpu"), "{error}");
}

#[test]
fn a_gpu_without_bf16_is_an_error_that_says_so() {
    let Some(Card { options, .. }) = &card(75, 65_536) else { return };
    let case = LongCase { head_dim: 64, window: None, quantize: None, kv: KvForm::Bf16, crowds: &[0] };
    let error = case.load(options).err().expect("too old").to_string();
    assert!(error.contains("8.0") && error.contains("--device cpu"), "{error}");
}
