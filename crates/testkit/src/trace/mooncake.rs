//! Traces of Mooncake's shape: a JSON object a line, with what the blocks of the prompt hold.

use std::time::Duration;

use serde::Deserialize;

use super::{BLOCK, Line};

#[derive(Deserialize)]
struct Object {
    /// Milliseconds since the recording began.
    timestamp: u64,
    input_length: usize,
    output_length: usize,
    hash_ids: Vec<u64>,
}

/// Reads a line.
pub(super) fn parse(line: &str) -> Result<Line, String> {
    let Object { timestamp, input_length, output_length, hash_ids } =
        serde_json::from_str(line).map_err(|error| plain(&error))?;
    let wanted = input_length.div_ceil(BLOCK);
    if hash_ids.len() != wanted {
        let found = hash_ids.len();
        return Err(format!(
            "{found} hash_ids for a prompt of {input_length} tokens; one per {BLOCK} tokens makes {wanted}"
        ));
    }
    Ok(Line {
        at: Duration::from_millis(timestamp),
        prompt: input_length,
        answer: output_length,
        ids: hash_ids,
    })
}

/// What is wrong, and where in the line: the parser only ever sees one.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or(&text);
    format!("{what} (column {})", error.column())
}
