//! The engine's own thread: steps while there is work, sleeps while there is none.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ropeway_executor::Executor;

use crate::clock::{Clock, SystemClock};
use crate::draft::{DraftModel, Mismatch};
use crate::engine::{Engine, Stepped};
use crate::handle::Handle;
use crate::settings::Settings;

/// Time for storing blocks at the end of an engine's life; whoever waits for its thread may wait for less.
const FAREWELL: Duration = Duration::from_secs(30);

/// Starts an engine on its own thread. It ends when every handle is dropped and all work is done, or
/// when it is told to [stop](Handle::stop); with a panic if it crashed or its device is gone for good.
pub fn spawn(executor: Box<dyn Executor>, settings: &Settings) -> (Handle, JoinHandle<()>) {
    let (engine, handle) = Engine::new(executor, Arc::new(SystemClock::start()), settings);
    run(engine, handle)
}

/// The same with a model that drafts for the executor's.
pub fn spawn_with_draft_model(
    executor: Box<dyn Executor>,
    draft: Box<dyn Executor>,
    settings: &Settings,
) -> Result<(Handle, JoinHandle<()>), Mismatch> {
    let clock = Arc::new(SystemClock::start());
    let drafter = DraftModel::new(draft, Arc::clone(&clock) as Arc<dyn Clock>, &executor.limits())?;
    let (engine, handle) = Engine::new(executor, clock, settings);
    let engine = engine.with_drafter(Box::new(drafter), settings.speculation).one_step_at_a_time();
    Ok(run(engine, handle))
}

fn run(engine: Engine, handle: Handle) -> (Handle, JoinHandle<()>) {
    let thread = std::thread::Builder::new().name("engine".into()).spawn(move || turn(engine));
    (handle, thread.expect("the system refuses another thread"))
}

fn turn(mut engine: Engine) {
    let _goodbye = engine.goodbye();
    while !engine.stopped() {
        match engine.step() {
            Stepped::Ran => {}
            Stepped::Waiting => engine.wait_a_moment(),
            Stepped::Idle if engine.wait() => {}
            Stepped::Idle => break,
            Stepped::Lost => panic!("the device was lost and could not be restarted"),
        }
    }
    engine.end(FAREWELL);
}
