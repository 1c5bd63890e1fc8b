//! `ropeway show`: what a model is made of.

use std::io::{self, Write};

use clap::Args;
use indicatif::DecimalBytes;
use ropeway_hub::catalogue::DEFAULT_CHAT_MODEL;
use ropeway_weights::Checkpoint;

use crate::facts::Facts;
use crate::failure::Failure;
use crate::output::Output;
use crate::pulling::open_hub;

const EXAMPLES: &str = "\
Examples:
  ropeway show smollm2
  ropeway show ./model.gguf --json";

/// Show what a model is made of, without running it
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Show {
    /// A name from `ropeway list`, a .gguf file, or a model folder
    #[arg(default_value = DEFAULT_CHAT_MODEL)]
    model: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Show {
    pub fn run(self, output: &mut Output) -> Result<(), Failure> {
        let files = open_hub()?.resolve(&self.model)?;
        let checkpoint = Checkpoint::open(files.checkpoint())?;
        let facts = Facts::of(&files, &checkpoint);
        if self.json {
            output.json(&facts)?;
        } else {
            print(output, &facts)?;
        }
        Ok(())
    }
}

fn print(output: &mut Output, facts: &Facts) -> io::Result<()> {
    let unknown = || "not stated".to_owned();
    let context = facts.context.map_or_else(unknown, |tokens| format!("{tokens} tokens"));
    let rows = [
        ("model", facts.name.clone()),
        ("format", facts.format.to_owned()),
        ("architecture", facts.architecture.clone().unwrap_or_else(unknown)),
        ("parameters", count(facts.parameters)),
        ("context", context),
        ("quantization", facts.quantization.clone().unwrap_or_else(unknown)),
        ("chat template", facts.chat_template.to_string()),
    ];
    for (label, value) in rows {
        writeln!(output, "{label:14} {value}")?;
    }
    print_tensors(output, facts)?;
    print_files(output, facts)
}

fn print_tensors(output: &mut Output, facts: &Facts) -> io::Result<()> {
    for (i, form) in facts.tensors.iter().enumerate() {
        let label = if i == 0 { "tensors" } else { "" };
        writeln!(output, "{label:14} {} x {} ({})", form.count, form.form, count(form.parameters))?;
    }
    Ok(())
}

fn print_files(output: &mut Output, facts: &Facts) -> io::Result<()> {
    for (i, file) in facts.files.iter().enumerate() {
        let label = if i == 0 { "files" } else { "" };
        writeln!(output, "{label:14} {} ({})", file.path, DecimalBytes(file.bytes))?;
    }
    Ok(())
}

/// A number of parameters, as people say it.
fn count(n: u64) -> String {
    match n {
        0..1_000 => n.to_string(),
        1_000..1_000_000 => format!("{:.1} thousand", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} million", n as f64 / 1e6),
        _ => format!("{:.2} billion", n as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn parameters_are_counted_as_people_say_it() {
        let said: Vec<_> = [7, 1_500, 134_515_008, 8_030_261_248].map(count).into();
        assert_eq!(said, ["7", "1.5 thousand", "134.5 million", "8.03 billion"]);
    }
}
