//! Engines of a server: started when it starts, and again if one falls.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use ropeway_generation::Generator;
use ropeway_hub::ModelFiles;
use ropeway_server::model::{Condition, EngineState};
use ropeway_server::{Model, ModelFacts};
use ropeway_text::Tokenizer;

use super::ledger::Promise;
use super::logs;
use crate::engine_args::{EngineArgs, For, Started};
use crate::facts::Facts;
use crate::failure::Failure;
use crate::grammar_workers::grammar_workers;
use crate::model_args::ModelArgs;

/// Time before a fallen engine is started again: a model that falls at every request must not keep the machine busy
/// with loading.
const BREATH: Duration = Duration::from_secs(1);

/// Time between two lines about the batch.
const GLANCE: Duration = Duration::from_secs(1);

/// How a model's engine is started, now and after it fell.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// How requests share the machine.
    pub engine: EngineArgs,
    /// How the model is run.
    pub options: ModelArgs,
    /// Its files.
    pub files: ModelFiles,
    /// What clients call it.
    pub name: String,
    /// The sha256 of its weights; empty if unknown.
    pub digest: String,
    /// Bytes of KV memory.
    pub kv: u64,
}

impl Recipe {
    fn cook(&self) -> Result<Started, Failure> {
        self.engine.start_files(&self.options, self.files.clone(), For::ManyWithin(self.kv))
    }
}

/// Loads a model and starts its engine. The memory promised to it is given back when the engine has ended.
pub fn start(recipe: Recipe, promise: Promise) -> Result<Arc<Model>, Failure> {
    let started = recipe.cook()?;
    tracing::info!(target: "engine", "{}", started.summary());
    let (model, thread) = served(started, &recipe)?;
    let model = Arc::new(model);
    watch(Arc::downgrade(&model), thread, recipe, promise);
    Ok(model)
}

/// Logs an engine's latest step, once a second and only if there is a new one.
pub fn log_batches(model: &Arc<Model>) {
    let model = Arc::downgrade(model);
    std::thread::spawn(move || {
        let mut seen = 0;
        loop {
            std::thread::sleep(GLANCE);
            let Some(model) = model.upgrade() else { return };
            let engine = model.engine();
            let Some(board) = engine.board() else { return };
            if let Some(record) = board.records_after(seen).last() {
                seen = record.step;
                logs::batch(&model.name, record);
            }
        }
    });
}

fn served(started: Started, recipe: &Recipe) -> Result<(Model, JoinHandle<()>), Failure> {
    let tokenizer = Tokenizer::from_checkpoint(&started.checkpoint)?;
    let template = started.chat_template()?;
    let facts = Facts::of(&started.files, &started.checkpoint).for_server();
    let facts = ModelFacts { memory: started.memory, digest: recipe.digest.clone(), ..facts };
    let Started { handle, thread, .. } = started;
    let generator =
        Generator::new(tokenizer, template, Arc::new(handle)).with_grammar_workers(grammar_workers());
    Ok((Model::of_generator(recipe.name.clone(), generator, facts), thread))
}

/// Starts the engine again whenever it falls, as long as the model is there and its device is not lost for good. One that ends by
/// itself was told to, or nobody holds its model any more.
fn watch(model: Weak<Model>, mut thread: JoinHandle<()>, recipe: Recipe, promise: Promise) {
    std::thread::spawn(move || {
        while thread.join().is_err() {
            if let Some(Condition::DeviceLost { why }) = model.upgrade().map(|model| model.condition()) {
                tracing::error!(target: "engine", model = recipe.name, why, "the device is lost; the model stays down");
                break;
            }
            tracing::error!(target: "engine", model = recipe.name, "the engine fell; starting it again");
            let tell = |state| model.upgrade().map(|model| model.set_engine_state(state));
            tell(EngineState::Restarting);
            std::thread::sleep(BREATH);
            let Some(model) = model.upgrade() else { break };
            match recipe.cook() {
                Ok(started) => {
                    model.replace_engine(started.handle);
                    thread = started.thread;
                }
                Err(failure) => {
                    tracing::error!(target: "engine", model = recipe.name, %failure, "the engine could not be started again");
                    model.set_engine_state(EngineState::Failed { why: failure.to_string() });
                    break;
                }
            }
        }
        drop(promise);
    });
}
