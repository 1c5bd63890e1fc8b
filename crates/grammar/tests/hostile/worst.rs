//! The worst that a number of hostile grammars do: to workers, to this process and to the masks of those that compile.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ropeway_engine::{Grammar, Progress};
use ropeway_grammar::{Compiled, Compiler};

use crate::WORKER;
use crate::generator::{Random, spec};

/// Tokens of an answer for each grammar that compiles.
const TOKENS: usize = 40;

/// Words of a mask: enough for the vocabulary of the default model.
const MASK: usize = 49_152 / 32;

/// Largest values seen.
#[derive(Debug, Default)]
pub struct Worst {
    compiled: usize,
    refused: usize,
    failed_later: usize,
    /// From asking to the answer, and which seed it was.
    pub time: Duration,
    time_seed: u64,
    /// Of one worker.
    pub memory: usize,
    /// Processor time of a mask.
    mask: Duration,
    mask_seed: u64,
    /// By which this process grew, with all grammars that it keeps.
    growth: usize,
}

impl Worst {
    pub fn of(compiler: &Compiler, seeds: Range<u64>) -> Self {
        let (mut worst, done) = (Self::default(), AtomicBool::new(false));
        let memory = AtomicUsize::new(0);
        // The first grammar of all waits for the vocabulary.
        compiler.compile(&ropeway_grammar::GrammarSpec::Regex("a".into()), None).expect("compiles");
        let before = resident("self");
        thread::scope(|scope| {
            scope.spawn(|| observe(&memory, &done));
            for seed in seeds {
                worst.attempt(compiler, seed);
            }
            done.store(true, Ordering::Relaxed);
        });
        worst.memory = memory.into_inner();
        worst.growth = resident("self").saturating_sub(before);
        worst
    }

    fn attempt(&mut self, compiler: &Compiler, seed: u64) {
        let spec = spec(seed);
        let began = Instant::now();
        let outcome = compiler.compile(&spec, None);
        let took = began.elapsed();
        if took > self.time {
            (self.time, self.time_seed) = (took, seed);
        }
        match outcome {
            Ok(grammar) => self.answer(&grammar, seed),
            Err(_) => self.refused += 1,
        }
    }

    /// Writes an answer of allowed tokens, chosen at random.
    fn answer(&mut self, grammar: &Arc<Compiled>, seed: u64) {
        self.compiled += 1;
        let (mut guide, mut mask, mut random) = (grammar.begin(), vec![0; MASK], Random::new(seed + 1));
        for _ in 0..TOKENS {
            let began = processor_time();
            let allowed = guide.allow(&mut mask);
            let took = processor_time().saturating_sub(began);
            if took > self.mask {
                (self.mask, self.mask_seed) = (took, seed);
            }
            let tokens: Vec<u32> = (0..MASK as u32 * 32).filter(|token| is_set(&mask, *token)).collect();
            let token = tokens.get(random.below(tokens.len().max(1)));
            let accepted =
                allowed.and_then(|()| token.map_or(Ok(Progress::Complete), |token| guide.accept(*token)));
            match accepted {
                Ok(Progress::Open) => {}
                Ok(Progress::Complete) => return,
                Err(error) => {
                    self.failed_later += 1;
                    println!("seed {seed}: {error}");
                    return;
                }
            }
        }
    }
}

fn is_set(mask: &[u32], token: u32) -> bool {
    mask[token as usize / 32] >> (token % 32) & 1 == 1
}

/// Looks at all children of this process until it is told to stop.
fn observe(memory: &AtomicUsize, done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        // Before it is a worker, a child shares the memory of this process.
        for child in crate::children().iter().filter(|child| is_worker(child)) {
            memory.fetch_max(peak(child), Ordering::Relaxed);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Of this thread: others that use the machine do not count.
fn processor_time() -> Duration {
    #[cfg(unix)]
    {
        use rustix::time::{ClockId, clock_gettime};
        Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
    }
    #[cfg(not(unix))]
    Duration::ZERO
}

fn is_worker(process: &str) -> bool {
    std::fs::read_link(format!("/proc/{process}/exe")).is_ok_and(|path| path.ends_with(WORKER))
}

/// Bytes that a process has in memory.
fn resident(process: &str) -> usize {
    status(process, "VmRSS:")
}

/// Most bytes that it had.
fn peak(process: &str) -> usize {
    status(process, "VmHWM:")
}

fn status(process: &str, field: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    line.split_whitespace().next().and_then(|kilobytes| kilobytes.parse::<usize>().ok()).unwrap_or(0) << 10
}

impl fmt::Display for Worst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { compiled, refused, failed_later, .. } = self;
        writeln!(
            f,
            "{compiled} compiled ({failed_later} of them failed within {TOKENS} tokens), {refused} refused"
        )?;
        writeln!(f, "longest {:?} (seed {})", self.time, self.time_seed)?;
        writeln!(
            f,
            "largest worker {} MiB, this process grew by {} MiB",
            self.memory >> 20,
            self.growth >> 20
        )?;
        write!(f, "slowest mask {:?} (seed {})", self.mask, self.mask_seed)
    }
}
