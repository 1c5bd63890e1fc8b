//! Packed products by themselves: every kernel bit for bit, and its speed, at the shapes of an 8B model.

use ropeway_cuda::packed::PackedForm;
use ropeway_cuda::plan::{Results, packed_slices};
use ropeway_cuda::products::trial::{Prepared, ProductBench, ProductCase};
use ropeway_model::Quantize;

use crate::{Failed, Task};

/// A matrix of the model.
struct Matrix {
    name: &'static str,
    outputs: usize,
    inputs: usize,
    results: Results,
}

const MATRICES: [Matrix; 5] = [
    Matrix { name: "gate_up", outputs: 28_672, inputs: 4096, results: Results::Bf16 },
    Matrix { name: "down", outputs: 4096, inputs: 14_336, results: Results::F32 },
    Matrix { name: "qkv", outputs: 6144, inputs: 4096, results: Results::F32 },
    Matrix { name: "output", outputs: 4096, inputs: 4096, results: Results::F32 },
    Matrix { name: "head", outputs: 128_256, inputs: 4096, results: Results::F32 },
];

const ROWS: [usize; 7] = [1, 8, 16, 32, 64, 128, 256];

/// How often results are compared: what depends on the order of warps shows up in some runs only.
const ROUNDS: usize = 3;

pub fn check(task: &Task) -> Result<(), Failed> {
    let both = [Quantize::Q4, Quantize::Q8];
    let wanted = both.into_iter().filter(|one| task.options.quantize.is_none_or(|only| only == *one));
    let forms: Vec<PackedForm> = wanted.map(PackedForm::quantized).collect();
    let laboratory = ProductBench::open(&task.options, &forms)?;
    for form in forms {
        for matrix in &MATRICES {
            ROWS.into_iter().try_for_each(|rows| compare(&laboratory, form, matrix, rows))?;
        }
    }
    Ok(())
}

/// Compares and measures the kernels that may be the fastest.
fn compare(laboratory: &ProductBench, form: PackedForm, matrix: &Matrix, rows: usize) -> Result<(), Failed> {
    let Matrix { outputs, inputs, results, .. } = *matrix;
    let slices = packed_slices([outputs, inputs], results);
    let trial = ProductCase { form, outputs, inputs, slices, results, rows };
    let prepared = laboratory.prepare(trial)?;
    let reference = laboratory.kernels(form).next().expect("every form has kernels");
    let expected = prepared.results(reference)?;
    let name = format!("{} bits, {} with {rows} rows", form.width(), matrix.name);
    for kernel in laboratory.kernels(form).filter(|kernel| kernel.suits(rows)) {
        for _ in 0..ROUNDS {
            if prepared.results(kernel)? != expected {
                return Err(Failed::Wrong(format!("{name}: {} gives other bits", kernel.name)));
            }
        }
        report(&prepared, &name, kernel.name, prepared.microseconds(kernel)?);
    }
    Ok(())
}

fn report(prepared: &Prepared<'_>, name: &str, kernel: &str, microseconds: f64) {
    let speed = prepared.bytes() as f64 / microseconds / 1e3;
    println!("RES product {name}: {kernel}: {microseconds:.1} us, {speed:.0} GB/s of weights");
}
