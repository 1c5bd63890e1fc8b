//! The largest quants against the largest activations: integer sums must neither saturate nor wrap, whatever
//! narrow registers an instruction set adds them in. All numbers here are chosen so that the exact result is known.

use ropeway_kernels::activations::{Activations, Needs, Width};
use ropeway_kernels::matmul::{Epilogue, Output, Product, matmul};
use ropeway_kernels::packed::{AffineFormat, AffineMatrix, Bits, Matrix};
use ropeway_kernels::prepare::{Before, Prepare, Rows, prepare};
use ropeway_kernels::{Compute, Isa};

const OUTPUTS: usize = 40;
const COLS: usize = 96;
const ROWS: usize = 8;
/// Exact in the packed form, like the scales, which are 1.
const MIN: f32 = -3.0;

/// Output `n` of every four: all at the top, all zero, and the two alternations.
fn quant(n: usize, k: usize, top: u8) -> u8 {
    [top, 0, top * u8::from(k.is_multiple_of(2)), top * u8::from(k % 2 == 1)][n % 4]
}

/// Rows of largest magnitude: all up, all down, and alternations of one input and of two. Each group holds a
/// 127, so that a narrow quant is the value itself; halves need a wide one.
fn activation(row: usize, k: usize, width: Width) -> f32 {
    let size = if width == Width::Wide && !k.is_multiple_of(32) { 126.5 } else { 127.0 };
    let down = [false, true, k % 2 == 1, k / 2 % 2 == 1][row % 4];
    if down { -size } else { size }
}

fn all_formats() -> Vec<AffineFormat> {
    let mut all = Vec::new();
    for bits in [Bits::Four, Bits::Eight] {
        for (halves, mins) in [(false, false), (false, true), (true, false), (true, true)] {
            all.push(AffineFormat { bits, halves, mins });
        }
    }
    all
}

fn top(format: AffineFormat) -> u8 {
    if format.bits == Bits::Four { 15 } else { 255 }
}

fn matrix(compute: &mut Compute, format: AffineFormat) -> Matrix {
    Matrix::Affine(AffineMatrix::pack(compute.pool(), (OUTPUTS, COLS), format, MIN.abs(), &|n, row| {
        for (k, slot) in row.quants.iter_mut().enumerate() {
            *slot = quant(n, k, top(format));
        }
        row.scales.fill(1.0);
        row.mins.fill(MIN);
    }))
}

fn run(compute: &mut Compute, matrix: &Matrix, rows: usize, width: Width) -> Vec<f32> {
    compute.reserve_cols(COLS);
    let x: Vec<f32> = (0..rows * COLS).map(|i| activation(i / COLS, i % COLS, width)).collect();
    let needs = Needs { wide: true, ..matrix.needs() };
    let mut input = Activations::with_capacity(rows, COLS, needs);
    let what = Prepare {
        source: &x,
        stride: COLS,
        cols: COLS,
        rows: Rows::First(rows),
        before: Before::Nothing,
        width,
    };
    prepare(compute, &what, &mut input);
    let mut out = vec![0.0; rows * OUTPUTS];
    let product = Product { matrix, bias: None, input: &input, rows, epilogue: Epilogue::Store };
    matmul(compute, &product, Output { data: &mut out, stride: OUTPUTS, column: 0 });
    out
}

fn expected(format: AffineFormat, width: Width, row: usize, n: usize) -> f64 {
    let offset = if format.mins { MIN } else { -format.zero_point() };
    let weight = |k| f64::from(f32::from(quant(n, k, top(format))) + offset);
    (0..COLS).map(|k| weight(k) * f64::from(activation(row, k, width))).sum()
}

#[test]
fn extreme_quants_times_extreme_activations_are_exact_on_every_instruction_set() {
    for isa in Isa::available() {
        let mut compute = Compute::new(isa, 2);
        for format in all_formats() {
            let matrix = matrix(&mut compute, format);
            for (rows, width) in
                [(1, Width::Narrow), (ROWS, Width::Narrow), (1, Width::Wide), (ROWS, Width::Wide)]
            {
                let got = run(&mut compute, &matrix, rows, width);
                for (i, &value) in got.iter().enumerate() {
                    let want = expected(format, width, i / OUTPUTS, i % OUTPUTS);
                    // Narrow sums fit the 24 bits of f32; wide ones are rounded there, and only there.
                    let error = if width == Width::Narrow { 0.0 } else { 1.0 };
                    let found = f64::from(value);
                    assert!(
                        (found - want).abs() <= error,
                        "{isa} {format:?} {width:?} {i}: {found} for {want}"
                    );
                }
            }
        }
    }
}
