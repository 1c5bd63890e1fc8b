//! How much a tier holds.

use std::fmt;

use crate::memory::parse_size;

/// A size of memory or disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Bytes.
    Bytes(u64),
    /// Everything that ever comes.
    Endless,
}

impl Room {
    /// Blocks of so many bytes that fit; `all` where there is no end.
    pub fn blocks(self, block_bytes: u64, all: usize) -> usize {
        match self {
            Room::Bytes(bytes) => (bytes / block_bytes) as usize,
            Room::Endless => all,
        }
    }
}

/// A size such as `110GB`, or `endless`.
pub fn parse(text: &str) -> Result<Room, String> {
    if text == "endless" {
        return Ok(Room::Endless);
    }
    let hint = |_| "give a size such as 110GB, or endless".to_owned();
    parse_size(text).map(Room::Bytes).map_err(hint)
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = match self {
            Room::Endless => return f.pad("endless"),
            Room::Bytes(bytes) => *bytes as f64,
        };
        let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB")];
        let (unit, name) = units.into_iter().find(|(unit, _)| bytes >= *unit).unwrap_or((1.0, "B"));
        let number = (bytes / unit * 100.0).round() / 100.0;
        f.pad(&format!("{number} {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_as_people_write_them() {
        for (text, shown) in
            [("110GB", "110 GB"), ("3.84TB", "3.84 TB"), ("512MiB", "536.87 MB"), ("endless", "endless")]
        {
            assert_eq!(parse(text).unwrap().to_string(), shown);
        }
        assert!(parse("much").unwrap_err().contains("endless"));
        assert_eq!(parse("1MB").unwrap().blocks(300_000, 9), 3);
        assert_eq!(Room::Endless.blocks(1, 9), 9);
    }
}
