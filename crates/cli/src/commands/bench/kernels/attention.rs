//! Attention of the default model's shape: a prompt in chunks, and single tokens of many sequences.

use ropeway_kernels::Compute;
use ropeway_kernels::attention::{self, Attention, AttentionParams, Queries, Span, attend};
use ropeway_kernels::kv::{BLOCK, KvFormat, KvLayout};
use ropeway_kernels::memory::Buffer;
use ropeway_kernels::route::{DistinctSlots, KvSlot, Route, route};

use super::effort::{Decode, Effort};
use super::timing::{Measurement, Operations, Reading, Unit, repeat};

/// Query heads, KV heads and dimensions of a head of SmolLM2-135M.
pub const HEADS: usize = 9;
const KV_HEADS: usize = 3;
const HEAD_DIM: usize = 64;
/// Values of a token's queries, keys and values.
pub const PROJECTED: usize = (HEADS + 2 * KV_HEADS) * HEAD_DIM;
/// Tokens of a prompt that are computed together.
const CHUNK: usize = 512;

/// Shape of one layer's blocks.
pub fn layout(format: KvFormat) -> KvLayout {
    KvLayout { format, kv_heads: KV_HEADS, head_dim: HEAD_DIM }
}

/// The name of a KV format, as `--kv` takes it.
pub fn name(format: KvFormat) -> &'static str {
    match format {
        KvFormat::F32 => "f32",
        KvFormat::S16 => "s16",
        KvFormat::Q8 => "q8",
    }
}

/// Where token `position` of a sequence whose first block is `first` lives.
pub fn slot(first: usize, position: usize) -> KvSlot {
    KvSlot { block: (first + position / BLOCK) as u32, slot: (position % BLOCK) as u32 }
}

/// Made-up projections of so many tokens.
pub fn projections(tokens: usize) -> Vec<f32> {
    (0..tokens * PROJECTED).map(|i| (i as f32 * 0.7).sin()).collect()
}

/// Runs prefill and decode over keys and values of one format.
pub fn measure(compute: &mut Compute, format: KvFormat, effort: &Effort) -> Vec<Measurement> {
    compute.reserve_scratch(attention::scratch_bytes(layout(format), HEADS));
    let mut all = Vec::new();
    for &tokens in &effort.prefill {
        all.push(prefill(compute, format, tokens, effort));
    }
    for &decode in &effort.decode {
        all.push(decoding(compute, format, decode, effort));
    }
    all
}

fn prefill(compute: &mut Compute, format: KvFormat, tokens: usize, effort: &Effort) -> Measurement {
    let cache = Cache::filled(compute, format, Decode { sequences: 1, context: tokens });
    let chunks: Vec<Span> = (0..tokens).step_by(CHUNK).map(|start| cache.chunk(start, tokens)).collect();
    let mut out = vec![0.0; CHUNK * HEADS * HEAD_DIM];
    let timing = repeat(effort.attention_budget, || {
        for chunk in &chunks {
            cache.attend(compute, std::slice::from_ref(chunk), &mut out);
        }
    });
    Measurement {
        group: "attention",
        kernel: format!("prefill {}", name(format)),
        shape: format!("{tokens} tokens"),
        rows: tokens,
        timing,
        operations: Some(operations(tokens * (tokens + 1) / 2)),
        reading: Reading::again(cache.kv.len()),
    }
}

fn decoding(compute: &mut Compute, format: KvFormat, decode: Decode, effort: &Effort) -> Measurement {
    let cache = Cache::filled(compute, format, decode);
    let spans: Vec<Span> = (0..decode.sequences).map(|sequence| cache.last_token(sequence)).collect();
    let mut out = vec![0.0; decode.sequences * HEADS * HEAD_DIM];
    let timing = repeat(effort.attention_budget, || cache.attend(compute, &spans, &mut out));
    Measurement {
        group: "attention",
        kernel: format!("decode {}", name(format)),
        shape: format!("{} keys each", decode.context),
        rows: decode.sequences,
        timing,
        operations: Some(operations(decode.sequences * decode.context)),
        reading: Reading::again(cache.kv.len()),
    }
}

/// Both products of so many pairs of a query and a key that it sees, in all heads.
fn operations(pairs: usize) -> Operations {
    Operations { count: (pairs * HEADS * HEAD_DIM * 4) as f64, unit: Unit::F32 }
}

/// Sequences of equal length with their keys and values, and queries for one step.
struct Cache {
    layout: KvLayout,
    context: usize,
    blocks_each: usize,
    kv: Buffer<u8>,
    queries: Queries,
    /// Blocks of all sequences, one after the other.
    table: Vec<u32>,
}

impl Cache {
    fn filled(compute: &mut Compute, format: KvFormat, Decode { sequences, context }: Decode) -> Self {
        let layout = layout(format);
        let blocks_each = context.div_ceil(BLOCK);
        let blocks = sequences * blocks_each;
        let mut cache = Self {
            layout,
            context,
            blocks_each,
            kv: Buffer::zeroed(blocks * layout.block_bytes()),
            queries: Queries::with_capacity(CHUNK, HEADS, layout),
            table: (0..blocks as u32).collect(),
        };
        let mut projections = projections(CHUNK);
        let slots: Vec<KvSlot> = (0..blocks * BLOCK).map(|position| slot(0, position)).collect();
        for slots in slots.chunks(CHUNK) {
            cache.store(compute, &mut projections, slots);
        }
        // Once more for the queries alone: the last chunk may have been short.
        cache.store(compute, &mut projections, &slots[..CHUNK.min(slots.len())]);
        cache
    }

    fn store(&mut self, compute: &mut Compute, projections: &mut [f32], slots: &[KvSlot]) {
        let slots = DistinctSlots::new(slots, &mut Vec::new());
        let what =
            Route { projections, heads: HEADS, norms: None, rotation: None, slots, layout: self.layout };
        route(compute, what, &mut self.queries, &mut self.kv);
    }

    /// The chunk of the only sequence that starts at `start`.
    fn chunk(&self, start: usize, tokens: usize) -> Span {
        Span { first_row: 0, start, len: CHUNK.min(tokens - start), table: 0..self.blocks_each }
    }

    fn last_token(&self, sequence: usize) -> Span {
        let first = sequence * self.blocks_each;
        let table = first..first + self.blocks_each;
        Span { first_row: sequence, start: self.context - 1, len: 1, table }
    }

    fn attend(&self, compute: &mut Compute, spans: &[Span], out: &mut [f32]) {
        let scale = 1.0 / (HEAD_DIM as f32).sqrt();
        let what = Attention {
            layout: self.layout,
            params: AttentionParams { heads: HEADS, scale, softcap: None, window: None },
            kv: &self.kv,
            tables: &self.table,
            spans,
            queries: &self.queries,
        };
        attend(compute, &what, out);
    }
}
