//! Which ways of a product give the bits of our own kernel: rows at several places are compared with it.

use super::tune::randomise_input;
use super::{Bench, Launch, ProductKey, Products, Recipe, Wanted, usual_kernel};
use crate::blas::{Blas, Operands};
use crate::driver::{Address, Stream};
use crate::error::CudaError;
use crate::shape::{LEAST_ROWS, RowClass};

/// Rows that are compared at each place.
const COMPARED_ROWS: usize = LEAST_ROWS;

impl Products {
    /// Those ways that give the reference's bits, in the given order.
    pub(super) fn matching(
        &self,
        blas: &Blas,
        bench: &Bench<'_>,
        wanted: &Wanted,
        recipes: Vec<Recipe>,
    ) -> Result<Vec<Recipe>, CudaError> {
        let key = wanted.key;
        randomise_input(bench, wanted)?;
        let right = self.reference(bench, wanted)?;
        let mut same = Vec::new();
        for recipe in recipes {
            self.forget_rows(bench, wanted)?;
            if self.by_recipe(blas, bench.launch(wanted, 0), &recipe).is_err() {
                continue;
            }
            if self.read_rows(bench, wanted, &recipe)? != right {
                tracing::debug!(product = key.name(), ?recipe, "a way with other bits is left out");
                continue;
            }
            same.push(recipe);
        }
        Ok(same)
    }

    /// The reference's rows at all places.
    fn reference(&self, bench: &Bench<'_>, wanted: &Wanted) -> Result<Vec<u8>, CudaError> {
        let key = ProductKey { class: RowClass::of(COMPARED_ROWS), ..wanted.key };
        let kernel = usual_kernel(bench.kernels, key);
        let bytes = compared_rows(wanted.key) * key.outputs * key.results.bytes();
        let launch = bench.launch(wanted, 0);
        let mut rows = Vec::new();
        for (index, place) in compared_places(wanted.key).into_iter().enumerate() {
            let x = launch.operands.x.plus(place * key.inputs * 2);
            let y = launch.operands.y.plus(index * bytes);
            self.own(Launch { key, operands: Operands { x, y, ..launch.operands }, ..launch }, kernel)?;
            rows.push(y);
        }
        download(bench.stream, &rows, bytes)
    }

    /// Fills results and slices with NaN, so that rows which an algorithm does not write are not taken for right.
    fn forget_rows(&self, bench: &Bench<'_>, wanted: &Wanted) -> Result<(), CudaError> {
        let bytes = wanted.key.slice_values() * wanted.key.results.bytes();
        bench.stream.memset(wanted.output, 0xff, bytes)?;
        let partial = wanted.key.partial_bytes().min(self.scratch.bytes);
        Ok(bench.stream.memset(self.scratch.address, 0xff, partial)?)
    }

    /// The results' rows at all places.
    fn read_rows(&self, bench: &Bench<'_>, wanted: &Wanted, recipe: &Recipe) -> Result<Vec<u8>, CudaError> {
        let key = wanted.key;
        let bytes = compared_rows(key) * key.outputs * key.results.bytes();
        let at_places = |array: Address| -> Vec<Address> {
            let at = |place| array.plus(place * key.outputs * key.results.bytes());
            compared_places(key).into_iter().map(at).collect()
        };
        if !matches!(recipe, Recipe::Batched(_)) {
            return download(bench.stream, &at_places(wanted.output), bytes);
        }
        let slice = |index: usize| -> Result<Vec<f32>, CudaError> {
            let array = self.scratch.address.plus(index * key.slice_values() * 4);
            Ok(floats(&download(bench.stream, &at_places(array), bytes)?))
        };
        let first = slice(0)?;
        let sums = (1..key.slices).try_fold(first, |sums: Vec<f32>, index| {
            Ok::<_, CudaError>(sums.iter().zip(slice(index)?).map(|(sum, more)| sum + more).collect())
        })?;
        Ok(sums.iter().flat_map(|sum| sum.to_le_bytes()).collect())
    }
}

/// Rows that are compared at each place.
fn compared_rows(key: ProductKey) -> usize {
    key.class.rows().min(COMPARED_ROWS)
}

/// Where rows are compared: the first, some in the middle, where another tile may begin, and the last.
fn compared_places(key: ProductKey) -> Vec<usize> {
    let rows = key.class.rows();
    let mut places = vec![0, rows / 2 / COMPARED_ROWS * COMPARED_ROWS, rows.saturating_sub(COMPARED_ROWS)];
    places.dedup();
    places
}

/// So many bytes from each of these places.
fn download(stream: &Stream, places: &[Address], bytes: usize) -> Result<Vec<u8>, CudaError> {
    let mut pinned = stream.device().allocate_pinned(places.len() * bytes)?;
    for (index, from) in places.iter().enumerate() {
        stream.download_at(&mut pinned, index * bytes, *from, bytes)?;
    }
    stream.synchronize()?;
    Ok(pinned.bytes()[..places.len() * bytes].to_vec())
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_every_tile_of_128_are_compared_where_there_are_two_of_them() {
        let of = |rows| {
            let key = ProductKey::plain([64, 64], RowClass::of(rows));
            (compared_places(key), compared_rows(key))
        };
        assert_eq!(of(1), (vec![0], 1));
        assert_eq!(of(8), (vec![0], 8));
        assert_eq!(of(16), (vec![0, 8], 8));
        assert_eq!(of(192), (vec![0, 96, 184], 8));
        assert_eq!(of(256), (vec![0, 128, 248], 8));
    }
}
