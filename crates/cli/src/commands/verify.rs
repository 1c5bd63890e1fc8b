//! `ropeway verify`: whether models are still what was pulled.

use std::io::{self, Write};

use clap::Args;
use indicatif::DecimalBytes;
use ropeway_hub::{Hub, HubError, Verified};

use crate::failure::Failure;
use crate::output::Output;
use crate::{interrupt, pulling};

const EXAMPLES: &str = "\
Examples:
  ropeway verify            every model on this machine
  ropeway verify smollm2    one of them

Every byte is read and compared with the sha256 noted when the model was pulled.
What is damaged is repaired by `ropeway pull MODEL`, which fetches it again.
Exit codes: 0 nothing is damaged, 1 something is.";

/// Find damaged files of pulled models
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Verify {
    /// Names from `ropeway list` (default: all of them)
    #[arg(value_name = "MODEL")]
    models: Vec<String>,
}

impl Verify {
    pub fn run(self, output: &mut Output) -> Result<(), Failure> {
        interrupt::give_up_on_signal()?;
        let hub = pulling::open_hub()?;
        let mut damaged = Vec::new();
        for model in &self.names(&hub, output, &mut damaged)? {
            let verified = match pulling::verify(&hub, &hub.parse(model)?) {
                Err(HubError::Damaged { name, problem }) => {
                    writeln!(output, "{name}: damaged\n  {problem}")?;
                    damaged.push(name);
                    continue;
                }
                verified => verified?,
            };
            show(output, &verified)?;
            if !verified.damage.is_empty() {
                damaged.push(verified.name);
            }
        }
        output.flush()?;
        verdict(&damaged)
    }

    /// The models to look at. Those whose manifest is unreadable are known by their folder, and damaged already.
    fn names(
        &self,
        hub: &Hub,
        output: &mut Output,
        damaged: &mut Vec<String>,
    ) -> Result<Vec<String>, Failure> {
        if !self.models.is_empty() {
            return Ok(self.models.clone());
        }
        let listing = hub.list()?;
        for error in &listing.broken {
            writeln!(output, "{error}")?;
            if let HubError::Damaged { name, .. } = error {
                damaged.push(name.clone());
            }
        }
        Ok(listing.models.into_iter().map(|model| model.manifest.name).collect())
    }
}

fn show(output: &mut Output, verified: &Verified) -> io::Result<()> {
    let Verified { name, files, bytes, damage } = verified;
    let size = DecimalBytes(*bytes);
    if damage.is_empty() {
        let plural = if *files == 1 { "" } else { "s" };
        return writeln!(output, "{name}: good ({files} file{plural}, {size})");
    }
    writeln!(output, "{name}: {} of {files} damaged ({size})", damage.len())?;
    damage.iter().try_for_each(|damage| writeln!(output, "  {damage}"))
}

fn verdict(damaged: &[String]) -> Result<(), Failure> {
    match damaged {
        [] => Ok(()),
        [one] => {
            Err(Failure::new(format!("{one} is damaged"), format!("run `ropeway pull {one}` to repair it")))
        }
        several => Err(Failure::new(
            format!("{} are damaged", several.join(", ")),
            "run `ropeway pull MODEL` for each to repair it",
        )),
    }
}
