//! A model whose layers all look back over a window, with blocks that fell out of it in other hands.

use std::path::Path;

use ropeway_cpu::{CpuExecutor, CpuOptions, Machine, Threads};
use ropeway_engine::{Handle, Pace, Request, Settings, spawn};
use ropeway_executor::{Batch, Executor, ExecutorError, Guides, Limits, StepOutput};
use ropeway_model::StepLimits;

use super::{UNHURRIED, all_bits, alone, my_turn, together};

/// A tiny checkpoint of random weights with a window of 16 tokens.
const MISTRAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/models/mistral");

/// Does not say how far back it reads, so that nothing is given to others.
struct KeepsAll(CpuExecutor);

impl Executor for KeepsAll {
    fn limits(&self) -> Limits {
        Limits { reach: None, ..self.0.limits() }
    }

    fn launch(&mut self, batch: &Batch, guides: &dyn Guides) -> Result<(), ExecutorError> {
        self.0.launch(batch, guides)
    }

    fn collect(&mut self, guides: &dyn Guides, output: &mut StepOutput) -> Result<(), ExecutorError> {
        self.0.collect(guides, output)
    }
}

fn open(kv_tokens: usize) -> CpuExecutor {
    let options = CpuOptions {
        context: Some(1024),
        rope_scaling: Some("linear".parse().expect("a kind of scaling")),
        kv_tokens: Some(kv_tokens),
        step: StepLimits { tokens: 96, rows: 16 },
        ..CpuOptions::on(Machine::with_threads(Threads::UpTo(2)))
    };
    CpuExecutor::open(Path::new(MISTRAL), &options, &mut |_, _| {}).expect("it loads")
}

fn start(executor: impl Executor + 'static) -> Handle {
    let settings = Settings { pace: Pace::new(UNHURRIED), ..Settings::default() };
    spawn(Box::new(executor), &settings).0
}

#[test]
fn blocks_outside_the_window_in_other_hands_change_no_bit() {
    let _turn = my_turn();
    let request = |number: u32| {
        let plain = super::request(number, 100 + 90 * number as usize, 120);
        Request { prompt: plain.prompt.iter().map(|token| token % 300).collect(), ..plain }
    };
    let requests: Vec<Request> = (0..8).map(request).collect();
    let expected = alone(&start(KeepsAll(open(1024))), &requests);
    // Memory for a third of the longest text.
    let tight = start(open(320));
    assert_eq!(all_bits(&together(&tight, &requests)), expected);
    let longest = together(&tight, &requests[7..]);
    assert_eq!(all_bits(&longest), expected[7..]);
}
