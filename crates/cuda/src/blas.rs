//! cuBLASLt: the one place that calls it.
//!
//! A product is `y[row][n] = sum over k of w[n][k] * x[row][k]`. In the library's column order, `w` is the transposed operand A, `x` is B
//! and `y` is D.

#![allow(unsafe_code, reason = "cuBLASLt is a C library")]

use std::ffi::{c_int, c_void};

use crate::driver::{Address, Stream, functions};
use crate::error::CudaError;
use crate::libraries::Opened;
use crate::plan::Results;

type Handle = *mut c_void;

functions! {
    /// What is used of cuBLASLt.
    Api {
        version = "cublasLtGetVersion"();
        create = "cublasLtCreate"(*mut Handle);
        destroy = "cublasLtDestroy"(Handle);
        description_create = "cublasLtMatmulDescCreate"(*mut Handle, c_int, c_int);
        description_destroy = "cublasLtMatmulDescDestroy"(Handle);
        description_set = "cublasLtMatmulDescSetAttribute"(Handle, c_int, *const c_void, usize);
        layout_create = "cublasLtMatrixLayoutCreate"(*mut Handle, c_int, u64, u64, i64);
        layout_set = "cublasLtMatrixLayoutSetAttribute"(Handle, c_int, *const c_void, usize);
        layout_destroy = "cublasLtMatrixLayoutDestroy"(Handle);
        preference_create = "cublasLtMatmulPreferenceCreate"(*mut Handle);
        preference_destroy = "cublasLtMatmulPreferenceDestroy"(Handle);
        preference_set = "cublasLtMatmulPreferenceSetAttribute"(Handle, c_int, *const c_void, usize);
        heuristic = "cublasLtMatmulAlgoGetHeuristic"(Handle, Handle, Handle, Handle, Handle, Handle, Handle, c_int, *mut Found, *mut c_int);
        algorithm_check = "cublasLtMatmulAlgoCheck"(Handle, Handle, Handle, Handle, Handle, Handle, *const Algorithm, *mut Found);
        algorithm_set = "cublasLtMatmulAlgoConfigSetAttribute"(*mut Algorithm, c_int, *const c_void, usize);
        algorithm_get = "cublasLtMatmulAlgoConfigGetAttribute"(*const Algorithm, c_int, *mut c_void, usize, *mut usize);
        multiply = "cublasLtMatmul"(
            Handle, Handle, *const f32, u64, Handle, u64, Handle, *const f32, u64, Handle, u64, Handle, *const Algorithm, u64, usize, Handle
        );
    }
}

/// Constants of the library's interface.
const COMPUTE_32F: c_int = 68;
const TYPE_F32: c_int = 0;
const TYPE_BF16: c_int = 14;
const DESCRIPTION_TRANSPOSE_A: c_int = 3;
const OPERATION_TRANSPOSE: c_int = 1;
const LAYOUT_BATCH: c_int = 5;
const LAYOUT_BATCH_STRIDE: c_int = 6;
const PREFERENCE_WORKSPACE: c_int = 1;
const PREFERENCE_REDUCTION: c_int = 3;
const REDUCTION_NONE: u32 = 0;
const REDUCTION_COMPUTE_TYPE: u32 = 2;
const ALGORITHM_TILE: c_int = 1;
const ALGORITHM_SPLITS: c_int = 2;
const ALGORITHM_REDUCTION: c_int = 3;
const ALGORITHM_OPTION: c_int = 5;
const ALGORITHM_CLUSTER: c_int = 8;

/// Algorithms that are asked for: more where most will be turned down.
const REQUESTED: usize = 16;
const REQUESTED_WITH_SPLITS: usize = 32;

/// How a product is computed, as the library writes it down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Algorithm(pub [u64; 8]);

/// How the library cuts a product into tiles, in its own numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    /// The size of a tile.
    pub tile: u32,
    /// How many blocks share what they read.
    pub cluster: u16,
    /// A variant of the kernel.
    pub option: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Found {
    algorithm: Algorithm,
    workspace: usize,
    status: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

impl Found {
    const NONE: Found =
        Found { algorithm: Algorithm([0; 8]), workspace: 0, status: 0, waves: 0.0, reserved: [0; 4] };
}

/// How often a product's inputs are split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Splits {
    /// Not at all.
    None,
    /// Exactly so often, added in f32.
    Exactly(usize),
}

/// The shape of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProductShape {
    /// Outputs.
    pub n: usize,
    /// Rows.
    pub rows: usize,
    /// Inputs.
    pub k: usize,
    /// Inputs of a whole row of `w` and `x`, of which `k` may be a slice.
    pub stride: usize,
    /// Slices of `k` inputs each that are computed at once, one behind the other in `w` and `x`; the results of each follow those of the
    /// one before.
    pub slices: usize,
    /// The form of results.
    pub results: Results,
}

/// The operands of a product.
#[derive(Clone, Copy, Debug)]
pub struct Operands {
    /// Weights.
    pub w: Address,
    /// Rows.
    pub x: Address,
    /// Results.
    pub y: Address,
}

/// Memory that the library may use.
#[derive(Clone, Copy, Debug)]
pub struct Scratch {
    /// Where.
    pub address: Address,
    /// How much.
    pub bytes: usize,
}

impl Scratch {
    /// The first so many bytes, and the rest, if there is some.
    pub fn split(self, bytes: usize) -> Option<(Address, Scratch)> {
        let bytes = bytes.next_multiple_of(256);
        let rest = self.bytes.checked_sub(bytes).filter(|rest| *rest > 0)?;
        Some((self.address, Scratch { address: self.address.plus(bytes), bytes: rest }))
    }
}

/// The library, opened.
pub struct Blas {
    api: Api,
    handle: Handle,
}

// SAFETY: the library may be called from any thread; the handle is a name.
unsafe impl Send for Blas {}

impl Drop for Blas {
    fn drop(&mut self) {
        // SAFETY: created by `new`.
        unsafe { (self.api.destroy)(self.handle) };
    }
}

impl Blas {
    /// Prepares the library for the current device.
    pub fn new(library: Opened) -> Result<Self, CudaError> {
        let api = Api::load(library)?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        check("cublasLtCreate", unsafe { (api.create)(&raw mut handle) })?;
        Ok(Self { api, handle })
    }

    /// Its version, for keys of caches.
    pub fn version(&self) -> i32 {
        // SAFETY: takes nothing; the version fits the lower half of what it returns.
        unsafe { (self.api.version)() }
    }

    /// The library's names for a shape.
    pub fn product(&self, shape: ProductShape) -> Result<Product<'_>, CudaError> {
        let mut product =
            Product { blas: self, description: std::ptr::null_mut(), layouts: [std::ptr::null_mut(); 3] };
        let results = match shape.results {
            Results::F32 => TYPE_F32,
            Results::Bf16 => TYPE_BF16,
        };
        let (n, rows, k, stride) = (shape.n as u64, shape.rows as u64, shape.k as u64, shape.stride as i64);
        let [w, x, y] = &mut product.layouts;
        // SAFETY: pointers are to fields of `product`, whose drop destroys what was created.
        unsafe {
            check(
                "cublasLtMatmulDescCreate",
                (self.api.description_create)(&raw mut product.description, COMPUTE_32F, TYPE_F32),
            )?;
            let operation = OPERATION_TRANSPOSE;
            let transpose = (&raw const operation).cast();
            check(
                "cublasLtMatmulDescSetAttribute",
                (self.api.description_set)(product.description, DESCRIPTION_TRANSPOSE_A, transpose, 4),
            )?;
            check("cublasLtMatrixLayoutCreate", (self.api.layout_create)(w, TYPE_BF16, k, n, stride))?;
            check("cublasLtMatrixLayoutCreate", (self.api.layout_create)(x, TYPE_BF16, k, rows, stride))?;
            check("cublasLtMatrixLayoutCreate", (self.api.layout_create)(y, results, n, rows, n as i64))?;
        }
        if shape.slices > 1 {
            let strides = [shape.k, shape.k, shape.n * shape.rows];
            for (layout, stride) in product.layouts.into_iter().zip(strides) {
                self.set_slices(layout, shape.slices, stride)?;
            }
        }
        Ok(product)
    }

    /// Tells a layout that it stands for several matrices, so many values apart.
    fn set_slices(&self, layout: Handle, slices: usize, stride: usize) -> Result<(), CudaError> {
        let (count, stride) = (slices as i32, stride as i64);
        // SAFETY: pointers are to locals of the sizes given.
        unsafe {
            let set = self.api.layout_set;
            check(
                "cublasLtMatrixLayoutSetAttribute",
                set(layout, LAYOUT_BATCH, (&raw const count).cast(), 4),
            )?;
            let stride = (&raw const stride).cast();
            check("cublasLtMatrixLayoutSetAttribute", set(layout, LAYOUT_BATCH_STRIDE, stride, 8))
        }
    }
}

/// A shape as the library knows it.
pub struct Product<'a> {
    blas: &'a Blas,
    description: Handle,
    layouts: [Handle; 3],
}

impl Drop for Product<'_> {
    fn drop(&mut self) {
        // SAFETY: each was created by `Blas::product` or is null, which the library ignores.
        unsafe {
            for layout in self.layouts.iter().filter(|layout| !layout.is_null()) {
                (self.blas.api.layout_destroy)(*layout);
            }
            if !self.description.is_null() {
                (self.blas.api.description_destroy)(self.description);
            }
        }
    }
}

impl Product<'_> {
    /// What the library would use, its favourite first.
    pub fn algorithms(&self, splits: Splits, workspace: usize) -> Result<Vec<Algorithm>, CudaError> {
        let (reduction, asked) = match splits {
            Splits::None => (REDUCTION_NONE, REQUESTED),
            Splits::Exactly(_) => (REDUCTION_COMPUTE_TYPE, REQUESTED_WITH_SPLITS),
        };
        let found = self.heuristic(reduction, asked, workspace)?;
        Ok(match splits {
            Splits::None => found.into_iter().filter(|algorithm| self.splits_of(algorithm) <= 1).collect(),
            Splits::Exactly(count) => {
                let mut pinned: Vec<Algorithm> = found
                    .into_iter()
                    .filter_map(|algorithm| self.pinned(algorithm, count, workspace))
                    .collect();
                pinned.dedup();
                pinned
            }
        })
    }

    fn heuristic(&self, reduction: u32, asked: usize, workspace: usize) -> Result<Vec<Algorithm>, CudaError> {
        let (api, [w, x, y]) = (&self.blas.api, self.layouts);
        let mut preference = std::ptr::null_mut();
        let (mut found, mut count) = (vec![Found::NONE; asked], 0);
        let bytes = workspace as u64;
        // SAFETY: pointers are to locals of the sizes given; the preference is destroyed below.
        unsafe {
            check("cublasLtMatmulPreferenceCreate", (api.preference_create)(&raw mut preference))?;
            (api.preference_set)(preference, PREFERENCE_WORKSPACE, (&raw const bytes).cast(), 8);
            (api.preference_set)(preference, PREFERENCE_REDUCTION, (&raw const reduction).cast(), 4);
            let status = (api.heuristic)(
                self.blas.handle,
                self.description,
                w,
                x,
                y,
                y,
                preference,
                asked as c_int,
                found.as_mut_ptr(),
                &raw mut count,
            );
            (api.preference_destroy)(preference);
            // No algorithm at all is an answer, not an error.
            found.truncate(if status == 0 { count.max(0) as usize } else { 0 });
        }
        Ok(found.into_iter().filter(|found| found.status == 0).map(|found| found.algorithm).collect())
    }

    fn splits_of(&self, algorithm: &Algorithm) -> u32 {
        let (mut splits, mut written) = (0u32, 0);
        // SAFETY: pointers are to locals of the sizes given.
        unsafe {
            let to = (&raw mut splits).cast();
            (self.blas.api.algorithm_get)(algorithm, ALGORITHM_SPLITS, to, 4, &raw mut written);
        }
        splits
    }

    /// The algorithm told to split so often, if it can.
    fn pinned(&self, algorithm: Algorithm, count: usize, workspace: usize) -> Option<Algorithm> {
        let (splits, reduction) = ((count as u32).to_ne_bytes(), REDUCTION_COMPUTE_TYPE.to_ne_bytes());
        self.changed(algorithm, &[(ALGORITHM_SPLITS, &splits), (ALGORITHM_REDUCTION, &reduction)], workspace)
    }

    /// The algorithm with other tiles, if it has them.
    pub fn tiled(&self, algorithm: Algorithm, tiling: Tiling, workspace: usize) -> Option<Algorithm> {
        let Tiling { tile, cluster, option } = tiling;
        let (tile, cluster, option) = (tile.to_ne_bytes(), cluster.to_ne_bytes(), option.to_ne_bytes());
        let changes: [(c_int, &[u8]); 3] =
            [(ALGORITHM_TILE, &tile), (ALGORITHM_CLUSTER, &cluster), (ALGORITHM_OPTION, &option)];
        self.changed(algorithm, &changes, workspace)
    }

    /// The algorithm with other settings, if it can compute this product with them.
    fn changed(
        &self,
        mut algorithm: Algorithm,
        changes: &[(c_int, &[u8])],
        workspace: usize,
    ) -> Option<Algorithm> {
        let (api, [w, x, y]) = (&self.blas.api, self.layouts);
        let mut checked = Found::NONE;
        // SAFETY: pointers are to values of the sizes given.
        let fits = unsafe {
            changes.iter().all(|(setting, value)| {
                (api.algorithm_set)(&raw mut algorithm, *setting, value.as_ptr().cast(), value.len()) == 0
            }) && (api.algorithm_check)(
                self.blas.handle,
                self.description,
                w,
                x,
                y,
                y,
                &raw const algorithm,
                &raw mut checked,
            ) == 0
        };
        (fits && checked.workspace <= workspace).then_some(algorithm)
    }

    /// Queues the product; with `add`, results are added to what `y` holds.
    pub fn run(
        &self,
        stream: &Stream,
        algorithm: &Algorithm,
        operands: Operands,
        scratch: Scratch,
        add: bool,
    ) -> Result<(), CudaError> {
        let [w, x, y] = self.layouts;
        let (one, beta) = (1f32, if add { 1f32 } else { 0f32 });
        // SAFETY: scalars are read before the call returns; device addresses are the business of the device.
        let status = unsafe {
            (self.blas.api.multiply)(
                self.blas.handle,
                self.description,
                &raw const one,
                operands.w.0,
                w,
                operands.x.0,
                x,
                &raw const beta,
                operands.y.0,
                y,
                operands.y.0,
                y,
                algorithm,
                scratch.address.0,
                scratch.bytes,
                stream.handle(),
            )
        };
        check("cublasLtMatmul", status)
    }
}

fn check(call: &'static str, status: c_int) -> Result<(), CudaError> {
    if status == 0 { Ok(()) } else { Err(CudaError::Products { call, status }) }
}
