//! Matrices as TMA (Hopper and later) knows them.

#![allow(unsafe_code, reason = "the driver is a C library")]

use std::ffi::{c_int, c_uint};

use super::{Address, Device, DriverError};

/// Constants of the driver's interface.
const TYPE_BF16: c_int = 9;
const NOT_INTERLEAVED: c_int = 0;
const SWIZZLE_128_BYTES: c_int = 3;
const PROMOTE_256_BYTES: c_int = 3;
const ZEROS_OUTSIDE: c_int = 0;

/// Columns of a box: 128 bytes, as wide as a panel in shared memory (`kernels/hopper.cuh`).
const BOX_COLUMNS: c_uint = 64;

/// A matrix of bf16 in device memory: rows without gaps between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// Where it begins.
    pub address: Address,
    /// Values of a row.
    pub columns: usize,
    /// How many there are.
    pub rows: usize,
    /// Rows that are copied at once.
    pub box_rows: usize,
}

/// A matrix described for TMA, in the driver's own words; a part of a kernel's arguments.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct TensorMap([u64; 16]);

impl TensorMap {
    /// Stands where a kernel does not look at it.
    pub const NONE: Self = Self([0; 16]);
}

impl Device {
    /// Describes a matrix.
    pub fn tensor_map(&self, matrix: Matrix) -> Result<TensorMap, DriverError> {
        let Matrix { address, columns, rows, box_rows } = matrix;
        let mut map = TensorMap::NONE;
        debug_assert!(i32::try_from(rows).is_ok(), "TMA counts rows in 31 bits");
        let (sizes, strides) = ([columns as u64, rows as u64], [columns as u64 * 2]);
        let (boxes, steps) = ([BOX_COLUMNS, box_rows as c_uint], [1; 2]);
        // SAFETY: pointers are to locals, with as many entries as the rank says, one less of strides; the map is aligned as the driver asks.
        let status = unsafe {
            (self.api().tensor_encode)(
                (&raw mut map).cast(),
                TYPE_BF16,
                sizes.len() as c_uint,
                address.0,
                sizes.as_ptr(),
                strides.as_ptr(),
                boxes.as_ptr(),
                steps.as_ptr(),
                NOT_INTERLEAVED,
                SWIZZLE_128_BYTES,
                PROMOTE_256_BYTES,
                ZEROS_OUTSIDE,
            )
        };
        self.check("cuTensorMapEncodeTiled", status)?;
        Ok(map)
    }
}
