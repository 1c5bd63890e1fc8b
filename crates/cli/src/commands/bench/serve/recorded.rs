//! Recorded traffic for a server: a trace's times and lengths, with texts that are equal where its prompts were.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use ropeway_testkit::rng::Rng;
use ropeway_testkit::trace::{BLOCK, Recorded, Trace};

use super::ask::Ask;
use super::load::Sender;
use super::prompts::Prompts;
use super::summary::{Load, Point, Replayed};
use super::words::some;
use crate::failure::Failure;

/// Part of a server's context that is left free where tokens can't be counted exactly, as in 1/8.
const MARGIN: usize = 8;

/// Recorded traffic instead of a load.
#[derive(Clone, Debug, Args)]
pub struct TraceArgs {
    /// Instead, replay recorded traffic: Azure's CSV, or JSON lines of
    /// Mooncake's shape with the hash of every 512 tokens
    #[arg(long = "trace", value_name = "FILE",
          conflicts_with_all = ["concurrency", "rate", "trio", "prompt", "output", "shared_prefix"])]
    file: Option<PathBuf>,
    /// How many times faster than recorded the requests of a trace come
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = super::work::rate, requires = "file")]
    speed: f64,
    /// Tokens that prompt and answer have room for; longer requests of a trace
    /// are cut (default: what the server says)
    #[arg(long, value_name = "TOKENS", requires = "file", value_parser = clap::value_parser!(u32).range(16..))]
    context: Option<u32>,
}

/// A trace that fits a server.
#[derive(Clone, Debug)]
pub struct Recording {
    trace: Arc<Trace>,
    pub about: Replayed,
}

/// How prompts become texts.
#[derive(Clone, Copy, Debug)]
pub struct Texts {
    /// Tokens that come with any text.
    pub fixed: f64,
    pub per_word: f64,
    /// Another number gives other texts.
    pub nonce: u64,
}

impl TraceArgs {
    /// The trace, if there is one, cut to what the server has room for.
    pub fn open(
        &self,
        most: Option<usize>,
        server: Option<usize>,
        texts: &Texts,
    ) -> Result<Option<Recording>, Failure> {
        let Some(file) = &self.file else { return Ok(None) };
        let unfit = |error| Failure::new(error, "give Azure's CSV or JSON lines of Mooncake's shape");
        let mut trace = Trace::open(file, most).map_err(unfit)?;
        let context = self.context.map(|context| context as usize).or(server).ok_or_else(|| {
            Failure::new("the server does not say how long its context is", "say it with --context TOKENS")
        })?;
        let cut_requests = trace.fit(texts.room(context));
        let about = Replayed {
            file: file.display().to_string(),
            speed: self.speed,
            requests: trace.len(),
            cut_requests,
        };
        Ok(Some(Recording { trace: Arc::new(trace), about }))
    }

    /// Whether there is one.
    pub fn is_given(&self) -> bool {
        self.file.is_some()
    }
}

impl Recording {
    /// Sends all requests at their times, as often as told, with other texts each time.
    pub async fn measure(&self, sender: &Sender, prompts: &mut Prompts<'_>, repeats: u32) -> Vec<Point> {
        let mut rounds = Vec::new();
        while rounds.len() < repeats as usize && !sender.stopped() {
            sender.bar.set_message(format!("trace {}x", self.about.speed));
            rounds.push(sender.as_they_come(self.asks(prompts.texts())).await);
        }
        rounds.retain(|round| !round.wall.is_zero());
        if rounds.is_empty() { Vec::new() } else { vec![Point::of(self.load(), &rounds)] }
    }

    /// Requests a second on average.
    fn load(&self) -> Load {
        let seconds = self.trace.duration().as_secs_f64() / self.about.speed;
        let rate = self.trace.len() as f64 / seconds.max(1.0);
        Load::Rate((rate * 1000.0).round() / 1000.0)
    }

    /// The requests and when they come. Texts are made when they are due, so that they take memory one at a time.
    fn asks(&self, texts: Texts) -> impl Iterator<Item = (Duration, Ask)> + Send + use<> {
        let (trace, speed) = (Arc::clone(&self.trace), self.about.speed);
        (0..trace.len()).filter_map(move |number| {
            let recorded = trace.get(number)?;
            Some((recorded.at.div_f64(speed), texts.ask(&recorded)))
        })
    }
}

impl Texts {
    /// Tokens that may be asked for where so many have room.
    fn room(&self, context: usize) -> usize {
        if self.are_exact() { context } else { context - context / MARGIN }
    }

    /// Whether texts have exactly as many tokens as asked for.
    pub fn are_exact(&self) -> bool {
        (self.per_word - 1.0).abs() < 1e-9
    }

    /// A request with about as many tokens as were recorded.
    fn ask(&self, recorded: &Recorded<'_>) -> Ask {
        let words_until = |tokens: f64| (tokens / self.per_word).round().max(1.0) as usize;
        let mut words = Vec::new();
        for (block, part) in recorded.parts().enumerate() {
            // Where a part ends depends on its place alone, so that equal beginnings are equal texts.
            let end = words_until(((block + 1) * BLOCK) as f64);
            words.extend(some(&mut Rng::new(part.content ^ self.nonce), end - words.len()));
        }
        words.truncate(words_until(recorded.prompt_tokens as f64 - self.fixed));
        Ask { prompt: words.join(" "), new_tokens: recorded.answer_tokens }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording(lines: &[(usize, &[u64])]) -> Recording {
        let line = |(tokens, ids): &(usize, &[u64])| {
            format!(
                "{{\"timestamp\": 2000, \"input_length\": {tokens}, \"output_length\": 7, \"hash_ids\": {ids:?}}}\n"
            )
        };
        let text: String = lines.iter().map(line).collect();
        let trace = Trace::read("made up", text.as_bytes(), None).unwrap();
        let about = Replayed { file: "made up".into(), speed: 2.0, requests: trace.len(), cut_requests: 0 };
        Recording { trace: Arc::new(trace), about }
    }

    fn texts(per_word: f64, nonce: u64) -> Texts {
        Texts { fixed: 3.0, per_word, nonce }
    }

    #[test]
    fn texts_are_equal_as_far_as_the_trace_says_and_have_about_its_lengths() {
        let recording = recording(&[(1200, &[1, 2, 3]), (1030, &[1, 2, 4]), (520, &[5, 2])]);
        for per_word in [1.0, 1.3, 2.7] {
            let asks: Vec<_> = recording.asks(texts(per_word, 9)).map(|(_, ask)| ask).collect();
            let words: Vec<Vec<_>> = asks.iter().map(|ask| ask.prompt.split(' ').collect()).collect();
            let equal =
                |a: usize, b: usize| words[a].iter().zip(&words[b]).take_while(|(a, b)| a == b).count();
            let two_blocks = (1024.0 / per_word) as usize;
            assert!((two_blocks - 1..two_blocks + 20).contains(&equal(0, 1)), "{}", equal(0, 1));
            assert!(equal(0, 2) < 10, "another first block is another text");
            for (words, tokens) in words.iter().zip([1200.0, 1030.0, 520.0]) {
                let got = 3.0 + per_word * words.len() as f64;
                assert!((got - tokens).abs() <= per_word, "{got} instead of {tokens}");
            }
            assert!(asks.iter().all(|ask| ask.new_tokens == 7));
        }
    }

    #[test]
    fn another_round_has_other_texts_and_the_same_one_the_same() {
        let recording = recording(&[(600, &[1, 2])]);
        let prompt = |nonce| recording.asks(texts(1.0, nonce)).next().unwrap().1.prompt;
        assert_eq!(prompt(1), prompt(1));
        assert_ne!(prompt(1), prompt(2));
    }
}
