//! How far the loading of models is, for whoever wants to know beside the bar on the terminal.

use std::fmt;
use std::sync::{Arc, OnceLock};

type Listener = Box<dyn Fn(&str, f64) + Send + Sync>;

/// Tells one listener; clones tell the same one.
#[derive(Clone, Default)]
pub struct LoadReport(Arc<OnceLock<Listener>>);

impl LoadReport {
    /// From now on `listener` is told the name of a model, and which share of it is loaded.
    pub fn subscribe(&self, listener: impl Fn(&str, f64) + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(listener));
    }

    /// So much of a model is loaded.
    pub fn tell(&self, model: &str, done: u64, total: u64) {
        if let Some(listener) = self.0.get().filter(|_| total > 0) {
            listener(model, done as f64 / total as f64);
        }
    }
}

impl fmt::Debug for LoadReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("LoadReport")
    }
}
