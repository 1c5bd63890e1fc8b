//! An engine on a simulated clock.

use std::sync::Arc;
use std::time::Duration;

use ropeway_engine::cost::CostModel;
use ropeway_engine::{Completion, Engine, Handle, Request, Settings, Stepped, Tier};
use ropeway_executor::Limits;
use ropeway_testkit::{Fault, MockExecutor, SimClock};

pub struct Bench {
    pub engine: Engine,
    pub handle: Handle,
    pub clock: SimClock,
}

impl Bench {
    pub fn new(limits: Limits, tier: Option<Arc<dyn Tier>>, clock: &SimClock, faults: Vec<Fault>) -> Self {
        let time = CostModel::known([0.005, 0.001, 0.0003, 1e-7, 1e-7]);
        let executor = MockExecutor::new(limits).with_time(clock.clone(), time).with_faults(faults);
        let settings = Settings { tier, ..Settings::default() };
        let (engine, handle) = Engine::new(Box::new(executor), Arc::new(clock.clone()), &settings);
        Self { engine, handle, clock: clock.clone() }
    }

    pub fn turn_until_idle(&mut self) {
        loop {
            match self.engine.step() {
                Stepped::Ran => {}
                Stepped::Waiting => self.clock.advance(Duration::from_millis(1)),
                Stepped::Idle => return,
                Stepped::Lost => panic!("the device was lost"),
            }
            self.engine.roster().audit();
        }
    }

    /// The answer of `new` tokens to a prompt, alone.
    pub fn ask(&mut self, prompt: &[u32], new: usize) -> Completion {
        let mut stream = self.handle.submit(Request::greedy(prompt.to_vec(), new)).expect("room");
        self.turn_until_idle();
        stream.collect()
    }
}

pub fn said(completion: &Completion) -> Vec<u32> {
    completion.tokens.iter().map(|sampled| sampled.token).collect()
}
