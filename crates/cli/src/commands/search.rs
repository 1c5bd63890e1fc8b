//! `ropeway search`: which models have a name of their own.

use std::io::{self, Write};

use clap::Args;
use indicatif::DecimalBytes;
use ropeway_hub::catalogue::Entry;
use ropeway_hub::{Catalogue, Quant};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::Output;

const EXAMPLES: &str = "\
Examples:
  ropeway search                everything
  ropeway search qwen           by a part of the name
  ropeway search embedding mit  by what it can do and its licence

Sizes are about those of the usual quantization, Q4_K_M for most. Another one is
named in the tag: `ropeway pull llama3.2:1b-q8_0`.";

/// What is not in the catalogue can be named all the same.
const OTHERS: &str = "\
others: a Hugging Face repository as org/repo, org/repo:Q4_K_M or org/repo@revision,
a model of the Ollama registry as ollama:NAME:TAG, or a path";

/// Search the models that have a name
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Search {
    /// Parts of a name, a capability (chat, tools, thinking, code, embedding,
    /// rerank), a licence or a publisher
    #[arg(value_name = "WORD")]
    words: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Search {
    pub fn run(self, output: &mut Output) -> Result<(), Failure> {
        let catalogue = Catalogue::builtin();
        let found = catalogue.search(&self.words);
        if self.json {
            return Ok(output.json(&found.iter().map(|entry| as_json(entry)).collect::<Vec<_>>())?);
        }
        if found.is_empty() {
            return Err(nothing(catalogue, &self.words));
        }
        print(output, &found)?;
        Ok(())
    }
}

fn nothing(catalogue: Catalogue, words: &[String]) -> Failure {
    let words = words.join(" ");
    let near = catalogue.nearest(&words);
    let near = if near.is_empty() { String::new() } else { format!("did you mean {}? ", near.join(", ")) };
    Failure::new(format!("no model in the catalogue is like `{words}`"), format!("{near}{OTHERS}"))
}

fn as_json(entry: &Entry) -> Value {
    json!({
        "name": entry.name,
        "aliases": entry.aliases,
        "about": entry.about,
        "parameters": entry.parameters,
        "bytes": entry.bytes(),
        "quantization": entry.quant().map(Quant::as_str),
        "license": entry.license,
        "capabilities": entry.capabilities,
        "repository": entry.repo().map(|repo| repo.repo),
    })
}

fn print(output: &mut Output, found: &[&Entry]) -> io::Result<()> {
    let names: Vec<String> = found.iter().map(|entry| shown_name(entry)).collect();
    let width = |texts: &mut dyn Iterator<Item = usize>, least: usize| texts.max().unwrap_or(0).max(least);
    let name = width(&mut names.iter().map(String::len), 4);
    let licence = width(&mut found.iter().map(|entry| entry.license.len()), 7);
    writeln!(output, "{:name$}  {:>9}  {:18}  {:licence$}  CAN", "NAME", "SIZE", "PARAMETERS", "LICENCE")?;
    for (entry, shown) in found.iter().zip(&names) {
        let size = DecimalBytes(entry.bytes()).to_string();
        let can = entry.capabilities.join(", ");
        writeln!(
            output,
            "{shown:name$}  {size:>9}  {:18}  {:licence$}  {can}",
            entry.parameters, entry.license
        )?;
    }
    writeln!(output, "\n{OTHERS}")
}

/// The full name, and the short one where there is one.
fn shown_name(entry: &Entry) -> String {
    let short = entry.aliases.iter().find(|alias| !alias.contains(':'));
    short.map_or_else(|| entry.name.to_owned(), |short| format!("{} ({short})", entry.name))
}
