//! A server with a disk area below its model's memory, on an executor that takes its time: what costs nothing to compute is
//! not fetched.

use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ropeway_engine::{Handle, Settings, spawn};
use ropeway_executor::{Batch, BlockId, Executor, ExecutorError, Guides, Limits, StepOutput};
use ropeway_kvdisk::{Disk, Options, ShelfSpec};
use ropeway_server::{App, Model, ModelFacts, Models};
use ropeway_testkit::MockExecutor;
use ropeway_text::{ChatTemplate, Tokenizer};
use ropeway_weights::Checkpoint;

use crate::default_models;
use crate::support::CONTEXT;

/// A millisecond per token.
struct Slow(MockExecutor);

impl Executor for Slow {
    fn limits(&self) -> Limits {
        self.0.limits()
    }

    fn launch(&mut self, batch: &Batch, guides: &dyn Guides) -> Result<(), ExecutorError> {
        thread::sleep(Duration::from_millis(batch.tokens.len() as u64));
        self.0.launch(batch, guides)
    }

    fn collect(&mut self, guides: &dyn Guides, output: &mut StepOutput) -> Result<(), ExecutorError> {
        self.0.collect(guides, output)
    }

    fn export(&mut self, block: BlockId, bytes: &mut [u8]) -> Result<(), ExecutorError> {
        self.0.export(block, bytes)
    }

    fn import(&mut self, block: BlockId, bytes: &[u8]) -> Result<(), ExecutorError> {
        self.0.import(block, bytes)
    }
}

/// A server with a disk area, until it is stopped.
pub struct Kept {
    pub app: Arc<App>,
    disk: Disk,
    engine: Handle,
    thread: JoinHandle<()>,
}

impl Kept {
    /// One on the disk area in this folder; `None` (and a reason on the screen) without a tokenizer.
    pub fn start(dir: &Path, keys: &str) -> Option<Self> {
        let checkpoint = Checkpoint::open(&default_models::smollm2()?).expect("the default model");
        let tokenizer = Tokenizer::from_checkpoint(&checkpoint).expect("a tokenizer");
        let template = ChatTemplate::from_checkpoint(&checkpoint).expect("readable").expect("a template");
        let limits = Limits { context: CONTEXT, vocab: tokenizer.vocab_size(), ..Limits::EXAMPLE };
        let executor = Slow(MockExecutor::new(limits));
        let disk = Disk::open(Options { floor: 0, ..Options::new(dir, 64 << 20) }).expect("a disk area");
        let shelf = disk.shelf(ShelfSpec {
            identity: [7; 32],
            label: "smollm2:135m".into(),
            block_bytes: executor.limits().block_bytes,
            block_tokens: limits.block_tokens,
        });
        let settings = Settings { tier: Some(Arc::new(shelf)), ..Settings::default() };
        let (engine, thread) = spawn(Box::new(executor), &settings);
        let facts = ModelFacts::default();
        let models = Models::default();
        models.add(Arc::new(Model::new("smollm2:135m".into(), tokenizer, template, facts, engine.clone())));
        let mut app = App::new(models).with_disk(disk.clone());
        app.guard.keys = keys.parse().expect("keys");
        Some(Self { app: Arc::new(app), disk, engine, thread })
    }

    /// Ends it as a server ends.
    pub fn stop(self) {
        assert!(self.app.agents.flush(Duration::from_secs(10)), "agents are written");
        self.engine.stop();
        self.thread.join().expect("an orderly end");
        drop((self.app, self.engine));
        self.disk.close(Duration::from_secs(10));
    }
}
