//! Engines of a server: started when it starts, and again if one falls.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ropeway_server::{App, Model};
use ropeway_text::Tokenizer;

use super::logs;
use crate::engine_args::{EngineArgs, For, Started};
use crate::facts::Facts;
use crate::failure::Failure;
use crate::model_args::ModelArgs;

/// Time before a fallen engine is started again: a model that falls at every request must not keep the machine busy
/// with loading.
const BREATH: Duration = Duration::from_secs(1);

/// Time between two lines about the batch.
const GLANCE: Duration = Duration::from_secs(1);

/// Loads a model, starts its engine and serves it.
pub fn start(app: &Arc<App>, engine: &EngineArgs, options: &ModelArgs, name: &str) -> Result<(), Failure> {
    let started = engine.start(options, name, For::Many)?;
    tracing::info!(target: "engine", "{}", started.summary());
    let (model, thread) = served(started)?;
    let model = Arc::new(model);
    app.models.add(Arc::clone(&model));
    watch(model, thread, engine.clone(), options.clone());
    Ok(())
}

/// Logs every engine's latest step, once a second and only if there is a new one.
pub fn log_batches(app: &Arc<App>) {
    for model in app.models.all() {
        std::thread::spawn(move || {
            let mut seen = 0;
            loop {
                std::thread::sleep(GLANCE);
                if let Some(record) = model.engine().board().records_after(seen).last() {
                    seen = record.step;
                    logs::batch(&model.name, record);
                }
            }
        });
    }
}

fn served(started: Started) -> Result<(Model, JoinHandle<()>), Failure> {
    let tokenizer = Tokenizer::from_checkpoint(&started.checkpoint)?;
    let template = started.chat_template()?;
    let facts = Facts::of(&started.files, &started.checkpoint).for_server();
    let Started { name, handle, thread, .. } = started;
    Ok((Model::new(name, tokenizer, template, facts, handle), thread))
}

/// Starts the engine again whenever it falls. One that ends by itself was told to.
fn watch(model: Arc<Model>, mut thread: JoinHandle<()>, engine: EngineArgs, options: ModelArgs) {
    std::thread::spawn(move || {
        while thread.join().is_err() {
            tracing::error!(target: "engine", model = model.name, "the engine fell; starting it again");
            std::thread::sleep(BREATH);
            match engine.start(&options, &model.name, For::Many) {
                Ok(started) => {
                    model.replace_engine(started.handle);
                    thread = started.thread;
                }
                Err(failure) => {
                    tracing::error!(target: "engine", model = model.name, %failure, "the engine could not be started again");
                    return;
                }
            }
        }
    });
}
