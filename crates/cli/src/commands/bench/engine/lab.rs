//! The engine under test: made-up requests go in, measured streams come out.

use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use ropeway_engine::kv::BlockHash;
use ropeway_engine::{Event, EventStream, FinishReason, Handle, Request, StepRecord, Usage};

use crate::failure::Failure;

/// Tokens before anything is measured: they touch the step's memory and show the engine what a step costs.
const WARM_UP: [usize; 3] = [20, 300, 60];

/// Longest time for blocks to get from memory to disk.
const MOVED: Duration = Duration::from_secs(60);

/// How often the engine is looked at while something is awaited.
const GLANCE: Duration = Duration::from_millis(2);

/// An engine, and tokens for it that never come twice.
pub struct Lab {
    handle: Handle,
    state: u64,
}

/// A stream that was read as it came.
pub struct Watched {
    /// When its tokens arrived.
    pub arrivals: Vec<Instant>,
    /// What it used.
    pub usage: Usage,
}

impl Watched {
    /// The longest time between two tokens, in seconds.
    pub fn longest_gap(&self) -> f64 {
        gaps(&self.arrivals).into_iter().fold(0.0, f64::max)
    }
}

/// Seconds between moments.
pub fn gaps(moments: &[Instant]) -> Vec<f64> {
    moments.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect()
}

impl Lab {
    pub fn new(handle: Handle) -> Lab {
        Lab { handle, state: 1 }
    }

    /// Tokens that a request may have.
    pub fn context(&self) -> usize {
        self.handle.limits().context
    }

    /// Some requests that nobody measures.
    pub fn warm_up(&mut self) -> Result<(), Failure> {
        let longest = self.handle.limits().context / 2;
        for tokens in WARM_UP {
            let stream = self.submit(tokens.min(longest), 8)?;
            finish(stream)?;
        }
        Ok(())
    }

    /// A prompt unlike any before.
    pub fn prompt(&mut self, tokens: usize) -> Vec<u32> {
        let vocab = self.handle.limits().vocab as u64;
        let mut next = || {
            self.state =
                self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((self.state >> 33) % vocab) as u32
        };
        (0..tokens.max(1)).map(|_| next()).collect()
    }

    /// Submits a new prompt of `tokens`, to be continued by `new`, no sooner and no later.
    pub fn submit(&mut self, tokens: usize, new: usize) -> Result<EventStream, Failure> {
        let prompt = self.prompt(tokens);
        self.submit_prompt(prompt, new)
    }

    /// Submits a given prompt.
    pub fn submit_prompt(&self, prompt: Vec<u32>, new: usize) -> Result<EventStream, Failure> {
        self.submit_request(Request::greedy(prompt, new))
    }

    /// Submits a request of any kind.
    pub fn submit_request(&self, request: Request) -> Result<EventStream, Failure> {
        Ok(self.handle.submit(request)?)
    }

    /// Has the blocks of a text leave memory for the disk, where there is one; whether there is.
    pub fn move_to_disk(&self, text: &[u32]) -> bool {
        let Some(tier) = self.handle.tier() else { return false };
        self.settle();
        let (names, began) = (self.handle.names(&[], text), Instant::now());
        while !self.is_on_disk(names.clone()) {
            if began.elapsed() > MOVED {
                return false;
            }
            thread::sleep(GLANCE);
        }
        tier.flush(MOVED);
        self.handle.evict(names, false);
        true
    }

    fn is_on_disk(&self, names: Vec<BlockHash>) -> bool {
        let (told, is_there) = channel();
        self.handle.locate(names, move |places| {
            let _ = told.send(places.iter().all(|place| place.lower));
        });
        is_there.recv().unwrap_or(false)
    }

    /// Steps computed so far.
    pub fn steps(&self) -> u64 {
        self.handle.board().metrics().steps
    }

    /// Drafts so far whose first token was right.
    pub fn first_drafts_right(&self) -> u64 {
        self.handle.board().metrics().accepted_at[0]
    }

    /// The steps since `step`.
    pub fn steps_since(&self, step: u64) -> Vec<StepRecord> {
        self.handle.board().records_after(step)
    }

    /// Waits until the engine has computed `step` steps.
    pub fn wait_for_step(&self, step: u64) {
        while self.steps() < step {
            thread::sleep(GLANCE);
        }
    }

    /// Waits until everyone left.
    pub fn settle(&self) {
        let busy = || {
            let metrics = self.handle.board().metrics();
            metrics.running + metrics.waiting + self.handle.board().queued() > 0
        };
        while busy() {
            thread::sleep(GLANCE);
        }
    }
}

/// Reads a stream to its end.
pub fn finish(stream: EventStream) -> Result<Usage, Failure> {
    Ok(watch(stream)?.usage)
}

/// Reads a stream to its end, noting when its tokens arrive.
pub fn watch(mut stream: EventStream) -> Result<Watched, Failure> {
    let mut arrivals = Vec::new();
    while let Some(event) = stream.wait() {
        match event {
            Event::Placed { .. } | Event::Prefilled { .. } | Event::Scored(_) => {}
            Event::Token { .. } => arrivals.push(Instant::now()),
            Event::Finished { reason: FinishReason::Failed(error), .. } => {
                return Err(Failure::new(error, "check the model with `ropeway run`"));
            }
            Event::Finished { usage, .. } => return Ok(Watched { arrivals, usage }),
        }
    }
    Err(Failure::new("a stream ended without a word", "run it again"))
}
