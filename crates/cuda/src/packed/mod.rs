//! Matrices kept as small integers on the device: which form a matrix has, how its rows become records, and the kernels that read
//! them. `kernels/packed.cuh` draws the layout.
//!
//! ```text
//! file's tensors ── form ──> PackedForm of each matrix ── strip, upload ──> records and strips' scales on the device ── kernels
//! ```
//! A weight is `bf16(scale * quant + min)`: 8-bit quants with factors of 11 bits, 4-bit ones with a scale and a middle (the weight of a quant
//! of 8) in bf16. Everything that reads a matrix sees these same weights, so a packed product has the bits of a plain one over the
//! unpacked matrix.

mod form;
mod kernels;
mod strip;
mod upload;
mod warpgroups;

pub(crate) use self::form::choose_forms;
pub use self::form::{PackedForm, RECORD_INPUTS, STRIP};
pub use self::kernels::{EmbedPacked, PackedKernels, Unpack, packed_source};
pub use self::strip::Strip;
pub(crate) use self::upload::{Packing, randomise};
pub(crate) use self::warpgroups::has_wgmma;
pub use self::warpgroups::warpgroups_source;
