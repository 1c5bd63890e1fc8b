//! Sizes of memory: as people write them, and what this machine has to give.

use std::fs;

/// Units and their bytes, the longest spelling first. As with Docker and most servers, `G` alone means GiB.
const UNITS: [(&str, u64); 13] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("T", 1 << 40),
    ("B", 1),
];

/// The bytes of a size such as `512MiB` or `1.5 GiB`; more than none.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let with_unit = UNITS.iter().find_map(|(unit, bytes)| {
        lower.strip_suffix(&unit.to_ascii_lowercase()).map(|number| (number, *bytes))
    });
    let (number, unit) = with_unit.unwrap_or((&lower, 1));
    let bytes = number.trim().parse::<f64>().map_or(f64::NAN, |number| number * unit as f64);
    if (1.0..=1e18).contains(&bytes) {
        Ok(bytes as u64)
    } else {
        Err("give a size such as 512MiB or 2GiB".into())
    }
}

/// Memory that programs may still use, within the container's limit if there is one; `None` where the system does not
/// tell.
pub fn available() -> Option<u64> {
    let machine = available_in(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let limit = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let container = limit.and_then(|limit| limit.trim().parse().ok());
    Some(container.map_or(machine, |limit: u64| limit.min(machine)))
}

/// The available memory in Linux's description of it.
fn available_in(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_a_unit() {
        for (text, bytes) in [
            ("512MiB", 512 << 20),
            ("2GiB", 2 << 30),
            ("1.5 gib", 3 << 29),
            ("2G", 2 << 30),
            ("3kb", 3000),
            ("4096", 4096),
            ("7B", 7),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_told_what_one_looks_like() {
        for text in ["", "GiB", "-1GiB", "0", "lots", "1e30GiB", "NaN", "2 GiB more"] {
            assert_eq!(parse_size(text), Err("give a size such as 512MiB or 2GiB".into()), "{text}");
        }
    }

    #[test]
    fn available_memory_is_read_from_the_systems_description() {
        assert_eq!(available_in("MemTotal: 9 kB\nMemAvailable:   2048 kB\n"), Some(2 << 20));
        assert_eq!(available_in("MemTotal: 9 kB\n"), None);
    }
}
