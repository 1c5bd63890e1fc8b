//! `ropeway tokenize`: how a model cuts a text into tokens.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use clap::Args;
use ropeway_hub::Hub;
use ropeway_hub::catalogue::DEFAULT_CHAT_MODEL;
use ropeway_text::{Special, Tokenizer};
use ropeway_weights::Checkpoint;
use serde_json::json;

use crate::failure::Failure;
use crate::output::Output;

/// The longest text read: more than any model's window, little enough for any machine.
const LONGEST_TEXT: u64 = 64 << 20;

const EXAMPLES: &str = "\
Examples:
  ropeway tokenize \"Hello there\"
  ropeway tokenize --model all-minilm --file notes.txt --json
  git log | ropeway tokenize";

/// Show how a model cuts a text into tokens
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Tokenize {
    /// The text; several words are joined by spaces. Without it and without
    /// --file, standard input is read
    text: Vec<String>,
    /// Whose tokenizer: a name from `ropeway list`, or a path
    #[arg(short, long, default_value = DEFAULT_CHAT_MODEL)]
    model: String,
    /// Read the text from a file
    #[arg(short, long, conflicts_with = "text")]
    file: Option<PathBuf>,
    /// Take special tokens spelled out in the text (`<|im_end|>`) as plain text
    #[arg(long)]
    plain: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Tokenize {
    pub fn run(self, output: &mut Output) -> Result<(), Failure> {
        let model = Hub::from_env()?.resolve(&self.model)?;
        let tokenizer = Tokenizer::from_checkpoint(&Checkpoint::open(model.checkpoint())?)?;
        let text = self.text()?;
        let special = if self.plain { Special::PLAIN } else { Special::PROMPT };
        let ids = tokenizer.encode(&text, special)?;
        let pieces: Vec<String> = ids.iter().map(|&id| piece(&tokenizer, id)).collect();
        if self.json {
            output.json(&json!({ "model": model.name, "count": ids.len(), "ids": ids, "pieces": pieces }))?;
        } else {
            print(output, &ids, &pieces)?;
        }
        Ok(())
    }

    fn text(&self) -> Result<String, Failure> {
        match &self.file {
            Some(path) => {
                let file =
                    File::open(path).map_err(|error| unreadable(&path.display().to_string(), &error))?;
                read(file, &path.display().to_string())
            }
            None if self.text.is_empty() => read(io::stdin(), "standard input"),
            None => Ok(self.text.join(" ")),
        }
    }
}

/// The text a token stands for; bytes that are no whole character show as U+FFFD.
fn piece(tokenizer: &Tokenizer, id: u32) -> String {
    String::from_utf8_lossy(&tokenizer.token_bytes(id)).into_owned()
}

fn print(output: &mut Output, ids: &[u32], pieces: &[String]) -> io::Result<()> {
    for (id, piece) in ids.iter().zip(pieces) {
        writeln!(output, "{id:>8}  {piece:?}")?;
    }
    writeln!(output, "{} token{}", ids.len(), if ids.len() == 1 { "" } else { "s" })
}

fn read(from: impl Read, name: &str) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    from.take(LONGEST_TEXT + 1).read_to_end(&mut bytes).map_err(|error| unreadable(name, &error))?;
    if bytes.len() as u64 > LONGEST_TEXT {
        return Err(Failure::new(format!("{name} is longer than 64 MiB"), "cut it into parts"));
    }
    String::from_utf8(bytes).map_err(|error| {
        Failure::new(format!("{name} is not UTF-8 text: {error}"), "convert it to UTF-8 first")
    })
}

fn unreadable(name: &str, error: &io::Error) -> Failure {
    Failure::new(format!("could not read {name}: {error}"), "check the spelling and the permissions")
}
