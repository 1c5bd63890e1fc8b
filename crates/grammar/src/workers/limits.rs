//! What compiling a grammar may take. The process that compiles it holds itself to these limits; whoever started it
//! ends it if it does not.

use std::time::Duration;

/// Processor time. Schemas of programs take a few milliseconds, the largest that are taken some tens.
pub(crate) const TIME: Duration = Duration::from_millis(500);

/// Processor time after which compiling gives way to the models that answer. Few grammars of practical use take as much.
pub(crate) const SUSPICIOUS: Duration = Duration::from_millis(50);

/// Time on the clock, on a machine whose processors are busy with models.
pub(crate) const PATIENCE: Duration = Duration::from_millis(1500);

/// Bytes that a worker may grow by for one grammar. Schemas of programs take a few megabytes.
pub(crate) const GROWTH: usize = 96 << 20;

/// Bytes of data that the system lets a worker have in all: the vocabulary, what it grows by, and what an allocation
/// takes between two looks at the growth.
pub(crate) const DATA: u64 = 256 << 20;

/// Stack of the thread that compiles, here and in a worker. Expressions are read recursively, and those that exhaust a
/// worker's stack never come to this process, whose threads have twice as much.
pub(crate) const WORKER_STACK: usize = 4 << 20;

/// Time in which a worker has to be ready: it loads an executable and builds the trie of a vocabulary.
pub(crate) const START: Duration = Duration::from_secs(10);

/// How often a worker looks at what it has used.
pub(crate) const LOOK: Duration = Duration::from_millis(5);
