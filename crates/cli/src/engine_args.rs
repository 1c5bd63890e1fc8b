//! The arguments of every command that starts an engine, and the start itself.

use std::thread::JoinHandle;
use std::time::Duration;

use clap::Args;
use ropeway_cpu::CpuExecutor;
use ropeway_cpu::executor::DEFAULT_STEP_TOKENS;
use ropeway_engine::settings::DEFAULT_QUEUE;
use ropeway_engine::{
    DEFAULT_ITL_TARGET, Handle, Pace, PolicyKind, Settings, Speculation, spawn, spawn_with_draft_model,
};
use ropeway_executor::Executor;
use ropeway_hub::ModelFiles;
use ropeway_machine::Machine;
use ropeway_model::StepLimits;
use ropeway_text::ChatTemplate;
use ropeway_weights::Checkpoint;

use crate::device_args::{GpuModels, GpuRoom};
use crate::draft_model::{DraftModelArg, check_tokenizers, draft_model_for};
use crate::failure::Failure;
use crate::kv_disk::{KeepsBlocks, KvDiskArgs};
use crate::memory::{self, parse_size};
use crate::model_args::{KvRoom, ModelArgs, Room};
use crate::pulling::open_hub;
use crate::speculation;

/// Share of the free memory that keys and values get unless told otherwise. Blocks are touched only as they are used,
/// but the prefix cache keeps what was used, so that a busy engine ends up with all of it. The other half is for the
/// weights, which are not loaded yet when this is decided, and for everyone else on the machine.
const SHARE_OF_FREE_MEMORY: u64 = 2;

/// KV memory where the system does not tell what is free.
const UNKNOWN_MEMORY: u64 = 1 << 30;

/// Rows of logits in a step: as many as tokens. A stream takes one token of a step, so that tokens run out no sooner
/// than rows, and how many requests run together is up to the KV memory alone. Logits that nobody asks for are never
/// touched: their rows cost addresses, not memory.
const STEP: StepLimits = StepLimits { tokens: DEFAULT_STEP_TOKENS, rows: DEFAULT_STEP_TOKENS };

/// How requests share the machine.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Engine options")]
pub struct EngineArgs {
    /// Memory for keys and values, as in 512MiB or 2GiB (default: half of what
    /// is free, on a GPU nearly all of it; for one conversation what its
    /// context needs)
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    kv_memory: Option<u64>,
    /// Longest time between two tokens of a stream that prompts beside it may
    /// cause, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = DEFAULT_ITL_TARGET.as_millis() as u32,
          value_parser = clap::value_parser!(u32).range(1..=60_000))]
    itl_target: u32,
    /// Who goes first: fair, fifo, shortest or balance
    #[arg(long, value_name = "NAME", default_value = PolicyKind::default().name())]
    policy: PolicyKind,
    /// Requests that may wait before more are turned down
    #[arg(long, value_name = "REQUESTS", default_value_t = DEFAULT_QUEUE)]
    queue: usize,
    /// Tokens guessed ahead, by what the prompt and the answer said before, and
    /// computed together; the text stays the same to the bit. auto, off, or the
    /// most guessed tokens of a step
    #[arg(long, value_name = "auto|off|N", default_value = speculation::DEFAULT, value_parser = speculation::parse)]
    speculate: Speculation,
    /// A smaller model with the same tokenizer that drafts what may follow;
    /// MODEL=NAME gives one of several models its own
    #[arg(long, value_name = "[MODEL=]NAME")]
    draft_model: Vec<DraftModelArg>,
    /// What is kept on disk.
    #[command(flatten)]
    pub kv_disk: KvDiskArgs,
}

/// How many conversations an engine is started for.
#[derive(Clone, Copy, Debug)]
pub enum For {
    /// A single one: more KV memory than its window is of no use.
    OneConversation,
    /// As many as there is memory for.
    Many,
    /// As many as so many bytes of KV memory hold.
    ManyWithin(u64),
}

/// An engine at work.
pub struct Started {
    /// The model's name.
    pub name: String,
    /// Its files.
    pub files: ModelFiles,
    /// The files, opened.
    pub checkpoint: Checkpoint,
    /// The way in.
    pub handle: Handle,
    /// The engine's thread; ends with a panic only if the engine fell.
    pub thread: JoinHandle<()>,
    /// What it runs on.
    pub machine: Machine,
    /// Bytes of its weights and its KV memory.
    pub memory: u64,
    /// The GPU that it runs on.
    device: Option<String>,
}

impl EngineArgs {
    /// Loads the model, fetching it first if need be, and starts an engine on it.
    pub fn start(&self, options: &ModelArgs, model: &str, whom: For) -> Result<Started, Failure> {
        self.start_files(options, options.files(&open_hub()?, model)?, whom)
    }

    /// Loads the model from its files and starts an engine on it.
    pub fn start_files(&self, options: &ModelArgs, files: ModelFiles, whom: For) -> Result<Started, Failure> {
        let kv = match (self.kv_memory, whom) {
            (_, For::ManyWithin(bytes)) | (Some(bytes), _) => KvRoom::Bytes(bytes),
            (None, For::OneConversation) => KvRoom::Window,
            (None, For::Many) => KvRoom::Bytes(default_kv_memory()),
        };
        if let Some(started) = self.start_on_gpu(options, &files, whom)? {
            return Ok(started);
        }
        let room = Room { kv, step: STEP };
        let (mut loaded, draft) = match self.draft_files(options, &files)? {
            None => (options.load_files(files, room)?, None),
            Some(draft) => {
                let (loaded, draft) = options.load_with_draft(files, &draft, room)?;
                (loaded, Some(draft))
            }
        };
        let memory = loaded.executor.memory() + draft.as_ref().map_or(0, CpuExecutor::memory);
        let settings = self.settings_for(&loaded.files, &mut loaded.executor, &options.machine())?;
        let engine = spawned(Box::new(loaded.executor), draft.map(|draft| Box::new(draft) as _), &settings)?;
        Ok(Started::new(loaded.files, loaded.checkpoint, engine, options.machine(), memory))
    }

    /// An engine on a GPU, if that is where the model is to run.
    fn start_on_gpu(
        &self,
        options: &ModelArgs,
        files: &ModelFiles,
        whom: For,
    ) -> Result<Option<Started>, Failure> {
        let checkpoint = Checkpoint::open(files.checkpoint())?;
        let draft = self.draft_files(options, files)?;
        let draft = draft.map(|draft| Checkpoint::open(draft.checkpoint())).transpose()?;
        if let Some(draft) = &draft {
            check_tokenizers(&checkpoint, draft)?;
        }
        let room = match (self.kv_memory, whom) {
            (Some(bytes), _) => GpuRoom::Bytes(bytes),
            (None, For::OneConversation) => GpuRoom::Window,
            (None, For::Many | For::ManyWithin(_)) => GpuRoom::Free,
        };
        let models = options.load_on_gpu(&checkpoint, draft.as_ref(), room, None)?;
        let Some(GpuModels { mut target, draft }) = models else { return Ok(None) };
        let device = Some(target.describe());
        let settings = self.settings_for(files, &mut target, &options.machine())?;
        let engine = spawned(Box::new(target), draft.map(|draft| Box::new(draft) as _), &settings)?;
        // What is on the card takes nothing of the machine's own memory.
        let started = Started::new(files.clone(), checkpoint, engine, options.machine(), 0);
        Ok(Some(Started { device, ..started }))
    }

    /// The files of the model that drafts for this one, if one was asked for.
    fn draft_files(&self, options: &ModelArgs, files: &ModelFiles) -> Result<Option<ModelFiles>, Failure> {
        let draft = draft_model_for(&self.draft_model, &files.name);
        draft.map(|draft| options.files(&open_hub()?, draft)).transpose()
    }

    /// How requests share the machine, with the place on disk of a model that was loaded.
    fn settings_for(
        &self,
        files: &ModelFiles,
        executor: &mut dyn KeepsBlocks,
        machine: &Machine,
    ) -> Result<Settings, Failure> {
        let tier = self.kv_disk.tier(files, executor, machine.threads().most())?;
        Ok(Settings { tier, ..self.settings() })
    }

    /// How requests share the machine.
    pub fn settings(&self) -> Settings {
        let pace = Pace::new(Duration::from_millis(self.itl_target.into()));
        Settings {
            policy: self.policy,
            pace,
            queue: self.queue,
            speculation: self.speculate,
            ..Settings::default()
        }
    }

    /// KV memory, if it was given.
    pub fn kv_memory(&self) -> Option<u64> {
        self.kv_memory
    }

    /// Time between two tokens, in milliseconds.
    pub fn itl_target(&self) -> u32 {
        self.itl_target
    }

    /// The policy's name.
    pub fn policy(&self) -> &'static str {
        self.policy.name()
    }
}

impl Started {
    fn new(
        files: ModelFiles,
        checkpoint: Checkpoint,
        (handle, thread): (Handle, JoinHandle<()>),
        machine: Machine,
        memory: u64,
    ) -> Started {
        Started { name: files.name.clone(), files, checkpoint, handle, thread, machine, memory, device: None }
    }

    /// Tokens that its KV memory holds.
    pub fn kv_tokens(&self) -> usize {
        let limits = self.handle.limits();
        limits.blocks * limits.block_tokens
    }

    /// The model's chat template; one without is spoken to in ChatML.
    pub fn chat_template(&self) -> Result<ChatTemplate, Failure> {
        match ChatTemplate::from_checkpoint(&self.checkpoint)? {
            Some(template) => Ok(template),
            None => Ok(ChatTemplate::chatml()?),
        }
    }

    /// One line about it for people.
    pub fn summary(&self) -> String {
        let (isa, threads) = (self.machine.isa().name(), self.machine.threads().most());
        let (name, tokens, context) = (&self.name, self.kv_tokens(), self.handle.limits().context);
        let place = match &self.device {
            Some(device) => device.clone(),
            None => format!("{isa} with up to {threads} threads"),
        };
        format!("{name} on {place}; KV memory for {tokens} tokens, at most {context} a request")
    }
}

/// An engine on a model, and on one that drafts for it.
fn spawned(
    executor: Box<dyn Executor>,
    draft: Option<Box<dyn Executor>>,
    settings: &Settings,
) -> Result<(Handle, JoinHandle<()>), Failure> {
    let Some(draft) = draft else { return Ok(spawn(executor, settings)) };
    spawn_with_draft_model(executor, draft, settings)
        .map_err(|error| Failure::new(error, "choose a smaller model of the same family with --draft-model"))
}

fn default_kv_memory() -> u64 {
    memory::available().map_or(UNKNOWN_MEMORY, |free| free / SHARE_OF_FREE_MEMORY)
}
