//! A loaded model's steps: what is queued for a batch, and what is read when it is done.
//!
//! ```text
//! host    fill n | upload, launch n | masks, sampling n |            collect n: wait, read
//! GPU                 copies, layers n ........| head, sampling n |
//! ```
//! Nothing is kept on the device between steps but blocks of keys and values, and what the step before chose. Launches of a small
//! class are captured once and replayed.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use ropeway_executor::{Batch, BlockId, Guides, Limits, StepOutput};
use ropeway_model::DecoderSpec;

use crate::driver::{Buffer, Graph, LaunchShape, Pinned};
use crate::error::CudaError;
use crate::executor::CudaOptions;
use crate::flight::{COPIES, InFlightStep};
use crate::guess;
use crate::kernels::{ARGMAX_STRETCHES, BLOCK, CopyBlocks, MOST_ALTERNATIVES, Sample};
use crate::load::{self, ModelSource};
use crate::program::Program;
use crate::sampling::PARAMETER_WORDS;
use crate::sections::StepKind;
use crate::shape::RowClass;
use crate::transfers::Transfers;
use crate::workspace::ADJUST_BLOCKS;

/// Steps in flight when another one is launched.
const AHEAD: usize = 1;

/// What is on the device.
pub(crate) struct Loaded {
    program: Program,
    layers: HashMap<StepKind, Graph>,
    heads: HashMap<RowClass, Graph>,
    /// Memory of steps that are not in flight.
    idle: Vec<InFlightStep>,
    /// Steps in flight, the oldest first.
    in_flight: VecDeque<InFlightStep>,
    copies: Buffer,
    sample_words: Buffer,
    /// Where vectors come back to, once some were asked for.
    normed: Option<Pinned>,
    transfers: Transfers,
    limits: Limits,
}

impl Loaded {
    /// Brings a model onto a GPU.
    pub(crate) fn new(
        spec: &DecoderSpec,
        source: &ModelSource,
        options: &CudaOptions,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, CudaError> {
        let program = load::load(spec, source, options, progress)?;
        let device = program.stream.device().clone();
        let (model, step) = (program.model, program.step);
        let sections = program.sections(RowClass::of(step.tokens));
        let flight = |_| InFlightStep::new(&device, &step, sections.bytes());
        let limits = Limits {
            block_tokens: BLOCK,
            block_bytes: model.block_bytes(),
            blocks: program.blocks,
            context: spec.context,
            reach: spec.reach(),
            step_tokens: step.tokens,
            step_rows: step.rows,
            vocab: spec.vocab,
            sizes: RowClass::SIZES,
            ahead: AHEAD,
            cost: guess::cost(&program),
        };
        Ok(Self {
            idle: (0..=AHEAD).map(flight).collect::<Result<_, _>>()?,
            in_flight: VecDeque::with_capacity(AHEAD + 1),
            copies: device.allocate(COPIES * 8)?,
            sample_words: device.allocate(1 << 16)?,
            normed: None,
            transfers: Transfers::new(&device, model.block_bytes())?,
            layers: HashMap::new(),
            heads: HashMap::new(),
            limits,
            program,
        })
    }

    /// Where and what is computed.
    pub(crate) fn program(&self) -> &Program {
        &self.program
    }

    /// What it can hold.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Starts a step.
    pub(crate) fn launch(&mut self, batch: &Batch, guides: &dyn Guides) -> Result<(), CudaError> {
        self.program.stream.device().make_current()?;
        let Some(mut flight) = self.idle.pop() else {
            return Err(CudaError::Step("more steps in flight than there is memory for".into()));
        };
        let queued = self.queue(&mut flight, batch, guides);
        if queued.is_ok() {
            self.in_flight.push_back(flight);
        } else {
            // What was queued of it is not read any more when its memory is used again.
            let _ = self.program.stream.synchronize();
            self.idle.push(flight);
        }
        queued
    }

    /// Queues all of a step.
    fn queue(
        &mut self,
        flight: &mut InFlightStep,
        batch: &Batch,
        guides: &dyn Guides,
    ) -> Result<(), CudaError> {
        let filled = (!batch.tokens.is_empty())
            .then(|| self.program.fill(batch, flight.arrays.words_mut(), &mut flight.ranges))
            .transpose()?;
        self.program.stream.record(&flight.began)?;
        self.copy_blocks(flight, batch)?;
        if let Some(filled) = filled {
            self.queue_layers(flight, filled)?;
        }
        let rows = batch.rows.len();
        if rows > 0 {
            self.queue_head(rows)?;
            // Masks are asked for while the device computes.
            flight.sampling.fill(batch, guides, self.program.model.vocab);
            self.queue_sampling(flight, rows)?;
        }
        self.program.stream.record(&flight.done)?;
        flight.remember(batch);
        Ok(())
    }

    /// Copies blocks in their order: pairs that don't depend on each other together.
    fn copy_blocks(&mut self, flight: &mut InFlightStep, batch: &Batch) -> Result<(), CudaError> {
        let Program { stream, kernels, kv, model, blocks, .. } = &self.program;
        let mut rest = &batch.copies[..];
        while !rest.is_empty() {
            let depends = |(index, pair): (usize, &(BlockId, BlockId))| {
                rest[..index].iter().any(|(from, to)| *to == pair.0 || *to == pair.1 || *from == pair.1)
            };
            let together = rest.iter().enumerate().take(COPIES).position(depends);
            let (now, later) = rest.split_at(together.unwrap_or(rest.len().min(COPIES)));
            if rest.len() != batch.copies.len() {
                // The pairs before are still being read.
                stream.synchronize()?;
            }
            for (words, (from, to)) in flight.copies.words_mut().chunks_exact_mut(2).zip(now) {
                words.copy_from_slice(&[from.0, to.0]);
            }
            stream.upload(self.copies.address(), &flight.copies, 0, now.len() * 8)?;
            let arguments = CopyBlocks {
                kv: kv.address(),
                pairs: self.copies.address(),
                layer_bytes: (blocks * model.layer_block_bytes()) as u64,
                block_bytes: model.layer_block_bytes() as u32,
            };
            let grid = [now.len() as u32, model.layers as u32, 1];
            stream.launch(
                &kernels.copy_blocks,
                LaunchShape { grid, threads: 256, shared_bytes: 0 },
                &arguments,
            )?;
            rest = later;
        }
        Ok(())
    }

    fn queue_layers(&mut self, flight: &InFlightStep, filled: StepKind) -> Result<(), CudaError> {
        let program = &self.program;
        for range in &flight.ranges {
            let (first, bytes) = (range.start * 4, range.len() * 4);
            program.stream.upload(program.workspace.arrays.plus(first), &flight.arrays, first, bytes)?;
        }
        if !filled.class.is_captured() {
            return program.layers(filled);
        }
        let graph = match self.layers.entry(filled) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(program.stream.capture(|| program.layers(filled))?),
        };
        Ok(program.stream.launch_graph(graph)?)
    }

    fn queue_head(&mut self, rows: usize) -> Result<(), CudaError> {
        let (program, class) = (&self.program, RowClass::of(rows));
        let graph = match self.heads.entry(class) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(program.stream.capture(|| program.head(class))?),
        };
        Ok(program.stream.launch_graph(graph)?)
    }

    fn queue_sampling(&mut self, flight: &mut InFlightStep, rows: usize) -> Result<(), CudaError> {
        let Program { stream, kernels, workspace, model, constants, .. } = &self.program;
        let bytes = flight.sampling.words().len() * 4;
        if bytes > flight.sample_words.bytes().len() {
            flight.sample_words = stream.device().allocate_pinned(bytes.next_power_of_two())?;
        }
        if bytes > self.sample_words.bytes() {
            stream.synchronize()?;
            self.sample_words = stream.device().allocate(bytes.next_power_of_two())?;
        }
        let words = flight.sampling.words();
        flight.sample_words.words_mut()[..words.len()].copy_from_slice(words);
        let place = self.sample_words.address();
        stream.upload(place, &flight.sample_words, 0, bytes)?;
        debug_assert!(words.len() >= rows * PARAMETER_WORDS);
        let arguments = Sample {
            logits: workspace.logits,
            adjusted_logits: workspace.adjusted_logits,
            rows: place,
            words: place,
            adjusted_rows: place.plus(flight.sampling.adjusted_rows_at() * 4),
            marks: workspace.marks,
            peaks: workspace.peaks,
            adjusted_peaks: workspace.adjusted_peaks,
            chosen_before: workspace.chosen,
            chosen: workspace.chosen,
            outcomes: workspace.outcomes,
            alternatives: workspace.alternatives,
            vocab: model.vocab as u32,
            stretches: model.stretches() as u32,
            adjusted: flight.sampling.adjusted() as u32,
            cap: constants.logit_cap,
        };
        let shape = |x: usize, y: usize, threads| LaunchShape {
            grid: [x as u32, y as u32, 1],
            threads,
            shared_bytes: 0,
        };
        let argmax = shape(model.stretches().div_ceil(ARGMAX_STRETCHES), rows, ARGMAX_STRETCHES as u32 * 32);
        stream.launch(&kernels.partial_argmax, argmax, &arguments)?;
        let adjusted = flight.sampling.adjusted();
        if adjusted > 0 {
            stream.launch(&kernels.adjust, shape(adjusted.min(ADJUST_BLOCKS), 1, 1024), &arguments)?;
        }
        stream.launch(&kernels.sample_tokens, shape(rows, 1, 1024), &arguments)?;
        stream.download(&mut flight.outcomes, workspace.outcomes, rows * 16)?;
        if flight.sampling.has_alternatives() {
            let bytes = rows * MOST_ALTERNATIVES * 8;
            stream.download(&mut flight.alternatives, workspace.alternatives, bytes)?;
        }
        Ok(())
    }

    /// Runs the layers of a batch, and reads the normed residual stream of its rows.
    pub(crate) fn hidden_states(&mut self, batch: &Batch) -> Result<Vec<Vec<f32>>, CudaError> {
        self.program.stream.device().make_current()?;
        let Some(mut flight) = self.idle.pop() else {
            return Err(CudaError::Step("more steps in flight than there is memory for".into()));
        };
        let filled = self.program.fill(batch, flight.arrays.words_mut(), &mut flight.ranges);
        let queued = filled.and_then(|filled| self.queue_layers(&flight, filled));
        self.idle.push(flight);
        queued?;
        let Program { stream, model, workspace, .. } = &self.program;
        self.program.head_norm(RowClass::of(batch.rows.len()))?;
        let words = batch.rows.len() * model.hidden / 2;
        let normed = match &mut self.normed {
            Some(normed) => normed,
            // Pinned memory is slow to get; who asks for vectors once asks again.
            none => none.insert(stream.device().allocate_pinned(self.limits.step_rows * model.hidden * 2)?),
        };
        stream.download(normed, workspace.normed, words * 4)?;
        stream.synchronize()?;
        let halves = |pair: &u32| [pair << 16, pair & 0xffff_0000].map(f32::from_bits);
        let rows = normed.words_mut()[..words].chunks_exact(model.hidden / 2);
        Ok(rows.map(|row| row.iter().flat_map(halves).collect()).collect())
    }

    /// Waits for the oldest step in flight, and reads its results.
    pub(crate) fn collect(&mut self, guides: &dyn Guides, output: &mut StepOutput) -> Result<(), CudaError> {
        let Some(mut flight) = self.in_flight.pop_front() else { return Ok(()) };
        self.program.stream.device().make_current()?;
        let waited = flight.wait();
        if let Ok(device) = waited {
            output.device = device;
            flight.finish(guides, output);
        }
        self.idle.push(flight);
        if waited.is_err() {
            // What was launched after a step that failed is void.
            let _ = self.program.stream.synchronize();
            self.idle.extend(self.in_flight.drain(..));
        }
        Ok(waited.map(drop)?)
    }

    /// Writes what a block holds into `bytes`.
    pub(crate) fn export(&mut self, block: BlockId, bytes: &mut [u8]) -> Result<(), CudaError> {
        self.program.stream.device().make_current()?;
        self.transfers.export(&self.program, block, bytes)
    }

    /// Makes a block hold `bytes`.
    pub(crate) fn import(&mut self, block: BlockId, bytes: &[u8]) -> Result<(), CudaError> {
        self.program.stream.device().make_current()?;
        self.transfers.import(&self.program, block, bytes)
    }
}
