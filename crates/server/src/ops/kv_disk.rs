//! The disk below the models' memory, in figures: what each engine moves, and how the area itself does.
//!
//! Tokens found in the cache are `ropeway_prefix_cache_hits_total`; of these, `ropeway_kv_disk_fetched_tokens_total` came
//! from disk and the rest from memory.

use std::fmt::Write;

use ropeway_engine::tier::TierTotals;
use ropeway_kvdisk::Status;

use super::metrics::escaped;

/// What passed between each model's memory and the disk.
pub fn transfers(engines: &[(String, TierTotals)]) -> String {
    let mut page = String::new();
    let mut one = |kind: &str, name: &str, help: &str, value: &dyn Fn(&TierTotals) -> f64| {
        head(&mut page, kind, name, help);
        for (model, totals) in engines {
            let (model, value) = (escaped(model), value(totals));
            let _ = writeln!(page, "ropeway_kv_disk_{name}{{model_name=\"{model}\"}} {value}");
        }
    };
    one("counter", "fetched_tokens_total", "Tokens whose blocks came back from disk.", &|t| {
        t.fetched_tokens as f64
    });
    one("counter", "transfers_total", "Transfers from disk begun.", &|t| t.transfers as f64);
    one("counter", "failed_transfers_total", "Transfers that ended before all was there.", &|t| {
        t.failed_transfers as f64
    });
    one("counter", "fetch_seconds_total", "Time that sequences waited for blocks.", &|t| {
        t.fetching.as_secs_f64()
    });
    one("counter", "stored_blocks_total", "Blocks handed to the disk.", &|t| t.stored_blocks as f64);
    one("counter", "lost_blocks_total", "Blocks evicted that the disk did not take.", &|t| {
        t.lost_blocks as f64
    });
    one("counter", "copy_seconds_total", "Time spent copying blocks between steps.", &|t| {
        t.copying.as_secs_f64()
    });
    one("gauge", "waiting", "Sequences that wait for blocks.", &|t| t.waiting as f64);
    page
}

/// How the area on disk does.
pub fn area(status: &Status) -> String {
    let mut page = String::new();
    let mut one = |kind: &str, name: &str, help: &str, value: f64| {
        head(&mut page, kind, name, help);
        let _ = writeln!(page, "ropeway_kv_disk_{name} {value}");
    };
    one("gauge", "size_bytes", "Bytes that all files may have.", status.size as f64);
    one("gauge", "file_bytes", "Bytes that all files have.", status.file_bytes as f64);
    one("gauge", "bytes", "Bytes of blocks that can be fetched.", status.stock.bytes as f64);
    one("gauge", "blocks", "Blocks that can be fetched.", status.stock.blocks as f64);
    one("gauge", "tokens", "Tokens of blocks that can be fetched.", status.stock.tokens as f64);
    one("gauge", "pinned_bytes", "Bytes of pinned blocks.", status.pinned_bytes as f64);
    one("gauge", "queued_bytes", "Bytes waiting to be written.", status.queued_bytes as f64);
    one("gauge", "fetches", "Fetches that wait for blocks.", status.fetches as f64);
    let flag = |why: &Option<String>| f64::from(u8::from(why.is_some()));
    one("gauge", "read_only", "1 while another process writes to the folder.", flag(&status.read_only));
    one("gauge", "stopped", "1 while nothing can be written.", flag(&status.stopped));
    let done = &status.counters;
    one("counter", "read_bytes_total", "Bytes of blocks read.", done.read_bytes as f64);
    one("counter", "read_seconds_total", "Time spent reading and checking.", done.read_time.as_secs_f64());
    one("counter", "written_bytes_total", "Bytes of blocks written.", done.written_bytes as f64);
    one("counter", "write_seconds_total", "Time spent writing.", done.write_time.as_secs_f64());
    one("counter", "read_failures_total", "Blocks that were gone or unreadable.", done.read_failures as f64);
    one("counter", "damaged_blocks_total", "Blocks that were not what was written.", {
        done.damaged_blocks as f64
    });
    one("counter", "write_failures_total", "Writes that the system refused.", done.write_failures as f64);
    one("counter", "refused_blocks_total", "Blocks not stored: queue full, or writing stopped.", {
        (done.refused_full + done.refused_stopped) as f64
    });
    one("counter", "dropped_blocks_total", "Blocks queued and not written.", done.dropped_blocks as f64);
    one("counter", "reclaimed_blocks_total", "Blocks deleted to make room.", done.reclaimed_blocks as f64);
    page
}

fn head(page: &mut String, kind: &str, name: &str, help: &str) {
    let _ = writeln!(page, "# HELP ropeway_kv_disk_{name} {help}\n# TYPE ropeway_kv_disk_{name} {kind}");
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn figures_of_a_model_carry_its_name_and_those_of_the_area_none() {
        let totals =
            TierTotals { fetched_tokens: 96, fetching: Duration::from_millis(250), ..TierTotals::default() };
        let page = transfers(&[("a:1b".into(), totals)]);
        assert!(page.contains("ropeway_kv_disk_fetched_tokens_total{model_name=\"a:1b\"} 96\n"), "{page}");
        assert!(page.contains("ropeway_kv_disk_fetch_seconds_total{model_name=\"a:1b\"} 0.25\n"), "{page}");
        let status = Status { size: 1 << 30, stopped: Some("full".into()), ..Status::default() };
        let page = area(&status);
        assert!(page.contains("\nropeway_kv_disk_size_bytes 1073741824\n"), "{page}");
        assert!(page.contains("\nropeway_kv_disk_stopped 1\n") && page.contains("_read_only 0\n"), "{page}");
    }

    #[test]
    fn no_figure_is_told_twice() {
        let page = transfers(&[]) + &area(&Status::default());
        let mut names: Vec<_> = page.lines().filter(|line| line.starts_with("# TYPE")).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
