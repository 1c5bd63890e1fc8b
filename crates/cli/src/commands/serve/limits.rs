//! How much may be asked for, at once and over time.

use std::num::NonZeroU32;
use std::time::Duration;

use clap::Args;
use ropeway_server::connections::slots::{ConnectionLimits, DEFAULT_SILENCE};
use ropeway_server::guard::clients::Allowance;
use ropeway_server::guard::limits::{DEFAULT_N, DEFAULT_STOPS, Limits, Sizes};
use ropeway_server::intake::budget::{Budget, LEAST_MEMORY};

use crate::descriptors::room_for_connections;
use crate::memory::parse_size;

/// Connections at once, however many files may be open: each may hold a buffer of 64 KiB.
const MOST_CONNECTIONS: u64 = 4096;

/// How much may be asked for.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Limit options")]
pub struct LimitArgs {
    /// Largest request body
    #[arg(long, value_name = "SIZE", default_value = "32MiB", value_parser = parse_size)]
    max_body: u64,
    /// Memory for request bodies that are being read and prepared, of all
    /// clients together
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_size)]
    memory_in_flight: u64,
    /// Most connections at once; later ones wait (default: what the limit on
    /// open files leaves room for, 4096 at most)
    #[arg(long, value_name = "N")]
    max_connections: Option<NonZeroU32>,
    /// Most connections from one address; more get 503 (default: half of all)
    #[arg(long, value_name = "N")]
    max_connections_per_address: Option<NonZeroU32>,
    /// Seconds that a connection may be silent between two requests; more than
    /// a proxy before it keeps one
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_SILENCE.as_secs().max(1))]
    idle_timeout: u64,
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

    /// The memory of requests that are being read.
    pub fn memory(&self) -> Budget {
        let bytes = usize::try_from(self.memory_in_flight).unwrap_or(usize::MAX);
        Budget::new(bytes.max(LEAST_MEMORY))
    }

    /// How many connections there may be.
    pub fn connections(&self) -> ConnectionLimits {
        let number = |number: Option<NonZeroU32>| number.map(|number| number.get() as usize);
        let room = || room_for_connections().map_or(MOST_CONNECTIONS, |room| room.min(MOST_CONNECTIONS));
        let limits = ConnectionLimits::new(number(self.max_connections).unwrap_or_else(|| room() as usize));
        let per_address = number(self.max_connections_per_address).unwrap_or(limits.per_address);
        let silence = Duration::from_secs(self.idle_timeout.max(1));
        ConnectionLimits { per_address, silence, ..limits }
    }

    /// What a client may use.
    pub fn allowance(&self) -> Allowance {
        Allowance { concurrency: self.client_concurrency, tokens_per_minute: self.client_tokens_per_minute }
    }
}
