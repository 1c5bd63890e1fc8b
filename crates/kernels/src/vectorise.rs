//! Compiles plain loops for the chosen instruction set: the same source, wider registers.

#![allow(unsafe_code, reason = "enters functions that enable instruction sets")]

use crate::isa::{Isa, Level};

/// Runs `f` as compiled for `isa`. What `f` calls must be `#[inline(always)]` to profit.
#[inline(always)]
pub(crate) fn vectorised<R>(isa: Isa, f: impl FnOnce() -> R) -> R {
    match isa.level() {
        Level::Reference | Level::Portable => f(),
        // SAFETY: an `Isa` of this level exists only where the CPU has it.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { avx2(f) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512Vnni => unsafe { avx512(f) },
        #[cfg(not(target_arch = "x86_64"))]
        Level::Avx2 | Level::Avx512Vnni => f(),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn avx2<R>(f: impl FnOnce() -> R) -> R {
    f()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c,fma")]
fn avx512<R>(f: impl FnOnce() -> R) -> R {
    f()
}
