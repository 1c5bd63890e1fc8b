//! The emulated GPU with all kernels loaded, for tests of one of them.

use ropeway_cuda::attention::{DecodeForm, PromptForm};
use ropeway_cuda::compile::Compiler;
use ropeway_cuda::driver::{Buffer, Device, Stream};
use ropeway_cuda::kernels::{KernelConstants, Kernels, Variants};
use ropeway_cuda::kv::KvForm;
use ropeway_cuda::packed::PackedForm;

/// A device with all kernels.
pub struct Bench {
    pub stream: Stream,
    pub kernels: Kernels,
}

impl Bench {
    pub fn open() -> Option<Self> {
        Self::for_rows_of(64)
    }

    /// With kernels for a residual stream of so many values.
    pub fn for_rows_of(hidden: usize) -> Option<Self> {
        let options = super::options()?;
        let device = Device::open(&options.search, 0).expect("a device");
        let compiler = options.search.compiler(13).expect("a compiler");
        let compiler = Compiler::new(compiler, 90, options.cache.clone()).expect("a compiler");
        let constants = KernelConstants {
            head_dim: 64,
            hidden,
            capped: false,
            kv: KvForm::Bf16,
            decode_form: DecodeForm::Threads,
            shared_bytes: device.properties().shared_bytes,
        };
        let variants =
            Variants { forms: &PackedForm::ALL, warpgroups: true, experts: true, prompts: PromptForm::Warps };
        let kernels = Kernels::load(&device, &compiler, constants, variants).expect("kernels");
        Some(Self { stream: device.stream().expect("a stream"), kernels })
    }

    pub fn allocate(&self, bytes: usize) -> Buffer {
        self.stream.device().allocate(bytes).expect("memory")
    }

    pub fn upload(&self, bytes: &[u8]) -> Buffer {
        let buffer = self.allocate(bytes.len());
        let mut pinned = self.stream.device().allocate_pinned(bytes.len()).expect("memory");
        pinned.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        self.stream.upload(buffer.address(), &pinned, 0, bytes.len()).expect("a copy");
        self.stream.synchronize().expect("a copy");
        buffer
    }

    pub fn zeros(&self, bytes: usize) -> Buffer {
        self.upload(&vec![0; bytes])
    }

    pub fn download(&self, buffer: &Buffer) -> Vec<u8> {
        let mut pinned = self.stream.device().allocate_pinned(buffer.bytes()).expect("memory");
        self.stream.download(&mut pinned, buffer.address(), buffer.bytes()).expect("a copy");
        self.stream.synchronize().expect("a copy");
        pinned.bytes()[..buffer.bytes()].to_vec()
    }
}

/// Random numbers that are the same in every run.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.next() as usize % bound
    }

    pub fn unit(&mut self) -> f32 {
        self.below(1 << 20) as f32 / (1 << 19) as f32 - 1.0
    }
}
