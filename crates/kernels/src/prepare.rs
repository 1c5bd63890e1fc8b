//! From rows of floats to the activations a product reads: a norm or an activation where there is one, then quantised or
//! interleaved.

#![allow(unsafe_code, reason = "tiles are filled by several threads at once")]

use crate::activations::{Activations, Quants, Record, TILE, Width};
use crate::compute::Compute;
use crate::elementwise::{Activation, LayerNorm, Norm, layer_norm, rms_norm};
use crate::isa::{Isa, Level};
use crate::memory::SharedMut;
use crate::packed::GROUP;
use crate::vectorise::{Loop, vectorised};

/// Which rows of the source are taken.
#[derive(Clone, Copy, Debug)]
pub enum Rows<'a> {
    /// The first so many.
    First(usize),
    /// These, in this order.
    Picked(&'a [u32]),
}

impl Rows<'_> {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Self::First(count) => *count,
            Self::Picked(rows) => rows.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline(always)]
    fn source(&self, row: usize) -> usize {
        match self {
            Self::First(_) => row,
            Self::Picked(rows) => rows[row] as usize,
        }
    }
}

/// What a row goes through on the way.
#[derive(Clone, Copy, Debug)]
pub enum Before<'a> {
    /// Nothing.
    Nothing,
    /// A root-mean-square norm.
    RmsNorm(NormBy<'a>),
    /// A norm that also takes the mean away.
    LayerNorm(LayerNorm<'a>),
    /// A nonlinearity, value by value.
    Activation(Activation),
}

/// A root-mean-square norm by these weights.
#[derive(Clone, Copy, Debug)]
pub struct NormBy<'a> {
    /// One weight per column.
    pub weight: &'a [f32],
    /// Its constants.
    pub norm: Norm,
}

/// What to prepare.
#[derive(Clone, Copy, Debug)]
pub struct Prepare<'a> {
    /// Rows of floats, `stride` apart.
    pub source: &'a [f32],
    /// Values from one row to the next.
    pub stride: usize,
    /// Columns taken.
    pub cols: usize,
    /// Rows taken.
    pub rows: Rows<'a>,
    /// Applied first.
    pub before: Before<'a>,
    /// Bytes of a quant, where the target holds quants.
    pub width: Width,
}

/// Fills `target` in every form it has room for.
pub fn prepare(compute: &mut Compute, what: &Prepare<'_>, target: &mut Activations) {
    let (max_rows, max_cols) = target.capacity();
    assert!(what.rows.len() <= max_rows && what.cols <= max_cols, "activations too small");
    assert!(
        !what.width.has_lows() || target.forms().wide || !target.forms().records,
        "no room for wide quants"
    );
    target.width = what.width;
    let isa = compute.isa();
    let tiles = what.rows.len().div_ceil(TILE);
    let shared = Shared {
        records: target.records.shared(),
        lows: target.lows.shared(),
        width: what.width,
        halves: target.halves,
        floats: target.floats.shared(),
    };
    let padded = what.cols.next_multiple_of(GROUP);
    compute.reserve_scratch(padded * 4);
    compute.for_each(tiles, 1, &|tiles, scratch| {
        for tile in tiles {
            // SAFETY: `Buffer` scratch is 64-byte aligned and zero or plain floats; reserved above.
            let row = unsafe { std::slice::from_raw_parts_mut(scratch.as_mut_ptr().cast::<f32>(), padded) };
            row[what.cols..].fill(0.0);
            // SAFETY: each tile is visited once.
            unsafe { fill_tile(isa, what, tile, row, shared) };
        }
    });
}

#[derive(Clone, Copy)]
struct Shared<'a> {
    records: SharedMut<'a, Record>,
    lows: SharedMut<'a, Quants>,
    width: Width,
    halves: bool,
    floats: SharedMut<'a, f32>,
}

/// # Safety
/// No other thread may work on the same tile meanwhile.
unsafe fn fill_tile(isa: Isa, what: &Prepare<'_>, tile: usize, row: &mut [f32], target: Shared<'_>) {
    let first = tile * TILE;
    for slot in 0..TILE.min(what.rows.len() - first) {
        let at = what.rows.source(first + slot) * what.stride;
        let source = &what.source[at..at + what.cols];
        let target_row = &mut row[..what.cols];
        match what.before {
            Before::Nothing => target_row.copy_from_slice(source),
            Before::RmsNorm(by) => vectorised(isa, || rms_norm(source, by.weight, by.norm, target_row)),
            Before::LayerNorm(by) => {
                target_row.copy_from_slice(source);
                vectorised(isa, || layer_norm(target_row, by));
            }
            Before::Activation(activation) => vectorised(isa, Activate { activation, source, target_row }),
        }
        if !target.records.is_empty() {
            // SAFETY: passed on from this function's contract.
            unsafe { put_records(isa, row, (tile, slot), target) };
        }
        if !target.floats.is_empty() {
            // SAFETY: passed on from this function's contract.
            unsafe { put_floats(&row[..what.cols], (tile, slot), target) };
        }
    }
}

struct Activate<'a> {
    activation: Activation,
    source: &'a [f32],
    target_row: &'a mut [f32],
}

impl Loop for Activate<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        // One loop per kind: the choice must not stand inside it.
        match self.activation {
            Activation::Silu => each(self.source, self.target_row, |x| Activation::Silu.apply(x)),
            Activation::GeluTanh => each(self.source, self.target_row, |x| Activation::GeluTanh.apply(x)),
            Activation::Gelu => each(self.source, self.target_row, |x| Activation::Gelu.apply(x)),
        }
    }
}

#[inline(always)]
fn each(source: &[f32], target: &mut [f32], f: impl Fn(f32) -> f32) {
    for (out, &x) in target.iter_mut().zip(source) {
        *out = f(x);
    }
}

/// # Safety
/// As for [`fill_tile`].
unsafe fn put_records(isa: Isa, row: &[f32], (tile, slot): (usize, usize), target: Shared<'_>) {
    let values = row.as_chunks::<GROUP>().0;
    let groups = values.len();
    // SAFETY: this thread alone works on the tile.
    let records = unsafe { target.records.slice(tile * groups, groups) };
    // There are no low bytes to fill when quants are narrow.
    let lows = match target.width {
        Width::Narrow => &mut [][..],
        // SAFETY: as above.
        Width::Mixed | Width::Wide => unsafe { target.lows.slice(tile * groups, groups) },
    };
    let fine_from = vectorised(isa, || target.width.fine_from(row));
    match isa.level() {
        // SAFETY: the level proves the instruction set.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512Vnni => unsafe { avx512::put_row(records, lows, slot, values, fine_from) },
        _ => vectorised(isa, || put_row(records, lows, slot, values, fine_from)),
    }
    if target.halves {
        for (index, record) in records.iter_mut().enumerate() {
            record.put_halves(lows.get(index), slot);
        }
    }
}

#[inline(always)]
fn put_row(
    records: &mut [Record],
    lows: &mut [Quants],
    slot: usize,
    values: &[[f32; GROUP]],
    fine_from: f32,
) {
    if lows.is_empty() {
        records.iter_mut().zip(values).for_each(|(record, group)| record.put(slot, group));
        return;
    }
    for ((record, lows), group) in records.iter_mut().zip(lows).zip(values) {
        record.put_wide(lows, slot, group, fine_from);
    }
}

/// # Safety
/// As for [`fill_tile`].
unsafe fn put_floats(row: &[f32], (tile, slot): (usize, usize), target: Shared<'_>) {
    // SAFETY: this thread alone works on the tile.
    let floats = unsafe { target.floats.slice(tile * row.len() * TILE, row.len() * TILE) };
    for (six, value) in floats.chunks_exact_mut(TILE).zip(row) {
        six[slot] = *value;
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    //! [`put_row`](super::put_row) with AVX-512: a group is two registers.

    use std::arch::x86_64::*;

    use crate::activations::{NARROW, Quants, Record, WIDE};
    use crate::packed::{GROUP, STEP};

    /// Quantises one row of a tile.
    ///
    /// # Safety
    /// The CPU must have AVX-512 F, BW, DQ and VL.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub unsafe fn put_row(
        records: &mut [Record],
        lows: &mut [Quants],
        slot: usize,
        values: &[[f32; GROUP]],
        fine_from: f32,
    ) {
        if lows.is_empty() {
            for (record, group) in records.iter_mut().zip(values) {
                // SAFETY: instruction set by this function's contract.
                unsafe { put(record, slot, group) };
            }
            return;
        }
        for ((record, lows), group) in records.iter_mut().zip(lows).zip(values) {
            // SAFETY: as above.
            unsafe { put_wide(record, lows, slot, group, fine_from) };
        }
    }

    /// [`Record::put`].
    #[inline(always)]
    unsafe fn put(record: &mut Record, slot: usize, group: &[f32; GROUP]) {
        // SAFETY: a group has 32 floats; instruction set by the caller's contract.
        unsafe {
            let values = Group::load(group);
            let [a, b] = values.quants(NARROW);
            put_bytes(&mut record.quants, slot, a, b);
            record.put_scale(slot, values.largest / NARROW, _mm512_reduce_add_epi32(_mm512_add_epi32(a, b)));
        }
    }

    /// [`Record::put_wide`].
    #[inline(always)]
    unsafe fn put_wide(
        record: &mut Record,
        lows: &mut Quants,
        slot: usize,
        group: &[f32; GROUP],
        fine_from: f32,
    ) {
        // SAFETY: a group has 32 floats; instruction set by the caller's contract.
        unsafe {
            let values = Group::load(group);
            let scale = values.largest / WIDE;
            if values.largest < fine_from {
                let [a, b] = values.quants(NARROW);
                put_bytes(&mut record.quants, slot, a, b);
                put_bytes(lows, slot, _mm512_setzero_si512(), _mm512_setzero_si512());
                let sum = _mm512_reduce_add_epi32(_mm512_add_epi32(a, b));
                return record.put_scale(slot, scale, 256 * sum);
            }
            let [a, b] = values.quants(WIDE);
            let (high_a, high_b) = (high(a), high(b));
            put_bytes(&mut record.quants, slot, high_a, high_b);
            let low_a = _mm512_sub_epi32(a, _mm512_slli_epi32::<8>(high_a));
            let low_b = _mm512_sub_epi32(b, _mm512_slli_epi32::<8>(high_b));
            put_bytes(lows, slot, low_a, low_b);
            record.put_scale(slot, scale, _mm512_reduce_add_epi32(_mm512_add_epi32(a, b)));
        }
    }

    struct Group {
        values: [__m512; 2],
        largest: f32,
    }

    impl Group {
        #[inline(always)]
        unsafe fn load(group: &[f32; GROUP]) -> Self {
            // SAFETY: 32 readable floats.
            unsafe {
                let (a, b) = (_mm512_loadu_ps(group.as_ptr()), _mm512_loadu_ps(group.as_ptr().add(16)));
                let magnitude = _mm512_set1_epi32(0x7fff_ffff);
                let bits_a = _mm512_and_si512(_mm512_castps_si512(a), magnitude);
                let bits_b = _mm512_and_si512(_mm512_castps_si512(b), magnitude);
                let largest = f32::from_bits(_mm512_reduce_max_epu32(_mm512_max_epu32(bits_a, bits_b)));
                Self { values: [a, b], largest }
            }
        }

        /// Integers up to `top`.
        #[inline(always)]
        unsafe fn quants(&self, top: f32) -> [__m512i; 2] {
            // SAFETY: register arithmetic only.
            unsafe {
                let inverse = _mm512_set1_ps(if self.largest > 0.0 { top / self.largest } else { 0.0 });
                let [a, b] = self.values;
                [_mm512_cvtps_epi32(_mm512_mul_ps(a, inverse)), _mm512_cvtps_epi32(_mm512_mul_ps(b, inverse))]
            }
        }
    }

    /// The high bytes of wide quants, such that low ones are in -128..128.
    #[inline(always)]
    unsafe fn high(quants: __m512i) -> __m512i {
        // SAFETY: register arithmetic only.
        unsafe { _mm512_srai_epi32::<8>(_mm512_add_epi32(quants, _mm512_set1_epi32(128))) }
    }

    /// Stores 32 bytes, four to a step.
    #[inline(always)]
    unsafe fn put_bytes(quants: &mut Quants, slot: usize, a: __m512i, b: __m512i) {
        let mut bytes = [[0i8; STEP]; GROUP / STEP];
        // SAFETY: 32 bytes of room.
        unsafe {
            let at = bytes.as_mut_ptr().cast::<__m128i>();
            _mm_storeu_si128(at, _mm512_cvtepi32_epi8(a));
            _mm_storeu_si128(at.add(1), _mm512_cvtepi32_epi8(b));
        }
        for (step, four) in quants.iter_mut().zip(bytes) {
            step[slot] = four;
        }
    }
}
