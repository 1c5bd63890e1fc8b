//! The output file: which answers are in it already, and appending more.
//!
//! A line is written whole, in one call, as soon as its answer is there. A run that was killed can leave only its last
//! line torn; that one is cut off again. Anything else that is no result is somebody else's file, and is left alone.

use std::collections::{BTreeMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::failure::Failure;

/// The output file of this run.
pub struct Results {
    file: File,
    done: HashSet<String>,
    order: Option<Order>,
}

/// Lines that wait for an earlier one.
#[derive(Default)]
struct Order {
    next: u64,
    held: BTreeMap<u64, Vec<u8>>,
}

/// What is read of a line that is there already.
#[derive(Deserialize)]
struct Known {
    custom_id: String,
}

impl Results {
    /// Opens the file, reads what is in it, and cuts off a torn last line. No other run may write to it meanwhile.
    pub fn open(path: &Path, ordered: bool) -> Result<Results, Failure> {
        let name = path.display();
        let opened = OpenOptions::new().read(true).append(true).create(true).open(path);
        let file = opened.map_err(|error| {
            Failure::new(format!("could not write to {name}: {error}"), "give another file after --output")
        })?;
        if file.try_lock().is_err() {
            return Err(Failure::new(
                format!("another run is writing to {name}"),
                "wait for it, or give another file",
            ));
        }
        let Existing { done, whole } = Existing::read(&file)?.map_err(|line| {
            Failure::new(
                format!("line {line} of {name} is not a result of `ropeway batch`"),
                "give another file after --output; this one is left as it is",
            )
        })?;
        file.set_len(whole)?;
        Ok(Results { file, done, order: ordered.then(Order::default) })
    }

    /// Whether a request was answered by an earlier run.
    pub fn has(&self, id: &str) -> bool {
        self.done.contains(id)
    }

    /// Lines that wait for an earlier one.
    pub fn held(&self) -> usize {
        self.order.as_ref().map_or(0, |order| order.held.len())
    }

    /// Appends the line of this run's request number `place`, from 0.
    pub fn write(&mut self, place: u64, line: &Value) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        let Some(order) = &mut self.order else { return self.file.write_all(&bytes) };
        order.held.insert(place, bytes);
        while let Some(bytes) = order.held.remove(&order.next) {
            order.next += 1;
            self.file.write_all(&bytes)?;
        }
        Ok(())
    }

    /// Makes sure that all of it is on the disk.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}

/// What an earlier run left.
struct Existing {
    done: HashSet<String>,
    /// Bytes up to the end of the last whole line.
    whole: u64,
}

impl Existing {
    /// Reads the file; the inner error is the number of a line that is no result.
    fn read(file: &File) -> io::Result<Result<Existing, u64>> {
        let mut reader = BufReader::new(file);
        let mut existing = Existing { done: HashSet::new(), whole: 0 };
        let mut bytes = Vec::new();
        for line in 1.. {
            bytes.clear();
            let read = reader.read_until(b'\n', &mut bytes)?;
            if !bytes.ends_with(b"\n") {
                // A torn line begins like one of ours; a whole file without line ends may be anything.
                let torn = read == 0
                    || bytes.starts_with(b"{\"custom_id\"")
                    || b"{\"custom_id\"".starts_with(&bytes);
                return Ok(if torn { Ok(existing) } else { Err(line) });
            }
            let Ok(known) = serde_json::from_slice::<Known>(&bytes) else { return Ok(Err(line)) };
            existing.done.insert(known.custom_id);
            existing.whole += read as u64;
        }
        Ok(Ok(existing))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;
    use tempfile::TempDir;

    use super::*;

    fn with(content: &str) -> (TempDir, std::path::PathBuf) {
        let folder = TempDir::new().expect("a folder");
        let path = folder.path().join("out.jsonl");
        fs::write(&path, content).expect("written");
        (folder, path)
    }

    #[test]
    fn a_torn_last_line_is_cut_off_and_the_whole_ones_are_known() {
        for torn in ["{\"cus", "{\"custom_id\":\"b\",\"resp", "{\"custom_id\":\"b\"}"] {
            let (_folder, path) = with(&format!("{{\"custom_id\":\"a\"}}\n{torn}"));
            let mut results = Results::open(&path, false).expect("ours");
            assert!(results.has("a") && !results.has("b"));
            results.write(0, &json!({"custom_id": "b"})).expect("written");
            let text = fs::read_to_string(&path).expect("text");
            assert_eq!(text, "{\"custom_id\":\"a\"}\n{\"custom_id\":\"b\"}\n");
        }
    }

    #[test]
    fn a_file_of_something_else_is_left_as_it_is() {
        for content in ["{\"prompt\":\"a\"}\n", "notes", "{\"custom_id\":\"a\"}\nnotes\n"] {
            let (_folder, path) = with(content);
            assert!(Results::open(&path, false).is_err(), "{content}");
            assert_eq!(fs::read_to_string(&path).expect("text"), content);
        }
    }

    #[test]
    fn ordered_lines_wait_for_the_earlier_ones() {
        let (_folder, path) = with("");
        let mut results = Results::open(&path, true).expect("empty");
        for place in [2, 0, 1] {
            results.write(place, &json!({ "custom_id": place.to_string() })).expect("written");
            assert_eq!(results.held(), usize::from(place != 1));
        }
        let text = fs::read_to_string(&path).expect("text");
        let ids: Vec<&str> = text.lines().map(|line| &line[14..15]).collect();
        assert_eq!(ids, ["0", "1", "2"]);
    }

    #[test]
    fn two_runs_do_not_write_to_one_file() {
        let (_folder, path) = with("");
        let _first = Results::open(&path, false).expect("free");
        assert!(Results::open(&path, false).is_err());
    }
}
