//! Matrix products. Single rows are bound by memory, so they cycle through enough matrices that none is still in
//! a cache when its turn comes again; larger batches use one matrix over and over.
//!
//! An operation is counted once, also where wide activations take two integer passes for it.

use ropeway_kernels::Compute;
use ropeway_kernels::activations::{Activations, Needs, Width};
use ropeway_kernels::matmul::{Epilogue, Output, Product, matmul};
use ropeway_kernels::packed::{AffineMatrix, AffineRow, FloatMatrix, Matrix};
use ropeway_kernels::pool::Pool;
use ropeway_kernels::prepare::{Before, Prepare, Rows, prepare};

use super::effort::{Effort, Shape, Weights};
use super::timing::{Measurement, Operations, Reading, Timing, Unit, repeat, rounds, seconds};

/// Runs all sizes of products with weights of one kind.
pub fn measure(compute: &mut Compute, weights: Weights, effort: &Effort) -> Vec<Measurement> {
    compute.reserve_cols(effort.shapes.iter().map(|shape| shape.inputs).max().unwrap_or(0));
    let stacks = Stacks::pack(compute.pool(), weights, effort);
    let mut all = Vec::new();
    for &width in widths(weights) {
        let series = Series { weights, width, effort, stacks: &stacks };
        all.extend(series.single_rows(compute));
        all.extend(series.batches(compute));
    }
    all
}

/// Float weights have no quantised activations that could be narrow or wide.
fn widths(weights: Weights) -> &'static [Width] {
    match weights {
        Weights::Affine(_) => &[Width::Narrow, Width::Mixed, Width::Wide],
        Weights::Float(_) => &[Width::Narrow],
    }
}

/// Matrices of one kind: for each shape of the effort, one or several.
struct Stacks(Vec<Vec<Matrix>>);

impl Stacks {
    /// Packs one matrix of each shape, then more of the smaller shapes until they fill the cycle.
    fn pack(pool: &mut Pool, weights: Weights, effort: &Effort) -> Self {
        let shapes = &effort.shapes;
        let mut stacks = Self(shapes.iter().map(|&shape| vec![pack(pool, shape, weights)]).collect());
        let sizes: Vec<_> = stacks.0.iter().map(|stack| stack[0].bytes()).collect();
        let largest = sizes.iter().copied().max().unwrap_or(0);
        let all_equal = sizes.iter().all(|&size| size == largest);
        while effort.cycle.is_some_and(|cycle| stacks.bytes() < cycle) {
            for (stack, &shape) in stacks.0.iter_mut().zip(shapes) {
                if all_equal || stack[0].bytes() < largest {
                    stack.push(pack(pool, shape, weights));
                }
            }
        }
        stacks
    }

    fn bytes(&self) -> usize {
        self.0.iter().flatten().map(Matrix::bytes).sum()
    }

    /// Every matrix once, with the index of its shape, as a forward pass would meet them.
    fn in_turn(&self) -> impl Iterator<Item = (usize, &Matrix)> {
        let most = self.0.iter().map(Vec::len).max().unwrap_or(0);
        let turn = move |copy: usize| {
            self.0.iter().enumerate().filter_map(move |(shape, stack)| Some((shape, stack.get(copy)?)))
        };
        (0..most).flat_map(turn)
    }
}

fn pack(pool: &mut Pool, shape: Shape, weights: Weights) -> Matrix {
    let size = (shape.outputs, shape.inputs);
    match weights {
        Weights::Affine(format) => {
            let top = 2 * format.zero_point() as usize;
            let fill = move |output: usize, row: &mut AffineRow| {
                for (input, quant) in row.quants.iter_mut().enumerate() {
                    *quant = ((output * 31 + input * 7) % top) as u8;
                }
                row.scales.fill(0.1);
                row.mins.fill(-0.4);
            };
            Matrix::Affine(AffineMatrix::pack(pool, size, format, 1.0, &fill))
        }
        Weights::Float(format) => {
            let fill = |output: usize, row: &mut [f32]| row.fill((output % 7) as f32 - 3.0);
            Matrix::Float(FloatMatrix::pack(pool, size, format, &fill))
        }
    }
}

/// Activations and the place for results.
struct Operands {
    rows: usize,
    input: Activations,
    out: Vec<f32>,
}

impl Operands {
    fn new(compute: &mut Compute, matrix: &Matrix, rows: usize, width: Width) -> Self {
        let cols = matrix.cols();
        let needs = matrix.needs().and(Needs { wide: width.has_lows(), ..Needs::default() });
        let mut input = Activations::with_capacity(rows, cols, needs);
        let source: Vec<f32> = (0..rows * cols).map(|i| (i as f32).sin()).collect();
        let what = Prepare {
            source: &source,
            stride: cols,
            cols,
            rows: Rows::First(rows),
            before: Before::Nothing,
            width,
        };
        prepare(compute, &what, &mut input);
        Self { rows, input, out: vec![0.0; rows * matrix.rows()] }
    }

    fn multiply(&mut self, compute: &mut Compute, matrix: &Matrix) {
        let product =
            Product { matrix, bias: None, input: &self.input, rows: self.rows, epilogue: Epilogue::Store };
        matmul(compute, &product, Output { data: &mut self.out, stride: matrix.rows(), column: 0 });
    }
}

/// All products of one kind of weights and activations.
struct Series<'a> {
    weights: Weights,
    width: Width,
    effort: &'a Effort,
    stacks: &'a Stacks,
}

impl Series<'_> {
    /// One row against every matrix in turn.
    fn single_rows(&self, compute: &mut Compute) -> Vec<Measurement> {
        if !self.effort.rows.contains(&1) {
            return Vec::new();
        }
        let stacks = &self.stacks.0;
        let mut operands: Vec<_> =
            stacks.iter().map(|stack| Operands::new(compute, &stack[0], 1, self.width)).collect();
        let mut round = || -> Vec<(usize, f64)> {
            let turn = self.stacks.in_turn();
            turn.map(|(shape, matrix)| (shape, seconds(|| operands[shape].multiply(compute, matrix))))
                .collect()
        };
        let runs = rounds(self.effort.budget * stacks.len() as u32, &mut round).concat();
        let of_shape = |shape| runs.iter().filter(|run| run.0 == shape).map(|run| run.1).collect();
        (0..stacks.len()).map(|shape| self.measurement(shape, 1, Timing::of(of_shape(shape)))).collect()
    }

    /// Several rows against the first matrix of each shape.
    fn batches(&self, compute: &mut Compute) -> Vec<Measurement> {
        let mut all = Vec::new();
        for (index, shape) in self.effort.shapes.iter().enumerate() {
            for &rows in self.effort.rows.iter().filter(|&&rows| rows > 1 && shape.takes(rows)) {
                let matrix = &self.stacks.0[index][0];
                let mut operands = Operands::new(compute, matrix, rows, self.width);
                let timing = repeat(self.effort.budget, || operands.multiply(compute, matrix));
                all.push(self.measurement(index, rows, timing));
            }
        }
        all
    }

    fn measurement(&self, shape: usize, rows: usize, timing: Timing) -> Measurement {
        let Shape { outputs, inputs } = self.effort.shapes[shape];
        let bytes = self.stacks.0[shape][0].bytes();
        let cycle = if rows == 1 { self.stacks.bytes() } else { bytes };
        Measurement {
            group: "matmul",
            kernel: self.name(),
            shape: format!("{outputs}x{inputs}"),
            rows,
            timing,
            operations: Some(Operations { count: 2.0 * (rows * outputs * inputs) as f64, unit: self.unit() }),
            reading: Reading { bytes, cycle },
        }
    }

    fn name(&self) -> String {
        let width = match (self.weights, self.width) {
            (Weights::Float(_), _) => "",
            (Weights::Affine(_), Width::Narrow) => " narrow",
            (Weights::Affine(_), Width::Mixed) => " mixed",
            (Weights::Affine(_), Width::Wide) => " wide",
        };
        format!("{}{width}", self.weights.name())
    }

    fn unit(&self) -> Unit {
        match self.weights {
            Weights::Affine(_) => Unit::IntDot,
            Weights::Float(_) => Unit::F32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_holds_as_many_bytes_as_asked_for() {
        let mut effort = Effort::quick();
        let small = Shape { outputs: 64, inputs: 32 };
        effort.shapes = vec![Shape { outputs: 32, inputs: 32 }, small];
        effort.cycle = Some(10_000);
        for shapes in [effort.shapes.clone(), vec![small], vec![small, small]] {
            effort.shapes = shapes;
            let stacks = Stacks::pack(&mut Pool::new(1), effort.weights[0], &effort);
            assert!(stacks.bytes() >= 10_000);
            assert_eq!(stacks.in_turn().count(), stacks.0.iter().map(Vec::len).sum::<usize>());
        }
    }
}
