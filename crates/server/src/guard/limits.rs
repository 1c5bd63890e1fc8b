//! How much one request may ask for.

use std::time::Duration;

use ropeway_generation::Job;

use crate::error::ApiError;

/// Largest body read: a prompt of some million tokens, or a conversation with a few files in it.
pub const DEFAULT_BODY: usize = 32 << 20;

/// Answers a request may ask for: clients send 1 to 10, votes among answers up to 16, and 16 sequences are few enough
/// that a step computes them beside everyone else's.
pub const DEFAULT_N: usize = 16;

/// Stop strings of a request; more than any client sends, few enough to look for at every token.
pub const DEFAULT_STOPS: usize = 64;

/// Bytes of a stop string: text that might be the beginning of one is held back, and so is the stream.
pub const DEFAULT_STOP_BYTES: usize = 1024;

/// How much one request may ask for, and how long it may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest body, in bytes.
    pub body: usize,
    /// What an accepted body may ask for.
    pub sizes: Sizes,
    /// Longest time to answer.
    pub request_timeout: Option<Duration>,
    /// Longest time in the queue.
    pub queue_timeout: Option<Duration>,
}

/// What a request may ask for.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Tokens of a prompt; the model's context is the limit without it.
    pub prompt_tokens: Option<usize>,
    /// Answers.
    pub n: usize,
    /// Stop strings.
    pub stops: usize,
    /// Bytes of each.
    pub stop_bytes: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { prompt_tokens: None, n: DEFAULT_N, stops: DEFAULT_STOPS, stop_bytes: DEFAULT_STOP_BYTES }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { body: DEFAULT_BODY, sizes: Sizes::default(), request_timeout: None, queue_timeout: None }
    }
}

impl Sizes {
    /// Turns down a job that asks for more.
    pub fn check(&self, job: &Job) -> Result<(), ApiError> {
        let too_much = |param: &str, what: String| Err(ApiError::invalid(what).about(param));
        if job.stop.len() > self.stops {
            return too_much("stop", format!("at most {} stop strings", self.stops));
        }
        if job.stop.iter().any(|stop| stop.len() > self.stop_bytes) {
            return too_much("stop", format!("a stop string has at most {} bytes", self.stop_bytes));
        }
        if job.n.get() > self.n {
            let (n, most) = (job.n, self.n);
            let what = format!(
                "n is at most {most} on this server, and this request has {n}; send several requests, or start the \
                 server with --max-n {n}"
            );
            return too_much("n", what);
        }
        Ok(())
    }

    /// Turns down a prompt with more tokens.
    pub fn check_prompt(&self, tokens: usize) -> Result<(), ApiError> {
        self.check_tokens(tokens, "prompt", "messages")
    }

    /// Turns down a predicted answer with more tokens than a prompt may have.
    pub fn check_prediction(&self, tokens: usize) -> Result<(), ApiError> {
        self.check_tokens(tokens, "prediction", "prediction")
    }

    fn check_tokens(&self, tokens: usize, what: &str, field: &str) -> Result<(), ApiError> {
        match self.prompt_tokens.filter(|most| tokens > *most) {
            None => Ok(()),
            Some(most) => {
                let message = format!(
                    "the {what} has {tokens} tokens, but this server reads at most {most}; shorten it"
                );
                Err(ApiError::invalid(message).about(field).coded("context_length_exceeded"))
            }
        }
    }
}
