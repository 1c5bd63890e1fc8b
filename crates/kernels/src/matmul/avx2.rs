//! AVX2 with FMA and F16C.
//!
//! ```text
//! tile: 6 rows x 16 outputs (2 registers); float sums wait in L1, the 16 registers hold integers:
//!       12 of 16-bit sums, 2 of weights, 1 broadcast, 1 product
//! affine, per record of 32 inputs, for each plane of nibbles (int4: one; int8: low + 16 * high, two):
//!   8 steps:  w0, w1 = 8 outputs x 4 inputs each (bytes 0..=15)
//!             sum[row][0..2] += vpmaddubsw(w, broadcast of the row's 4 signed bytes)      16-bit lanes
//!   then      vpmaddwd by 1 or 16 widens to 32 bits
//!             float[row] += (sum as f32 * a[row]) * scale,  float[row] += min * asum[row]
//! ```
//! A nibble times a signed byte fits 16 bits so well that neither the pair (2 x 15 x 128) nor the sum of a
//! record's 8 pairs (30,720) can saturate: integer sums are exactly those of the reference. A whole byte would
//! not, hence the planes. Rows of one or two take all 32 outputs at once, and a single tile streams packed
//! records from memory with prefetch; more tiles share a panel that is first unpacked to nibbles in bytes and
//! f32 factors.
//!
//! Per record, row and 8 outputs of int4: 8 multiplies, 7 additions and 5 operations of float work for 512
//! operations, so three vector ports give 77 operations a cycle at best; int8 does the integer part twice.

#![allow(unsafe_code, reason = "vector intrinsics over raw panels")]

use std::arch::x86_64::*;

use super::{PanelJob, PanelWeights, TileOut};
use crate::activations::{Record, TILE};
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
                FloatFormat::F32 => float_panel::<LoadF32>(job),
                FloatFormat::F16 => float_panel::<LoadF16>(job),
                FloatFormat::Bf16 => float_panel::<LoadBf16>(job),
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

#[inline(always)]
unsafe fn affine_panel<Q: Quants, const PARTS: usize, const MINS: bool>(job: &mut PanelJob<'_>) {
    let PanelWeights::Affine { format, .. } = job.weights else { return };
    // SAFETY: instruction set and sizes by the contract of `panel`; `expand` checks the scratch.
    unsafe {
        if job.tiles.len() >= EXPAND_FROM_TILES {
            expand::<Q>(job, format);
            affine_tiles::<Q::Unpacked, PARTS, MINS>(job, job.scratch.as_ptr());
        } else {
            affine_tiles::<Q, PARTS, MINS>(job, job.panel.as_ptr());
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
unsafe fn affine_tiles<Q: Quants, const PARTS: usize, const MINS: bool>(
    job: &mut PanelJob<'_>,
    panel: *const u8,
) {
    let PanelWeights::Affine { unit, input, records, .. } = job.weights else { return };
    for tile in job.tiles.clone() {
        let rows = TILE.min(job.rows - tile * TILE);
        let x = &input[tile * records..(tile + 1) * records];
        let mut out = [[0.0; PANEL]; TILE];
        // SAFETY: the panel has as many records as `x`, and rows are 1..=6.
        unsafe {
            match rows {
                1 => affine_rows::<Q, 1, 4, PARTS, MINS>(panel, x, unit, &mut out),
                2 => affine_rows::<Q, 2, 4, PARTS, MINS>(panel, x, unit, &mut out),
                3 => affine_rows::<Q, 3, 2, PARTS, MINS>(panel, x, unit, &mut out),
                4 => affine_rows::<Q, 4, 2, PARTS, MINS>(panel, x, unit, &mut out),
                5 => affine_rows::<Q, 5, 2, PARTS, MINS>(panel, x, unit, &mut out),
                _ => affine_rows::<Q, 6, 2, PARTS, MINS>(panel, x, unit, &mut out),
            }
            job.sink.put(tile * TILE, rows, &mut out);
        }
    }
}

/// `ROWS` rows by 32 outputs over all records, `WIDTH` registers of outputs at a time.
#[inline(always)]
unsafe fn affine_rows<
    Q: Quants,
    const ROWS: usize,
    const WIDTH: usize,
    const PARTS: usize,
    const MINS: bool,
>(
    panel: *const u8,
    x: &[Record],
    unit: f32,
    out: &mut TileOut,
) {
    for first in (0..ACROSS).step_by(WIDTH) {
        // SAFETY: all reads stay inside `x.len()` records of the panel; prefetching beyond is harmless.
        unsafe {
            let mut float = [[_mm256_setzero_ps(); WIDTH]; ROWS];
            for (index, x) in x.iter().enumerate() {
                let record = panel.add(index * record_stride::<Q>(PARTS, MINS));
                if Q::FACTOR_BYTES == 2 && first == 0 {
                    prefetch(record, record_stride::<Q>(PARTS, MINS));
                }
                for part in 0..PARTS {
                    add_part::<Q, ROWS, WIDTH, PARTS, MINS>(record, x, part, first, &mut float);
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

/// One part of a record: its integer sums, scaled, and its minimums.
#[inline(always)]
unsafe fn add_part<
    Q: Quants,
    const ROWS: usize,
    const WIDTH: usize,
    const PARTS: usize,
    const MINS: bool,
>(
    record: *const u8,
    x: &Record,
    part: usize,
    first: usize,
    float: &mut [[__m256; WIDTH]; ROWS],
) {
    // SAFETY: factor offsets stay inside the record.
    unsafe {
        let which = if PARTS == 1 { 0 } else { part + 1 };
        let mut sums = dot::<Q, ROWS, WIDTH, PARTS>(record, x, part, first);
        if !MINS {
            let starts = if matches!(Q::BITS, Bits::Four) { &x.start4 } else { &x.start8 };
            for row in 0..ROWS {
                let start = _mm256_set1_epi32(starts[which][row]);
                for sum in &mut sums[row] {
                    *sum = _mm256_add_epi32(*sum, start);
                }
            }
        }
        let scales = record.add(Q::QUANT_BYTES + (part * PANEL + first * LANES) * Q::FACTOR_BYTES);
        let mins = scales.add(PARTS * PANEL * Q::FACTOR_BYTES);
        for v in 0..WIDTH {
            let scale = Q::factors(scales.add(v * LANES * Q::FACTOR_BYTES));
            for row in 0..ROWS {
                let dot = _mm256_mul_ps(_mm256_cvtepi32_ps(sums[row][v]), _mm256_set1_ps(x.scale[row]));
                float[row][v] = _mm256_fmadd_ps(dot, scale, float[row][v]);
            }
            if MINS {
                let min = Q::factors(mins.add(v * LANES * Q::FACTOR_BYTES));
                for row in 0..ROWS {
                    let sum = _mm256_set1_ps(x.sums[which][row]);
                    float[row][v] = _mm256_fmadd_ps(sum, min, float[row][v]);
                }
            }
        }
    }
}

/// Integer dot products of one part of a record.
#[inline(always)]
unsafe fn dot<Q: Quants, const ROWS: usize, const WIDTH: usize, const PARTS: usize>(
    record: *const u8,
    x: &Record,
    part: usize,
    first: usize,
) -> [[__m256i; WIDTH]; ROWS] {
    // SAFETY: register arithmetic; reads by the contract of `plane_dot`.
    unsafe {
        let mut sums = plane_dot::<Q, ROWS, WIDTH, PARTS>(record, x, 0, part, first);
        for sum in sums.as_flattened_mut() {
            *sum = _mm256_madd_epi16(*sum, _mm256_set1_epi16(1));
        }
        if planes(Q::BITS) == 2 {
            let high = plane_dot::<Q, ROWS, WIDTH, PARTS>(record, x, 1, part, first);
            for (sum, &high) in sums.as_flattened_mut().iter_mut().zip(high.as_flattened()) {
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(high, _mm256_set1_epi16(16)));
            }
        }
        sums
    }
}

/// Dot products of one plane: a lane holds half an output's sum in 16 bits.
#[inline(always)]
unsafe fn plane_dot<Q: Quants, const ROWS: usize, const WIDTH: usize, const PARTS: usize>(
    record: *const u8,
    x: &Record,
    plane: usize,
    part: usize,
    first: usize,
) -> [[__m256i; WIDTH]; ROWS] {
    // SAFETY: step and register indices stay inside the record.
    unsafe {
        let mut sums = [[_mm256_setzero_si256(); WIDTH]; ROWS];
        for step in part * STEPS / PARTS..(part + 1) * STEPS / PARTS {
            let mut weights = [_mm256_setzero_si256(); WIDTH];
            for (v, weights) in weights.iter_mut().enumerate() {
                *weights = Q::nibbles(record, plane, step, first + v);
            }
            for row in 0..ROWS {
                let four = _mm256_set1_epi32(x.quants[step][row].as_ptr().cast::<i32>().read_unaligned());
                for v in 0..WIDTH {
                    let pairs = _mm256_maddubs_epi16(weights[v], four);
                    sums[row][v] = _mm256_add_epi16(sums[row][v], pairs);
                }
            }
        }
        sums
    }
}

/// 8 weights as f32.
trait LoadFloat {
    const BYTES: usize;
    unsafe fn load(at: *const u8) -> __m256;
}

struct LoadF32;
struct LoadF16;
struct LoadBf16;

impl LoadFloat for LoadF32 {
    const BYTES: usize = 4;
    #[inline(always)]
    unsafe fn load(at: *const u8) -> __m256 {
        // SAFETY: 32 readable bytes by the caller's contract.
        unsafe { _mm256_loadu_ps(at.cast()) }
    }
}

impl LoadFloat for LoadF16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load(at: *const u8) -> __m256 {
        // SAFETY: 16 readable bytes by the caller's contract.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(at.cast())) }
    }
}

impl LoadFloat for LoadBf16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load(at: *const u8) -> __m256 {
        // SAFETY: 16 readable bytes by the caller's contract.
        unsafe {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        }
    }
}

#[inline(always)]
unsafe fn float_panel<L: LoadFloat>(job: &mut PanelJob<'_>) {
    // SAFETY: instruction set and sizes by the contract of `panel`; the assertion checks the scratch.
    unsafe {
        if job.tiles.len() >= EXPAND_FROM_TILES && L::BYTES == 2 {
            assert!(job.scratch.len() >= job.panel.len() * 2, "scratch too small for an unpacked panel");
            for at in (0..job.panel.len()).step_by(LANES * 2) {
                let values = L::load(job.panel.as_ptr().add(at));
                _mm256_storeu_ps(job.scratch.as_mut_ptr().add(at * 2).cast(), values);
            }
            float_tiles::<LoadF32>(job, job.scratch.as_ptr());
        } else {
            float_tiles::<L>(job, job.panel.as_ptr());
        }
    }
}

#[inline(always)]
unsafe fn float_tiles<L: LoadFloat>(job: &mut PanelJob<'_>, panel: *const u8) {
    let PanelWeights::Float { input, cols, .. } = job.weights else { return };
    for tile in job.tiles.clone() {
        let rows = TILE.min(job.rows - tile * TILE);
        let x = &input[tile * cols * TILE..(tile + 1) * cols * TILE];
        let mut out = [[0.0; PANEL]; TILE];
        // SAFETY: the panel has as many inputs as `x`, and rows are 1..=6.
        unsafe {
            match rows {
                1 => float_rows::<L, 1, 4>(panel, x, &mut out),
                2 => float_rows::<L, 2, 4>(panel, x, &mut out),
                3 => float_rows::<L, 3, 2>(panel, x, &mut out),
                4 => float_rows::<L, 4, 2>(panel, x, &mut out),
                5 => float_rows::<L, 5, 2>(panel, x, &mut out),
                _ => float_rows::<L, 6, 2>(panel, x, &mut out),
            }
            job.sink.put(tile * TILE, rows, &mut out);
        }
    }
}

/// `ROWS` rows by 32 outputs over all inputs, `WIDTH` registers of outputs at a time.
#[inline(always)]
unsafe fn float_rows<L: LoadFloat, const ROWS: usize, const WIDTH: usize>(
    panel: *const u8,
    x: &[f32],
    out: &mut TileOut,
) {
    for first in (0..ACROSS).step_by(WIDTH) {
        // SAFETY: all reads stay inside as many inputs of the panel as `x` has.
        unsafe {
            let mut sums = [[_mm256_setzero_ps(); WIDTH]; ROWS];
            for (k, x) in x.as_chunks::<TILE>().0.iter().enumerate() {
                let at = panel.add((k * PANEL + first * LANES) * L::BYTES);
                let mut weights = [_mm256_setzero_ps(); WIDTH];
                for (v, weights) in weights.iter_mut().enumerate() {
                    *weights = L::load(at.add(v * LANES * L::BYTES));
                }
                for row in 0..ROWS {
                    let value = _mm256_set1_ps(x[row]);
                    for v in 0..WIDTH {
                        sums[row][v] = _mm256_fmadd_ps(weights[v], value, sums[row][v]);
                    }
                }
            }
            for row in 0..ROWS {
                for v in 0..WIDTH {
                    let at = out[row].as_mut_ptr().add((first + v) * LANES);
                    _mm256_storeu_ps(at, sums[row][v]);
                }
            }
        }
    }
}
