//! The residual stream on the emulator: slices of a product that lie side by side are added up as if they had been before.

mod emulator;

use emulator::bench::{Bench, Random};
use ropeway_cuda::driver::{Address, Buffer, LaunchShape};
use ropeway_cuda::kernels::Residual;

/// Values of a row: a warp takes it, or many warps do.
const WIDTHS: [usize; 2] = [64, 4096];
const ROWS: usize = 5;
const EPS: f32 = 1e-5;

/// What a row's branch is: slices, and what is done to it.
struct Branch<'a> {
    slices: &'a Buffer,
    count: usize,
    bias: Address,
    post: Address,
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// The residual stream after a branch is added, and its norm: their bytes.
fn added(bench: &Bench, hidden: &[f32], weight: &Buffer, branch: &Branch<'_>) -> [Vec<u8>; 2] {
    let values = hidden.len();
    let hidden = bench.upload(&bytes(hidden));
    let out = bench.allocate(values * 2);
    let arguments = Residual {
        hidden: hidden.address(),
        branch: branch.slices.address(),
        bias: branch.bias,
        post: branch.post,
        weight: weight.address(),
        out: out.address(),
        width: (values / ROWS) as u32,
        slices: branch.count as u32,
        fours: (values / 4) as u32,
        eps: EPS,
    };
    let shape =
        LaunchShape { grid: [ROWS as u32, 1, 1], threads: bench.kernels.row_threads, shared_bytes: 0 };
    bench.stream.launch(&bench.kernels.residual, shape, &arguments).expect("a launch");
    [bench.download(&hidden), bench.download(&out)]
}

#[test]
fn slices_side_by_side_are_added_in_order_before_anything_else() {
    WIDTHS.into_iter().for_each(check);
}

fn check(width: usize) {
    let Some(bench) = Bench::for_rows_of(width) else { return };
    let mut random = Random(7);
    let mut numbers = |count: usize| -> Vec<f32> { (0..count).map(|_| random.unit()).collect() };
    let (bias, post, weight) = (numbers(width), numbers(width), bench.upload(&bytes(&numbers(width))));
    let (bias, post) = (bench.upload(&bytes(&bias)), bench.upload(&bytes(&post)));
    for count in 1..=4 {
        let (hidden, slices) = (numbers(ROWS * width), numbers(count * ROWS * width));
        let sums: Vec<f32> = (0..ROWS * width)
            .map(|at| slices.iter().skip(at).step_by(ROWS * width).copied().reduce(|sum, more| sum + more))
            .map(Option::unwrap_or_default)
            .collect();
        let (slices, sums) = (bench.upload(&bytes(&slices)), bench.upload(&bytes(&sums)));
        for (bias, post) in [
            (Address::NULL, Address::NULL),
            (bias.address(), Address::NULL),
            (bias.address(), post.address()),
        ] {
            let beside = Branch { slices: &slices, count, bias, post };
            let whole = Branch { slices: &sums, count: 1, bias, post };
            let got = added(&bench, &hidden, &weight, &beside);
            assert_eq!(got, added(&bench, &hidden, &weight, &whole), "{count} slices");
        }
    }
}
