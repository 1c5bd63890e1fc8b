//! `ropeway bench embed`: texts a second through the whole service, in process.

use std::io::Write;
use std::time::{Duration, Instant};

use clap::Args;
use ropeway_batcher::Settings;
use ropeway_embed::{EmbedOptions, Embedder, Input};
use serde_json::json;

use super::statistics::median;
use crate::embedder_args::EmbedderArgs;
use crate::failure::Failure;
use crate::output::Output;

/// Measure embedding: many requests at once, and one after another
#[derive(Debug, Args)]
pub struct Embed {
    /// Requests at once
    #[arg(long, value_delimiter = ',', default_value = "1,10,64")]
    at_once: Vec<usize>,
    /// Words of a text
    #[arg(long, default_value_t = 16)]
    words: usize,
    /// Measurements; the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeat: u32,
    /// Most texts of a batch
    #[arg(long, value_name = "N", default_value_t = 32)]
    max_batch: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    embedder: EmbedderArgs,
}

const WORDS: [&str; 24] = [
    "station", "cable", "morning", "engine", "summit", "valley", "carries", "slowly", "people", "between",
    "winter", "report", "measured", "traffic", "signal", "under", "bright", "river", "because", "machine",
    "letters", "garden", "quickly", "sound",
];

/// A text of `words` words, another for every `seed`.
fn text(words: usize, seed: usize) -> String {
    let word = |i: usize| WORDS[(seed * 7 + i * (5 + seed % 11) + seed / 24) % WORDS.len()];
    (0..words).map(word).collect::<Vec<_>>().join(" ")
}

struct Rate {
    at_once: usize,
    texts_per_second: f64,
    milliseconds: f64,
    batches: f64,
}

impl Embed {
    pub fn run(self, output: &mut Output) -> Result<(), Failure> {
        let batching = Settings { max_batch: self.max_batch, ..Settings::default() };
        let embedder = self.embedder.load(batching)?;
        let mut rates = Vec::new();
        for &at_once in self.at_once.iter().filter(|&&at_once| at_once > 0) {
            let texts: Vec<String> = (0..at_once).map(|seed| text(self.words, seed)).collect();
            burst(&embedder, &texts)?;
            let before = embedder.totals().batches;
            let times = (0..self.repeat).map(|_| burst(&embedder, &texts)).collect::<Result<Vec<_>, _>>()?;
            let seconds = median(times.iter().map(Duration::as_secs_f64).collect());
            rates.push(Rate {
                at_once,
                texts_per_second: at_once as f64 / seconds,
                milliseconds: seconds * 1e3,
                batches: (embedder.totals().batches - before) as f64 / f64::from(self.repeat),
            });
        }
        self.report(&rates, output)
    }

    fn report(&self, rates: &[Rate], output: &mut Output) -> Result<(), Failure> {
        if self.json {
            let rates: Vec<_> = rates
                .iter()
                .map(|rate| {
                    json!({
                        "at_once": rate.at_once, "texts_per_second": rate.texts_per_second,
                        "milliseconds": rate.milliseconds, "batches": rate.batches,
                    })
                })
                .collect();
            return Ok(
                output.json(&json!({ "model": self.embedder.model, "words": self.words, "rates": rates }))?
            );
        }
        writeln!(output, "{}, texts of {} words", self.embedder.model, self.words)?;
        writeln!(output, "  at once    texts/s         ms    batches")?;
        for Rate { at_once, texts_per_second, milliseconds, batches } in rates {
            writeln!(output, "{at_once:>9} {texts_per_second:>10.0} {milliseconds:>10.1} {batches:>10.1}")?;
        }
        Ok(())
    }
}

/// All texts at once; the time until the last one is there.
fn burst(embedder: &Embedder, texts: &[String]) -> Result<Duration, Failure> {
    let began = Instant::now();
    let options = EmbedOptions::default();
    let pending: Vec<_> =
        texts.iter().map(|text| embedder.embed(Input::Text(text), &options)).collect::<Result<_, _>>()?;
    for pending in pending {
        pending.wait()?;
    }
    Ok(began.elapsed())
}
