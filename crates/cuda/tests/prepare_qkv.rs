//! The kernel that prepares heads in registers against the one that takes any head, and quants against the values they stand for, on the
//! emulator.

mod emulator;

use proptest::prelude::*;
use ropeway_cuda::attention::{DecodeForm, PromptForm};
use ropeway_cuda::compile::Compiler;
use ropeway_cuda::driver::{Address, Buffer, Device, LaunchShape, Stream};
use ropeway_cuda::kernels::{
    BLOCK, KernelConstants, PREPARE_QKV_HEADS, PrepareQkv, PrepareQkvKernel, PrepareQkvShape, sources,
};
use ropeway_cuda::kv::KvForm;
use ropeway_model::spec::RopeLayout;

/// A model's heads and what is done to them.
#[derive(Clone, Copy, Debug)]
struct Case {
    head_dim: usize,
    kv_heads: usize,
    group: usize,
    rows: usize,
    bias: bool,
    norms: bool,
    layout: Option<RopeLayout>,
    kv: KvForm,
}

impl Case {
    fn heads(&self) -> usize {
        self.kv_heads * (self.group + 2)
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let sizes = (prop_oneof![Just(64), Just(128), Just(256)], 1_usize..4, 1_usize..6, 1_usize..4);
    let layouts = prop_oneof![Just(None), Just(Some(RopeLayout::Half)), Just(Some(RopeLayout::Interleaved))];
    let forms = prop_oneof![Just(KvForm::Bf16), Just(KvForm::Q8)];
    (sizes, any::<[bool; 2]>(), layouts, forms).prop_map(
        |((head_dim, kv_heads, group, rows), [bias, norms], layout, kv)| Case {
            head_dim,
            kv_heads,
            group,
            rows,
            bias,
            norms,
            layout,
            kv,
        },
    )
}

/// Numbers between -1 and 1.
fn numbers(count: usize, seed: u32) -> Vec<u32> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    (0..count).map(|_| next().to_bits()).collect()
}

struct Bench {
    stream: Stream,
    buffers: Vec<Buffer>,
}

impl Bench {
    fn put(&mut self, words: &[u32]) -> Address {
        let device = self.stream.device().clone();
        let buffer = device.allocate(words.len() * 4).expect("memory");
        let mut pinned = device.allocate_pinned(words.len() * 4).expect("memory");
        pinned.words_mut().copy_from_slice(words);
        self.stream.upload(buffer.address(), &pinned, 0, words.len() * 4).expect("a copy");
        self.stream.synchronize().expect("a copy");
        self.buffers.push(buffer);
        self.buffers[self.buffers.len() - 1].address()
    }

    fn read(&self, from: Address, bytes: usize) -> Vec<u8> {
        let mut pinned = self.stream.device().allocate_pinned(bytes).expect("memory");
        self.stream.download(&mut pinned, from, bytes).expect("a copy");
        self.stream.synchronize().expect("a copy");
        pinned.bytes().to_vec()
    }
}

/// What a kernel wrote.
#[derive(PartialEq)]
struct Prepared {
    queries: Vec<f32>,
    /// The blocks' bytes.
    kv: Vec<u8>,
}

impl Prepared {
    /// Keys and values of both blocks in their order, token by token: quants are put back into the order of a head's values.
    fn keys_and_values(&self, case: &Case) -> Vec<f32> {
        let halves = self.kv.chunks_exact(case.kv.half_bytes(case.head_dim)).enumerate();
        match case.kv {
            KvForm::Bf16 => floats(&self.kv),
            KvForm::Q8 => halves.flat_map(|(half, bytes)| widened(bytes, half % 2, case.head_dim)).collect(),
        }
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let widen = |pair: &[u8; 2]| f32::from_bits(u32::from(u16::from_le_bytes(*pair)) << 16);
    bytes.as_chunks().0.iter().map(widen).collect()
}

/// The values of a half in 8 bits: `which` is 0 for keys and 1 for values.
fn widened(half: &[u8], which: usize, head_dim: usize) -> Vec<f32> {
    let (quants, scales) = half.split_at(BLOCK * head_dim);
    let scale = |token: usize| f32::from_le_bytes(scales.as_chunks().0[token]);
    let place = |value: usize| match which {
        0 => value % 8 / 2 * 4 + value % 2 + value / 8 * 2,
        _ => value % 8 * 2 + value / 8,
    };
    let value = |at: usize| f32::from(quants[at / 16 * 16 + place(at % 16)] as i8) * scale(at / head_dim);
    (0..BLOCK * head_dim).map(value).collect()
}

/// Queries, keys and values of all rows, by the kernel in registers or by the other one.
fn prepared(case: &Case, seed: u32, in_registers: bool) -> Option<Prepared> {
    let options = emulator::options()?;
    let device = Device::open(&options.search, 0).expect("a device");
    let compiler = options.search.compiler(13).expect("a compiler");
    let compiler =
        Compiler::new(compiler, device.properties().capability, options.cache.clone()).expect("one");
    let constants = KernelConstants {
        head_dim: case.head_dim,
        hidden: 64,
        capped: false,
        kv: case.kv,
        decode_form: DecodeForm::Threads,
        shared_bytes: device.properties().shared_bytes,
    };
    let source = sources(constants, PromptForm::Warps)
        .expect("sources")
        .into_iter()
        .find(|source| source.name == "prepare_qkv")
        .expect("a source");
    let module = device.module(&compiler.compiled(&source).expect("compiled").image).expect("a module");
    let prepare_qkv =
        PrepareQkvKernel::load(&module, case.head_dim).expect("loaded").expect("heads that fit");
    let mut bench = Bench { stream: device.stream().expect("a stream"), buffers: Vec::new() };
    let (dim, rows, all) = (case.head_dim, case.rows, case.heads());
    let given = |there: bool, bench: &mut Bench, count: usize, seed: u32| {
        if there { bench.put(&numbers(count, seed)) } else { Address::NULL }
    };
    let positions: Vec<u32> = (0..rows as u32).map(|row| row * 3 % 8).collect();
    let mut slots: Vec<u32> = (0..rows as u32).map(|row| row * 17 % (2 * BLOCK as u32)).collect();
    slots[rows - 1] = u32::MAX;
    let (query_bytes, kv_bytes) =
        (rows * case.kv_heads * case.group * dim * 2, 2 * 2 * case.kv_heads * case.kv.half_bytes(dim));
    let arguments = PrepareQkv {
        projections: given(true, &mut bench, rows * all * dim, seed),
        bias: given(case.bias, &mut bench, all * dim, seed ^ 1),
        query_norm: given(case.norms, &mut bench, dim, seed ^ 2),
        key_norm: given(case.norms, &mut bench, dim, seed ^ 3),
        cos_sin: given(case.layout.is_some(), &mut bench, 8 * dim, seed ^ 4),
        positions: bench.put(&positions),
        slots: bench.put(&slots),
        queries: bench.put(&vec![0; query_bytes / 4]),
        kv: bench.put(&vec![0; kv_bytes / 4]),
        heads: (case.kv_heads * case.group) as u32,
        kv_heads: case.kv_heads as u32,
        head_dim: dim as u32,
        pairs: if case.layout.is_some() { dim as u32 / 2 } else { 0 },
        interleaved: u32::from(case.layout == Some(RopeLayout::Interleaved)),
        whole: 0,
        eps: 1e-5,
    };
    let (function, PrepareQkvShape { blocks, threads }) = if in_registers {
        let shape = prepare_qkv.shape(all);
        (prepare_qkv.function, shape)
    } else {
        let any = module.function("prepare_qkv_any", 0).expect("a kernel");
        (any, PrepareQkvShape { blocks: all.div_ceil(PREPARE_QKV_HEADS), threads: 256 })
    };
    let shape = LaunchShape { grid: [rows as u32, blocks as u32, 1], threads, shared_bytes: 0 };
    bench.stream.launch(&function, shape, &arguments).expect("a launch");
    let queries = floats(&bench.read(arguments.queries, query_bytes));
    Some(Prepared { queries, kv: bench.read(arguments.kv, kv_bytes) })
}

fn close(ones: &[f32], others: &[f32], tolerance: f32) -> bool {
    ones.iter().zip(others).all(|(one, other)| (one - other).abs() <= tolerance * other.abs().max(0.01))
}

/// Whether no value is off by more than what quants of its head are apart.
fn within_a_quant(ones: &[f32], others: &[f32], head_dim: usize) -> bool {
    let heads = ones.chunks_exact(head_dim).zip(others.chunks_exact(head_dim));
    let largest = |head: &[f32]| head.iter().fold(0.0, |most: f32, value| most.max(value.abs()));
    heads.into_iter().all(|(one, other)| {
        let step = largest(other) / 126.0;
        one.iter().zip(other).all(|(one, other)| (one - other).abs() <= step)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn heads_are_prepared_the_same_in_registers_and_in_shared_memory(case in cases(), seed in any::<u32>()) {
        let (Some(one), Some(other)) = (prepared(&case, seed, true), prepared(&case, seed, false)) else {
            return Ok(());
        };
        if !case.norms {
            prop_assert!(one == other);
            return Ok(());
        }
        // Squares are summed in another order.
        prop_assert!(close(&one.queries, &other.queries, 0.01));
        let (one, other) = (one.keys_and_values(&case), other.keys_and_values(&case));
        match case.kv {
            KvForm::Bf16 => prop_assert!(close(&one, &other, 0.01)),
            KvForm::Q8 => prop_assert!(within_a_quant(&one, &other, case.head_dim)),
        }
    }

    #[test]
    fn quants_stand_for_the_values_they_were_made_of(case in cases(), seed in any::<u32>(), in_registers in any::<bool>()) {
        let prepared = |kv| {
            let case = Case { kv, ..case };
            Some(prepared(&case, seed, in_registers)?.keys_and_values(&case))
        };
        let (Some(wide), Some(narrow)) = (prepared(KvForm::Bf16), prepared(KvForm::Q8)) else { return Ok(()) };
        prop_assert!(within_a_quant(&narrow, &wide, case.head_dim));
    }
}
