//! `y[m][n] = sum over k of x[m][k] * w[n][k]`, for packed weights and interleaved activations.
//!
//! An instruction set supplies one thing: a *tile kernel*, six rows by one panel of 32 outputs over all inputs.
//! Everything around it (which panels, which rows, bias, residual, gate) is written once here. The order of
//! additions inside an output is fixed by the tile kernel and independent of the number of rows, so a row's
//! result is bit-for-bit the same alone and in a batch.

#![allow(unsafe_code, reason = "calls ISA kernels; outputs are written by several threads at once")]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
mod portable;
pub mod reference;

use std::ops::Range;

use crate::activations::{Activations, Needs, Quants, Record, TILE};
use crate::compute::Compute;
use crate::elementwise::Activation;
use crate::isa::{Isa, Level};
use crate::memory::SharedMut;
use crate::packed::{AffineFormat, FloatFormat, Matrix, PANEL};

/// What a tile kernel leaves: six rows by 32 outputs.
pub type TileOut = [[f32; PANEL]; TILE];

/// What happens to a finished tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epilogue {
    /// `out = y`.
    Store,
    /// `out += y`: the residual stream.
    Add,
    /// Columns 0..16 of a panel are gates, 16..32 their partners: `out = activation(gate) * up`, half as wide.
    Gate(Activation),
}

/// One matrix product.
pub struct Product<'a> {
    /// The weights.
    pub matrix: &'a Matrix,
    /// Added to every row, if there; as long as the matrix has outputs.
    pub bias: Option<&'a [f32]>,
    /// The activations, prepared in the form the weights need.
    pub input: &'a Activations,
    /// How many of its rows count.
    pub rows: usize,
    /// What to do with the result.
    pub epilogue: Epilogue,
}

/// Where results go: row `m` at `m * stride + column`.
pub struct Output<'a> {
    /// The rows.
    pub data: &'a mut [f32],
    /// Values from one row to the next.
    pub stride: usize,
    /// First column written.
    pub column: usize,
}

/// A panel of weights in front of rows of activations.
pub(crate) struct PanelJob<'a> {
    pub panel: &'a [u8],
    pub weights: PanelWeights<'a>,
    pub tiles: Range<usize>,
    pub rows: usize,
    /// Room for an unpacked panel, for kernels that want one when many tiles share it.
    pub scratch: &'a mut [u8],
    pub sink: Sink<'a>,
}

/// The two kinds of operands.
#[derive(Clone, Copy)]
pub(crate) enum PanelWeights<'a> {
    /// `lows` are there when the input's quants are wide: `quant = 256 * record's + low`.
    Affine {
        format: AffineFormat,
        unit: f32,
        input: &'a [Record],
        lows: Option<&'a [Quants]>,
        records: usize,
    },
    Float {
        format: FloatFormat,
        input: &'a [f32],
        cols: usize,
    },
}

/// Everything needed to put a finished tile in its place.
#[derive(Clone, Copy)]
pub(crate) struct Sink<'a> {
    pub data: SharedMut<'a, f32>,
    pub stride: usize,
    pub column: usize,
    /// Valid outputs of this panel.
    pub outputs: usize,
    pub bias: Option<&'a [f32]>,
    pub epilogue: Epilogue,
}

/// Computes one panel for a range of tiles.
///
/// # Safety
/// - The CPU must have the instruction set the function was written for.
/// - `sink` columns of these rows must not be touched by another thread meanwhile.
/// - `panel` and inputs must have the sizes their format demands.
pub(crate) type PanelFn = unsafe fn(&mut PanelJob<'_>);

pub(crate) fn panel_fn(isa: Isa) -> PanelFn {
    match isa.level() {
        Level::Reference => reference::panel,
        Level::Portable => portable::panel,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => avx2::panel,
        #[cfg(target_arch = "x86_64")]
        Level::Avx512Vnni => avx512::panel,
        #[cfg(not(target_arch = "x86_64"))]
        Level::Avx2 | Level::Avx512Vnni => unreachable!("not obtainable on this architecture"),
    }
}

impl Matrix {
    /// Which form of activations this matrix multiplies.
    pub fn needs(&self) -> Needs {
        match self {
            Self::Affine(matrix) => {
                Needs { records: true, halves: matrix.format().halves, ..Needs::default() }
            }
            Self::Float(_) => Needs { floats: true, ..Needs::default() },
        }
    }
}

/// Bytes of scratch a worker needs to unpack the widest panel of inputs this long.
pub(crate) fn scratch_bytes(cols: usize) -> usize {
    let records = cols.div_ceil(crate::packed::GROUP);
    (records * expanded_record_bytes(2)).max(cols * PANEL * 4)
}

/// An unpacked affine record: bytes, then f32 scales and mins.
pub(crate) fn expanded_record_bytes(parts: usize) -> usize {
    crate::packed::GROUP * PANEL + 2 * parts * PANEL * 4
}

/// Runs the product on all workers.
pub fn matmul(compute: &mut Compute, product: &Product<'_>, output: Output<'_>) {
    let panels = product.matrix.rows().div_ceil(PANEL);
    let tiles = product.rows.div_ceil(TILE);
    check(product, &output, panels);
    let split = Split::choose(panels, tiles, compute.threads());
    let Output { data, stride, column } = output;
    let data = SharedMut::of(data);
    let kernel = panel_fn(compute.isa());
    compute.for_each(split.items(), split.grain, &|items, scratch| {
        for item in items {
            let (panel, tiles) = split.item(item);
            let sink = sink_of(product, panel, SharedTarget { data, stride, column });
            let mut job = job_of(product, panel, tiles, scratch, sink);
            // SAFETY: the ISA is proven by `Isa`; items cover disjoint (panel, tile range) pairs, and panels have
            // disjoint columns; sizes were checked above.
            unsafe { kernel(&mut job) };
        }
    });
}

#[derive(Clone, Copy)]
struct SharedTarget<'a> {
    data: SharedMut<'a, f32>,
    stride: usize,
    column: usize,
}

fn check(product: &Product<'_>, output: &Output<'_>, panels: usize) {
    let (max_rows, max_cols) = product.input.capacity();
    assert!(product.rows <= max_rows && product.matrix.cols() <= max_cols, "activations too small");
    let forms = product.input.forms();
    let needs = product.matrix.needs();
    assert!(!needs.records || forms.records, "quantised activations missing");
    assert!(!needs.floats || forms.floats, "float activations missing");
    assert!(!needs.halves || forms.halves, "sums of half groups missing");
    let width = match product.epilogue {
        Epilogue::Gate(_) => panels * PANEL / 2,
        Epilogue::Store | Epilogue::Add => product.matrix.rows(),
    };
    assert!(output.column + width <= output.stride, "output row too short");
    assert!(output.data.len() >= product.rows * output.stride, "output too small");
    assert!(product.bias.is_none_or(|bias| bias.len() == product.matrix.rows()), "bias length");
}

fn sink_of<'a>(product: &Product<'a>, panel: usize, target: SharedTarget<'a>) -> Sink<'a> {
    let first = panel * PANEL;
    let outputs = PANEL.min(product.matrix.rows() - first);
    let width = if matches!(product.epilogue, Epilogue::Gate(_)) { PANEL / 2 } else { PANEL };
    Sink {
        data: target.data,
        stride: target.stride,
        column: target.column + panel * width,
        outputs,
        bias: product.bias.map(|bias| &bias[first..first + outputs]),
        epilogue: product.epilogue,
    }
}

fn job_of<'a>(
    product: &Product<'a>,
    panel: usize,
    tiles: Range<usize>,
    scratch: &'a mut [u8],
    sink: Sink<'a>,
) -> PanelJob<'a> {
    let (panel, weights) = match product.matrix {
        Matrix::Affine(m) => {
            let weights = PanelWeights::Affine {
                format: m.format(),
                unit: m.unit(),
                input: &product.input.records,
                lows: product.input.filled_lows(),
                records: m.records(),
            };
            (m.panel(panel), weights)
        }
        Matrix::Float(m) => {
            let weights =
                PanelWeights::Float { format: m.format(), input: &product.input.floats, cols: m.cols() };
            (m.panel(panel), weights)
        }
    };
    PanelJob { panel, weights, tiles, rows: product.rows, scratch, sink }
}

/// How a product is cut into work items: by panels, and by rows too where panels alone cannot keep every
/// worker busy.
#[derive(Clone, Copy, Debug)]
struct Split {
    panels: usize,
    tiles: usize,
    row_parts: usize,
    grain: usize,
}

impl Split {
    /// Items per worker that make uneven workers even out.
    const ITEMS_PER_WORKER: usize = 6;
    /// Fewest tiles worth a separate item: below this, unpacking a panel twice costs more than it wins.
    const MIN_TILES: usize = 8;

    fn choose(panels: usize, tiles: usize, threads: usize) -> Self {
        let wanted = threads * Self::ITEMS_PER_WORKER;
        let most = (tiles / Self::MIN_TILES).max(1);
        let row_parts = if threads == 1 { 1 } else { wanted.div_ceil(panels.max(1)).clamp(1, most) };
        // Neighbouring panels stay together: while one is computed, the next is fetched.
        let grain = (panels * row_parts / wanted).max(1);
        Self { panels, tiles, row_parts, grain }
    }

    fn items(&self) -> usize {
        self.panels * self.row_parts
    }

    fn item(&self, index: usize) -> (usize, Range<usize>) {
        let (panel, part) = (index / self.row_parts, index % self.row_parts);
        (panel, part * self.tiles / self.row_parts..(part + 1) * self.tiles / self.row_parts)
    }
}

impl Sink<'_> {
    /// Puts a finished tile of `rows` rows, starting at row `first`, in its place.
    ///
    /// # Safety
    /// No other thread may touch this panel's columns of these rows meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn put(&self, first: usize, rows: usize, tile: &mut TileOut) {
        for (row, values) in tile[..rows].iter_mut().enumerate() {
            if let Some(bias) = self.bias {
                for (value, b) in values.iter_mut().zip(bias) {
                    *value += b;
                }
            }
            let at = (first + row) * self.stride + self.column;
            match self.epilogue {
                // Whole panels as fixed-size arrays: a copy whose length is known needs no call.
                Epilogue::Store if self.outputs == PANEL => {
                    // SAFETY: exclusive by this function's contract.
                    let out = unsafe { self.data.array::<PANEL>(at) };
                    *out = *values;
                }
                Epilogue::Store => {
                    // SAFETY: exclusive by this function's contract.
                    let out = unsafe { self.data.slice(at, self.outputs) };
                    out.copy_from_slice(&values[..self.outputs]);
                }
                Epilogue::Add if self.outputs == PANEL => {
                    // SAFETY: exclusive by this function's contract.
                    let out = unsafe { self.data.array::<PANEL>(at) };
                    for (sum, value) in out.iter_mut().zip(values) {
                        *sum += *value;
                    }
                }
                Epilogue::Add => {
                    // SAFETY: exclusive by this function's contract.
                    let out = unsafe { self.data.slice(at, self.outputs) };
                    for (sum, value) in out.iter_mut().zip(values) {
                        *sum += *value;
                    }
                }
                Epilogue::Gate(activation) => {
                    // SAFETY: exclusive by this function's contract.
                    let out = unsafe { self.data.array::<{ PANEL / 2 }>(at) };
                    gate(values, activation, out);
                }
            }
        }
    }
}

#[inline(always)]
fn gate(values: &[f32; PANEL], activation: Activation, out: &mut [f32; PANEL / 2]) {
    let (gates, ups) = values.split_at(PANEL / 2);
    match activation {
        Activation::Silu => apply_gate(gates, ups, out, |x| Activation::Silu.apply(x)),
        Activation::GeluTanh => apply_gate(gates, ups, out, |x| Activation::GeluTanh.apply(x)),
        Activation::Gelu => apply_gate(gates, ups, out, |x| Activation::Gelu.apply(x)),
    }
}

#[inline(always)]
fn apply_gate(gates: &[f32], ups: &[f32], out: &mut [f32; PANEL / 2], f: impl Fn(f32) -> f32) {
    for ((out, &gate), &up) in out.iter_mut().zip(gates).zip(ups) {
        *out = f(gate) * up;
    }
}
