//! Machines that workloads can be tried on, as costs.
//!
//! Each is fitted to measurements; how well is said beside it. Disks are what is usual beside such a machine.

use std::time::Duration;

use ropeway_engine::cost::CostModel;

use super::DiskModel;

/// Bytes that may wait to be written to a disk.
const WRITE_QUEUE: f64 = (1_u64 << 30) as f64;

/// A model on a machine.
#[derive(Clone, Copy, Debug)]
pub struct Hardware {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Seconds per step, token, row, pair and position read.
    pub cost: [f64; 5],
    /// Bytes that the keys and values of a token take.
    pub token_bytes: u64,
    /// Bytes for keys and values.
    pub kv_memory: u64,
    /// Longest sequence.
    pub context: usize,
    /// Most tokens of a step.
    pub step_tokens: usize,
    /// Most streams of a step.
    pub rows: usize,
    /// Tokens that its products compute together.
    pub tile: usize,
    /// Longest time between two tokens that a prompt may cause.
    pub itl_target: Duration,
    /// Bytes a second between blocks and the disk's buffers; steps wait meanwhile.
    pub copy_speed: f64,
    /// Its disk.
    pub disk: DiskSpeed,
}

/// How fast a disk is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskSpeed {
    /// Bytes read a second.
    pub read: f64,
    /// Bytes written a second.
    pub write: f64,
    /// From the question to the first byte.
    pub latency: Duration,
}

/// The machines there are; the first one unless told otherwise.
pub const HARDWARE: [Hardware; 3] = [XEON_135M, H200_1B, H200_8B];

/// Fitted to the table in docs/performance.md: prefill of 512 and 4,000 tokens at 1,398 and 745 tokens a second, decode of 1
/// and 64 streams at 159 and 658. These do not tell reading a position from attending to it. The disk is the one
/// that `ropeway-kvdisk` was measured on.
const XEON_135M: Hardware = Hardware {
    name: "xeon-135m",
    about: "SmolLM2-135M in 4 bits on 2 cores of an Ice Lake Xeon",
    cost: [4.8e-3, 6.1e-4, 7.9e-4, 3.6e-7, 0.0],
    token_bytes: 23_040,
    kv_memory: 65_536 * 23_040,
    context: 8192,
    step_tokens: 512,
    rows: 512,
    tile: 6,
    itl_target: ropeway_engine::DEFAULT_ITL_TARGET,
    copy_speed: 8e9,
    disk: DiskSpeed { read: 2.3e9, write: 1.2e9, latency: Duration::from_micros(200) },
};

/// One flash drive of a data centre (`NVMe` on `PCIe` 4), as it is assumed to be: nothing of this was measured by us.
const NVME: DiskSpeed = DiskSpeed { read: 6.5e9, write: 4e9, latency: Duration::from_micros(100) };

/// Fitted to vLLM 0.25.1 in bf16 on one H200, random weights, 2026-11-15: prefill of 4,096 / 8,000 / 17,616 tokens in 30 / 50 / 131 ms
/// (the model says 24 / 49 / 134), output of 1 / 64 / 256 streams with 256 positions 447 / 22,697 / 43,706 tokens a second (444 / 21,000 / 46,000, prompts
/// included).
const H200_1B: Hardware = Hardware {
    name: "h200-1.5b",
    about: "Qwen2.5-1.5B in bf16 on one H200, as fast as vLLM 0.25.1",
    cost: [2.2e-3, 4.6e-6, 4e-6, 3.0e-10, 8.2e-9],
    token_bytes: 28_672,
    kv_memory: 123_000_000_000,
    context: 32_768,
    step_tokens: 8192,
    rows: 1024,
    tile: 64,
    itl_target: Duration::from_millis(25),
    copy_speed: 54e9,
    disk: NVME,
};

/// Fitted to the same: prefill of 512 / 4,096 / 8,000 / 17,616 tokens in 16 / 97 / 212 / 531 ms (the model says 15 / 97 / 201 / 531),
/// output of 1 / 64 / 256 streams 202 / 9,251 / 17,989 tokens a second (214 / 8,900 / 17,200). A position read is 128 KiB at 3.5 TB/s. Of the card's
/// memory 110 GB are left for keys and values; blocks leave it at 54 GB/s (pinned copies, measured).
const H200_8B: Hardware = Hardware {
    name: "h200-8b",
    about: "Llama-3-8B in bf16 on one H200, as fast as vLLM 0.25.1",
    cost: [4.6e-3, 2.05e-5, 0.0, 1.0e-9, 3.7e-8],
    token_bytes: 131_072,
    kv_memory: 110_000_000_000,
    context: 131_072,
    ..H200_1B
};

impl Hardware {
    /// Finds a machine by its name.
    pub fn find(name: &str) -> Option<Hardware> {
        HARDWARE.into_iter().find(|hardware| hardware.name == name)
    }

    /// What a step costs.
    pub fn cost(&self) -> CostModel {
        CostModel::known(self.cost)
    }

    /// Bytes of so many tokens.
    pub fn bytes(&self, tokens: usize) -> u64 {
        self.token_bytes * tokens as u64
    }

    /// How long steps wait while so many tokens are copied.
    pub fn copying(&self, tokens: usize) -> Duration {
        Duration::from_secs_f64(self.bytes(tokens) as f64 / self.copy_speed)
    }
}

impl DiskSpeed {
    /// A disk of so many blocks, each of so many bytes.
    pub fn model(&self, blocks: usize, block_bytes: u64) -> DiskModel {
        let time = |speed: f64| Duration::from_secs_f64(block_bytes as f64 / speed);
        let queue = (WRITE_QUEUE / block_bytes as f64).ceil() as u32;
        DiskModel { blocks, latency: self.latency, read: time(self.read), write: time(self.write), queue }
    }
}

#[cfg(test)]
mod tests {
    use ropeway_engine::cost::Work;

    use super::*;

    /// Milliseconds of a prompt that nobody else is beside.
    fn prefill(hardware: &Hardware, tokens: usize) -> f64 {
        1e3 * hardware.cost().alone(0, tokens, hardware.step_tokens)
    }

    /// Output tokens a second of so many streams that hold 256 positions each, with 128 prompt tokens for every 256 of output.
    fn output(hardware: &Hardware, streams: usize) -> f64 {
        let positions = (256 * streams) as u64;
        let decode = Work { tokens: streams, rows: streams, pairs: positions, reads: positions };
        let prompts = hardware.cost().marginal(Work::chunk(0, 128, 1)) * streams as f64 / 256.0;
        streams as f64 / (hardware.cost().predict(decode) + prompts)
    }

    #[test]
    fn costs_give_back_what_was_measured() {
        let close = |got: f64, want: f64| assert!((got / want - 1.0).abs() < 0.11, "{got} instead of {want}");
        for (tokens, milliseconds) in [(512, 16.0), (4096, 97.0), (8000, 212.0), (17_616, 531.0)] {
            close(prefill(&H200_8B, tokens), milliseconds);
        }
        for (streams, rate) in [(1, 202.0), (64, 9251.0), (256, 17_989.0)] {
            close(output(&H200_8B, streams), rate);
        }
        for (tokens, milliseconds) in [(8000, 50.0), (17_616, 131.0)] {
            close(prefill(&H200_1B, tokens), milliseconds);
        }
        for (streams, rate) in [(1, 447.0), (64, 22_697.0), (256, 43_706.0)] {
            close(output(&H200_1B, streams), rate);
        }
        for (tokens, rate) in [(512, 1398.0), (4000, 745.0)] {
            close(1e3 * tokens as f64 / prefill(&XEON_135M, tokens), rate);
        }
    }

    #[test]
    fn names_are_unique() {
        for hardware in HARDWARE {
            assert_eq!(Hardware::find(hardware.name).map(|found| found.about), Some(hardware.about));
        }
        assert!(Hardware::find("abacus").is_none());
    }
}
