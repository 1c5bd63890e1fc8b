//! `ropeway cache verify`.

use std::io::{self, Write};
use std::path::Path;

use indicatif::{DecimalBytes, ProgressBar, ProgressStyle};
use ropeway_kvdisk::inspect::{self, Damage, Verified};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::Output;

/// Fits 80 columns with sizes up to 999.99 GB.
const BAR: &str = "checking [{bar:30}] {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}";

/// Reads everything in a folder; fails if something was damaged and still is.
pub fn run(output: &mut Output, dir: &Path, damage: Damage, is_json: bool) -> Result<(), Failure> {
    let verified = verify(dir, damage)?;
    if is_json {
        output.json(&as_json(&verified))?;
    } else {
        print(output, &verified, damage)?;
    }
    output.flush()?;
    verdict(&verified, damage)
}

/// Draws a bar where standard error is a terminal.
fn verify(dir: &Path, damage: Damage) -> io::Result<Verified> {
    let style = ProgressStyle::with_template(BAR).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(0).with_style(style.progress_chars("=> "));
    let verified = inspect::verify(dir, damage, &mut |progress| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
    });
    bar.finish_and_clear();
    verified
}

fn as_json(verified: &Verified) -> Value {
    let damaged = verified.damaged.iter();
    let ignored = verified.ignored.iter();
    json!({
        "intact_blocks": verified.intact_blocks,
        "intact_bytes": verified.intact_bytes,
        "damaged": damaged
            .map(|block| json!({ "file": block.file, "slot": block.slot, "model": block.label }))
            .collect::<Vec<_>>(),
        "ignored": ignored
            .map(|file| json!({ "name": file.name, "bytes": file.bytes, "why": file.why }))
            .collect::<Vec<_>>(),
        "vanished": verified.vanished,
    })
}

fn print(output: &mut Output, verified: &Verified, damage: Damage) -> io::Result<()> {
    let (blocks, size) = (verified.intact_blocks, DecimalBytes(verified.intact_bytes));
    writeln!(output, "{blocks} blocks are good ({size})")?;
    for block in &verified.damaged {
        let what = if damage == Damage::Remove { "damaged, removed" } else { "damaged" };
        writeln!(output, "{} block {} of {}: {what}", block.file, block.slot, block.label)?;
    }
    for file in &verified.ignored {
        writeln!(output, "{} can't be used: {}", file.name, file.why)?;
    }
    if verified.vanished > 0 {
        writeln!(output, "{} files were deleted meanwhile by a server", verified.vanished)?;
    }
    Ok(())
}

fn verdict(verified: &Verified, damage: Damage) -> Result<(), Failure> {
    if verified.damaged.is_empty() || damage == Damage::Remove {
        return Ok(());
    }
    let what = format!("{} blocks are damaged", verified.damaged.len());
    Err(Failure::new(
        what,
        "run `ropeway cache verify --remove`; a server that finds them damaged passes them over",
    ))
}
