//! Attention of every format and instruction set against the specification, and against itself in other batches.

use ropeway_kernels::attention::{self, Attention, AttentionParams, Queries, Span, attend, reference};
use ropeway_kernels::kv::{KvFormat, KvLayout};
use ropeway_kernels::memory::Buffer;
use ropeway_kernels::route::{DistinctSlots, KvSlot, Route, route};
use ropeway_kernels::{Compute, Isa};

const HEADS: usize = 6;
const KV_HEADS: usize = 2;

/// Deterministic values in -1..1.
fn noise(seed: usize) -> f32 {
    let mut x = (seed as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03;
    x = (x ^ (x >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    ((x >> 40) as f32 / (1u64 << 23) as f32) - 1.0
}

/// Projections of one sequence: `[token][q | k | v]`.
fn projections(seed: usize, tokens: usize, dim: usize) -> Vec<f32> {
    let width = (HEADS + 2 * KV_HEADS) * dim;
    (0..tokens * width).map(|i| noise(seed * 1_000_003 + i) * (1.0 + (i % 7) as f32 * 0.5)).collect()
}

/// One sequence in its own blocks.
struct Sequence {
    data: Vec<f32>,
    tokens: usize,
    blocks: Vec<u32>,
}

struct Bench {
    compute: Compute,
    layout: KvLayout,
    params: AttentionParams,
    kv: Buffer<u8>,
}

impl Bench {
    fn new(isa: Isa, threads: usize, layout: KvLayout, params: AttentionParams) -> Self {
        let mut compute = Compute::new(isa, threads);
        compute.reserve_scratch(attention::scratch_bytes(layout, HEADS));
        let kv = Buffer::zeroed(64 * layout.block_bytes());
        Self { compute, layout, params, kv }
    }

    /// Runs tokens `range` of each sequence as one batch; returns `[sequence][token][head][dim]`.
    fn step(&mut self, parts: &[(&Sequence, std::ops::Range<usize>)]) -> Vec<Vec<f32>> {
        let dim = self.layout.head_dim;
        let width = (HEADS + 2 * KV_HEADS) * dim;
        let (mut rows, mut slots, mut spans, mut tables) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (sequence, range) in parts {
            spans.push(Span {
                first_row: slots.len(),
                start: range.start,
                len: range.len(),
                table: tables.len()..tables.len() + sequence.blocks.len(),
            });
            tables.extend_from_slice(&sequence.blocks);
            rows.extend_from_slice(&sequence.data[range.start * width..range.end * width]);
            slots.extend(range.clone().map(|position| KvSlot {
                block: sequence.blocks[position / 32],
                slot: (position % 32) as u32,
            }));
        }
        let mut queries = Queries::with_capacity(slots.len(), HEADS, self.layout);
        let what = Route {
            projections: &mut rows,
            heads: HEADS,
            norms: None,
            rotation: None,
            slots: DistinctSlots::new(&slots, &mut Vec::new()),
            layout: self.layout,
        };
        route(&mut self.compute, what, &mut queries, &mut self.kv);
        let mut out = vec![0.0; slots.len() * HEADS * dim];
        let attention = Attention {
            layout: self.layout,
            params: self.params,
            kv: &self.kv,
            tables: &tables,
            spans: &spans,
            queries: &queries,
        };
        attend(&mut self.compute, &attention, &mut out);
        spans.iter().map(|s| out[s.first_row * HEADS * dim..][..s.len * HEADS * dim].to_vec()).collect()
    }
}

fn sequence(seed: usize, tokens: usize, dim: usize, first_block: u32) -> Sequence {
    // Blocks in a scrambled order: the table decides, not the address.
    let count = tokens.div_ceil(32) as u32;
    let blocks = (0..count).map(|i| first_block + (i * 5 + 3) % count.max(1)).collect::<Vec<_>>();
    let distinct: std::collections::BTreeSet<_> = blocks.iter().collect();
    let blocks =
        if distinct.len() == blocks.len() { blocks } else { (first_block..first_block + count).collect() };
    Sequence { data: projections(seed, tokens, dim), tokens, blocks }
}

fn expected(s: &Sequence, dim: usize, params: &AttentionParams) -> Vec<f64> {
    let width = (HEADS + 2 * KV_HEADS) * dim;
    let vector = |token: usize, at: usize| &s.data[token * width + at * dim..][..dim];
    let mut out = Vec::new();
    for token in 0..s.tokens {
        for head in 0..HEADS {
            let kv = head / (HEADS / KV_HEADS);
            let keys: Vec<_> = (0..=token).map(|t| vector(t, HEADS + kv)).collect();
            let values: Vec<_> = (0..=token).map(|t| vector(t, HEADS + KV_HEADS + kv)).collect();
            out.extend(reference::attend(vector(token, head), &keys, &values, params));
        }
    }
    out
}

fn shapes() -> Vec<(usize, AttentionParams)> {
    let plain = |scale| AttentionParams { heads: HEADS, scale, softcap: None, window: None };
    vec![
        (16, plain(0.25)),
        (64, plain(0.125)),
        (80, plain(0.1)),
        (128, AttentionParams { window: Some(50), ..plain(0.08) }),
        (256, AttentionParams { softcap: Some(4.0), ..plain(0.06) }),
        (64, AttentionParams { softcap: Some(3.0), window: Some(7), ..plain(0.125) }),
    ]
}

/// Largest error a format may make: values are up to 4 in size.
fn tolerance(format: KvFormat) -> f64 {
    match format {
        KvFormat::F32 => 2e-5,
        KvFormat::S16 => 2.5e-3,
        KvFormat::Q8 => 0.12,
    }
}

#[test]
fn every_format_and_instruction_set_follows_the_specification() {
    for (head_dim, params) in shapes() {
        for format in [KvFormat::F32, KvFormat::S16, KvFormat::Q8] {
            for isa in Isa::available() {
                let layout = KvLayout { format, kv_heads: KV_HEADS, head_dim };
                let mut bench = Bench::new(isa, 2, layout, params);
                let (a, b) = (sequence(1, 150, head_dim, 0), sequence(2, 33, head_dim, 20));
                let got = bench.step(&[(&a, 0..150), (&b, 0..33)]);
                for (sequence, got) in [&a, &b].into_iter().zip(&got) {
                    let want = expected(sequence, head_dim, &params);
                    for (i, (g, w)) in got.iter().zip(&want).enumerate() {
                        let error = (f64::from(*g) - w).abs();
                        assert!(error < tolerance(format), "{isa} {format:?} {head_dim} at {i}: {g} for {w}");
                    }
                }
            }
        }
    }
}

#[test]
fn chunked_and_batched_attention_gives_the_same_bits_as_whole_and_alone() {
    for (head_dim, params) in shapes() {
        for format in [KvFormat::S16, KvFormat::Q8] {
            for isa in Isa::available() {
                let layout = KvLayout { format, kv_heads: KV_HEADS, head_dim };
                let a = sequence(3, 140, head_dim, 0);
                let b = sequence(4, 70, head_dim, 20);
                let whole = Bench::new(isa, 1, layout, params).step(&[(&a, 0..140)]).remove(0);
                let mut bench = Bench::new(isa, 3, layout, params);
                let mut pieces = Vec::new();
                for (from, to, other) in [(0, 1, 0..3), (1, 40, 3..50), (40, 41, 50..51), (41, 130, 51..70)] {
                    pieces.extend(bench.step(&[(&b, other), (&a, from..to)]).remove(1));
                }
                for token in 130..140 {
                    bench.compute.set_threads(1 + token % 3);
                    pieces.extend(bench.step(&[(&a, token..token + 1)]).remove(0));
                }
                let bits = |x: &[f32]| x.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&pieces), bits(&whole), "{isa} {format:?} {head_dim}");
            }
        }
    }
}
