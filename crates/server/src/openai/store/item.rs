//! Items, and who pays for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use crate::intake::{PER_BYTE, PER_VALUE};

/// Items in order, each shared with others.
pub type Items = Vec<Arc<Item>>;

/// Bytes that anything kept takes beside its text.
pub const OVERHEAD: usize = 128;

/// Bytes in use.
#[derive(Clone, Debug, Default)]
pub struct Meter(Arc<AtomicUsize>);

impl Meter {
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Whether nothing can change it any more.
    pub fn is_alone(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

/// Bytes that count until this is dropped: for a tenant, and in all.
#[derive(Debug)]
pub struct Charge {
    bytes: usize,
    meters: [Meter; 2],
}

impl Charge {
    pub fn new(bytes: usize, meters: [Meter; 2]) -> Self {
        for meter in &meters {
            meter.0.fetch_add(bytes, Ordering::Relaxed);
        }
        Self { bytes, meters }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        for meter in &self.meters {
            meter.0.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// An item of a response or a conversation, as JSON text.
#[derive(Debug)]
pub struct Item {
    id: Box<str>,
    json: Box<str>,
    charge: Charge,
}

impl Item {
    pub(super) fn new(value: &Value, charge: impl FnOnce(usize) -> Charge) -> Arc<Self> {
        let id: Box<str> = value["id"].as_str().unwrap_or_default().into();
        let json = value.to_string().into_boxed_str();
        let charge = charge(id.len() + json.len() + OVERHEAD);
        Arc::new(Self { id, json, charge })
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What it says.
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.json).unwrap_or_default()
    }

    /// Bytes that it counts as.
    pub fn bytes(&self) -> usize {
        self.charge.bytes
    }

    /// Bytes of its text.
    pub fn text_bytes(&self) -> usize {
        self.json.len()
    }

    /// Memory that it takes at most until it consists of tokens. Every name or value of a JSON text but the first follows
    /// one of these characters.
    pub fn parsed_bytes(&self) -> usize {
        let values = self.json.bytes().filter(|byte| matches!(byte, b'{' | b'[' | b',' | b':')).count();
        self.json.len() * PER_BYTE + values * PER_VALUE
    }
}
