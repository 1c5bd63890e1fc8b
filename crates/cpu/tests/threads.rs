//! How many threads compute a step, or a layer of it, changes no bit of the result.

mod support;

use ropeway_kernels::compute::ComputeSource;
use ropeway_kernels::kv::{BLOCK, KvFormat};
use ropeway_kernels::{Compute, Isa};
use ropeway_model::{Decoder, DecoderSpec, KvCache, LoadOptions, StepArrays, StepLimits, Workspace, load};
use ropeway_weights::Checkpoint;
use support::{fixture_json, fixtures};

const TOKENS: usize = 40;
const MOST_THREADS: usize = 5;

/// Another number of threads for every layer.
struct Changing {
    compute: Compute,
    layers: usize,
}

impl ComputeSource for Changing {
    fn compute(&mut self) -> &mut Compute {
        &mut self.compute
    }

    fn start_layer(&mut self) {
        self.layers += 1;
        self.compute.set_threads(1 + self.layers * 3 % MOST_THREADS);
    }
}

/// The bits of the logits of a prompt's last token and of three tokens after it.
fn logits(decoder: &Decoder, source: &mut dyn ComputeSource) -> Vec<u32> {
    let mut kv = KvCache::new(&decoder.spec, KvFormat::S16, TOKENS.div_ceil(BLOCK));
    let limits = StepLimits { tokens: TOKENS, rows: 1 };
    let mut work = Workspace::new(decoder, kv.layout(), limits, source.compute());
    let mut arrays = StepArrays::default();
    let prompt: Vec<u32> = (5..TOKENS as u32 - 3).collect();
    let mut bits = Vec::new();
    for (tokens, start) in [(&prompt[..], 0), (&[7], 32), (&[9, 11], 33)] {
        arrays.clear();
        arrays.push_chunk(tokens, start, 0..kv.blocks() as u32);
        arrays.want_logits(tokens.len() - 1);
        decoder.forward(source, &arrays.step(), &mut kv, &mut work);
        bits.extend(work.logits(0).iter().map(|x| x.to_bits()));
    }
    bits
}

#[test]
fn a_number_of_threads_that_changes_with_every_layer_gives_the_same_bits() {
    for entry in fixture_json("index.json").as_array().expect("checkpoints") {
        let path = entry["path"].as_str().expect("a path");
        let checkpoint = Checkpoint::open(&fixtures().join(path)).expect("a checkpoint");
        for isa in Isa::available().into_iter().skip(1) {
            let spec = DecoderSpec::from_checkpoint(&checkpoint).expect("a decoder");
            let mut one = Compute::new(isa, 1);
            let decoder = load(&checkpoint, spec, LoadOptions::default(), &mut one, &mut |_, _| {});
            let decoder = decoder.expect("it loads");
            let mut compute = Compute::new(isa, MOST_THREADS);
            compute.reserve_scratch(one.scratch_bytes());
            let mut changing = Changing { compute, layers: 0 };
            assert_eq!(logits(&decoder, &mut one), logits(&decoder, &mut changing), "{path} {isa}");
        }
    }
}
