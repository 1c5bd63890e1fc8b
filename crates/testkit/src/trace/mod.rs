//! Recorded traffic: when requests came, how long they were, and which parts of their prompts were equal.
//!
//! ```text
//! Azure      TIMESTAMP,ContextTokens,GeneratedTokens       CSV with this heading; nothing is known of what prompts say
//! Mooncake   {"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": [...]}      one line each
//! ```
//! An id stands for [`BLOCK`] tokens of a prompt and for everything before them; the last one may stand for fewer. Which format
//! a file has is seen from its first line. Files are not trusted: a bad line is an error that names it, and everything that
//! is kept is bounded.
//!
//! [`prompt`] turns ids into texts that are equal where ids are. [`endless`] counts what a cache without bounds would find.

mod azure;
pub mod endless;
mod lines;
mod mooncake;
pub mod prompt;

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use lines::Lines;

/// Tokens that an id stands for.
pub const BLOCK: usize = 512;

/// Longest prompt or answer, in tokens: beyond every model's context.
const LONGEST: usize = 10_000_000;

/// Most requests of a trace: some hundred megabytes of them.
const MOST_REQUESTS: usize = 4_000_000;

/// Most ids of a trace: half a gigabyte of them.
const MOST_IDS: usize = 64_000_000;

/// Why a trace can't be used.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file can't be read.
    #[error("could not read {name}: {error}")]
    Unreadable {
        /// The file.
        name: String,
        /// What the system says.
        error: io::Error,
    },
    /// A line is not what it should be.
    #[error("{name}, line {line}: {what}")]
    Line {
        /// The file.
        name: String,
        /// The line's number, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// There is nothing in it.
    #[error("{0} holds no requests")]
    Empty(String),
}

/// What is wrong with a source, or with its latest line.
enum Wrong {
    Line(String),
    Source(io::Error),
}

impl From<String> for Wrong {
    fn from(what: String) -> Self {
        Wrong::Line(what)
    }
}

impl From<io::Error> for Wrong {
    fn from(error: io::Error) -> Self {
        Wrong::Source(error)
    }
}

/// What a line says.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    /// Time by the recorder's clock.
    at: Duration,
    prompt: usize,
    answer: usize,
    ids: Vec<u64>,
}

/// A request without its contents.
#[derive(Clone, Debug)]
struct Entry {
    at: Duration,
    prompt: usize,
    answer: usize,
    ids: Range<usize>,
}

/// A trace in memory, in the order of arrival.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    entries: Vec<Entry>,
    /// The ids of all requests, one after another.
    ids: Vec<u64>,
}

/// A request as it was recorded.
#[derive(Clone, Copy, Debug)]
pub struct Recorded<'a> {
    /// Its place in the trace.
    pub number: usize,
    /// From the first request to this one.
    pub at: Duration,
    /// Tokens of the prompt; at least one.
    pub prompt_tokens: usize,
    /// Tokens of the answer; at least one.
    pub answer_tokens: usize,
    /// What its blocks hold, where that was recorded.
    ids: &'a [u64],
}

impl Trace {
    /// Reads a file, or only its first requests.
    pub fn open(path: &Path, most: Option<usize>) -> Result<Trace, TraceError> {
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => Trace::read(&name, BufReader::new(file), most),
            Err(error) => Err(TraceError::Unreadable { name, error }),
        }
    }

    /// Reads what is called `name` in errors, or only the first requests of it.
    pub fn read(name: &str, source: impl BufRead, most: Option<usize>) -> Result<Trace, TraceError> {
        let (mut lines, mut trace) = (Lines::new(source), Trace::default());
        let name = || name.to_owned();
        match trace.fill(&mut lines, most.unwrap_or(usize::MAX)) {
            Ok(()) if trace.is_empty() => Err(TraceError::Empty(name())),
            Ok(()) => Ok(trace),
            Err(Wrong::Line(what)) => Err(TraceError::Line { name: name(), line: lines.number(), what }),
            Err(Wrong::Source(error)) => Err(TraceError::Unreadable { name: name(), error }),
        }
    }

    fn fill(&mut self, lines: &mut Lines<impl BufRead>, most: usize) -> Result<(), Wrong> {
        let parse = parser(lines)?;
        let mut began = None;
        while self.len() < most
            && let Some(text) = lines.next()?
        {
            let line = parse(text)?.checked()?;
            let began = *began.get_or_insert(line.at);
            self.push(line, began)?;
        }
        Ok(())
    }

    fn push(&mut self, line: Line, began: Duration) -> Result<(), String> {
        if self.len() == MOST_REQUESTS || self.ids.len() + line.ids.len() > MOST_IDS {
            return Err("the trace is too long from here on; replay only so many requests".into());
        }
        let at = line.at.checked_sub(began).filter(|at| *at >= self.duration());
        let at = at.ok_or("it came before the line above; sort the file by time")?;
        let ids = self.ids.len()..self.ids.len() + line.ids.len();
        self.ids.extend(line.ids);
        self.entries.push(Entry { at, prompt: line.prompt, answer: line.answer, ids });
        Ok(())
    }

    /// How many requests there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// From the first request to the last.
    pub fn duration(&self) -> Duration {
        self.entries.last().map_or(Duration::ZERO, |last| last.at)
    }

    /// The requests in the order of their arrival.
    pub fn requests(&self) -> impl Iterator<Item = Recorded<'_>> {
        (0..self.len()).filter_map(|number| self.get(number))
    }

    /// One of them.
    pub fn get(&self, number: usize) -> Option<Recorded<'_>> {
        let Entry { at, prompt, answer, ids } = self.entries.get(number)?.clone();
        Some(Recorded { number, at, prompt_tokens: prompt, answer_tokens: answer, ids: &self.ids[ids] })
    }

    /// Cuts requests to so many tokens of prompt and answer together: answers to half of them at most, and then the ends off
    /// prompts. How many were cut.
    pub fn fit(&mut self, room: usize) -> usize {
        self.entries.iter_mut().map(|entry| usize::from(entry.fit(room))).sum()
    }
}

impl Entry {
    /// Cuts it to so many tokens, if it has more.
    fn fit(&mut self, room: usize) -> bool {
        if self.prompt + self.answer <= room {
            return false;
        }
        self.answer = self.answer.min(room / 2).max(1);
        self.prompt = self.prompt.min(room.saturating_sub(self.answer).max(1));
        let kept = self.ids.len().min(self.prompt.div_ceil(BLOCK));
        self.ids.end = self.ids.start + kept;
        true
    }
}

/// Reads a line of one format.
type Parse = fn(&str) -> Result<Line, String>;

/// The parser for what is in these lines, by the first of them; a heading is taken.
fn parser(lines: &mut Lines<impl BufRead>) -> Result<Parse, Wrong> {
    if lines.begin_with(b'{')? {
        return Ok(mooncake::parse);
    }
    match lines.next()? {
        None | Some(azure::HEADING) => Ok(azure::parse),
        Some(_) => {
            let wanted = azure::HEADING;
            Err(format!("a trace begins with {wanted} (Azure) or with a JSON object (Mooncake)").into())
        }
    }
}

impl Line {
    /// The same if its lengths are those of a request.
    fn checked(self) -> Result<Line, String> {
        for (what, tokens) in [("prompt", self.prompt), ("answer", self.answer)] {
            if !(1..=LONGEST).contains(&tokens) {
                return Err(format!("the {what} has {tokens} tokens; it has to have 1 to {LONGEST}"));
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests;
