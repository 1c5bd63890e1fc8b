//! `ropeway list`: the models on this machine, and those a pull would bring.

use std::io::{self, Write};

use clap::Args;
use indicatif::DecimalBytes;
use ropeway_hub::catalogue::Entry;
use ropeway_hub::store::Installed;
use ropeway_hub::{Hub, Listing};
use serde_json::{Value, json};

use crate::age::{ago, now};
use crate::failure::Failure;
use crate::output::Output;
use crate::pulling::open_hub;

/// List the models on this machine, and those ready to be pulled
#[derive(Debug, Args)]
pub struct List {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl List {
    pub fn run(self, output: &mut Output) -> Result<(), Failure> {
        let hub = open_hub()?;
        let listing = hub.list()?;
        let available = not_pulled(&hub, &listing);
        if self.json {
            output.json(&as_json(&listing, &available))?;
        } else {
            print_models(output, &listing.models)?;
            print_broken(output, &listing)?;
            print_available(output, &available)?;
        }
        Ok(())
    }
}

fn not_pulled(hub: &Hub, listing: &Listing) -> Vec<&'static Entry> {
    let pulled = |entry: &Entry| listing.models.iter().any(|model| model.manifest.name == entry.name);
    hub.catalogue().entries().iter().filter(|entry| !pulled(entry)).collect()
}

fn as_json(listing: &Listing, available: &[&Entry]) -> Value {
    let model = |model: &Installed| json!({ "bytes": model.manifest.bytes(), "manifest": model.manifest });
    let entry = |entry: &&Entry| json!({ "name": entry.name, "about": entry.about, "bytes": entry.bytes() });
    json!({
        "models": listing.models.iter().map(model).collect::<Vec<_>>(),
        "broken": listing.broken.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "available": available.iter().map(entry).collect::<Vec<_>>(),
    })
}

fn print_models(output: &mut Output, models: &[Installed]) -> io::Result<()> {
    if models.is_empty() {
        return writeln!(output, "no models on this machine yet");
    }
    let width = models.iter().map(|model| model.manifest.name.len()).max().unwrap_or(0).max(4);
    writeln!(output, "{:width$}  {:>9}  {:14}  SOURCE", "NAME", "SIZE", "PULLED")?;
    for Installed { manifest, .. } in models {
        let size = DecimalBytes(manifest.bytes()).to_string();
        let pulled = ago(manifest.pulled_at, now());
        writeln!(output, "{:width$}  {size:>9}  {pulled:14}  {}", manifest.name, manifest.source)?;
    }
    Ok(())
}

fn print_broken(output: &mut Output, listing: &Listing) -> io::Result<()> {
    listing.broken.iter().try_for_each(|error| writeln!(output, "{error}; {}", error.hint()))
}

fn print_available(output: &mut Output, available: &[&Entry]) -> io::Result<()> {
    let width = available.iter().map(|entry| entry.name.len()).max().unwrap_or(0);
    for (i, entry) in available.iter().enumerate() {
        if i == 0 {
            writeln!(output, "\nready to pull:")?;
        }
        let size = DecimalBytes(entry.bytes()).to_string();
        writeln!(output, "  {:width$}  {size:>9}  {}", entry.name, entry.about)?;
    }
    Ok(())
}
