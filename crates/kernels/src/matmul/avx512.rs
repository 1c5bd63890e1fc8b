//! AVX-512 with VNNI.
//!
//! ```text
//! tile: 6 rows x 32 outputs = 6 x 2 registers of integer sums + 6 x 2 of float sums; 2 of weights, 1 broadcast
//! affine, per record of 32 inputs:
//!   8 steps:  w0, w1 = 16 outputs x 4 inputs each (unsigned bytes)
//!             sum[row][0..2] = vpdpbusd(sum, w, broadcast of the row's 4 signed bytes)
//!   then      float[row] += (sum * a[row]) * scale,  float[row] += min * asum[row]
//! ```
//! Wide activations run the 8 steps twice: high bytes, sums shifted left by 8, low bytes where there are any.
//! A sum starts from the bits of a large float and so is one when it ends (`INTEGER`). Per record and row: 16 dot
//! products of 128 operations, 4 to 6 float operations; the float work caps the kernel at 16/22 = 73 % of the
//! `vpdpbusd` peak with mins and 16/20 = 80 % without. When several tiles share a panel it is first
//! unpacked to bytes and f32 scales in L1/L2, so that nibbles and halves are converted once. A single row
//! streams packed records from memory instead, with prefetch.

#![allow(unsafe_code, reason = "vector intrinsics over raw panels")]

mod float;

use std::arch::x86_64::*;

use super::{PanelJob, PanelWeights, TileOut, expanded_record_bytes};
use crate::activations::{self, INTEGER, Record, TILE};
use crate::packed::{AffineFormat, Bits, FloatFormat, GROUP, PANEL, STEP};

/// From this many tiles on, unpacking a panel first is cheaper than unpacking it in every tile: stores that leave L1 cost
/// as much as several tiles of shifts and masks.
const EXPAND_FROM_TILES: usize = 8;

/// How far ahead of use a streamed record is asked for, in bytes.
const PREFETCH: usize = 2048;

/// One panel for a range of tiles.
///
/// # Safety
/// As [`super::PanelFn`] says, for AVX-512 F, BW, DQ, VL and VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,f16c,fma")]
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
                FloatFormat::F32 => float::panel::<float::LoadF32>(job),
                FloatFormat::F16 => float::panel::<float::LoadF16>(job),
                FloatFormat::Bf16 => float::panel::<float::LoadBf16>(job),
            },
        }
    }
}

/// How a record's quants and factors are laid out in memory.
trait Quants {
    /// The packed form's bits, which also say where integer sums start.
    const BITS: Bits;
    /// Bytes of a record's quants.
    const QUANT_BYTES: usize;
    /// Steps one call of `steps` gives.
    const STEPS: usize;
    /// Bytes of one factor (scale or min).
    const FACTOR_BYTES: usize;
    /// Whether panels come from memory as packed, rather than unpacked from a cache.
    const STREAMED: bool = Self::FACTOR_BYTES == 2;

    /// The 16-output halves of `STEPS` consecutive steps, starting with the `index`th such bundle.
    unsafe fn steps(record: *const u8, index: usize) -> [[__m512i; 2]; 2];

    /// 16 factors as f32.
    unsafe fn factors(at: *const u8) -> __m512;
}

struct Packed4;
struct Packed8;
/// Bytes and f32 factors, as `expand` leaves them; `START4` tells that the quants were nibbles.
struct Expanded<const START4: bool>;

impl Quants for Packed4 {
    const BITS: Bits = Bits::Four;
    const QUANT_BYTES: usize = GROUP * PANEL / 2;
    const STEPS: usize = 2;
    const FACTOR_BYTES: usize = 2;

    #[inline(always)]
    unsafe fn steps(record: *const u8, index: usize) -> [[__m512i; 2]; 2] {
        // SAFETY: the caller's record holds `QUANT_BYTES` bytes and `index` is below 4.
        unsafe {
            let nibble = _mm512_set1_epi8(15);
            let a = _mm512_loadu_si512(record.add(index * 128).cast());
            let b = _mm512_loadu_si512(record.add(index * 128 + 64).cast());
            let (high_a, high_b) = (_mm512_srli_epi16::<4>(a), _mm512_srli_epi16::<4>(b));
            [
                [_mm512_and_si512(a, nibble), _mm512_and_si512(b, nibble)],
                [_mm512_and_si512(high_a, nibble), _mm512_and_si512(high_b, nibble)],
            ]
        }
    }

    #[inline(always)]
    unsafe fn factors(at: *const u8) -> __m512 {
        // SAFETY: 32 bytes of factors by the caller's contract.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())) }
    }
}

impl Quants for Packed8 {
    const BITS: Bits = Bits::Eight;
    const QUANT_BYTES: usize = GROUP * PANEL;
    const STEPS: usize = 1;
    const FACTOR_BYTES: usize = 2;

    #[inline(always)]
    unsafe fn steps(record: *const u8, index: usize) -> [[__m512i; 2]; 2] {
        // SAFETY: the caller's record holds `QUANT_BYTES` bytes and `index` is below 8.
        unsafe { byte_step(record, index) }
    }

    #[inline(always)]
    unsafe fn factors(at: *const u8) -> __m512 {
        // SAFETY: 32 bytes of factors by the caller's contract.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())) }
    }
}

impl<const START4: bool> Quants for Expanded<START4> {
    const BITS: Bits = if START4 { Bits::Four } else { Bits::Eight };
    const QUANT_BYTES: usize = GROUP * PANEL;
    const STEPS: usize = 1;
    const FACTOR_BYTES: usize = 4;

    #[inline(always)]
    unsafe fn steps(record: *const u8, index: usize) -> [[__m512i; 2]; 2] {
        // SAFETY: the caller's record holds `QUANT_BYTES` bytes and `index` is below 8.
        unsafe { byte_step(record, index) }
    }

    #[inline(always)]
    unsafe fn factors(at: *const u8) -> __m512 {
        // SAFETY: 64 bytes of factors by the caller's contract.
        unsafe { _mm512_loadu_ps(at.cast()) }
    }
}

#[inline(always)]
unsafe fn byte_step(record: *const u8, index: usize) -> [[__m512i; 2]; 2] {
    // SAFETY: the caller's record holds 8 steps of 128 bytes.
    unsafe {
        let a = _mm512_loadu_si512(record.add(index * 128).cast());
        let b = _mm512_loadu_si512(record.add(index * 128 + 64).cast());
        [[a, b], [a, b]]
    }
}

#[inline(always)]
unsafe fn affine_panel<Q: Quants, const PARTS: usize, const MINS: bool>(job: &mut PanelJob<'_>) {
    let PanelWeights::Affine { format, records, lows, .. } = job.weights else { return };
    // SAFETY: instruction set and sizes by the contract of `panel`; the scratch holds an unpacked panel.
    unsafe {
        let mut panel = job.panel.as_ptr();
        let expanded = job.tiles.len() >= EXPAND_FROM_TILES;
        if expanded {
            expand::<Q>(job.panel, records, format, job.scratch);
            panel = job.scratch.as_ptr();
        }
        match (expanded, Q::BITS, lows.is_some()) {
            (false, _, false) => affine_tiles::<Q, PARTS, MINS, false>(job, panel),
            (false, _, true) => affine_tiles::<Q, PARTS, MINS, true>(job, panel),
            (true, Bits::Four, false) => affine_tiles::<Expanded<true>, PARTS, MINS, false>(job, panel),
            (true, Bits::Four, true) => affine_tiles::<Expanded<true>, PARTS, MINS, true>(job, panel),
            (true, Bits::Eight, false) => affine_tiles::<Expanded<false>, PARTS, MINS, false>(job, panel),
            (true, Bits::Eight, true) => affine_tiles::<Expanded<false>, PARTS, MINS, true>(job, panel),
        }
    }
}

/// Unpacks a panel: nibbles to bytes, f16 factors to f32.
#[inline(always)]
unsafe fn expand<Q: Quants>(panel: &[u8], records: usize, format: AffineFormat, scratch: &mut [u8]) {
    let parts = format.parts();
    let factors = (1 + usize::from(format.mins)) * parts * 2;
    let stride = expanded_record_bytes(parts);
    assert!(scratch.len() >= records * stride, "scratch too small for an unpacked panel");
    for record in 0..records {
        // SAFETY: source and target records are in bounds by the panel's size and the assertion above.
        unsafe {
            let from = panel.as_ptr().add(record * format.record_bytes());
            let to = scratch.as_mut_ptr().add(record * stride);
            for bundle in 0..GROUP / STEP / Q::STEPS {
                let steps = Q::steps(from, bundle);
                for (step, [a, b]) in steps.into_iter().take(Q::STEPS).enumerate() {
                    let at = to.add((bundle * Q::STEPS + step) * 128);
                    _mm512_storeu_si512(at.cast(), a);
                    _mm512_storeu_si512(at.add(64).cast(), b);
                }
            }
            for half in 0..factors {
                let values = Q::factors(from.add(Q::QUANT_BYTES + half * 16 * Q::FACTOR_BYTES));
                _mm512_storeu_ps(to.add(GROUP * PANEL + half * 64).cast(), values);
            }
        }
    }
}

#[inline(always)]
unsafe fn affine_tiles<Q: Quants, const PARTS: usize, const MINS: bool, const WIDE: bool>(
    job: &mut PanelJob<'_>,
    panel: *const u8,
) {
    let PanelWeights::Affine { unit, input, lows, records, .. } = job.weights else { return };
    // The panel after this one is most often the next: it is fetched behind this one's arithmetic.
    let next = job.panel.as_ptr().wrapping_add(job.panel.len());
    let share = job.panel.len().div_ceil(job.tiles.len().max(1));
    for (nth, tile) in job.tiles.clone().enumerate() {
        if !Q::STREAMED {
            prefetch::<_MM_HINT_T1>(next.wrapping_add(nth * share), share);
        }
        let rows = TILE.min(job.rows - tile * TILE);
        let range = tile * records..(tile + 1) * records;
        let x = Input {
            records: &input[range.clone()],
            lows: lows.map_or(std::ptr::null(), |lows| lows[range].as_ptr()),
            is_first: nth == 0,
        };
        let mut out = [[0.0; PANEL]; TILE];
        // SAFETY: `x` has as many records as the panel (low bytes too when wide); spare rows exist in every tile.
        unsafe {
            // Fewer compiled row counts than there are: a spare row costs less than a kernel of its own.
            match rows {
                1 if Q::STREAMED => affine_tile::<Q, 1, PARTS, MINS, WIDE>(panel, x, unit, &mut out),
                1 | 2 => affine_tile::<Q, 2, PARTS, MINS, WIDE>(panel, x, unit, &mut out),
                3 | 4 => affine_tile::<Q, 4, PARTS, MINS, WIDE>(panel, x, unit, &mut out),
                _ => affine_tile::<Q, 6, PARTS, MINS, WIDE>(panel, x, unit, &mut out),
            }
            job.sink.put(tile * TILE, rows, &mut out);
        }
    }
}

/// A tile's activations; `lows` is null unless they are wide.
#[derive(Clone, Copy)]
struct Input<'a> {
    records: &'a [Record],
    lows: *const activations::Quants,
    /// Whether the panel's weights are read for the first time.
    is_first: bool,
}

/// `ROWS` rows by 32 outputs over all records.
#[inline(always)]
unsafe fn affine_tile<
    Q: Quants,
    const ROWS: usize,
    const PARTS: usize,
    const MINS: bool,
    const WIDE: bool,
>(
    panel: *const u8,
    input: Input<'_>,
    unit: f32,
    out: &mut TileOut,
) {
    let factor_bytes = (1 + usize::from(MINS)) * PARTS * PANEL * Q::FACTOR_BYTES;
    let stride = if Q::STREAMED { Q::QUANT_BYTES + factor_bytes } else { expanded_record_bytes(PARTS) };
    // SAFETY: all reads stay inside `records` records of panel and input; prefetching beyond is harmless.
    unsafe {
        let mut float = [[_mm512_setzero_ps(); 2]; ROWS];
        for (index, x) in input.records.iter().enumerate() {
            let record = panel.add(index * stride);
            let lows = input.lows.wrapping_add(index);
            if Q::STREAMED && input.is_first {
                prefetch::<_MM_HINT_T0>(record.wrapping_add(PREFETCH), stride);
            }
            let lows = if WIDE && any(lows) { Some(&*lows) } else { None };
            for part in 0..PARTS {
                let dots = dot::<Q, ROWS, PARTS, MINS, WIDE>(record, x, lows, part);
                let at = record.add(Q::QUANT_BYTES + part * PANEL * Q::FACTOR_BYTES);
                let mut scales = [Q::factors(at), Q::factors(at.add(16 * Q::FACTOR_BYTES))];
                if WIDE && lows.is_none() {
                    // Sums of high bytes alone: the missing power of two goes where it costs least, without rounding.
                    for scale in &mut scales {
                        *scale = _mm512_mul_ps(*scale, _mm512_set1_ps(256.0));
                    }
                }
                for row in 0..ROWS {
                    for half in 0..2 {
                        float[row][half] = _mm512_fmadd_ps(dots[row][half], scales[half], float[row][half]);
                    }
                }
                if MINS {
                    let at = at.add(PARTS * PANEL * Q::FACTOR_BYTES);
                    let mins = [Q::factors(at), Q::factors(at.add(16 * Q::FACTOR_BYTES))];
                    for row in 0..ROWS {
                        let sum = _mm512_set1_ps(x.sums[sum_index::<PARTS>(part)][row]);
                        for half in 0..2 {
                            float[row][half] = _mm512_fmadd_ps(sum, mins[half], float[row][half]);
                        }
                    }
                }
            }
        }
        let unit = _mm512_set1_ps(unit);
        for row in 0..ROWS {
            for half in 0..2 {
                let at = out[row].as_mut_ptr().add(half * 16);
                _mm512_storeu_ps(at, _mm512_mul_ps(float[row][half], unit));
            }
        }
    }
}

/// Which of a record's sums belongs to `part`.
#[inline(always)]
const fn sum_index<const PARTS: usize>(part: usize) -> usize {
    if PARTS == 1 { 0 } else { part + 1 }
}

/// Asks for the lines of so many bytes.
#[inline(always)]
fn prefetch<const HINT: i32>(at: *const u8, bytes: usize) {
    for line in 0..bytes.div_ceil(64) {
        // SAFETY: a prefetch never faults.
        unsafe { _mm_prefetch::<HINT>(at.wrapping_add(line * 64).cast()) };
    }
}

/// Dot products of one part of a record, times the rows' scales; of wide quants, without their factor 256 where there
/// are no `lows`.
#[inline(always)]
unsafe fn dot<Q: Quants, const ROWS: usize, const PARTS: usize, const MINS: bool, const WIDE: bool>(
    record: *const u8,
    x: &Record,
    lows: Option<&activations::Quants>,
    part: usize,
) -> [[__m512; 2]; ROWS] {
    // SAFETY: step indices stay inside the record.
    unsafe {
        if let Some(lows) = lows {
            return wide_dot::<Q, ROWS, PARTS, MINS>(record, x, lows, part);
        }
        let integer = _mm512_castps_si512(_mm512_set1_ps(INTEGER));
        let mut sums = [[integer; 2]; ROWS];
        if !MINS {
            for row in 0..ROWS {
                // A wide row's counts are those of its quants, 256 times the high bytes'.
                let zeros = zeros::<Q, PARTS>(x, part, row, if WIDE { 8 } else { 0 });
                sums[row] = [_mm512_sub_epi32(integer, zeros); 2];
            }
        }
        add_steps::<Q, ROWS, PARTS>(record, &x.quants, part, &mut sums);
        let mut dots = [[_mm512_setzero_ps(); 2]; ROWS];
        for row in 0..ROWS {
            let (scale, offset) = (_mm512_set1_ps(x.scale[row]), _mm512_set1_ps(x.offset[row]));
            for half in 0..2 {
                dots[row][half] = _mm512_fmsub_ps(_mm512_castsi512_ps(sums[row][half]), scale, offset);
            }
        }
        dots
    }
}

/// [`dot`] of quants with low bytes: two passes, and sums too large to be read as floats.
#[inline(always)]
unsafe fn wide_dot<Q: Quants, const ROWS: usize, const PARTS: usize, const MINS: bool>(
    record: *const u8,
    x: &Record,
    lows: &activations::Quants,
    part: usize,
) -> [[__m512; 2]; ROWS] {
    // SAFETY: step indices stay inside the record.
    unsafe {
        let mut sums = [[_mm512_setzero_si512(); 2]; ROWS];
        add_steps::<Q, ROWS, PARTS>(record, &x.quants, part, &mut sums);
        for row in 0..ROWS {
            for half in 0..2 {
                sums[row][half] = _mm512_slli_epi32::<8>(sums[row][half]);
                if !MINS {
                    sums[row][half] = _mm512_sub_epi32(sums[row][half], zeros::<Q, PARTS>(x, part, row, 0));
                }
            }
        }
        add_steps::<Q, ROWS, PARTS>(record, lows, part, &mut sums);
        let mut dots = [[_mm512_setzero_ps(); 2]; ROWS];
        for row in 0..ROWS {
            let scale = _mm512_set1_ps(x.scale[row]);
            for half in 0..2 {
                dots[row][half] = _mm512_mul_ps(_mm512_cvtepi32_ps(sums[row][half]), scale);
            }
        }
        dots
    }
}

/// The zero point times the sum of a row's quants, which are `1 << shift` times their high bytes.
#[inline(always)]
unsafe fn zeros<Q: Quants, const PARTS: usize>(x: &Record, part: usize, row: usize, shift: u32) -> __m512i {
    let count = x.counts[sum_index::<PARTS>(part)][row] >> shift;
    // SAFETY: register arithmetic only.
    unsafe { _mm512_set1_epi32(count.wrapping_mul(Q::BITS.zero_point())) }
}

/// Whether a record has low bytes at all: most groups do without, in all rows of a tile alike.
#[inline(always)]
unsafe fn any(lows: *const activations::Quants) -> bool {
    const { assert!(size_of::<activations::Quants>() == 3 * 64) };
    // SAFETY: 192 readable bytes by the caller's contract.
    unsafe {
        let at = lows.cast::<__m512i>();
        let a = _mm512_or_si512(_mm512_loadu_si512(at), _mm512_loadu_si512(at.add(1)));
        _mm512_test_epi32_mask(_mm512_or_si512(a, _mm512_loadu_si512(at.add(2))), _mm512_set1_epi32(-1)) != 0
    }
}

/// `sums += weights . bytes` over one part of a record.
#[inline(always)]
unsafe fn add_steps<Q: Quants, const ROWS: usize, const PARTS: usize>(
    record: *const u8,
    bytes: &activations::Quants,
    part: usize,
    sums: &mut [[__m512i; 2]; ROWS],
) {
    let bundles = GROUP / STEP / Q::STEPS / PARTS;
    // SAFETY: step indices stay inside the record.
    unsafe {
        for bundle in part * bundles..(part + 1) * bundles {
            let steps = Q::steps(record, bundle);
            for step in 0..Q::STEPS {
                let quants = &bytes[bundle * Q::STEPS + step];
                for row in 0..ROWS {
                    let four = _mm512_set1_epi32(quants[row].as_ptr().cast::<i32>().read_unaligned());
                    for half in 0..2 {
                        sums[row][half] = _mm512_dpbusd_epi32(sums[row][half], steps[step][half], four);
                    }
                }
            }
        }
    }
}
