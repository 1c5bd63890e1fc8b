//! Continuous batching: requests board and leave a batch that never stops.
//!
//! An [`Engine`] owns an executor, a pool of KV blocks and all sequences, and turns on a thread of its own
//! ([`spawn`]). Callers hold a [`Handle`], submit [`Request`]s and read [`Event`]s. It relies on the executor seam and
//! an injected clock only; it must never know text, networks or wall-clock time, wait for a reader, or let one
//! request's failure touch another.
//!
//! # Layout
//! - [`engine`]: one step: drain the inbox, plan, execute, commit.
//! - [`scheduler`]: what a step computes; [`scheduler::policy`]: in which order; [`cost`]: how long it will take.
//! - [`kv`]: which blocks are whose, and which content is cached.
//! - [`tier`]: where blocks go when their memory is needed, and where they come back from.
//! - [`sequence`], [`tokens`], [`roster`]: what is here, and in which state.
//! - `flight`: a step between its launch and its collection; [`draft`]: guesses that ride along.
//! - [`guide`]: what a sequence with a grammar may say next.
//! - [`request`], [`handle`], [`queue`], [`stream`]: the way in and the way out; [`backend`]: the same as a trait.
//! - [`record`], [`metrics`], [`board`]: what an operator sees.
//!
//! # Example
//! ```
//! use ropeway_engine::{Event, Request, Settings, spawn};
//!
//! # let executor = ropeway_testkit::MockExecutor::small();
//! // `executor` is any `Executor`: a model on the CPU, a GPU, or a mock.
//! let (handle, _thread) = spawn(Box::new(executor), &Settings::default());
//!
//! // One request, streamed.
//! let mut stream = handle.submit(Request::greedy(vec![1, 2, 3], 5)).unwrap();
//! while let Some(event) = stream.wait() {
//!     if let Event::Token { sampled, .. } = event {
//!         println!("token {}", sampled.token);
//!     }
//! }
//!
//! // Many requests at once; results in order.
//! let params = Request::greedy(vec![], 4);
//! let results = handle.generate_batch([vec![1, 2], vec![3, 4, 5]], &params);
//! assert!(results.iter().all(|result| result.as_ref().unwrap().tokens.len() == 4));
//! ```

#![forbid(unsafe_code)]

pub mod backend;
pub mod board;
pub mod clock;
pub mod cost;
pub mod draft;
pub mod engine;
mod flight;
pub mod guide;
pub mod handle;
pub mod kv;
pub mod metrics;
pub mod queue;
pub mod record;
pub mod request;
pub mod roster;
pub mod scheduler;
pub mod sequence;
pub mod settings;
pub mod stream;
mod thread;
pub mod tier;
pub mod tokens;

pub use backend::{Backend, Load};
pub use board::Device;
pub use clock::{Clock, SystemClock};
pub use draft::{DraftModel, DraftTotals, Drafter, Mismatch, Speculation};
pub use engine::{Engine, Stepped};
pub use guide::{Grammar, Guide, GuideError, Progress};
pub use handle::{Completion, Handle, Located};
pub use record::StepRecord;
pub use request::{Class, ClientId, Rejected, Request};
pub use scheduler::policy::PolicyKind;
pub use scheduler::{DEFAULT_ITL_TARGET, Pace};
pub use settings::Settings;
pub use stream::{Event, EventSender, EventStream, FinishReason, SequenceError, Usage, channel};
pub use thread::{spawn, spawn_with_draft_model};
pub use tier::Tier;
