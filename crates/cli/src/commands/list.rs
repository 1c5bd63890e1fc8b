//! `ropeway list`: the models on this machine, those of other programs, and those a pull would bring.

use std::io::{self, Write};

use clap::Args;
use indicatif::DecimalBytes;
use ropeway_hub::catalogue::{DEFAULT_CHAT_MODEL, DEFAULT_EMBEDDING_MODEL, Entry};
use ropeway_hub::store::Installed;
use ropeway_hub::{Elsewhere, Hub, Listing};
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
        let elsewhere = hub.elsewhere();
        let available = not_pulled(&hub, &listing);
        if self.json {
            output.json(&as_json(&listing, &elsewhere, &available))?;
        } else {
            print_models(output, &listing.models)?;
            print_broken(output, &listing)?;
            print_elsewhere(output, &elsewhere)?;
            print_available(output, &available)?;
        }
        Ok(())
    }
}

fn not_pulled(hub: &Hub, listing: &Listing) -> Vec<&'static Entry> {
    let pulled = |entry: &Entry| listing.models.iter().any(|model| model.manifest.name == entry.name);
    hub.catalogue().entries().iter().filter(|entry| !pulled(entry)).collect()
}

fn as_json(listing: &Listing, elsewhere: &[Elsewhere], available: &[&Entry]) -> Value {
    let model = |model: &Installed| json!({ "bytes": model.manifest.bytes(), "where": place(model), "manifest": model.manifest });
    let other = |model: &Elsewhere| json!({ "name": model.name, "bytes": model.bytes, "source": model.source, "where": model.path });
    let entry = |entry: &&Entry| json!({ "name": entry.name, "about": entry.about, "bytes": entry.bytes() });
    json!({
        "models": listing.models.iter().map(model).collect::<Vec<_>>(),
        "elsewhere": elsewhere.iter().map(other).collect::<Vec<_>>(),
        "broken": listing.broken.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "available": available.iter().map(entry).collect::<Vec<_>>(),
    })
}

fn print_models(output: &mut Output, models: &[Installed]) -> io::Result<()> {
    if models.is_empty() {
        return writeln!(output, "no models on this machine yet");
    }
    let width = models.iter().map(|model| model.manifest.name.len()).max().unwrap_or(0).max(4);
    let source = models.iter().map(|model| model.manifest.source.len()).max().unwrap_or(0).max(6);
    writeln!(output, "{:width$}  {:>9}  {:14}  {:source$}  WHERE", "NAME", "SIZE", "PULLED", "SOURCE")?;
    for model in models {
        let manifest = &model.manifest;
        let size = DecimalBytes(manifest.bytes()).to_string();
        let pulled = ago(manifest.pulled_at, now());
        let (name, from, place) = (&manifest.name, &manifest.source, place(model));
        writeln!(output, "{name:width$}  {size:>9}  {pulled:14}  {from:source$}  {place}")?;
    }
    Ok(())
}

/// What would be opened.
fn place(model: &Installed) -> String {
    model.files().checkpoint().display().to_string()
}

fn print_elsewhere(output: &mut Output, elsewhere: &[Elsewhere]) -> io::Result<()> {
    let width = elsewhere.iter().map(|model| model.name.len()).max().unwrap_or(0);
    for (i, model) in elsewhere.iter().enumerate() {
        if i == 0 {
            writeln!(output, "\nof other programs, used where they are:")?;
        }
        let size = DecimalBytes(model.bytes).to_string();
        let (name, source, path) = (&model.name, model.source, model.path.display());
        writeln!(output, "  {name:width$}  {size:>9}  {source}  {path}")?;
    }
    Ok(())
}

fn print_broken(output: &mut Output, listing: &Listing) -> io::Result<()> {
    listing.broken.iter().try_for_each(|error| writeln!(output, "{error}; {}", error.hint()))
}

/// The default models by name, the others by number.
fn print_available(output: &mut Output, available: &[&Entry]) -> io::Result<()> {
    let defaults = [DEFAULT_CHAT_MODEL, DEFAULT_EMBEDDING_MODEL];
    let (shown, others): (Vec<&Entry>, Vec<&Entry>) =
        available.iter().partition(|entry| defaults.contains(&entry.name));
    writeln!(output, "\nready to pull:")?;
    let width = shown.iter().map(|entry| entry.name.len()).max().unwrap_or(0);
    for entry in shown {
        let size = DecimalBytes(entry.bytes()).to_string();
        writeln!(output, "  {:width$}  {size:>9}  {}", entry.name, entry.about)?;
    }
    writeln!(output, "  {} others by name: `ropeway search`", others.len())
}
