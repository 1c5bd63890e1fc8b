//! How much may be asked for, at once and over time.

use std::num::NonZeroU32;
use std::time::Duration;

use clap::Args;
use ropeway_server::guard::clients::Allowance;
use ropeway_server::guard::limits::{DEFAULT_N, DEFAULT_STOPS, Limits, Sizes};

use crate::memory::parse_size;

/// How much may be asked for.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Limit options")]
pub struct LimitArgs {
    /// Largest request body
    #[arg(long, value_name = "SIZE", default_value = "32MiB", value_parser = parse_size)]
    max_body: u64,
    /// Most tokens of a prompt (default: what the context holds)
    #[arg(long, value_name = "TOKENS")]
    max_prompt_tokens: Option<usize>,
    /// Most answers to one request (`n`); each counts as a request of its client
    #[arg(long, value_name = "N", default_value_t = DEFAULT_N)]
    max_n: usize,
    /// Most stop strings of a request
    #[arg(long, value_name = "N", default_value_t = DEFAULT_STOPS)]
    max_stops: usize,
    /// Most requests of a client at once; its key may say otherwise
    #[arg(long, value_name = "N")]
    client_concurrency: Option<NonZeroU32>,
    /// Most tokens of a client in a minute; its key may say otherwise
    #[arg(long, value_name = "N")]
    client_tokens_per_minute: Option<NonZeroU32>,
    /// Seconds after which a request is ended
    #[arg(long, value_name = "SECONDS")]
    request_timeout: Option<NonZeroU32>,
    /// Seconds after which a request that still waits is turned away
    #[arg(long, value_name = "SECONDS")]
    queue_timeout: Option<NonZeroU32>,
}

impl LimitArgs {
    /// How much one request may ask for.
    pub fn limits(&self) -> Limits {
        let seconds = |seconds: Option<NonZeroU32>| seconds.map(|s| Duration::from_secs(s.get().into()));
        Limits {
            body: usize::try_from(self.max_body).unwrap_or(usize::MAX),
            sizes: Sizes {
                prompt_tokens: self.max_prompt_tokens,
                n: self.max_n,
                stops: self.max_stops,
                ..Sizes::default()
            },
            request_timeout: seconds(self.request_timeout),
            queue_timeout: seconds(self.queue_timeout),
        }
    }

    /// What a client may use.
    pub fn allowance(&self) -> Allowance {
        Allowance { concurrency: self.client_concurrency, tokens_per_minute: self.client_tokens_per_minute }
    }
}
