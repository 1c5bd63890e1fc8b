//! What happens when the device of an encoder is lost. A process of its own: a lost device is lost for all tests of a process.

mod emulator;

use std::path::Path;

use ropeway_cuda::CudaEncoder;
use ropeway_model::encoder::device::{Asked, DeviceEncoder, Encoded};
use ropeway_model::encoder::{Pooling, Texts};
use ropeway_weights::Checkpoint;

fn encode(encoder: &mut CudaEncoder) -> Result<Encoded, String> {
    let rows = 0..3;
    let texts = Texts { tokens: &[5, 6, 7], types: &[], rows: std::slice::from_ref(&rows) };
    let asked = Asked { vectors: Some(Pooling::Mean), scores: false };
    encoder.encode(&texts, asked).map_err(|failure| failure.0)
}

/// Has the device fail once.
fn lose(encoder: &mut CudaEncoder) {
    std::fs::write(emulator::loss(), "").expect("a file");
    encode(encoder).expect_err("a lost device");
}

#[test]
fn a_lost_device_is_loaded_again_and_given_up_after_three_times() {
    let Some(options) = emulator::options() else { return };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/encoders/bert");
    let checkpoint = Checkpoint::open(&folder).expect("a checkpoint");
    let mut encoder = CudaEncoder::load(&checkpoint, 64, options, &mut |_, _| {}).expect("an encoder");
    let before = encode(&mut encoder).expect("vectors");
    for _ in 0..2 {
        lose(&mut encoder);
        assert_eq!(encode(&mut encoder).expect("vectors"), before);
    }
    lose(&mut encoder);
    let failure = encode(&mut encoder).expect_err("given up");
    assert!(failure.contains("3 times"), "{failure}");
}
