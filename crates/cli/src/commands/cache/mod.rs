//! `ropeway cache`: what is kept of conversations on disk. Works on the folder itself, also while a server uses it.
//!
//! Layout: [`report`] tells what is there, [`check`] reads all of it.

mod check;
mod report;

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use indicatif::DecimalBytes;
use ropeway_kvdisk::inspect::{self, Damage, Selection};
use serde_json::json;

use self::report::Survey;
use crate::failure::Failure;
use crate::kv_disk::kv_disk_dir;
use crate::output::Output;

const EXAMPLES: &str = "\
Examples:
  ropeway cache stats              how much is kept
  ropeway cache list               of which models
  ropeway cache verify --remove    read all of it, delete what is damaged
  ropeway cache clear smollm2      delete what is kept of one model

`ropeway serve --kv-disk SIZE` keeps the keys and values of conversations, so
that they need not be computed again. Deleting them costs time, never answers.";

/// See, check and clear what is kept of conversations on disk
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub struct Cache {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// How much is kept
    Stats {
        #[command(flatten)]
        place: Place,
        /// Only models whose name begins so
        #[arg(value_name = "MODEL")]
        model: Option<String>,
    },
    /// What is kept of each model
    List {
        #[command(flatten)]
        place: Place,
        /// Only models whose name begins so
        #[arg(value_name = "MODEL")]
        model: Option<String>,
    },
    /// Read every block and compare it with its checksum
    Verify {
        #[command(flatten)]
        place: Place,
        /// Delete what is damaged
        #[arg(long)]
        remove: bool,
    },
    /// Delete what is kept; a server that uses it goes on without
    Clear {
        #[command(flatten)]
        place: Place,
        /// Only models whose name begins so
        #[arg(value_name = "MODEL")]
        model: Option<String>,
    },
}

/// Which folder, and how its contents are told.
#[derive(Debug, Args)]
struct Place {
    /// Folder given to `serve --kv-disk-dir` (default: kv beside the models)
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Place {
    fn dir(&self) -> Result<PathBuf, Failure> {
        self.dir.clone().map_or_else(kv_disk_dir, Ok)
    }
}

impl Cache {
    pub fn run(self, output: &mut Output) -> Result<(), Failure> {
        match self.action {
            Action::Stats { place, model } => {
                let survey = Survey::of(place.dir()?, model.as_deref())?;
                if place.json { output.json(&survey.totals()) } else { survey.print_totals(output) }?;
            }
            Action::List { place, model } => {
                let survey = Survey::of(place.dir()?, model.as_deref())?;
                if place.json { output.json(&survey.listing()) } else { survey.print_listing(output) }?;
            }
            Action::Verify { place, remove } => {
                let damage = if remove { Damage::Remove } else { Damage::Keep };
                check::run(output, &place.dir()?, damage, place.json)?;
            }
            Action::Clear { place, model } => clear(output, &place, model)?,
        }
        Ok(())
    }
}

fn clear(output: &mut Output, place: &Place, model: Option<String>) -> Result<(), Failure> {
    let dir = place.dir()?;
    let cleared = inspect::clear(&dir, &model.map_or(Selection::All, Selection::Label))?;
    if place.json {
        let told = json!({ "blocks": cleared.blocks, "files": cleared.segments, "bytes": cleared.bytes });
        return Ok(output.json(&told)?);
    }
    let (blocks, size) = (cleared.blocks, DecimalBytes(cleared.bytes));
    Ok(writeln!(output, "removed {blocks} blocks, {size} freed in {}", dir.display())?)
}
