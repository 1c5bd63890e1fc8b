//! AVX2 with FMA and F16C.
//!
//! ```text
//! tile: 6 rows x 16 outputs (2 registers); float sums wait in L1, the 16 registers hold integers:
//!       12 of 16-bit sums, 2 of weights, 1 broadcast, 1 product
//! affine, per record of 32 inputs, for each plane of nibbles (int4: one; int8: low + 16 * high, two):
//!   8 steps:  w0, w1 = 8 outputs x 4 inputs each (bytes 0..=15)
//!             sum[row][0..2] += vpmaddubsw(w, broadcast of the row's 4 signed bytes)      16-bit lanes
//!   then      vpmaddwd by 1 or 16 widens to 32 bits (wide activations: high bytes by 256 or 4096, low ones)
//!             float[row] += (sum as f32 * a[row]) * scale,  float[row] += min * asum[row]
//! ```
//! A nibble times a signed byte is so small that neither the pair of a lane (2 x 15 x 128) nor the sum of a
//! record's 8 pairs (30,720) leaves 16 bits: integer sums are exactly those of the reference. A whole byte
//! would, hence the planes. One or two rows take all 32 outputs at once, and a tile alone streams packed records
//! from memory with prefetch; several tiles share a panel first unpacked to nibbles in bytes and f32 factors.
//!
//! Per record, row and 8 outputs of int4: 8 multiplies, 7 additions and 5 operations of float work for 512
//! operations, so three vector ports give at most 77 operations a cycle; int8 and wide activations repeat the
//! integer part. Measured 2026-11-15 on one thread of an Ice Lake server at 3.5 GHz, busy with other work, best
//! of many, 3072 outputs x 576 inputs: int4 with mins 185-188 Gop/s at 32 and 64 rows (70 % of that limit), 150 at
//! 4 rows, 124 at one row, where weights come from the cache at 39 GB/s; int8 100-104 Gop/s, and 30 GB/s at one
//! row; wide activations 108 (int4) and 56 (int8) Gop/s.

#![allow(unsafe_code, reason = "vector intrinsics over raw panels")]
#![allow(
    clippy::wildcard_imports,
    clippy::inline_always,
    clippy::needless_range_loop,
    reason = "kernels name their instructions, must be inlined to use them, and index registers by row"
)]

mod float;

use std::arch::x86_64::*;

use self::float::{LoadBf16, LoadF16, LoadF32, LoadFloat};
use super::{PanelJob, PanelWeights, Sink, TileOut};
use crate::activations::{self, Record, TILE};
use crate::packed::{AffineFormat, Bits, FloatFormat, GROUP, PANEL, STEP};

/// Outputs of a register.
const LANES: usize = 8;
/// Registers across a panel.
const ACROSS: usize = PANEL / LANES;
/// Bytes of one step of a panel, a byte per quant.
const STEP_BYTES: usize = PANEL * STEP;
/// Steps of a record.
const STEPS: usize = GROUP / STEP;

/// From this many tiles on, unpacking a panel first is cheaper than unpacking it in every tile.
const EXPAND_FROM_TILES: usize = 2;

/// How far ahead of use a streamed record is asked for, in bytes.
const PREFETCH: usize = 2048;

/// One panel for a range of tiles.
///
/// # Safety
/// As [`super::PanelFn`] says, for AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) unsafe fn panel(job: &mut PanelJob<'_>) {
    // SAFETY: instruction set and sizes by this function's contract; formats select the matching reader.
    unsafe {
        match job.weights {
            PanelWeights::Affine { format, .. } => match (format.bits, format.halves, format.mins) {
                (Bits::Four, false, false) => affine_panel::<Packed4, 1, false>(job),
                (Bits::Four, false, true) => affine_panel::<Packed4, 1, true>(job),
                (Bits::Four, true, false) => affine_panel::<Packed4, 2, false>(job),
                (Bits::Four, true, true) => affine_panel::<Packed4, 2, true>(job),
                (Bits::Eight, false, false) => affine_panel::<Packed8, 1, false>(job),
                (Bits::Eight, false, true) => affine_panel::<Packed8, 1, true>(job),
                (Bits::Eight, true, false) => affine_panel::<Packed8, 2, false>(job),
                (Bits::Eight, true, true) => affine_panel::<Packed8, 2, true>(job),
            },
            PanelWeights::Float { format, .. } => match format {
                FloatFormat::F32 => float::panel::<LoadF32>(job),
                FloatFormat::F16 => float::panel::<LoadF16>(job),
                FloatFormat::Bf16 => float::panel::<LoadBf16>(job),
            },
        }
    }
}

/// How a record's quants and factors are laid out in memory.
trait Quants {
    /// Whether there is a second plane, and where integer sums start.
    const BITS: Bits;
    /// Bytes of a record's quants.
    const QUANT_BYTES: usize;
    /// Bytes of one factor (scale or min).
    const FACTOR_BYTES: usize;
    /// The same quants unpacked.
    type Unpacked: Quants;

    /// Four nibbles of one plane for each of 8 outputs: those of register `vector` in step `step`.
    unsafe fn nibbles(record: *const u8, plane: usize, step: usize, vector: usize) -> __m256i;

    /// 8 factors as f32.
    unsafe fn factors(at: *const u8) -> __m256;
}

/// Planes of nibbles that make a quant.
const fn planes(bits: Bits) -> usize {
    match bits {
        Bits::Four => 1,
        Bits::Eight => 2,
    }
}

struct Packed4;
struct Packed8;
/// Planes of nibbles in bytes, `[plane][step][output][4]`, and f32 factors, as `expand` leaves them.
struct Unpacked<const PLANES: usize>;

impl Quants for Packed4 {
    const BITS: Bits = Bits::Four;
    const QUANT_BYTES: usize = GROUP * PANEL / 2;
    const FACTOR_BYTES: usize = 2;
    type Unpacked = Unpacked<1>;

    #[inline(always)]
    unsafe fn nibbles(record: *const u8, _: usize, step: usize, vector: usize) -> __m256i {
        // SAFETY: the caller's record holds 4 pairs of steps.
        unsafe { nibbles_at(record.add(step / 2 * STEP_BYTES + vector * 32), step % 2 == 1) }
    }

    #[inline(always)]
    unsafe fn factors(at: *const u8) -> __m256 {
        // SAFETY: 16 bytes of factors by the caller's contract.
        unsafe { LoadF16::load(at) }
    }
}

impl Quants for Packed8 {
    const BITS: Bits = Bits::Eight;
    const QUANT_BYTES: usize = GROUP * PANEL;
    const FACTOR_BYTES: usize = 2;
    type Unpacked = Unpacked<2>;

    #[inline(always)]
    unsafe fn nibbles(record: *const u8, plane: usize, step: usize, vector: usize) -> __m256i {
        // SAFETY: the caller's record holds 8 steps.
        unsafe { nibbles_at(record.add(step * STEP_BYTES + vector * 32), plane == 1) }
    }

    #[inline(always)]
    unsafe fn factors(at: *const u8) -> __m256 {
        // SAFETY: 16 bytes of factors by the caller's contract.
        unsafe { LoadF16::load(at) }
    }
}

impl<const PLANES: usize> Quants for Unpacked<PLANES> {
    const BITS: Bits = if PLANES == 1 { Bits::Four } else { Bits::Eight };
    const QUANT_BYTES: usize = PLANES * GROUP * PANEL;
    const FACTOR_BYTES: usize = 4;
    type Unpacked = Self;

    #[inline(always)]
    unsafe fn nibbles(record: *const u8, plane: usize, step: usize, vector: usize) -> __m256i {
        // SAFETY: the caller's record holds `PLANES` planes of 8 steps.
        unsafe { _mm256_loadu_si256(record.add((plane * STEPS + step) * STEP_BYTES + vector * 32).cast()) }
    }

    #[inline(always)]
    unsafe fn factors(at: *const u8) -> __m256 {
        // SAFETY: 32 bytes of factors by the caller's contract.
        unsafe { LoadF32::load(at) }
    }
}

/// The low or high nibbles of 32 bytes.
#[inline(always)]
unsafe fn nibbles_at(at: *const u8, high: bool) -> __m256i {
    // SAFETY: 32 readable bytes by the caller's contract.
    unsafe {
        let bytes = _mm256_loadu_si256(at.cast());
        let shifted = if high { _mm256_srli_epi16::<4>(bytes) } else { bytes };
        _mm256_and_si256(shifted, _mm256_set1_epi8(15))
    }
}

/// Bytes from one record to the next.
#[inline(always)]
const fn record_stride<Q: Quants>(parts: usize, mins: bool) -> usize {
    Q::QUANT_BYTES + (1 + mins as usize) * parts * PANEL * Q::FACTOR_BYTES
}

/// Puts a finished tile in its place: one copy for all kernels, which keeps them small enough to be inlined.
///
/// # Safety
/// As [`Sink::put`] says.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn finish(sink: &Sink<'_>, tile: usize, rows: usize, out: &mut TileOut) {
    // SAFETY: passed on from this function's contract.
    unsafe { sink.put(tile * TILE, rows, out) };
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn affine_panel<Q: Quants, const PARTS: usize, const MINS: bool>(job: &mut PanelJob<'_>) {
    let PanelWeights::Affine { format, lows, .. } = job.weights else { return };
    // SAFETY: instruction set and sizes by the contract of `panel`; `expand` checks the scratch.
    unsafe {
        let mut panel = job.panel.as_ptr();
        let unpacked = job.tiles.len() >= EXPAND_FROM_TILES;
        if unpacked {
            expand::<Q>(job, format);
            panel = job.scratch.as_ptr();
        }
        match (unpacked, lows) {
            (false, None) => affine_tiles::<Q, PARTS, MINS, false>(job, panel),
            (false, Some(_)) => affine_tiles::<Q, PARTS, MINS, true>(job, panel),
            (true, None) => affine_tiles::<Q::Unpacked, PARTS, MINS, false>(job, panel),
            (true, Some(_)) => affine_tiles::<Q::Unpacked, PARTS, MINS, true>(job, panel),
        }
    }
}

/// Unpacks a panel into the scratch: planes of nibbles to bytes, f16 factors to f32.
#[inline(always)]
unsafe fn expand<Q: Quants>(job: &mut PanelJob<'_>, format: AffineFormat) {
    let records = job.panel.len() / format.record_bytes();
    let stride = record_stride::<Q::Unpacked>(format.parts(), format.mins);
    assert!(job.scratch.len() >= records * stride, "scratch too small for an unpacked panel");
    for record in 0..records {
        // SAFETY: source and target records are in bounds by the panel's size and the assertion above.
        unsafe {
            let from = job.panel.as_ptr().add(record * format.record_bytes());
            let to = job.scratch.as_mut_ptr().add(record * stride);
            expand_record::<Q>(from, to, (format.record_bytes() - Q::QUANT_BYTES) / Q::FACTOR_BYTES);
        }
    }
}

#[inline(always)]
unsafe fn expand_record<Q: Quants>(from: *const u8, to: *mut u8, factors: usize) {
    // SAFETY: both records hold all planes, steps and factors by the caller's contract.
    unsafe {
        for plane in 0..planes(Q::BITS) {
            for step in 0..STEPS {
                for vector in 0..ACROSS {
                    let at = to.add((plane * STEPS + step) * STEP_BYTES + vector * 32);
                    _mm256_storeu_si256(at.cast(), Q::nibbles(from, plane, step, vector));
                }
            }
        }
        let (from, to) = (from.add(Q::QUANT_BYTES), to.add(<Q::Unpacked as Quants>::QUANT_BYTES));
        for at in (0..factors).step_by(LANES) {
            _mm256_storeu_ps(to.add(at * 4).cast(), Q::factors(from.add(at * Q::FACTOR_BYTES)));
        }
    }
}

#[inline(always)]
unsafe fn affine_tiles<Q: Quants, const PARTS: usize, const MINS: bool, const WIDE: bool>(
    job: &mut PanelJob<'_>,
    panel: *const u8,
) {
    let PanelWeights::Affine { unit, input, lows, records, .. } = job.weights else { return };
    for tile in job.tiles.clone() {
        let rows = TILE.min(job.rows - tile * TILE);
        let range = tile * records..(tile + 1) * records;
        let x = Input { lows: lows.map_or(&[], |lows| &lows[range.clone()]), records: &input[range] };
        let mut out = [[0.0; PANEL]; TILE];
        // SAFETY: the panel has as many records as `x`, and rows are 1..=6.
        unsafe {
            match rows {
                1 => affine_rows::<Q, 1, 4, PARTS, MINS, WIDE>(panel, x, unit, &mut out),
                2 => affine_rows::<Q, 2, 4, PARTS, MINS, WIDE>(panel, x, unit, &mut out),
                3 => affine_rows::<Q, 3, 2, PARTS, MINS, WIDE>(panel, x, unit, &mut out),
                4 => affine_rows::<Q, 4, 2, PARTS, MINS, WIDE>(panel, x, unit, &mut out),
                5 => affine_rows::<Q, 5, 2, PARTS, MINS, WIDE>(panel, x, unit, &mut out),
                _ => affine_rows::<Q, 6, 2, PARTS, MINS, WIDE>(panel, x, unit, &mut out),
            }
            finish(&job.sink, tile, rows, &mut out);
        }
    }
}

/// A tile's activations; the low bytes of wide ones, as many as there are records, or none.
#[derive(Clone, Copy)]
struct Input<'a> {
    records: &'a [Record],
    lows: &'a [activations::Quants],
}

/// `ROWS` rows by 32 outputs over all records, `WIDTH` registers of outputs at a time.
#[inline(always)]
unsafe fn affine_rows<
    Q: Quants,
    const ROWS: usize,
    const WIDTH: usize,
    const PARTS: usize,
    const MINS: bool,
    const WIDE: bool,
>(
    panel: *const u8,
    input: Input<'_>,
    unit: f32,
    out: &mut TileOut,
) {
    for first in (0..ACROSS).step_by(WIDTH) {
        // SAFETY: all reads stay inside as many records of the panel as there are in `input`; prefetching beyond
        // is harmless.
        unsafe {
            let mut float = [[_mm256_setzero_ps(); WIDTH]; ROWS];
            for (index, x) in input.records.iter().enumerate() {
                let record = panel.add(index * record_stride::<Q>(PARTS, MINS));
                if Q::FACTOR_BYTES == 2 && first == 0 {
                    prefetch(record, record_stride::<Q>(PARTS, MINS));
                }
                let lows = if WIDE { &input.lows[index] } else { &x.quants };
                for part in 0..PARTS {
                    let place = Place { record, x, lows, part, first };
                    add_part::<Q, ROWS, WIDTH, PARTS, MINS, WIDE>(place, &mut float);
                }
            }
            let unit = _mm256_set1_ps(unit);
            for row in 0..ROWS {
                for v in 0..WIDTH {
                    let at = out[row].as_mut_ptr().add((first + v) * LANES);
                    _mm256_storeu_ps(at, _mm256_mul_ps(float[row][v], unit));
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn prefetch(record: *const u8, bytes: usize) {
    for line in (0..bytes).step_by(64) {
        // SAFETY: a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(record.wrapping_add(PREFETCH + line).cast()) };
    }
}

/// What one call multiplies: a part of a record, and the outputs from register `first` on.
#[derive(Clone, Copy)]
struct Place<'a> {
    record: *const u8,
    x: &'a Record,
    /// Low bytes of wide activations; not looked at for narrow ones.
    lows: &'a activations::Quants,
    part: usize,
    first: usize,
}

/// One part of a record: its integer sums, scaled, and its minimums.
#[inline(always)]
unsafe fn add_part<
    Q: Quants,
    const ROWS: usize,
    const WIDTH: usize,
    const PARTS: usize,
    const MINS: bool,
    const WIDE: bool,
>(
    at: Place<'_>,
    float: &mut [[__m256; WIDTH]; ROWS],
) {
    // SAFETY: factor offsets stay inside the record.
    unsafe {
        let sums = dot::<Q, ROWS, WIDTH, PARTS, MINS, WIDE>(at);
        let scales = at.record.add(Q::QUANT_BYTES + (at.part * PANEL + at.first * LANES) * Q::FACTOR_BYTES);
        let mins = scales.add(PARTS * PANEL * Q::FACTOR_BYTES);
        for v in 0..WIDTH {
            let scale = Q::factors(scales.add(v * LANES * Q::FACTOR_BYTES));
            for row in 0..ROWS {
                let dot = _mm256_mul_ps(_mm256_cvtepi32_ps(sums[row][v]), _mm256_set1_ps(at.x.scale[row]));
                float[row][v] = _mm256_fmadd_ps(dot, scale, float[row][v]);
            }
            if MINS {
                let min = Q::factors(mins.add(v * LANES * Q::FACTOR_BYTES));
                for row in 0..ROWS {
                    let sum = _mm256_set1_ps(at.x.sums[sum_index::<PARTS>(at.part)][row]);
                    float[row][v] = _mm256_fmadd_ps(sum, min, float[row][v]);
                }
            }
        }
    }
}

/// Which of a record's sums belongs to `part`.
#[inline(always)]
const fn sum_index<const PARTS: usize>(part: usize) -> usize {
    if PARTS == 1 { 0 } else { part + 1 }
}

/// Integer dot products of one part of a record, from where they start.
#[inline(always)]
unsafe fn dot<
    Q: Quants,
    const ROWS: usize,
    const WIDTH: usize,
    const PARTS: usize,
    const MINS: bool,
    const WIDE: bool,
>(
    at: Place<'_>,
) -> [[__m256i; WIDTH]; ROWS] {
    // SAFETY: register arithmetic; reads by the contract of `add_plane`.
    unsafe {
        let mut sums = [[_mm256_setzero_si256(); WIDTH]; ROWS];
        if !MINS {
            for row in 0..ROWS {
                let start = at.x.start(Q::BITS, sum_index::<PARTS>(at.part), row);
                sums[row] = [_mm256_set1_epi32(start); WIDTH];
            }
        }
        for plane in 0..planes(Q::BITS) {
            let weight = 1 << (4 * plane);
            if WIDE {
                add_plane::<Q, ROWS, WIDTH, PARTS>(at, &at.x.quants, (plane, weight * 256), &mut sums);
                add_plane::<Q, ROWS, WIDTH, PARTS>(at, at.lows, (plane, weight), &mut sums);
            } else {
                add_plane::<Q, ROWS, WIDTH, PARTS>(at, &at.x.quants, (plane, weight), &mut sums);
            }
        }
        sums
    }
}

/// Adds `weight` times the dot products of one plane and one byte of the activations.
#[inline(always)]
unsafe fn add_plane<Q: Quants, const ROWS: usize, const WIDTH: usize, const PARTS: usize>(
    at: Place<'_>,
    bytes: &activations::Quants,
    (plane, weight): (usize, i16),
    sums: &mut [[__m256i; WIDTH]; ROWS],
) {
    // SAFETY: register arithmetic; reads by the contract of `plane_dot`.
    unsafe {
        let halves = plane_dot::<Q, ROWS, WIDTH, PARTS>(at, bytes, plane);
        for row in 0..ROWS {
            for v in 0..WIDTH {
                let wide = _mm256_madd_epi16(halves[row][v], _mm256_set1_epi16(weight));
                sums[row][v] = _mm256_add_epi32(sums[row][v], wide);
            }
        }
    }
}

/// Dot products of one plane: a lane holds half an output's sum in 16 bits.
#[inline(always)]
unsafe fn plane_dot<Q: Quants, const ROWS: usize, const WIDTH: usize, const PARTS: usize>(
    at: Place<'_>,
    bytes: &activations::Quants,
    plane: usize,
) -> [[__m256i; WIDTH]; ROWS] {
    // SAFETY: step and register indices stay inside the record.
    unsafe {
        let mut sums = [[_mm256_setzero_si256(); WIDTH]; ROWS];
        for step in at.part * STEPS / PARTS..(at.part + 1) * STEPS / PARTS {
            let mut weights = [_mm256_setzero_si256(); WIDTH];
            for (v, weights) in weights.iter_mut().enumerate() {
                *weights = Q::nibbles(at.record, plane, step, at.first + v);
            }
            for row in 0..ROWS {
                let four = bytes[step][row].as_ptr().cast::<i32>().read_unaligned();
                let four = _mm256_set1_epi32(four);
                for v in 0..WIDTH {
                    let products = _mm256_maddubs_epi16(weights[v], four);
                    sums[row][v] = _mm256_add_epi16(sums[row][v], products);
                }
            }
        }
        sums
    }
}
