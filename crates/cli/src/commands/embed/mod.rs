//! `ropeway embed`: lines of text in, vectors out.

mod sink;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use ropeway_batcher::Settings;
use ropeway_embed::{EmbedOptions, Embedder, Input, PendingEmbedding, Purpose};

use crate::embedder_args::EmbedderArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::reading;
use sink::Sink;

const EXAMPLES: &str = "\
Examples:
  echo \"a line of text\" | ropeway embed
  ropeway embed notes.txt -o notes.npy --int8
  ropeway embed questions.txt -o questions.jsonl --as query

Every line is a text of its own, and every text gives one vector: a line of
JSON, or a row of a NumPy array where the output ends in .npy. A text longer
than the model can take is cut.";

/// Turn lines of text into vectors
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Embed {
    /// A file with one text a line; without it, standard input is read
    file: Option<PathBuf>,
    /// Where vectors go: a .npy file, or any other for JSON lines (default:
    /// standard output)
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// What the texts are for, where the model makes a difference
    #[arg(long = "as", value_name = "PURPOSE", default_value = "plain")]
    purpose: PurposeArg,
    /// Keep so many values of each vector, brought to length 1 again
    #[arg(long, value_name = "N")]
    dimensions: Option<usize>,
    #[command(flatten)]
    embedder: EmbedderArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PurposeArg {
    Plain,
    Query,
    Document,
}

/// The longest line: what a tokenizer takes at most.
const LONGEST_LINE: u64 = 16 << 20;

/// Texts in the service at a time: a few batches, so that it never waits for the file.
const IN_FLIGHT: usize = 256;

/// Nobody waits for a single text here, so full batches are all that counts.
const BATCHING: Settings =
    Settings { window: Duration::ZERO, max_batch: 64, max_tokens: 2048, queue: IN_FLIGHT };

impl Embed {
    pub fn run(self, output: &mut Output) -> Result<(), Failure> {
        let mut lines = Lines::open(self.file.as_deref())?;
        let embedder = self.embedder.load(BATCHING)?;
        let options = EmbedOptions {
            purpose: match self.purpose {
                PurposeArg::Plain => Purpose::Plain,
                PurposeArg::Query => Purpose::Query,
                PurposeArg::Document => Purpose::Document,
            },
            dimensions: self.dimensions,
            ..EmbedOptions::default()
        };
        let mut sink = Sink::open(self.output.as_deref(), output)?;
        embed_all(&embedder, &options, &mut lines, &mut sink)?;
        sink.finish()
    }
}

fn embed_all(
    embedder: &Embedder,
    options: &EmbedOptions,
    lines: &mut Lines,
    sink: &mut Sink<'_>,
) -> Result<(), Failure> {
    let bar = Progress::new();
    let mut flying: VecDeque<PendingEmbedding> = VecDeque::with_capacity(IN_FLIGHT);
    loop {
        let line = lines.next_line()?;
        let over = line.is_none();
        if let Some(line) = line {
            flying.push_back(embedder.embed(Input::Text(&line), options)?);
        }
        while flying.len() >= if over { 1 } else { IN_FLIGHT } {
            let Some(pending) = flying.pop_front() else { break };
            sink.put(&pending.wait()?)?;
            bar.tick();
        }
        if over {
            return Ok(());
        }
    }
}

/// Lines of a file or of standard input, each of bounded length.
struct Lines {
    reader: Box<dyn BufRead>,
    name: String,
    number: u64,
}

impl Lines {
    fn open(path: Option<&std::path::Path>) -> Result<Lines, Failure> {
        let (reader, name): (Box<dyn BufRead>, _) = match path {
            Some(path) => {
                let name = path.display().to_string();
                let file = File::open(path).map_err(|error| reading::unreadable(&name, &error))?;
                (Box::new(BufReader::new(file)), name)
            }
            None => (Box::new(BufReader::new(io::stdin())), "standard input".to_owned()),
        };
        Ok(Lines { reader, name, number: 0 })
    }

    /// The next line without its end.
    fn next_line(&mut self) -> Result<Option<String>, Failure> {
        let mut bytes = Vec::new();
        let read = (&mut self.reader).take(LONGEST_LINE + 1).read_until(b'\n', &mut bytes);
        if read.map_err(|error| reading::unreadable(&self.name, &error))? == 0 {
            return Ok(None);
        }
        self.number += 1;
        let place = format!("line {} of {}", self.number, self.name);
        if bytes.len() as u64 > LONGEST_LINE {
            let limit = LONGEST_LINE >> 20;
            return Err(Failure::new(format!("{place} is longer than {limit} MiB"), "break it up"));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            Failure::new(format!("{place} is not UTF-8 text: {error}"), "convert it to UTF-8 first")
        })?;
        Ok(Some(text.strip_suffix('\n').map_or(text.as_str(), |line| line.trim_end_matches('\r')).to_owned()))
    }
}

/// Texts so far and their speed, on a terminal; nothing elsewhere.
struct Progress(Option<ProgressBar>);

impl Progress {
    fn new() -> Progress {
        let bar = io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{spinner} {pos} texts, {per_sec}");
            ProgressBar::no_length().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
        });
        Progress(bar)
    }

    fn tick(&self) {
        if let Some(bar) = &self.0 {
            bar.inc(1);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_lose_their_ends_and_blank_ones_count() {
        let reader = Box::new(io::Cursor::new("one\r\n\nlast"));
        let mut lines = Lines { reader, name: "memory".into(), number: 0 };
        let mut all = Vec::new();
        while let Some(line) = lines.next_line().expect("memory") {
            all.push(line);
        }
        assert_eq!(all, ["one", "", "last"]);
    }
}
