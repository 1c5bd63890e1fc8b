//! `ropeway tokenize`: how a model cuts a text into tokens.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use ropeway_hub::catalogue::DEFAULT_CHAT_MODEL;
use ropeway_text::{Special, Tokenizer};
use ropeway_weights::Checkpoint;
use serde_json::json;

use crate::failure::Failure;
use crate::output::Output;
use crate::pulling::open_hub;
use crate::reading;

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
        let model = open_hub()?.resolve(&self.model)?;
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
                let name = path.display().to_string();
                let file = File::open(path).map_err(|error| reading::unreadable(&name, &error))?;
                reading::text(file, &name)
            }
            None if self.text.is_empty() => reading::text(io::stdin(), "standard input"),
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
