//! A text's vector has the same bits alone and in any company.

mod support;

use proptest::prelude::*;
use ropeway_batcher::Worker;
use ropeway_embed::Recipe;
use ropeway_embed::passes::{Job, PassOptions, Passes, Wanted};
use ropeway_executor::Class;
use ropeway_kernels::Isa;
use ropeway_machine::{Machine, Threads};
use ropeway_model::{LoadOptions, Precision, Quantize};
use ropeway_weights::Checkpoint;
use support::fixtures;

fn passes(name: &str, isa: Isa, threads: usize, quantize: Option<Quantize>) -> Passes {
    let checkpoint = Checkpoint::open(&fixtures().join(name)).expect("a checkpoint");
    let recipe = Recipe::of(&checkpoint).expect("a recipe");
    let options = PassOptions {
        machine: Machine::new(isa, Threads::UpTo(threads)),
        load: LoadOptions { precision: Precision::Fast, quantize },
        pass_tokens: 150,
        max_tokens: 80,
    };
    Passes::load(&checkpoint, &recipe, &options, &mut |_, _| {}).expect("a model").0
}

fn job(tokens: Vec<u32>) -> Job {
    Job { tokens, types: Vec::new(), wanted: Wanted::Vector, class: Class::Default }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn a_vector_has_the_same_bits_alone_and_in_any_batch(
        texts in prop::collection::vec(prop::collection::vec(5..320u32, 1..24), 1..12),
        threads in 1..4usize,
        fast in any::<bool>(),
    ) {
        let quantize = fast.then_some(Quantize::Q8);
        for name in ["bert", "mpnet", "nomic-bert", "modernbert", "qwen3-embedding"] {
            for isa in Isa::available().into_iter().skip(1) {
                let jobs: Vec<Job> = texts.iter().cloned().map(job).collect();
                let together = passes(name, isa, threads, quantize).run(&jobs);
                let mut alone = passes(name, isa, 1, quantize);
                for (job, together) in jobs.iter().zip(together) {
                    let alone = alone.run(std::slice::from_ref(job)).remove(0).expect("finite");
                    prop_assert_eq!(bits(&alone), bits(&together.expect("finite")), "{} {}", name, isa);
                }
            }
        }
    }
}
