use ropeway_kernels::activations::*;
use ropeway_kernels::matmul::{Epilogue, Output, Product, matmul};
use ropeway_kernels::packed::*;
use ropeway_kernels::prepare::{Prepare, Rows, prepare};
use ropeway_kernels::{Compute, Isa};
use std::time::Instant;
fn main() {
    let isa = std::env::args().nth(1).map_or(Isa::best(), |n| Isa::named(&n).unwrap());
    let threads = std::env::args().nth(2).map_or(2, |n| n.parse().unwrap());
    let mut c = Compute::new(isa, threads);
    c.reserve_cols(4096);
    let l = ropeway_kernels::limits::measure(isa, c.pool());
    println!("{l:?}");
    for mins in [true, false] {
        for bits in [Bits::Four, Bits::Eight] {
            for (n, k) in [(960, 576), (576, 576), (3072, 576), (576, 1536), (49152, 576)] {
                let f = AffineFormat { bits, halves: false, mins };
                let m = Matrix::Affine(AffineMatrix::pack(c.pool(), (n, k), f, 1.0, &|n, r| {
                    r.quants.iter_mut().enumerate().for_each(|(k, q)| *q = ((n * 31 + k * 7) % 16) as u8);
                    r.scales.fill(0.1);
                    r.mins.fill(-0.4);
                }));
                let copies: usize = 1;
                for rows in [1, 4, 8, 32, 64, 512] {
                    if n > 10000 {
                        continue;
                    }
                    let x: Vec<f32> = (0..rows * k).map(|i| (i as f32).sin()).collect();
                    let mut a = Activations::with_capacity(
                        rows,
                        k,
                        Needs { records: true, wide: true, halves: false, floats: false },
                    );
                    let t = Instant::now();
                    let p = Prepare {
                        source: &x,
                        stride: k,
                        cols: k,
                        rows: Rows::First(rows),
                        norm: None,
                        width: if std::env::var_os("WIDE").is_some() { Width::Wide } else { Width::Narrow },
                    };
                    prepare(&mut c, &p, &mut a);
                    let t0 = Instant::now();
                    prepare(&mut c, &p, &mut a);
                    let tp = t0.elapsed().as_secs_f64();
                    let _ = (t, copies);
                    let mut out = vec![0.0; rows * n];
                    let mut best = f64::MAX;
                    for _ in 0..if rows > 100 { 40 } else { 200 } {
                        let t = Instant::now();
                        let p =
                            Product { matrix: &m, bias: None, input: &a, rows, epilogue: Epilogue::Store };
                        matmul(&mut c, &p, Output { data: &mut out, stride: n, column: 0 });
                        best = best.min(t.elapsed().as_secs_f64());
                    }
                    let ops = 2.0 * (rows * n * k) as f64;
                    println!(
                        "mins {mins} {bits:?} n {n} k {k} m {rows}: {:.1} us, {:.0} Gop/s = {:.1}% of dot, {:.1} GB/s; prepare {:.1} us",
                        best * 1e6,
                        ops / best / 1e9,
                        ops / best / 1e7 / l.int_dot_gops,
                        m.bytes() as f64 / best / 1e9,
                        tp * 1e6
                    );
                }
            }
        }
    }
}
