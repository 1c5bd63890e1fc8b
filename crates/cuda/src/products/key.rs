//! What a product is: its shape, its slices and what reads it.

use crate::blas::ProductShape;
use crate::plan::{Form, MatrixPlan, Results};
use crate::shape::{LEAST_ROWS, RowClass};

/// What decides how a product is computed, besides the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProductKey {
    pub(super) outputs: usize,
    pub(super) inputs: usize,
    pub(super) slices: usize,
    pub(super) results: Results,
    pub(super) form: Form,
    pub(super) class: RowClass,
    /// Whether its reader adds up slices ([`Products::results`](super::Products::results)).
    pub(super) branch: bool,
}

impl ProductKey {
    /// The product of a matrix with rows of a class.
    pub fn new(matrix: &MatrixPlan, class: RowClass) -> Self {
        let MatrixPlan { role, outputs, inputs, slices, results, form, .. } = *matrix;
        Self { outputs, inputs, slices, results, form, class, branch: role.is_branch() }
    }

    /// The product of a matrix that is computed in one piece, with results in f32.
    pub fn plain([outputs, inputs]: [usize; 2], class: RowClass) -> Self {
        Self { outputs, inputs, slices: 1, results: Results::F32, form: Form::Bf16, class, branch: false }
    }

    /// The same product with as many rows as it was measured with.
    pub(super) fn measured(self) -> Self {
        Self { class: self.class.measured(), ..self }
    }

    pub(super) fn name(&self) -> String {
        let Self { outputs, inputs, slices, results, form, class, branch } = self;
        let branch = if *branch { ", a branch" } else { "" };
        let form = match form {
            Form::Bf16 => String::new(),
            Form::Packed(form) => format!(", {} bits in groups of {}", form.width(), form.group.len()),
        };
        format!("{outputs}x{inputs}{form} in {slices}, {results:?}{branch}, {} rows", class.rows())
    }

    /// What the library computes: at least as many rows as are compared.
    pub(super) fn shape(&self) -> ProductShape {
        ProductShape {
            n: self.outputs,
            rows: self.class.rows().max(LEAST_ROWS),
            k: self.inputs,
            stride: self.inputs,
            slices: 1,
            results: self.results,
        }
    }

    /// One slice, where all of them have one length: an algorithm is asked for a shape.
    pub(super) fn slice_shape(&self) -> Option<ProductShape> {
        let (_, k) = self.slice(0);
        let even = (0..self.slices).all(|index| self.slice(index).1 == k);
        even.then_some(ProductShape { k, ..self.shape() })
    }

    /// All slices at once, where they have one length and a reader that adds them up.
    pub(super) fn batched_shape(&self) -> Option<ProductShape> {
        let slice = self.slice_shape().filter(|_| self.branch && self.slices > 1)?;
        Some(ProductShape { slices: self.slices, ..slice })
    }

    /// Values of the results of one slice.
    pub(super) fn slice_values(&self) -> usize {
        self.shape().rows * self.outputs
    }

    /// Bytes of the results of all slices.
    pub(super) fn partial_bytes(&self) -> usize {
        self.slices * self.slice_values() * self.results.bytes()
    }

    /// Inputs of a slice: where it begins, and how many; cut between blocks of 64 as `linear.cu` does.
    pub(super) fn slice(&self, index: usize) -> (usize, usize) {
        let blocks = self.inputs.div_ceil(64);
        let cut = |index: usize| (index * blocks / self.slices * 64).min(self.inputs);
        (cut(index), cut(index + 1) - cut(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blas::Scratch;
    use crate::driver::Address;
    use crate::plan::MatrixRole;

    #[test]
    fn slices_cover_the_inputs_between_blocks_of_64() {
        let (results, form, class) = (Results::F32, Form::Bf16, RowClass::of(8));
        let key = ProductKey { outputs: 8, inputs: 8960, slices: 4, results, form, class, branch: true };
        assert_eq!(
            (0..4).map(|index| key.slice(index)).collect::<Vec<_>>(),
            [(0, 2240), (2240, 2240), (4480, 2240), (6720, 2240)]
        );
        let uneven = ProductKey { inputs: 64 * 5, slices: 2, ..key };
        assert_eq!([uneven.slice(0), uneven.slice(1)], [(0, 128), (128, 192)]);
        assert_eq!([key, uneven].map(|key| key.slice_shape().map(|shape| shape.k)), [Some(2240), None]);
    }

    #[test]
    fn slices_lie_side_by_side_only_where_their_reader_adds_them_up_and_in_their_own_room() {
        let matrix = |role, slices| MatrixPlan {
            role,
            outputs: 4096,
            inputs: 4096,
            copies: 1,
            slices,
            results: Results::F32,
            form: Form::Bf16,
        };
        let shape = |role, slices| ProductKey::new(&matrix(role, slices), RowClass::of(1)).batched_shape();
        for role in [MatrixRole::Output(0), MatrixRole::Down(0)] {
            assert_eq!(shape(role, 2).map(|shape| (shape.slices, shape.k)), Some((2, 2048)));
            assert_eq!(shape(role, 1), None, "a whole one has nothing beside it");
        }
        assert_eq!([MatrixRole::Qkv(0), MatrixRole::Head].map(|role| shape(role, 2)), [None; 2]);
        let bytes = ProductKey::new(&matrix(MatrixRole::Down(0), 2), RowClass::of(1)).partial_bytes();
        assert_eq!(bytes, 2 * LEAST_ROWS * 4096 * 4);
        let scratch = Scratch { address: Address(4096), bytes: bytes + 512 };
        let (first, rest) = scratch.split(bytes).expect("there is room");
        assert_eq!((first, rest.address, rest.bytes), (Address(4096), Address(4096).plus(bytes), 512));
        assert!(scratch.split(bytes + 1024).is_none());
    }
}
