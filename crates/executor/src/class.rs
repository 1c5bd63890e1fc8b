//! How urgent work is.

/// How urgent work is. Works under every policy: more urgent work is computed first, and gives way last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Someone is waiting for it.
    Interactive,
    /// Nothing is known about it.
    #[default]
    Default,
    /// It is done when it is done: batch jobs.
    Bulk,
}

impl Class {
    /// All classes, the most urgent first.
    pub const ALL: [Class; 3] = [Class::Interactive, Class::Default, Class::Bulk];

    /// Its name in logs, metrics and headers.
    pub fn name(self) -> &'static str {
        match self {
            Class::Interactive => "interactive",
            Class::Default => "default",
            Class::Bulk => "bulk",
        }
    }
}
