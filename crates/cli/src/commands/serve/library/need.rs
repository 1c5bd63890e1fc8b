//! How much memory a model needs.

use indicatif::BinaryBytes;

use crate::commands::serve::ledger::Ledger;

/// What a model takes at least.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// Bytes of its weights.
    pub weights: u64,
    /// Bytes for keys and values.
    pub kv: u64,
}

impl Need {
    /// Bytes without which it is of no use.
    pub fn least(self) -> u64 {
        self.weights + self.kv
    }

    /// KV memory when nobody says how much: half of what is left beside the weights.
    pub fn share(self, free: Option<u64>) -> u64 {
        let left = free.unwrap_or(0).saturating_sub(self.weights);
        self.kv.max(left / 2)
    }

    /// What to tell where there is less.
    pub fn lacking(self, ledger: &Ledger) -> String {
        let free = ledger.free().unwrap_or(0);
        format!(
            "it needs {} ({} of weights, {} for keys and values), and {} are free; unload a model with keep_alive 0, or start \
             the server with a smaller --kv-memory",
            BinaryBytes(self.least()),
            BinaryBytes(self.weights),
            BinaryBytes(self.kv),
            BinaryBytes(free),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lacking_is_told_in_figures() {
        let need = Need { weights: 3 << 30, kv: 1 << 30 };
        let told = need.lacking(&Ledger::new(Some(1 << 30)));
        assert!(told.contains("4.00 GiB") && told.contains("1.00 GiB are free"), "{told}");
        assert_eq!(need.share(Some(7 << 30)), 2 << 30);
    }
}
