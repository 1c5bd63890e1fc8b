//! Weights as the kernels read them: panels of 32 outputs, one layout for every instruction set.
//!
//! **Affine** (grouped int4 or int8): `w[n][k] = scale[n][k / group] * quant[n][k] + min[n][k / group]`. A panel is
//! one record per group of 32 inputs, so that one row of activations streams it front to back:
//!
//! ```text
//! record = | quants of 32 inputs x 32 outputs | scales f16 | mins f16 |          (scales, mins: [parts][32 outputs])
//! int8:  8 steps of 4 inputs; a step is 128 bytes: output 0 (k0 k1 k2 k3), output 1 (k0 k1 k2 k3), ...
//! int4:  4 pairs of steps;    a pair is 128 bytes: low nibbles are the even step, high nibbles the odd step
//! ```
//! `parts` is 1 for groups of 32 and 2 for groups of 16. A matrix with a fixed zero point (8 or 128) has no
//! mins: its zero point is folded into the integer sum. Scales are f16 relative to one power of two per
//! matrix, so that neither tiny nor large scales lose bits. int4 with mins: 640 bytes a record, 5 bits a weight.
//!
//! **Float** (f32, f16, bf16): `[panel][k][32 outputs]`.

#![allow(unsafe_code, reason = "panels are filled by several threads at once")]

use half::{bf16, f16};

use crate::memory::Buffer;
use crate::pool::Pool;

/// Outputs of a panel.
pub const PANEL: usize = 32;
/// Inputs of an affine record, and of an activation group.
pub const GROUP: usize = 32;
/// Inputs that one integer dot product takes at once.
pub const STEP: usize = 4;

/// Bits of an affine quant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bits {
    /// 0..=15, fixed zero point 8.
    Four,
    /// 0..=255, fixed zero point 128.
    Eight,
}

impl Bits {
    /// The quant that stands for zero, where there are no mins.
    pub const fn zero_point(self) -> i32 {
        match self {
            Self::Four => 8,
            Self::Eight => 128,
        }
    }
}

/// Shape of an affine format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AffineFormat {
    /// Bits of a quant.
    pub bits: Bits,
    /// Whether two scales serve a record (groups of 16) or one does (groups of 32).
    pub halves: bool,
    /// Whether each group has a minimum, or the zero point is fixed.
    pub mins: bool,
}

impl AffineFormat {
    /// Scales per output and record.
    pub fn parts(self) -> usize {
        1 + usize::from(self.halves)
    }

    /// Bytes of a record's quants.
    pub fn quant_bytes(self) -> usize {
        match self.bits {
            Bits::Four => GROUP * PANEL / 2,
            Bits::Eight => GROUP * PANEL,
        }
    }

    /// Bytes of a whole record.
    pub fn record_bytes(self) -> usize {
        let factors = 1 + usize::from(self.mins);
        self.quant_bytes() + factors * self.parts() * PANEL * 2
    }

    /// The fixed zero point, where there are no mins.
    pub fn zero_point(self) -> f32 {
        self.bits.zero_point() as f32
    }

    /// The narrowest format that holds both exactly.
    pub fn join(self, other: Self) -> Self {
        let bits = if self.bits == other.bits { self.bits } else { Bits::Eight };
        Self { bits, halves: self.halves || other.halves, mins: self.mins || other.mins }
    }
}

/// One output's weights on their way into a panel: `k` padded to whole records.
#[derive(Clone, Debug, Default)]
pub struct AffineRow {
    /// One per input.
    pub quants: Vec<u8>,
    /// One per group: `parts` per record.
    pub scales: Vec<f32>,
    /// One per group where the format has mins.
    pub mins: Vec<f32>,
}

impl AffineRow {
    fn sized(cols: usize, format: AffineFormat) -> Self {
        let records = cols.div_ceil(GROUP);
        let groups = records * format.parts();
        Self { quants: vec![0; records * GROUP], scales: vec![0.0; groups], mins: vec![0.0; groups] }
    }

    fn clear(&mut self) {
        self.quants.fill(0);
        self.scales.fill(0.0);
        self.mins.fill(0.0);
    }
}

/// A grouped int4 or int8 matrix.
#[derive(Debug)]
pub struct AffineMatrix {
    rows: usize,
    cols: usize,
    format: AffineFormat,
    /// Stored scales and mins times this are the real ones; a power of two.
    unit: f32,
    data: Buffer<u8>,
}

impl AffineMatrix {
    /// Packs `rows` outputs of `cols` inputs. `largest` is the largest magnitude among scales and mins (it sets
    /// the unit); `fill` writes the quants, scales and mins of one output into a zeroed row.
    pub fn pack(
        pool: &mut Pool,
        (rows, cols): (usize, usize),
        format: AffineFormat,
        largest: f32,
        fill: &(dyn Fn(usize, &mut AffineRow) + Sync),
    ) -> Self {
        let unit = unit_for(largest);
        let panels = rows.div_ceil(PANEL);
        let panel_bytes = cols.div_ceil(GROUP) * format.record_bytes();
        let mut data = Buffer::zeroed(panels * panel_bytes);
        let shared = data.shared();
        pool.for_each(panels, 1, &|range| {
            let mut row = AffineRow::sized(cols, format);
            for panel in range {
                // SAFETY: each panel is visited once and `data` outlives the operation.
                let bytes = unsafe { shared.slice(panel * panel_bytes, panel_bytes) };
                let outputs = PANEL.min(rows - panel * PANEL);
                for slot in 0..outputs {
                    row.clear();
                    fill(panel * PANEL + slot, &mut row);
                    put_affine_row(bytes, slot, &row, format, unit);
                }
            }
        });
        Self { rows, cols, format, unit, data }
    }

    /// Outputs.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Its format.
    pub fn format(&self) -> AffineFormat {
        self.format
    }

    /// Records of a panel.
    pub fn records(&self) -> usize {
        self.cols.div_ceil(GROUP)
    }

    /// Factor of all stored scales and mins.
    pub fn unit(&self) -> f32 {
        self.unit
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    /// One panel's records.
    pub fn panel(&self, panel: usize) -> &[u8] {
        let bytes = self.records() * self.format.record_bytes();
        &self.data[panel * bytes..(panel + 1) * bytes]
    }

    /// The real weights of one output.
    pub fn read_row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.rows && out.len() == self.cols, "row or length outside the matrix");
        let panel = self.panel(row / PANEL);
        for (record, chunk) in panel.chunks_exact(self.format.record_bytes()).zip(out.chunks_mut(GROUP)) {
            read_record(record, row % PANEL, self.format, self.unit, chunk);
        }
    }
}

/// The power of two that brings `largest` just below the top of f16's range.
fn unit_for(largest: f32) -> f32 {
    if largest > 0.0 && largest.is_finite() { (largest.log2().ceil() - 14.0).exp2() } else { 1.0 }
}

/// Where in a record's quants input `k` of output `slot` stands: byte, and whether in the high nibble.
fn quant_place(bits: Bits, slot: usize, k: usize) -> (usize, bool) {
    let (step, lane) = (k / STEP, k % STEP);
    match bits {
        Bits::Eight => (step * PANEL * STEP + slot * STEP + lane, false),
        Bits::Four => (step / 2 * PANEL * STEP + slot * STEP + lane, step % 2 == 1),
    }
}

fn put_affine_row(panel: &mut [u8], slot: usize, row: &AffineRow, format: AffineFormat, unit: f32) {
    let parts = format.parts();
    for (index, record) in panel.chunks_exact_mut(format.record_bytes()).enumerate() {
        for (k, &quant) in row.quants[index * GROUP..(index + 1) * GROUP].iter().enumerate() {
            let (byte, high) = quant_place(format.bits, slot, k);
            record[byte] |= if high { quant << 4 } else { quant };
        }
        let factors = &mut record[format.quant_bytes()..];
        for part in 0..parts {
            put_f16(factors, part * PANEL + slot, row.scales[index * parts + part] / unit);
            if format.mins {
                put_f16(factors, (parts + part) * PANEL + slot, row.mins[index * parts + part] / unit);
            }
        }
    }
}

fn put_f16(bytes: &mut [u8], index: usize, value: f32) {
    bytes[index * 2..index * 2 + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
}

fn get_f16(bytes: &[u8], index: usize) -> f32 {
    f16::from_le_bytes([bytes[index * 2], bytes[index * 2 + 1]]).to_f32()
}

/// A record's quant of output `slot` at input `k`.
pub(crate) fn record_quant(record: &[u8], slot: usize, k: usize, bits: Bits) -> u8 {
    let (byte, high) = quant_place(bits, slot, k);
    match bits {
        Bits::Eight => record[byte],
        Bits::Four if high => record[byte] >> 4,
        Bits::Four => record[byte] & 15,
    }
}

/// A record's stored scale of output `slot` in part `part`.
pub(crate) fn record_scale(record: &[u8], slot: usize, part: usize, format: AffineFormat) -> f32 {
    get_f16(&record[format.quant_bytes()..], part * PANEL + slot)
}

/// A record's stored minimum of output `slot` in part `part`.
pub(crate) fn record_min(record: &[u8], slot: usize, part: usize, format: AffineFormat) -> f32 {
    get_f16(&record[format.quant_bytes()..], (format.parts() + part) * PANEL + slot)
}

fn read_record(record: &[u8], slot: usize, format: AffineFormat, unit: f32, out: &mut [f32]) {
    let part_len = GROUP / format.parts();
    for (k, value) in out.iter_mut().enumerate() {
        let part = k / part_len;
        let scale = record_scale(record, slot, part, format);
        let quant = f32::from(record_quant(record, slot, k, format.bits));
        let stored = if format.mins {
            scale * quant + record_min(record, slot, part, format)
        } else {
            scale * (quant - format.zero_point())
        };
        *value = stored * unit;
    }
}

/// Number type of a float matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FloatFormat {
    /// 32-bit.
    F32,
    /// IEEE half.
    F16,
    /// Brain float.
    Bf16,
}

impl FloatFormat {
    /// Bytes of one weight.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }
}

/// A matrix of plain floats.
#[derive(Debug)]
pub struct FloatMatrix {
    rows: usize,
    cols: usize,
    format: FloatFormat,
    data: Buffer<u8>,
}

impl FloatMatrix {
    /// Packs `rows` outputs of `cols` inputs; `fill` writes one output's weights.
    pub fn pack(
        pool: &mut Pool,
        (rows, cols): (usize, usize),
        format: FloatFormat,
        fill: &(dyn Fn(usize, &mut [f32]) + Sync),
    ) -> Self {
        let panels = rows.div_ceil(PANEL);
        let panel_bytes = cols * PANEL * format.bytes();
        let mut data = Buffer::zeroed(panels * panel_bytes);
        let shared = data.shared();
        pool.for_each(panels, 1, &|range| {
            let mut row = vec![0.0; cols];
            for panel in range {
                // SAFETY: each panel is visited once and `data` outlives the operation.
                let bytes = unsafe { shared.slice(panel * panel_bytes, panel_bytes) };
                for slot in 0..PANEL.min(rows - panel * PANEL) {
                    fill(panel * PANEL + slot, &mut row);
                    put_float_row(bytes, slot, &row, format);
                }
            }
        });
        Self { rows, cols, format, data }
    }

    /// Outputs.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Its number type.
    pub fn format(&self) -> FloatFormat {
        self.format
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    /// One panel: `[k][32 outputs]`.
    pub fn panel(&self, panel: usize) -> &[u8] {
        let bytes = self.cols * PANEL * self.format.bytes();
        &self.data[panel * bytes..(panel + 1) * bytes]
    }

    /// The weights of one output.
    pub fn read_row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.rows && out.len() == self.cols, "row or length outside the matrix");
        let panel = self.panel(row / PANEL);
        for (k, value) in out.iter_mut().enumerate() {
            *value = read_float(panel, k * PANEL + row % PANEL, self.format);
        }
    }
}

fn put_float_row(panel: &mut [u8], slot: usize, row: &[f32], format: FloatFormat) {
    let size = format.bytes();
    for (k, &value) in row.iter().enumerate() {
        let at = (k * PANEL + slot) * size;
        match format {
            FloatFormat::F32 => panel[at..at + 4].copy_from_slice(&value.to_le_bytes()),
            FloatFormat::F16 => panel[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes()),
            FloatFormat::Bf16 => panel[at..at + 2].copy_from_slice(&bf16::from_f32(value).to_le_bytes()),
        }
    }
}

/// The weight at `index` of a float panel.
pub(crate) fn read_float(panel: &[u8], index: usize, format: FloatFormat) -> f32 {
    let at = index * format.bytes();
    match format {
        FloatFormat::F32 => f32::from_le_bytes([panel[at], panel[at + 1], panel[at + 2], panel[at + 3]]),
        FloatFormat::F16 => f16::from_le_bytes([panel[at], panel[at + 1]]).to_f32(),
        FloatFormat::Bf16 => bf16::from_le_bytes([panel[at], panel[at + 1]]).to_f32(),
    }
}

/// Any packed matrix.
#[derive(Debug)]
pub enum Matrix {
    /// Grouped integers; multiplies quantised activations.
    Affine(AffineMatrix),
    /// Plain floats; multiplies float activations.
    Float(FloatMatrix),
}

impl Matrix {
    /// Outputs.
    pub fn rows(&self) -> usize {
        match self {
            Self::Affine(matrix) => matrix.rows(),
            Self::Float(matrix) => matrix.rows(),
        }
    }

    /// Inputs.
    pub fn cols(&self) -> usize {
        match self {
            Self::Affine(matrix) => matrix.cols(),
            Self::Float(matrix) => matrix.cols(),
        }
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Affine(matrix) => matrix.bytes(),
            Self::Float(matrix) => matrix.bytes(),
        }
    }

    /// The real weights of one output.
    pub fn read_row(&self, row: usize, out: &mut [f32]) {
        match self {
            Self::Affine(matrix) => matrix.read_row(row, out),
            Self::Float(matrix) => matrix.read_row(row, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formats() -> Vec<AffineFormat> {
        let mut all = Vec::new();
        for bits in [Bits::Four, Bits::Eight] {
            for halves in [false, true] {
                for mins in [false, true] {
                    all.push(AffineFormat { bits, halves, mins });
                }
            }
        }
        all
    }

    #[test]
    fn packed_affine_rows_read_back_exactly() {
        let mut pool = Pool::new(2);
        for format in formats() {
            let top = if format.bits == Bits::Four { 16 } else { 256 };
            let parts = format.parts();
            let quant = move |n: usize, k: usize| ((n * 7 + k * 13) % top) as u8;
            let scale = move |n: usize, g: usize| ((n + 3 * g) % 64) as f32 * 0.25e-5;
            let matrix = AffineMatrix::pack(&mut pool, (45, 96), format, 1.0e-3, &|n, row| {
                (0..96).for_each(|k| row.quants[k] = quant(n, k));
                (0..3 * parts).for_each(|g| (row.scales[g], row.mins[g]) = (scale(n, g), -scale(n + 1, g)));
            });
            let mut out = vec![0.0; 96];
            for n in 0..45 {
                matrix.read_row(n, &mut out);
                for (k, &got) in out.iter().enumerate() {
                    let (s, q, g) = (scale(n, k * parts / GROUP), f32::from(quant(n, k)), k * parts / GROUP);
                    let want =
                        if format.mins { s * q - scale(n + 1, g) } else { s * (q - format.zero_point()) };
                    assert!((got - want).abs() <= 1e-3 * 256.0 * 1e-3, "{format:?} {n} {k}: {got} {want}");
                }
            }
        }
    }

    #[test]
    fn joining_formats_keeps_the_wider_of_each() {
        let q4_1 = AffineFormat { bits: Bits::Four, halves: false, mins: true };
        let q6_k = AffineFormat { bits: Bits::Eight, halves: true, mins: false };
        assert_eq!(q4_1.join(q6_k), AffineFormat { bits: Bits::Eight, halves: true, mins: true });
        assert_eq!(q4_1.join(q4_1), q4_1);
    }
}
