//! The options that decide how tokens are chosen, each checked as it is read.

use std::ops::RangeInclusive;

use clap::Args;
use ropeway_executor::{SamplingParams, Seed};
use ropeway_generation::sampling::{PROBABILITY, REPETITION_PENALTY, TEMPERATURE, random_seed};

/// How far back `--repeat-penalty` looks. Penalising a whole conversation would forbid its most common words.
const PENALTY_WINDOW: u32 = 64;

/// How tokens are chosen.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Sampling options")]
pub struct SamplingArgs {
    /// 0 always takes the likeliest token, more is more varied
    #[arg(long, value_name = "T", default_value_t = 0.7, value_parser = within(TEMPERATURE))]
    temperature: f32,
    /// Choose among the K likeliest tokens; 0 among all
    #[arg(long, value_name = "K", default_value_t = 0)]
    top_k: u32,
    /// Choose among the likeliest tokens that make up this share
    #[arg(long, value_name = "P", default_value_t = 1.0, value_parser = within(PROBABILITY))]
    top_p: f32,
    /// Leave out tokens less than P times as likely as the likeliest
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = within(PROBABILITY))]
    min_p: f32,
    /// Make the latest 64 tokens less likely to come again; 1 is off
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = within(REPETITION_PENALTY))]
    repeat_penalty: f32,
    /// The same seed gives the same answer (default: another one each time)
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

impl SamplingArgs {
    /// The same for the executor.
    pub fn params(&self) -> SamplingParams {
        SamplingParams {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repeat_penalty,
            penalty_window: Some(PENALTY_WINDOW),
            seed: self.seed.map_or_else(random_seed, Seed),
            ..SamplingParams::default()
        }
    }
}

/// A reader of numbers in a range.
fn within(
    range: RangeInclusive<f32>,
) -> impl Fn(&str) -> Result<f32, String> + Clone + Send + Sync + 'static {
    move |text| match text.parse::<f32>() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(format!("give a number from {} to {}", range.start(), range.end())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_outside_the_range_and_words_are_told_the_range() {
        let read = within(PROBABILITY);
        assert_eq!(read("0.25"), Ok(0.25));
        for text in ["-0.1", "1.5", "NaN", "inf", "warm", ""] {
            assert_eq!(read(text), Err("give a number from 0 to 1".into()), "{text}");
        }
    }
}
