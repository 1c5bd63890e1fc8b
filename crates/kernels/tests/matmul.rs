//! Every instruction set against the reference, and a row alone against the same row in a batch.

use ropeway_kernels::activations::{Activations, Needs, Width};
use ropeway_kernels::elementwise::Activation;
use ropeway_kernels::matmul::{Epilogue, Output, Product, matmul};
use ropeway_kernels::packed::{AffineFormat, AffineMatrix, Bits, FloatFormat, FloatMatrix, Matrix};
use ropeway_kernels::prepare::{Before, Prepare, Rows, prepare};
use ropeway_kernels::{Compute, Isa};

/// Deterministic values in -1..1.
fn noise(seed: usize) -> f32 {
    let mut x = (seed as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03;
    x = (x ^ (x >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    ((x >> 40) as f32 / (1u64 << 23) as f32) - 1.0
}

fn affine_formats() -> Vec<AffineFormat> {
    let mut all = Vec::new();
    for bits in [Bits::Four, Bits::Eight] {
        for (halves, mins) in [(false, false), (false, true), (true, false), (true, true)] {
            all.push(AffineFormat { bits, halves, mins });
        }
    }
    all
}

fn matrices(compute: &mut Compute, rows: usize, cols: usize) -> Vec<(String, Matrix)> {
    let mut all = Vec::new();
    for format in affine_formats() {
        let top = if format.bits == Bits::Four { 16.0 } else { 256.0 };
        let matrix = AffineMatrix::pack(compute.pool(), (rows, cols), format, 1.0, &|n, row| {
            for k in 0..cols {
                row.quants[k] = ((noise(n * cols + k) * 0.5 + 0.5) * top) as u8;
            }
            for g in 0..cols.div_ceil(32) * format.parts() {
                row.scales[g] = (noise(n * 7919 + g).abs() + 0.1) / top;
                row.mins[g] = noise(n * 104_729 + g) * 0.5;
            }
        });
        all.push((format!("{format:?}"), Matrix::Affine(matrix)));
    }
    for format in [FloatFormat::F32, FloatFormat::F16, FloatFormat::Bf16] {
        let matrix = FloatMatrix::pack(compute.pool(), (rows, cols), format, &|n, row| {
            row.iter_mut().enumerate().for_each(|(k, w)| *w = noise(n * cols + k));
        });
        all.push((format!("{format:?}"), Matrix::Float(matrix)));
    }
    all
}

fn input(rows: usize, cols: usize) -> Vec<f32> {
    (0..rows * cols).map(|i| noise(i + 17) * (1.0 + (i % 5) as f32)).collect()
}

struct Case<'a> {
    matrix: &'a Matrix,
    x: &'a [f32],
    rows: usize,
    width: Width,
    epilogue: Epilogue,
    bias: Option<&'a [f32]>,
}

const WIDTHS: [Width; 3] = [Width::Narrow, Width::Mixed, Width::Wide];

fn run(compute: &mut Compute, case: &Case<'_>) -> Vec<f32> {
    let (n, cols) = (case.matrix.rows(), case.matrix.cols());
    compute.reserve_cols(cols);
    let mut activations = Activations::with_capacity(
        case.rows,
        cols,
        Needs { records: true, wide: true, halves: true, floats: true },
    );
    let what = Prepare {
        source: case.x,
        stride: cols,
        cols,
        rows: Rows::First(case.rows),
        before: Before::Nothing,
        width: case.width,
    };
    prepare(compute, &what, &mut activations);
    let stride = n.next_multiple_of(32);
    let mut out: Vec<f32> = (0..case.rows * stride).map(|i| noise(i + 5)).collect();
    let product = Product {
        matrix: case.matrix,
        bias: case.bias,
        input: &activations,
        rows: case.rows,
        epilogue: case.epilogue,
    };
    matmul(compute, &product, Output { data: &mut out, stride, column: 0 });
    out
}

fn assert_close(got: &[f32], want: &[f32], cols: usize, what: &str) {
    // Sums of `cols` products of size about 2: f32 rounding in a different order.
    let tolerance = 1e-6 * cols as f32 * 4.0;
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!((g - w).abs() <= tolerance + 2e-6 * w.abs(), "{what} at {i}: {g} instead of {w}");
    }
}

#[test]
fn every_instruction_set_agrees_with_the_reference() {
    let mut reference = Compute::new(Isa::reference(), 1);
    for (n, cols) in [(32, 32), (45, 96), (96, 160), (70, 576)] {
        let bias: Vec<f32> = (0..n).map(|i| noise(i + 900)).collect();
        for (name, matrix) in matrices(&mut reference, n, cols) {
            for rows in [1, 2, 3, 5, 6, 7, 13, 40] {
                let x = input(rows, cols);
                for (epilogue, bias, width) in [
                    (Epilogue::Store, None, Width::Narrow),
                    (Epilogue::Store, Some(&bias[..]), Width::Wide),
                    (Epilogue::Add, None, Width::Narrow),
                    (Epilogue::Add, None, Width::Mixed),
                    (Epilogue::Gate(Activation::Silu), None, Width::Narrow),
                ] {
                    let case = Case { matrix: &matrix, x: &x, rows, width, epilogue, bias };
                    let want = run(&mut reference, &case);
                    for isa in Isa::available() {
                        let got = run(&mut Compute::new(isa, 2), &case);
                        assert_close(&got, &want, cols, &format!("{isa} {name} {rows}x{cols}x{n}"));
                    }
                }
            }
        }
    }
}

#[test]
fn a_row_is_bit_for_bit_the_same_alone_and_in_any_batch() {
    for isa in Isa::available() {
        let mut one = Compute::new(isa, 1);
        let mut many = Compute::new(isa, 4);
        for (index, (name, matrix)) in matrices(&mut one, 70, 160).into_iter().enumerate() {
            let mut x = input(50, 160);
            // A large value in every third row: tiles of mixed width then hold groups with and without low bytes.
            x.iter_mut().skip(40).step_by(3 * 160).for_each(|value| *value = 30.0);
            for width in WIDTHS {
                let case =
                    |x, rows| Case { matrix: &matrix, x, rows, width, epilogue: Epilogue::Store, bias: None };
                many.set_threads(1 + (index + width as usize) % 4);
                let whole = run(&mut many, &case(&x, 50));
                for row in [0, 5, 6, 31, 49] {
                    let alone = run(&mut one, &case(&x[row * 160..(row + 1) * 160], 1));
                    for n in 0..70 {
                        let (a, b) = (alone[n].to_bits(), whole[row * 96 + n].to_bits());
                        assert_eq!(a, b, "{isa} {name} {width:?} row {row} output {n}");
                    }
                }
            }
        }
    }
}

#[test]
fn products_equal_plain_dot_products_within_their_rounding() {
    let mut compute = Compute::new(Isa::best(), 2);
    let (n, cols, rows) = (40, 64, 9);
    let x = input(rows, cols);
    for (name, matrix) in matrices(&mut compute, n, cols) {
        let mut weights = vec![0.0; cols];
        for width in WIDTHS {
            let case = Case { matrix: &matrix, x: &x, rows, width, epilogue: Epilogue::Store, bias: None };
            let got = run(&mut compute, &case);
            let narrow = matches!(matrix, Matrix::Affine(_)) && width != Width::Wide;
            for output in 0..n {
                matrix.read_row(output, &mut weights);
                for row in 0..rows {
                    let want: f32 = (0..cols).map(|k| x[row * cols + k] * weights[k]).sum();
                    // 8-bit activations: error of a dot product grows with the square root of its length.
                    let tolerance = if narrow { 0.5 } else { 2e-3 };
                    let value = got[row * 64 + output];
                    assert!((value - want).abs() < tolerance, "{name}: {value} instead of {want}");
                }
            }
        }
    }
}
