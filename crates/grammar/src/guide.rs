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

/// Bytes of an item of a parser's row, with its share of what stands beside it.
const ITEM: usize = 16;

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
    tokens: TokenParser,
    landing: Option<Arc<Landing>>,
    room: Arc<Room>,
    /// Items of the rows that the answer so far has made; they are kept to its end.
    items: usize,
    /// The same per token, so that tokens can be given back.
    items_of: Vec<u32>,
    /// What it has of the room.
    bytes: usize,
    /// Why it can't go on.
    failed: Option<GuideError>,
}

impl Parser {
    pub(crate) fn new(parser: TokenParser, landing: Option<Arc<Landing>>, room: Arc<Room>) -> Self {
        let mut parser =
            Self { tokens: parser, landing, room, items: 0, items_of: Vec::new(), bytes: 0, failed: None };
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
        let parser = &mut self.tokens;
        let taken = caught(|| step(parser)).map_err(|error| GuideError(reason(&error).into()));
        self.measure();
        let share = self.room.share();
        let taken =
            taken.and_then(|taken| if self.bytes > share { Err(too_large(share)) } else { Ok(taken) });
        taken.inspect_err(|error| self.failed = Some(error.clone()))
    }

    /// Takes a step forward; the rows that it makes are kept.
    fn advance<T>(
        &mut self,
        step: impl FnOnce(&mut TokenParser) -> Result<T, String>,
    ) -> Result<T, GuideError> {
        let (items, tokens) = (self.tokens.parser_stats().all_items, self.tokens.num_tokens());
        let taken = self.step(step);
        let items = self.tokens.parser_stats().all_items.saturating_sub(items);
        self.items += items;
        self.count_items(items, self.tokens.num_tokens().saturating_sub(tokens));
        taken
    }

    /// Counts the items that some tokens made with the first of them.
    fn count_items(&mut self, items: usize, tokens: usize) {
        let others = self.items_of.len() + tokens;
        if tokens > 0 {
            self.items_of.push(u32::try_from(items).unwrap_or(u32::MAX));
            self.items_of.resize(others, 0);
        }
    }

    fn measure(&mut self) {
        let bytes = bytes(&self.tokens) + self.items * ITEM;
        self.room.used.fetch_add(bytes, Ordering::Relaxed);
        self.room.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = bytes;
    }

    fn progress(&self) -> Progress {
        if self.tokens.stopped() { Progress::Complete } else { Progress::Open }
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
        self.advance(|parser| consume(parser, &[token]))?;
        Ok(self.progress())
    }

    fn forced(&mut self, tokens: &mut Vec<u32>) -> Result<Progress, GuideError> {
        let forced = self.advance(|parser| {
            let forced = parser.compute_ff_tokens();
            if !forced.is_empty() {
                consume(parser, &forced)?;
            }
            Ok(forced)
        })?;
        tokens.extend(forced);
        Ok(self.progress())
    }

    fn can_rollback(&self) -> bool {
        self.failed.is_none() && self.tokens.parser.grammar().lexer_spec().can_rollback()
    }

    fn allowed(&mut self, tokens: &[u32]) -> Result<usize, GuideError> {
        self.step(|parser| parser.validate_tokens_raw(tokens))
    }

    fn rollback(&mut self, tokens: usize) -> Result<(), GuideError> {
        self.step(|parser| parser.rollback(tokens))?;
        let kept = self.items_of.len().saturating_sub(tokens);
        self.items -= self.items_of.drain(kept..).map(|items| items as usize).sum::<usize>();
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsers::{compile, factory};
    use crate::vocabulary::{Vocabulary, Words};
    use llguidance::api::TopLevelGrammar;

    const TEXT: u32 = b'x' as u32;

    fn parser(lark: &str, room: &Arc<Room>) -> Parser {
        let words: Vec<Vec<u8>> = (0..=254).map(|byte| vec![byte]).collect();
        let factory = factory(Vocabulary::new(&Words::new(words, vec![0]), None)).expect("a factory");
        let parser = compile(&factory, TopLevelGrammar::from_lark(lark.into())).expect("a grammar");
        Parser::new(parser, None, Arc::clone(room))
    }

    #[test]
    fn a_parser_that_outgrows_its_share_ends_alone_and_for_good() {
        let room = Arc::new(Room::default());
        let mut parser = parser("start: /[xy]*/\n", &room);
        assert!(parser.accept(TEXT).is_ok());
        parser.items = MAX_BYTES / ITEM;
        let failed = parser.accept(TEXT).expect_err("too large");
        assert!(failed.0.contains("32 MiB"), "{failed}");
        parser.items = 0;
        assert_eq!(parser.allow(&mut [0; 8]), Err(failed));
        drop(parser);
        assert_eq!(room.used.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn large_parsers_end_when_all_together_have_too_much() {
        let room = Arc::new(Room::default());
        let (mut small, mut large) = (parser("start: /x*/\n", &room), parser("start: /x*/\n", &room));
        large.items = SMALL / ITEM;
        assert!(large.accept(TEXT).is_ok());
        room.used.fetch_add(MAX_BYTES_IN_ALL, Ordering::Relaxed);
        assert!(large.accept(TEXT).is_err());
        assert!(small.accept(TEXT).is_ok());
    }

    #[test]
    fn rows_of_the_answer_count() {
        let mut parser = parser("start: a\na: a a | \"x\"\n", &Arc::default());
        let before = parser.bytes;
        for _ in 0..50 {
            parser.accept(TEXT).expect("x");
        }
        assert!(parser.items > 50 && parser.bytes > before, "{} items", parser.items);
    }
}
