//! How much is kept, of one tenant and in all.

/// How much is kept, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Of one tenant: what one may fill is a part of the whole.
    pub tenant: Bound,
    /// Of all tenants.
    pub all: Bound,
    /// Seconds without use after which something is forgotten.
    pub age: u64,
}

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// Responses and conversations.
    pub objects: usize,
    /// Bytes of these, as JSON.
    pub bytes: usize,
    /// Responses that run in the background at once.
    pub background: usize,
}

impl Default for Bounds {
    /// A day's work of an agent; as long as OpenAI keeps responses.
    fn default() -> Self {
        Self {
            tenant: Bound { objects: 1024, bytes: 32 << 20, background: 16 },
            all: Bound { objects: 8192, bytes: 128 << 20, background: 128 },
            age: 30 * 24 * 60 * 60,
        }
    }
}
