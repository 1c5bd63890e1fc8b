//! What a folder holds, in words and as JSON.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::SystemTime;

use indicatif::DecimalBytes;
use ropeway_kvdisk::Stock;
use ropeway_kvdisk::inspect::{self, IgnoredFile, Report, ShelfReport};
use ropeway_server::agents;
use serde_json::{Value, json};

use crate::age::{ago, now, seconds};
use crate::failure::Failure;
use crate::output::Output;

/// A folder and what it holds of the models that are meant.
pub struct Survey {
    dir: PathBuf,
    report: Report,
}

impl Survey {
    /// What is there of models whose name begins with `model`.
    pub fn of(dir: PathBuf, model: Option<&str>) -> Result<Self, Failure> {
        let mut report = inspect::survey(&dir)?;
        let begins = model.unwrap_or_default();
        report.shelves.retain(|shelf| shelf.spec.label.starts_with(begins));
        // The server's own.
        report.foreign.retain(|name| name != agents::FOLDER);
        Ok(Self { dir, report })
    }

    fn stock(&self) -> Stock {
        self.report.shelves.iter().fold(Stock::default(), |sum, shelf| Stock {
            blocks: sum.blocks + shelf.stock.blocks,
            tokens: sum.tokens + shelf.stock.tokens,
            bytes: sum.bytes + shelf.stock.bytes,
        })
    }

    fn shelf_bytes(&self) -> u64 {
        self.report.shelves.iter().map(|shelf| shelf.file_bytes).sum()
    }

    /// All models together.
    pub fn totals(&self) -> Value {
        let (stock, report) = (self.stock(), &self.report);
        json!({
            "dir": self.dir,
            "in_use": report.is_in_use,
            "models": report.shelves.len(),
            "blocks": stock.blocks,
            "tokens": stock.tokens,
            "bytes": stock.bytes,
            "file_bytes": self.shelf_bytes(),
            "pinned_blocks": report.shelves.iter().map(|shelf| shelf.pinned_blocks).sum::<u64>(),
            "all_file_bytes": report.file_bytes,
            "ignored": report.ignored.iter().map(ignored).collect::<Vec<_>>(),
            "foreign": report.foreign,
        })
    }

    /// All models together, in words.
    pub fn print_totals(&self, output: &mut Output) -> io::Result<()> {
        let (stock, report) = (self.stock(), &self.report);
        let used_by = if report.is_in_use { "in use by a server" } else { "not in use" };
        writeln!(output, "folder  {} ({used_by})", self.dir.display())?;
        writeln!(output, "models  {}", report.shelves.len())?;
        writeln!(output, "tokens  {} in {} blocks", stock.tokens, stock.blocks)?;
        writeln!(output, "size    {}", DecimalBytes(self.shelf_bytes()))?;
        self.print_oddities(output)
    }

    /// Each model.
    pub fn listing(&self) -> Value {
        let shelf = |shelf: &ShelfReport| {
            json!({
                "model": shelf.spec.label,
                "id": shelf.short_identity(),
                "block_tokens": shelf.spec.block_tokens,
                "blocks": shelf.stock.blocks,
                "tokens": shelf.stock.tokens,
                "bytes": shelf.stock.bytes,
                "file_bytes": shelf.file_bytes,
                "pinned_blocks": shelf.pinned_blocks,
                "oldest_use": shelf.oldest_use.map(seconds),
                "newest_use": shelf.newest_use.map(seconds),
            })
        };
        json!({ "dir": self.dir, "models": self.report.shelves.iter().map(shelf).collect::<Vec<_>>() })
    }

    /// Each model, as a table.
    pub fn print_listing(&self, output: &mut Output) -> io::Result<()> {
        let shelves = &self.report.shelves;
        if shelves.is_empty() {
            writeln!(output, "nothing is kept in {}", self.dir.display())?;
            return self.print_oddities(output);
        }
        let width = shelves.iter().map(|shelf| shelf.spec.label.chars().count()).max().unwrap_or(0).max(5);
        writeln!(
            output,
            "{:width$}  {:12}  {:>9}  {:>10}  {:>6}  LAST USED",
            "MODEL", "ID", "TOKENS", "SIZE", "PINNED"
        )?;
        for shelf in shelves {
            let (label, id, tokens) = (&shelf.spec.label, shelf.short_identity(), shelf.stock.tokens);
            let size = DecimalBytes(shelf.file_bytes).to_string();
            let pinned = 100 * shelf.pinned_blocks / shelf.stock.blocks.max(1);
            let used = shelf.newest_use.map(used);
            let used = used.as_deref().unwrap_or("never");
            writeln!(output, "{label:width$}  {id:12}  {tokens:>9}  {size:>10}  {pinned:>5}%  {used}")?;
        }
        self.print_oddities(output)
    }

    fn print_oddities(&self, output: &mut Output) -> io::Result<()> {
        for IgnoredFile { name, bytes, why } in &self.report.ignored {
            writeln!(output, "{name} ({}) can't be used: {why}", DecimalBytes(*bytes))?;
        }
        if !self.report.foreign.is_empty() {
            writeln!(output, "left alone: {}", self.report.foreign.join(", "))?;
        }
        Ok(())
    }
}

fn used(time: SystemTime) -> String {
    ago(seconds(time), now())
}

fn ignored(file: &IgnoredFile) -> Value {
    json!({ "name": file.name, "bytes": file.bytes, "why": file.why })
}
