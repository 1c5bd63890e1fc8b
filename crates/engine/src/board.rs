//! What the engine shows to the outside after each step. Readers copy; nobody holds it for long.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::metrics::Metrics;
use crate::queue::Queue;
use crate::record::{Records, StepRecord};

#[derive(Debug, Default)]
struct Shown {
    metrics: Metrics,
    records: Records,
}

/// What became of the hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// It computes.
    Working,
    /// It was lost and is being restarted; requests wait.
    Restarting,
    /// It was lost and could not be restarted: every request has ended.
    Lost,
}

impl Device {
    /// Its name in answers about health.
    pub fn name(self) -> &'static str {
        match self {
            Device::Working => "working",
            Device::Restarting => "restarting",
            Device::Lost => "lost",
        }
    }
}

/// The latest records and metrics, and how many requests are on their way in.
#[derive(Debug, Default)]
pub struct Board {
    shown: Mutex<Shown>,
    /// Sequences submitted that have no place in the batch yet.
    pub(crate) queue: Queue,
    /// Set once the engine is to stop, whatever it is doing.
    stop: AtomicBool,
    /// Set once its thread is done.
    ended: AtomicBool,
    device: AtomicU8,
    /// Why the device is lost, once it is.
    loss: OnceLock<String>,
}

impl Board {
    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn publish(&self, record: Option<&StepRecord>, metrics: &Metrics) {
        let mut shown = self.shown();
        shown.metrics.clone_from(metrics);
        if let Some(record) = record {
            shown.records.push(*record);
        }
    }

    /// Totals and distributions, as of the latest step.
    pub fn metrics(&self) -> Metrics {
        self.shown().metrics.clone()
    }

    /// The records after step `step`, oldest first, as far as they are kept.
    pub fn records_after(&self, step: u64) -> Vec<StepRecord> {
        self.shown().records.after(step).copied().collect()
    }

    /// What became of the hardware.
    pub fn device(&self) -> Device {
        match self.device.load(Ordering::Relaxed) {
            0 => Device::Working,
            1 => Device::Restarting,
            _ => Device::Lost,
        }
    }

    pub(crate) fn set_device(&self, device: Device) {
        self.device.store(device as u8, Ordering::Relaxed);
    }

    pub(crate) fn lose_device(&self, why: &str) {
        self.loss.get_or_init(|| why.to_owned());
        self.set_device(Device::Lost);
    }

    /// Why the device is lost, once it is.
    pub fn loss(&self) -> Option<&str> {
        self.loss.get().map(String::as_str)
    }

    /// Whether the engine is to stop.
    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Sequences that have no place in the batch yet; a request with `n` sequences counts as `n`.
    pub fn queued(&self) -> usize {
        self.queue.taken()
    }
}
