//! `ropeway bench model`: prefill and decode speed of the forward pass, without server or text.

mod report;

use std::time::Instant;

use clap::Args;
use ropeway_cpu::CpuExecutor;
use ropeway_cuda::CudaExecutor;
use ropeway_executor::{Batch, BlockId, Executor, History, SamplingParams, StepOutput};
use ropeway_hub::ModelFiles;
use ropeway_hub::catalogue::DEFAULT_CHAT_MODEL;
use ropeway_kernels::compute::ComputeSource;
use ropeway_kernels::limits;
use ropeway_machine::LeaseRequest;
use ropeway_model::StepLimits;
use ropeway_weights::Checkpoint;

use self::report::{Cpu, Rate, Report, Subject};
use super::statistics::median;
use crate::device_args::{GpuModels, GpuRoom};
use crate::failure::Failure;
use crate::model_args::{KvRoom, Loaded, ModelArgs, Room};
use crate::output::Output;
use crate::pulling::open_hub;

/// Measure prefill and decode of a model
#[derive(Debug, Args)]
pub struct Model {
    /// A name from `ropeway list`, or a path
    #[arg(value_name = "MODEL", default_value = DEFAULT_CHAT_MODEL)]
    name: String,
    /// Prompt lengths to prefill
    #[arg(long, value_delimiter = ',', default_value = "512,4000")]
    prefill: Vec<usize>,
    /// Sequences decoded together
    #[arg(long, value_delimiter = ',', default_value = "1,8,32,64")]
    batch: Vec<usize>,
    /// Tokens each sequence holds before it is decoded
    #[arg(long, value_name = "TOKENS", default_value_t = 100)]
    held: usize,
    /// Tokens decoded per sequence and measurement
    #[arg(long, value_name = "TOKENS", default_value_t = 32)]
    tokens: usize,
    /// Tokens of one step while prefilling
    #[arg(long, value_name = "TOKENS", default_value_t = ropeway_cpu::executor::DEFAULT_STEP_TOKENS)]
    chunk: usize,
    /// Measurements; the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: ModelArgs,
}

/// Most runs before the first measured one. The search for the number of threads takes a dozen steps.
const MOST_WARM_UPS: usize = 40;

impl Model {
    pub fn run(self, output: &mut Output) -> Result<(), Failure> {
        let files = self.options.files(&open_hub()?, &self.name)?;
        let checkpoint = Checkpoint::open(files.checkpoint())?;
        let room = GpuRoom::Tokens(self.kv_tokens());
        let report = match self.options.load_on_gpu(&checkpoint, None, room, Some(self.step()))? {
            Some(GpuModels { mut target, .. }) => {
                let device = target.describe();
                let weight_bytes = target.program().map_or(0, |program| program.plan.weight_bytes());
                self.measure(&mut target, Subject { name: files.name, device, weight_bytes, cpu: None })?
            }
            None => self.measure_cpu(files)?,
        };
        if self.json { Ok(output.json(&report.json())?) } else { Ok(report.print(output)?) }
    }

    fn measure_cpu(&self, files: ModelFiles) -> Result<Report, Failure> {
        let room = Room { kv: KvRoom::Tokens(self.kv_tokens()), step: self.step() };
        let Loaded { files, mut executor, .. } = self.options.load_files(files, room)?;
        let tenant = executor.tenant();
        let (isa, threads) = (tenant.machine().isa(), tenant.machine().threads().most());
        let machine = limits::measure(isa, tenant.lease(LeaseRequest::default()).compute().pool());
        let weight_bytes = executor.decoder().weight_bytes();
        let device = format!("{} with up to {threads} threads", isa.name());
        let cpu = Some(Cpu { isa: isa.name(), threads, machine });
        self.measure(&mut executor, Subject { name: files.name, device, weight_bytes, cpu })
    }

    /// Sequences decoded together, at most.
    fn sequences(&self) -> usize {
        self.batch.iter().copied().max().unwrap_or(1).max(1)
    }

    /// Tokens that a decoded sequence has room for.
    fn per_sequence(&self) -> usize {
        (self.held + self.tokens + 2).next_multiple_of(32)
    }

    fn kv_tokens(&self) -> usize {
        let longest = self.prefill.iter().copied().max().unwrap_or(0);
        (self.sequences() * self.per_sequence()).max(longest).max(32)
    }

    fn step(&self) -> StepLimits {
        StepLimits { tokens: self.chunk.max(self.sequences()).max(1), rows: self.sequences() }
    }

    fn measure(&self, executor: &mut dyn Measured, subject: Subject) -> Result<Report, Failure> {
        let context = executor.limits().context;
        let mut bench = Runner::new(executor, self.chunk.max(1), self.per_sequence());
        let mut prefill = Vec::new();
        for &tokens in self.prefill.iter().filter(|&&tokens| tokens > 0 && tokens <= context) {
            let step = tokens.min(self.chunk.max(1));
            prefill.push(bench.rate(self.repeat, tokens, step, |bench| bench.prefill(tokens))?);
        }
        let mut decode = Vec::new();
        for &batch in self.batch.iter().filter(|&&batch| batch > 0) {
            let run = |bench: &mut Runner<'_>| bench.decode(batch, self.held, self.tokens);
            decode.push(bench.rate(self.repeat, batch, batch, run)?);
        }
        Ok(Report { subject, held: self.held, prefill, decode })
    }
}

/// An executor whose speed is measured.
trait Measured: Executor {
    /// Whether steps of so many tokens take what they will always take.
    fn is_settled(&mut self, step: usize) -> bool;

    /// Compute threads of such steps; `None` where it has none.
    fn threads_for(&mut self, step: usize) -> Option<usize>;
}

impl Measured for CpuExecutor {
    fn is_settled(&mut self, step: usize) -> bool {
        self.tenant().is_settled(step)
    }

    fn threads_for(&mut self, step: usize) -> Option<usize> {
        Some(self.tenant().threads_for(step))
    }
}

impl Measured for CudaExecutor {
    /// The run before it captured what is launched.
    fn is_settled(&mut self, _: usize) -> bool {
        true
    }

    fn threads_for(&mut self, _: usize) -> Option<usize> {
        None
    }
}

/// Drives the executor with made-up tokens.
struct Runner<'a> {
    executor: &'a mut dyn Measured,
    chunk: usize,
    blocks_per_sequence: usize,
    batch: Batch,
    output: StepOutput,
    vocab: u32,
    next: u32,
}

impl<'a> Runner<'a> {
    fn new(executor: &'a mut dyn Measured, chunk: usize, per_sequence: usize) -> Self {
        let vocab = executor.limits().vocab as u32;
        let blocks_per_sequence = per_sequence / 32;
        let (batch, output) = (Batch::default(), StepOutput::default());
        Self { executor, chunk, blocks_per_sequence, batch, output, vocab, next: 1 }
    }

    /// The median of some runs whose steps have `step` tokens, once their number of threads is settled.
    fn rate(
        &mut self,
        repeat: u32,
        of: usize,
        step: usize,
        mut run: impl FnMut(&mut Self) -> Result<f64, Failure>,
    ) -> Result<Rate, Failure> {
        for _ in 0..MOST_WARM_UPS {
            run(self)?;
            if self.executor.is_settled(step) {
                break;
            }
        }
        let runs = (0..repeat).map(|_| run(self)).collect::<Result<_, _>>()?;
        let threads = self.executor.threads_for(step);
        Ok(Rate { of, tokens_per_second: median(runs), threads })
    }

    /// Some token: all rows different, none special.
    fn token(&mut self) -> u32 {
        self.next = self.next.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.next >> 8) % self.vocab
    }

    fn step(&mut self) -> Result<(), Failure> {
        Ok(self.executor.execute(&self.batch, &mut self.output)?)
    }

    /// Tokens a second over one prompt, its first sampled token included.
    fn prefill(&mut self, tokens: usize) -> Result<f64, Failure> {
        let prompt: Vec<u32> = (0..tokens).map(|_| self.token()).collect();
        let table: Vec<_> = (0..tokens.div_ceil(32) as u32).map(BlockId).collect();
        let start = Instant::now();
        for first in (0..tokens).step_by(self.chunk) {
            let end = (first + self.chunk).min(tokens);
            self.batch.clear();
            self.batch.push_chunk(&prompt[first..end], first, &table);
            if end == tokens {
                self.batch.sample_last(&SamplingParams::greedy(), History::default());
            }
            self.step()?;
        }
        Ok(tokens as f64 / start.elapsed().as_secs_f64())
    }

    /// Tokens a second of `batch` sequences, each already holding `held` tokens.
    fn decode(&mut self, batch: usize, held: usize, tokens: usize) -> Result<f64, Failure> {
        for sequence in 0..batch {
            let prompt: Vec<u32> = (0..held.max(1)).map(|_| self.token()).collect();
            let table = self.table(sequence);
            for first in (0..prompt.len()).step_by(self.chunk) {
                self.batch.clear();
                let end = (first + self.chunk).min(prompt.len());
                self.batch.push_chunk(&prompt[first..end], first, &table);
                self.step()?;
            }
        }
        let mut latest: Vec<u32> = (0..batch).map(|_| self.token()).collect();
        let start = Instant::now();
        for step in 0..tokens {
            self.batch.clear();
            for (sequence, &token) in latest.iter().enumerate() {
                let table = self.table(sequence);
                self.batch.push_chunk(&[token], held.max(1) + step, &table);
                self.batch.sample_last(&SamplingParams::greedy(), History::default());
            }
            self.step()?;
            for (token, row) in latest.iter_mut().zip(&self.output.rows) {
                *token = row.as_ref().map_or(0, |row| row.token);
            }
        }
        Ok((batch * tokens) as f64 / start.elapsed().as_secs_f64())
    }

    fn table(&self, sequence: usize) -> Vec<BlockId> {
        let first = sequence * self.blocks_per_sequence;
        (first..first + self.blocks_per_sequence).map(|block| BlockId(block as u32)).collect()
    }
}
