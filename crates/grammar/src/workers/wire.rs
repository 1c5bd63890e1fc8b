//! What a compiling process and this one say to each other: frames of a length and as many bytes.
//!
//! ```text
//! to the worker     vocabulary, then any number of trials (JSON)
//! from the worker   an empty frame when it is ready, then a verdict for each trial (JSON)
//! ```

use std::fmt;
use std::io::{self, Read, Write};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::limits;
use crate::spec::{GrammarSpec, Reasoning};

/// Largest frame: the vocabulary of a large model takes about 4 MiB.
const MAX_FRAME: usize = 64 << 20;

/// A grammar to be compiled.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Trial {
    pub(crate) spec: GrammarSpec,
    pub(crate) reasoning: Option<Reasoning>,
}

/// How compiling it went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Verdict {
    /// It compiles within the limits.
    Fits {
        /// Processor time that it took.
        time: Duration,
        /// Bytes that the process grew by.
        memory: usize,
    },
    /// It is wrong, or not supported.
    Refused {
        /// What llguidance says about it.
        reason: String,
    },
    /// It takes more than is given to it.
    Exceeded(Limit),
}

/// What a grammar has too little of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Limit {
    /// Processor time.
    Time,
    /// Memory.
    Memory,
    /// Memory or stack: the process ended by itself.
    Crashed,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (time, memory) = (limits::TIME.as_millis(), limits::GROWTH >> 20);
        match self {
            Self::Time => write!(f, "{time} ms of processor time"),
            Self::Memory => write!(f, "{memory} MiB of memory"),
            Self::Crashed => {
                write!(f, "{memory} MiB of memory, or a stack of {} MiB", limits::WORKER_STACK >> 20)
            }
        }
    }
}

/// Writes a frame.
pub(crate) fn write(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(&(bytes.len() as u32).to_le_bytes())?;
    to.write_all(bytes)?;
    to.flush()
}

/// Reads a frame; an error at the end of the stream.
pub(crate) fn read(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; size_of::<u32>()];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_FRAME {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame is too long"));
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::spec::Strictness;

    #[test]
    fn a_trial_is_read_as_it_was_written() {
        let schema = json!({"z": 1, "a": [true, null]});
        let trial = Trial {
            spec: GrammarSpec::JsonSchema { schema, strictness: Strictness::Lenient },
            reasoning: Some(Reasoning { close: "</think>".into(), is_control: true }),
        };
        let mut stream = Vec::new();
        write(&mut stream, &serde_json::to_vec(&trial).unwrap()).unwrap();
        let bytes = read(&mut &stream[..]).unwrap();
        assert_eq!(serde_json::from_slice::<Trial>(&bytes).unwrap(), trial);
        assert!(read(&mut &stream[..stream.len() - 1]).is_err());
        assert!(read(&mut &[0xff; 8][..]).is_err());
    }
}
