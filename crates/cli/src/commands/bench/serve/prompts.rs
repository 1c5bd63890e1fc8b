//! Prompts with as many tokens as asked for, each unlike all others.
//!
//! ```text
//! tokens = fixed + per_word * words      learnt from two texts: by /tokenize where the server has it, else by what it
//!                                        says of itself in `usage`
//! ```
//! With /tokenize the first prompts are counted and mended; once the rule held often enough it is trusted. Words are new
//! in every run, even with the same seed: a server's cache must not remember them from the last one.

use std::time::{SystemTime, UNIX_EPOCH};

use ropeway_testkit::rng::Rng;
use serde::Deserialize;
use serde_json::json;

use super::ask::{Ask, Manner, Usage};
use super::client::{Client, Fault};
use super::recorded::Texts;
use super::words::{FILLER, some};

/// Words of the two texts the rule is learnt from: they have to fit into the smallest context.
const SAMPLES: [usize; 2] = [4, 20];

/// Prompts that were right at the first try before no more are counted.
const TRUSTED: usize = 12;

/// Corrections of one prompt.
const CORRECTIONS: usize = 24;

/// How tokens are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counting {
    /// By /tokenize; the endpoint adds so many to them (a chat template, for one).
    Tokenizer { added: isize },
    /// By a request for one token, whose usage says it.
    Usage,
    /// Not at all.
    Unknown,
}

/// Makes prompts for one server.
pub struct Prompts<'a> {
    client: &'a Client,
    manner: &'a Manner,
    rng: Rng,
    counting: Counting,
    fixed: f64,
    per_word: f64,
    /// Words that all prompts begin with, and their tokens.
    shared: (Vec<&'static str>, usize),
    right_in_a_row: usize,
    /// Prompts known to have another length than asked for.
    wrong: usize,
}

impl<'a> Prompts<'a> {
    /// Learns how the server counts; `shared` tokens will begin every prompt.
    pub async fn learn(client: &'a Client, manner: &'a Manner, shared: usize) -> Result<Prompts<'a>, Fault> {
        let mut prompts = Prompts {
            client,
            manner,
            rng: Rng::new(nonce()),
            counting: Counting::Unknown,
            fixed: 0.0,
            per_word: 1.0,
            shared: (Vec::new(), 0),
            right_in_a_row: 0,
            wrong: 0,
        };
        prompts.calibrate().await?;
        let words = (shared as f64 / prompts.per_word).round() as usize;
        prompts.shared = (some(&mut prompts.rng, words), shared);
        Ok(prompts)
    }

    async fn calibrate(&mut self) -> Result<(), Fault> {
        let texts = SAMPLES.map(|words| some(&mut self.rng, words).join(" "));
        let told = self.by_usage(&texts[0]).await?;
        self.counting = match (self.by_tokenizer(&texts[0]).await, told) {
            (Ok(raw), told) => {
                Counting::Tokenizer { added: told.map_or(0, |told| told as isize - raw as isize) }
            }
            (Err(_), Some(_)) => Counting::Usage,
            (Err(_), None) => Counting::Unknown,
        };
        if self.counting != Counting::Unknown {
            let [few, many] = [self.count(&texts[0]).await?, self.count(&texts[1]).await?];
            (self.fixed, self.per_word) = line([few, many]);
        }
        Ok(())
    }

    /// Whether all prompts so far have exactly as many tokens as asked for.
    pub fn are_exact(&self) -> bool {
        let steady = (self.per_word - 1.0).abs() < 1e-9;
        let checked = matches!(self.counting, Counting::Tokenizer { .. });
        self.wrong == 0 && (checked || (steady && self.counting == Counting::Usage))
    }

    /// How texts of recorded lengths are made; other texts each time.
    pub fn texts(&mut self) -> Texts {
        Texts { fixed: self.fixed, per_word: self.per_word, nonce: self.rng.bits() }
    }

    /// A request whose prompt has `tokens` besides the shared ones.
    pub async fn ask(&mut self, tokens: usize, new_tokens: usize) -> Result<Ask, Fault> {
        let wanted = tokens + self.shared.1;
        let count = ((wanted as f64 - self.fixed) / self.per_word).round();
        let own = (count as usize).saturating_sub(self.shared.0.len()).max(1);
        let mut words = self.shared.0.clone();
        words.extend(some(&mut self.rng, own));
        if matches!(self.counting, Counting::Tokenizer { .. }) && self.right_in_a_row < TRUSTED {
            self.mend(&mut words, wanted).await?;
        }
        Ok(Ask { prompt: words.join(" "), new_tokens })
    }

    /// Takes words away and fills up until the count is right.
    async fn mend(&mut self, words: &mut Vec<&'static str>, wanted: usize) -> Result<(), Fault> {
        for attempt in 0..CORRECTIONS {
            let count = self.count(&words.join(" ")).await?;
            if count == wanted {
                self.right_in_a_row = if attempt == 0 { self.right_in_a_row + 1 } else { 0 };
                return Ok(());
            }
            if count > wanted {
                let surplus = ((count - wanted) as f64 / self.per_word).ceil() as usize;
                words.truncate(words.len().saturating_sub(surplus).max(1));
            } else {
                let missing = ((wanted - count) as f64 / self.per_word).floor() as usize;
                words.extend(some(&mut self.rng, missing));
                words.extend((missing == 0).then_some(FILLER));
            }
        }
        self.right_in_a_row = 0;
        self.wrong += 1;
        Ok(())
    }

    async fn count(&self, text: &str) -> Result<usize, Fault> {
        match self.counting {
            Counting::Tokenizer { added } => Ok(self.by_tokenizer(text).await?.saturating_add_signed(added)),
            Counting::Usage | Counting::Unknown => {
                let uncounted = || Fault::Nonsense("the server counted one prompt but not another".into());
                self.by_usage(text).await?.ok_or_else(uncounted)
            }
        }
    }

    /// Asks in vLLM's words and in llama.cpp's at once; either ignores the other's.
    async fn by_tokenizer(&self, text: &str) -> Result<usize, Fault> {
        #[derive(Deserialize)]
        struct Tokens {
            tokens: Vec<u32>,
        }
        let body = json!({
            "model": self.manner.model,
            "prompt": text, "add_special_tokens": true,
            "content": text, "add_special": true,
        });
        let answer = self.client.post("/tokenize", body.to_string()).await?;
        let tokens = Tokens::deserialize(&answer).map_err(|error| Fault::Nonsense(error.to_string()))?;
        Ok(tokens.tokens.len())
    }

    async fn by_usage(&self, text: &str) -> Result<Option<usize>, Fault> {
        let ask = Ask { prompt: text.to_owned(), new_tokens: 1 };
        let body = self.manner.body(&ask).to_string();
        let answer = self.client.post(self.manner.endpoint.route(), body).await?;
        let usage = Usage::deserialize(&answer["usage"]).unwrap_or_default();
        Ok(usage.prompt_tokens)
    }
}

/// Tokens that come with any text and tokens per word, from the tokens of the two samples.
fn line([few, many]: [usize; 2]) -> (f64, f64) {
    let per_word = (many as f64 - few as f64) / (SAMPLES[1] - SAMPLES[0]) as f64;
    // A server that caches or rounds its counts must not lead to endless prompts.
    let per_word = if (0.2..=20.0).contains(&per_word) { per_word } else { 1.0 };
    (few as f64 - per_word * SAMPLES[0] as f64, per_word)
}

/// A number that no other run has.
fn nonce() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    time.as_nanos() as u64 ^ u64::from(std::process::id()).rotate_left(48)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_samples_give_the_tokens_of_a_word_and_of_no_word() {
        assert_eq!(line([5, 21]), (1.0, 1.0));
        assert_eq!(line([10, 42]), (2.0, 2.0));
        assert_eq!(line([50, 50]), (46.0, 1.0), "a server that counts nothing");
    }
}
