//! How an answer goes on at another upstream after the one that computed it failed.
//!
//! ```text
//! continued   prompt + tokens so far ─> the next token           nothing is computed or sent twice
//! repeated    prompt ─> the same tokens again, passed over ─> the next token
//! ```
//! An answer is continued where the choice of its next token depends on the tokens before it alone. A grammar starts with the
//! answer, and some penalties count the answer only: for these it is repeated from the start, and fails if it does not come
//! out the same, which it does where upstreams are alike and the choice is greedy or seeded by position.

use ropeway_engine::Request;
use ropeway_executor::Sampled;

/// What was sent so far, and what the next attempt has to do.
#[derive(Debug, Default)]
pub struct Progress {
    /// Tokens that the reader has.
    sent: Vec<u32>,
    /// Of these, how many the current attempt has repeated.
    repeated: usize,
    /// Whether the current attempt repeats.
    repeats: bool,
}

/// The answer came out differently at another upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Diverged;

/// What an attempt is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leg {
    /// Tokens that follow the prompt.
    pub begun: usize,
    /// Most new tokens.
    pub max_tokens: usize,
    /// Tokens before which it may not end.
    pub min_tokens: usize,
}

impl Progress {
    /// Begins an attempt; what it is asked for where the whole answer may have `most` tokens.
    pub fn begin(&mut self, request: &Request, most: usize) -> Leg {
        self.repeated = 0;
        self.repeats = !can_continue(request);
        let begun = if self.repeats { 0 } else { self.sent.len() };
        Leg {
            begun,
            max_tokens: most.saturating_sub(begun),
            min_tokens: request.min_tokens.saturating_sub(begun),
        }
    }

    /// Tokens that the reader has.
    pub fn sent(&self) -> &[u32] {
        &self.sent
    }

    /// Takes a token of the attempt; the token if it is new to the reader.
    pub fn take(&mut self, sampled: Sampled) -> Result<Option<Sampled>, Diverged> {
        if self.repeats && self.repeated < self.sent.len() {
            let expected = self.sent[self.repeated];
            self.repeated += 1;
            return if expected == sampled.token { Ok(None) } else { Err(Diverged) };
        }
        self.repeated += 1;
        self.sent.push(sampled.token);
        Ok(Some(sampled))
    }

    /// Whether an attempt may end here: not before it has repeated everything.
    pub fn may_end(&self) -> Result<(), Diverged> {
        if self.repeats && self.repeated < self.sent.len() { Err(Diverged) } else { Ok(()) }
    }
}

/// Whether the next token depends on the tokens before it alone, wherever the answer began.
#[allow(clippy::float_cmp, reason = "only exactly neutral values leave the logits untouched")]
fn can_continue(request: &Request) -> bool {
    let params = &request.params;
    let counts_answer = params.penalty_window.is_none()
        && (params.presence_penalty != 0.0 || params.frequency_penalty != 0.0);
    request.grammar.is_none() && !counts_answer
}

#[cfg(test)]
mod tests {
    use ropeway_executor::SamplingParams;

    use super::*;

    fn token(token: u32) -> Sampled {
        Sampled { token, ..Sampled::default() }
    }

    fn after(request: &Request, sent: &[u32]) -> (Progress, Leg) {
        let mut progress = Progress::default();
        progress.begin(request, 10);
        for one in sent {
            assert_eq!(progress.take(token(*one)), Ok(Some(token(*one))));
        }
        let leg = progress.begin(request, 10);
        (progress, leg)
    }

    #[test]
    fn a_plain_answer_goes_on_after_what_was_sent() {
        let request = Request { min_tokens: 5, ..Request::greedy(vec![1], 10) };
        let (mut progress, leg) = after(&request, &[7, 8]);
        assert_eq!(leg, Leg { begun: 2, max_tokens: 8, min_tokens: 3 });
        assert_eq!(progress.take(token(9)), Ok(Some(token(9))));
        assert_eq!((progress.sent(), progress.may_end()), (&[7, 8, 9][..], Ok(())));
    }

    #[test]
    fn an_answer_whose_penalties_count_it_alone_is_repeated_and_passed_over() {
        let params = SamplingParams { presence_penalty: 0.5, ..SamplingParams::greedy() };
        let request = Request { params, ..Request::greedy(vec![1], 10) };
        let (mut progress, leg) = after(&request, &[7, 8]);
        assert_eq!(leg, Leg { begun: 0, max_tokens: 10, min_tokens: 0 });
        assert_eq!(progress.take(token(7)), Ok(None));
        assert_eq!(progress.may_end(), Err(Diverged));
        assert_eq!(progress.take(token(8)), Ok(None));
        assert_eq!(progress.take(token(9)), Ok(Some(token(9))));
        assert_eq!(progress.sent(), [7, 8, 9]);
    }

    #[test]
    fn an_answer_that_comes_out_differently_is_not_patched_together() {
        let params = SamplingParams { frequency_penalty: 0.5, ..SamplingParams::greedy() };
        let request = Request { params, ..Request::greedy(vec![1], 10) };
        let (mut progress, _) = after(&request, &[7, 8]);
        assert_eq!(progress.take(token(5)), Err(Diverged));
    }
}
