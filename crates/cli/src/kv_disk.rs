//! Keys and values on disk: where, how much, and for which model.

use std::env;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{BinaryBytes, HumanCount};
use ropeway_cpu::CpuExecutor;
use ropeway_cuda::CudaExecutor;
use ropeway_engine::{Handle, Tier};
use ropeway_executor::{Executor, ExecutorError};
use ropeway_hub::{Config, ModelFiles};
use ropeway_kvdisk::{Disk, Options, ShelfSpec};
use ropeway_weights::digest::digest;

use crate::failure::Failure;
use crate::memory::parse_size;
use crate::output::tell;

/// Names another folder, as `--kv-disk-dir` does.
const VARIABLE: &str = "ROPEWAY_KV_DISK_DIR";

/// How often it is looked whether engines have stored what they hold.
const GLANCE: Duration = Duration::from_millis(5);

/// Where keys and values go that memory has no room for.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Engine options")]
pub struct KvDiskArgs {
    /// Keep keys and values on disk as well, up to this size: prompts that
    /// were read once are warm after a restart, as in 20GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    kv_disk: Option<u64>,
    /// Folder for them (default: kv beside the models)
    #[arg(long, value_name = "FOLDER")]
    kv_disk_dir: Option<PathBuf>,
    /// The area, once it is open: one for all models of the process.
    #[arg(skip)]
    opened: Arc<OnceLock<Disk>>,
}

/// The folder that is used unless a command line names another: beside the models.
pub fn kv_disk_dir() -> Result<PathBuf, Failure> {
    match env::var_os(VARIABLE).filter(|dir| !dir.is_empty()) {
        Some(dir) => Ok(dir.into()),
        None => Ok(Config::from_env()?.home.join("kv")),
    }
}

/// An executor whose blocks can be kept beyond its life.
pub trait KeepsBlocks: Executor {
    /// A digest of everything that decides the bits of a block besides its tokens.
    fn identity(&mut self, weights: &[u8; 32]) -> Result<[u8; 32], ExecutorError>;

    /// What the numbers of its blocks are, for people.
    fn format(&self) -> &'static str;
}

impl KeepsBlocks for CpuExecutor {
    fn identity(&mut self, weights: &[u8; 32]) -> Result<[u8; 32], ExecutorError> {
        self.kv_identity(weights)
    }

    fn format(&self) -> &'static str {
        self.kv_layout().format.name()
    }
}

impl KeepsBlocks for CudaExecutor {
    fn identity(&mut self, weights: &[u8; 32]) -> Result<[u8; 32], ExecutorError> {
        self.kv_identity(weights)
    }

    fn format(&self) -> &'static str {
        "cuda-bf16"
    }
}

impl KvDiskArgs {
    /// The place for a model's blocks, if there is one.
    pub fn tier(
        &self,
        files: &ModelFiles,
        executor: &mut dyn KeepsBlocks,
        threads: usize,
    ) -> Result<Option<Arc<dyn Tier>>, Failure> {
        let Some(size) = self.kv_disk else { return Ok(None) };
        let weights = digest(files.files.iter().map(|file| file.path.as_path()), threads)?;
        let identity = executor
            .identity(&weights)
            .map_err(|error| Failure::new(error, "start without --kv-disk; please report the message"))?;
        let limits = executor.limits();
        let spec = ShelfSpec {
            identity,
            label: format!("{} {}", files.name, executor.format()),
            block_bytes: limits.block_bytes,
            block_tokens: limits.block_tokens,
        };
        let shelf = self.open(size)?.shelf(spec);
        let stock = shelf.stock();
        if stock.blocks > 0 {
            let (bytes, tokens) = (BinaryBytes(stock.bytes), HumanCount(stock.tokens));
            tell(&format!("{bytes} of keys and values for {tokens} tokens of {} on disk", files.name));
        }
        Ok(Some(Arc::new(shelf)))
    }

    /// The folder, if keys and values are kept.
    pub fn folder(&self) -> Result<Option<PathBuf>, Failure> {
        if self.kv_disk.is_none() {
            return Ok(None);
        }
        Ok(Some(match &self.kv_disk_dir {
            Some(folder) => folder.clone(),
            None => kv_disk_dir()?,
        }))
    }

    /// The area of the process, opened if that was asked for and not done before.
    pub fn disk(&self) -> Result<Option<Disk>, Failure> {
        self.kv_disk.map(|size| self.open(size)).transpose()
    }

    fn open(&self, size: u64) -> Result<Disk, Failure> {
        if let Some(disk) = self.opened.get() {
            return Ok(disk.clone());
        }
        let folder = self.folder()?.unwrap_or_default();
        let disk = Disk::open(Options::new(folder, size))
            .map_err(|error| Failure::new(error, "choose another folder with --kv-disk-dir"))?;
        let status = disk.status();
        if let Some(why) = &status.read_only {
            tell(&format!("warning: keys and values on disk are read, but none are added: {why}"));
        }
        Ok(self.opened.get_or_init(|| disk).clone())
    }

    /// Has engines store what they hold and closes the area, within that time. For the end of a process.
    pub fn finish(&self, engines: &[Handle], within: Duration) {
        let Some(disk) = self.opened.get() else { return };
        let end = Instant::now() + within;
        engines.iter().for_each(Handle::stop);
        while engines.iter().any(|engine| !engine.has_ended()) && Instant::now() < end {
            std::thread::sleep(GLANCE);
        }
        disk.close(end.saturating_duration_since(Instant::now()));
    }
}
