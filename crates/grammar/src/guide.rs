//! One sequence's way through a grammar, within its share of memory.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use llguidance::TokenParser;
use llguidance::api::StopReason;
use ropeway_engine::{Guide, GuideError, Progress};

use crate::landing::Landing;

/// Bytes that one sequence's parser may grow to. Those of schemas in practical use stay under one megabyte.
const MAX_BYTES: usize = 32 << 20;

/// Bytes that all parsers of a model may have together before the large ones among them end.
const MAX_BYTES_IN_ALL: usize = 1 << 30;

/// Bytes that a parser may have even then.
const SMALL: usize = 4 << 20;

/// The memory of all parsers of a model.
#[derive(Debug, Default)]
pub(crate) struct Room {
    used: AtomicUsize,
}

impl Room {
    /// Most bytes for one parser.
    fn share(&self) -> usize {
        if self.used.load(Ordering::Relaxed) > MAX_BYTES_IN_ALL { SMALL } else { MAX_BYTES }
    }
}

/// A parser of its own, and how what it reads is brought to an end.
pub(crate) struct Parser {
    parser: TokenParser,
    landing: Option<Arc<Landing>>,
    room: Arc<Room>,
    /// What it has of the room.
    bytes: usize,
    /// Why it can't go on.
    failed: Option<GuideError>,
}

impl Parser {
    pub(crate) fn new(parser: TokenParser, landing: Option<Arc<Landing>>, room: Arc<Room>) -> Self {
        let mut parser = Self { parser, landing, room, bytes: 0, failed: None };
        parser.measure();
        parser
    }

    /// Takes a step, unless an earlier one failed. A step that grows beyond the parser's share fails.
    fn step<T, E: Display>(
        &mut self,
        step: impl FnOnce(&mut TokenParser) -> Result<T, E>,
    ) -> Result<T, GuideError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let parser = &mut self.parser;
        let taken = caught(|| step(parser)).map_err(|error| GuideError(reason(&error).into()));
        self.measure();
        let share = self.room.share();
        let taken =
            taken.and_then(|taken| if self.bytes > share { Err(too_large(share)) } else { Ok(taken) });
        taken.inspect_err(|error| self.failed = Some(error.clone()))
    }

    fn measure(&mut self) {
        let bytes = bytes(&self.parser);
        self.room.used.fetch_add(bytes, Ordering::Relaxed);
        self.room.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = bytes;
    }

    fn progress(&self) -> Progress {
        if self.parser.stopped() { Progress::Complete } else { Progress::Open }
    }
}

impl Drop for Parser {
    fn drop(&mut self) {
        self.room.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Guide for Parser {
    fn allow(&mut self, mask: &mut [u32]) -> Result<(), GuideError> {
        let allowed = self.step(|parser| match parser.stop_reason() {
            StopReason::NotStopped => parser.compute_mask(),
            _ => Ok(parser.token_env.tok_trie().eos_token_set()),
        })?;
        let words = allowed.as_slice();
        let shared = words.len().min(mask.len());
        mask[..shared].copy_from_slice(&words[..shared]);
        mask[shared..].fill(0);
        Ok(())
    }

    fn land(&mut self, mask: &mut [u32]) -> bool {
        self.landing.as_ref().is_some_and(|landing| landing.narrow(mask))
    }

    fn accept(&mut self, token: u32) -> Result<Progress, GuideError> {
        self.step(|parser| consume(parser, &[token]))?;
        Ok(self.progress())
    }

    fn forced(&mut self, tokens: &mut Vec<u32>) -> Result<Progress, GuideError> {
        let forced = self.step(|parser| {
            let forced = parser.compute_ff_tokens();
            if !forced.is_empty() {
                consume(parser, &forced)?;
            }
            Ok::<_, String>(forced)
        })?;
        tokens.extend(forced);
        Ok(self.progress())
    }
}

fn consume(parser: &mut TokenParser, tokens: &[u32]) -> Result<(), String> {
    for token in tokens {
        let taken_back = parser.consume_token(*token).map_err(|error| error.to_string())?;
        if taken_back != 0 {
            return Err("the parser wants tokens back that were generated".into());
        }
    }
    parser.check_stop().map(drop).map_err(|error| error.to_string())
}

/// About how much memory a parser takes: its lexer's, and that of each state's set of lexemes, which llguidance leaves out.
pub(crate) fn bytes(parser: &TokenParser) -> usize {
    let lexer = parser.parser.lexer_stats();
    lexer.num_bytes + lexer.num_states * lexer.num_regexps / 8
}

fn too_large(share: usize) -> GuideError {
    let megabytes = share >> 20;
    GuideError(format!("its parser takes more than {megabytes} MiB; simplify the grammar"))
}

/// Does what may panic on grammars that nobody has tried.
pub(crate) fn caught<T, E: Display>(work: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => Err(format!("{PANIC} in llguidance")),
    }
}

/// How the error of a panic begins, in llguidance's words.
const PANIC: &str = "panic:";

/// The first line that says something.
pub(crate) fn reason(error: &str) -> &str {
    let text = error.split("\n<").next().unwrap_or(error).trim();
    if is_bug(text) { "its parser failed on a bug; simplify the grammar, and please report it" } else { text }
}

/// Whether this was a panic.
pub(crate) fn is_bug(error: &str) -> bool {
    error.starts_with(PANIC)
}
