//! What this machine can do at most, measured: the yardsticks every kernel is held against.

#![allow(unsafe_code, reason = "vector intrinsics in a closed loop")]

use std::hint::black_box;
use std::time::Instant;

use crate::isa::{Isa, Level};
use crate::memory::Buffer;
use crate::pool::Pool;

/// Measured limits of all workers together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Billions of 8-bit multiply and add operations a second (two per product).
    pub int_dot_gops: f64,
    /// Billions of f32 multiply and add operations a second.
    pub f32_gflops: f64,
    /// Billions of bytes read from memory a second.
    pub read_gb_s: f64,
}

/// Rounds of each measurement; the best one counts, since others only lose time to neighbours.
const ROUNDS: usize = 25;
/// Buffer read per round: far beyond any cache.
const READ_BYTES: usize = 256 << 20;

/// Measures all three, in about a second.
pub fn measure(isa: Isa, pool: &mut Pool) -> Limits {
    Limits {
        int_dot_gops: best(pool, |pool| rate(pool, &|| int_dot(isa))) / 1e9,
        f32_gflops: best(pool, |pool| rate(pool, &|| float_fma(isa))) / 1e9,
        read_gb_s: read_rate(pool) / 1e9,
    }
}

fn best(pool: &mut Pool, mut round: impl FnMut(&mut Pool) -> f64) -> f64 {
    (0..ROUNDS).map(|_| round(pool)).fold(0.0, f64::max)
}

/// Operations a second of all workers running `work`, which returns how many it did.
fn rate(pool: &mut Pool, work: &(dyn Fn() -> f64 + Sync)) -> f64 {
    let start = Instant::now();
    pool.run(&|_| {
        black_box(work());
    });
    let wall = start.elapsed().as_secs_f64();
    work() * pool.threads() as f64 / wall
}

fn read_rate(pool: &mut Pool) -> f64 {
    let mut buffer = Buffer::<u64>::zeroed(READ_BYTES / 8);
    buffer.fill(1);
    let data = &buffer[..];
    let pieces = 256;
    let len = data.len() / pieces;
    best(pool, |pool| {
        let start = Instant::now();
        pool.for_each(pieces, 1, &|range| {
            for piece in range {
                black_box(sum(&data[piece * len..(piece + 1) * len]));
            }
        });
        READ_BYTES as f64 / start.elapsed().as_secs_f64()
    })
}

fn sum(words: &[u64]) -> u64 {
    let mut lanes = [0u64; 32];
    for chunk in words.as_chunks::<32>().0 {
        for (lane, word) in lanes.iter_mut().zip(chunk) {
            *lane = lane.wrapping_add(*word);
        }
    }
    lanes.iter().fold(0, |a, &b| a.wrapping_add(b))
}

/// Iterations of the register-only loops: about 1 ms, short enough to fall between two time slices.
const SPINS: usize = 200_000;

fn int_dot(isa: Isa) -> f64 {
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level proves the instruction set.
        Level::Avx512Vnni => unsafe { x86::int_dot_avx512() },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level proves the instruction set.
        Level::Avx2 => unsafe { x86::int_dot_avx2() },
        _ => plain_int_dot(),
    }
}

fn float_fma(isa: Isa) -> f64 {
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level proves the instruction set.
        Level::Avx512Vnni => unsafe { x86::float_fma_avx512() },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level proves the instruction set.
        Level::Avx2 => unsafe { x86::float_fma_avx2() },
        _ => plain_float(),
    }
}

/// Products and sums in 16 bits, the densest that plain loops compile to: widening is rare enough to leave out.
fn plain_int_dot() -> f64 {
    let mut sums = [0i16; 64];
    let factors = black_box([3i16; 64]);
    let mut x = black_box(5i16);
    for _ in 0..SPINS / 8 {
        for (sum, factor) in sums.iter_mut().zip(&factors) {
            *sum = sum.wrapping_add(factor.wrapping_mul(x));
        }
        // Changes in a way that no closed formula replaces.
        x = x.rotate_left(1);
    }
    black_box(sums);
    (SPINS / 8 * 64 * 2) as f64
}

fn plain_float() -> f64 {
    let mut lanes = [0f32; 64];
    let factor = black_box([0.5f32; 64]);
    for _ in 0..SPINS / 8 {
        for (lane, f) in lanes.iter_mut().zip(&factor) {
            *lane = *lane * f + 1.0;
        }
    }
    black_box(lanes);
    (SPINS / 8 * 64 * 2) as f64
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use std::hint::black_box;

    use super::SPINS;

    /// Independent chains: enough to cover the latency of two units.
    const CHAINS: usize = 12;

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub fn int_dot_avx512() -> f64 {
        let mut sums = [_mm512_setzero_si512(); CHAINS];
        let (a, b) = (black_box(_mm512_set1_epi8(3)), black_box(_mm512_set1_epi8(1)));
        for _ in 0..SPINS {
            for sum in &mut sums {
                *sum = _mm512_dpbusd_epi32(*sum, a, b);
            }
        }
        black_box(sums);
        (SPINS * CHAINS * 128) as f64
    }

    /// Pairs of products added up in 16 bits; a kernel widens them once per many, so that is left out.
    #[target_feature(enable = "avx2")]
    pub fn int_dot_avx2() -> f64 {
        let mut sums = [_mm256_setzero_si256(); CHAINS];
        let weights = black_box([_mm256_set1_epi8(1); CHAINS]);
        let (mut x, step) = (black_box(_mm256_set1_epi8(3)), black_box(_mm256_set1_epi8(1)));
        for _ in 0..SPINS {
            for (sum, weight) in sums.iter_mut().zip(&weights) {
                *sum = _mm256_add_epi16(*sum, _mm256_maddubs_epi16(x, *weight));
            }
            // Keeps the products from being computed once for all turns; one operation in 25.
            x = _mm256_xor_si256(x, step);
        }
        black_box(sums);
        (SPINS * CHAINS * 64) as f64
    }

    #[target_feature(enable = "avx512f")]
    pub fn float_fma_avx512() -> f64 {
        let mut sums = [_mm512_setzero_ps(); CHAINS];
        let (a, b) = (black_box(_mm512_set1_ps(0.5)), black_box(_mm512_set1_ps(1.0)));
        for _ in 0..SPINS {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(a, b, *sum);
            }
        }
        black_box(sums);
        (SPINS * CHAINS * 32) as f64
    }

    #[target_feature(enable = "avx2,fma")]
    pub fn float_fma_avx2() -> f64 {
        let mut sums = [_mm256_setzero_ps(); CHAINS];
        let (a, b) = (black_box(_mm256_set1_ps(0.5)), black_box(_mm256_set1_ps(1.0)));
        for _ in 0..SPINS {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(a, b, *sum);
            }
        }
        black_box(sums);
        (SPINS * CHAINS * 16) as f64
    }
}
