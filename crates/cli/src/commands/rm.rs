//! `ropeway rm`: delete pulled models.

use std::io::Write;

use clap::Args;
use indicatif::DecimalBytes;

use crate::failure::Failure;
use crate::output::Output;
use crate::pulling::open_hub;

const EXAMPLES: &str = "\
Example:
  ropeway rm smollm2

Only files that Ropeway fetched are deleted. What other programs put into the
Hugging Face cache or Ollama's store stays, and so does every file you named by
its path.";

/// Delete pulled models
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Rm {
    /// Names from `ropeway list`
    #[arg(required = true, value_name = "MODEL")]
    models: Vec<String>,
}

impl Rm {
    pub fn run(self, output: &mut Output) -> Result<(), Failure> {
        let hub = open_hub()?;
        for model in &self.models {
            let removed = hub.remove(model)?;
            write!(output, "removed {}, {} freed", removed.name, DecimalBytes(removed.freed))?;
            if removed.kept > 0 {
                write!(output, ", {} of other programs left where they are", DecimalBytes(removed.kept))?;
            }
            writeln!(output)?;
        }
        Ok(())
    }
}
