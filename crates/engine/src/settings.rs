//! What an operator may choose.

use std::sync::Arc;

use crate::cost::CostModel;
use crate::draft::Speculation;
use crate::scheduler::Pace;
use crate::scheduler::policy::PolicyKind;
use crate::tier::Tier;

/// Requests that may wait: about a minute's worth of short ones on a small machine. Whoever comes later is better off
/// with an error at once than with an answer after they stopped waiting.
pub const DEFAULT_QUEUE: usize = 1024;

/// An engine's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// In which order prompts are computed.
    pub policy: PolicyKind,
    /// How long steps may take.
    pub pace: Pace,
    /// Requests that may wait.
    pub queue: usize,
    /// How much is drafted.
    pub speculation: Speculation,
    /// Where blocks go that memory has no room for.
    pub tier: Option<Arc<dyn Tier>>,
    /// What is known about the machine beforehand; `None` takes the executor's own guess.
    pub cost: Option<CostModel>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            policy: PolicyKind::default(),
            pace: Pace::default(),
            queue: DEFAULT_QUEUE,
            speculation: Speculation::default(),
            tier: None,
            cost: None,
        }
    }
}
