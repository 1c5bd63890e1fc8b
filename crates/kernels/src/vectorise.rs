//! Compiles plain loops for the chosen instruction set: the same source, wider registers.
//!
//! For loops that are not worth a kernel of their own, here and in crates above (sampling). Results are the same bits on
//! every instruction set: the compiler neither reorders float additions nor fuses a product into a sum.

#![allow(unsafe_code, reason = "enters functions that enable instruction sets")]

use crate::isa::{Isa, Level};

/// A loop that [`vectorised`] compiles once per instruction set.
///
/// A closure is one too, but the compiler inlines only small ones; a large one stays a function of its own, compiled for
/// the oldest CPU. A type with an `#[inline(always)]` [`run`](Self::run) is always inlined.
pub trait Loop {
    /// What it computes.
    type Output;

    /// Runs it. It must be `#[inline(always)]`, and so must everything it calls that is to profit.
    fn run(self) -> Self::Output;
}

impl<F: FnOnce() -> R, R> Loop for F {
    type Output = R;

    #[inline(always)]
    fn run(self) -> R {
        self()
    }
}

/// Runs `work` as compiled for `isa`. Whatever stops inlining (`catch_unwind`, `dyn`) belongs outside.
#[inline(always)]
pub fn vectorised<L: Loop>(isa: Isa, work: L) -> L::Output {
    match isa.level() {
        Level::Reference | Level::Portable => work.run(),
        // SAFETY: an `Isa` of this level exists only where the CPU has it.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { avx2(work) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512Vnni => unsafe { avx512(work) },
        #[cfg(not(target_arch = "x86_64"))]
        Level::Avx2 | Level::Avx512Vnni => work.run(),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn avx2<L: Loop>(work: L) -> L::Output {
    work.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c,fma")]
fn avx512<L: Loop>(work: L) -> L::Output {
    work.run()
}
