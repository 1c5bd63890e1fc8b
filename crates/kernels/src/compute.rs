//! What an operation runs on: the pool, the instruction set, and each worker's scratch.

#![allow(unsafe_code, reason = "hands each worker its own scratch")]

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::isa::Isa;
use crate::matmul;
use crate::memory::{Buffer, SharedMut};
use crate::pool::Pool;
use crate::vectorise::vectorised;

/// Pool, instruction set and per-worker scratch; everything an operation needs besides its operands.
pub struct Compute {
    isa: Isa,
    pool: Pool,
    /// One part per worker.
    scratch: Buffer<u8>,
    scratch_bytes: usize,
}

impl Compute {
    /// A pool of `threads` workers, all of them active.
    pub fn new(isa: Isa, threads: usize) -> Self {
        let pool = Pool::new(threads);
        Self { isa, pool, scratch: Buffer::zeroed(0), scratch_bytes: 0 }
    }

    /// Makes sure that products over inputs this long find their scratch.
    pub fn reserve_cols(&mut self, cols: usize) {
        self.reserve_scratch(matmul::scratch_bytes(cols));
    }

    /// Makes sure that every worker has at least this many bytes.
    pub fn reserve_scratch(&mut self, bytes: usize) {
        let bytes = bytes.next_multiple_of(4096);
        if bytes > self.scratch_bytes {
            self.scratch = Buffer::zeroed(bytes * self.pool.threads());
            self.scratch_bytes = bytes;
        }
    }

    /// Its instruction set.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Bytes of scratch that every worker has.
    pub fn scratch_bytes(&self) -> usize {
        self.scratch_bytes
    }

    /// Workers that the next operation runs on.
    pub fn threads(&self) -> usize {
        self.pool.active()
    }

    /// Workers that there are.
    pub fn most_threads(&self) -> usize {
        self.pool.threads()
    }

    /// Has the operations from now on run on the first `threads` workers only. Results do not depend on it.
    pub fn set_threads(&mut self, threads: usize) {
        self.pool.set_active(threads);
    }

    /// The pool itself.
    pub fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// Calls `job` with ranges that cover `0..items`, each with the scratch of the worker it runs on.
    pub fn for_each(&mut self, items: usize, grain: usize, job: &(dyn Fn(Range<usize>, &mut [u8]) + Sync)) {
        let grain = grain.max(1);
        let bytes = self.scratch_bytes;
        let scratch = self.scratch.shared();
        if items <= grain {
            // SAFETY: only the caller runs, and `self` is borrowed for the whole call.
            return job(0..items, unsafe { scratch.slice(0, bytes) });
        }
        let next = AtomicUsize::new(0);
        self.pool.run(&|worker| {
            // SAFETY: worker indices are distinct, so their parts are disjoint.
            let mine = unsafe { scratch.slice(worker * bytes, bytes) };
            loop {
                let start = next.fetch_add(grain, Ordering::Relaxed);
                if start >= items {
                    break;
                }
                job(start..(start + grain).min(items), mine);
            }
        });
    }

    /// Calls `job` once for every row of `data`, compiled for the instruction set where `job` can be inlined.
    pub fn for_each_row(
        &mut self,
        data: &mut [f32],
        width: usize,
        job: &(impl Fn(usize, &mut [f32]) + Sync),
    ) {
        let isa = self.isa;
        let rows = data.len() / width.max(1);
        let shared = SharedMut::of(data);
        let grain = rows.div_ceil(self.threads() * 4);
        self.for_each(rows, grain, &|range, _| {
            vectorised(isa, || {
                for row in range {
                    // SAFETY: each row is visited once.
                    job(row, unsafe { shared.slice(row * width, width) });
                }
            });
        });
    }

    /// `results[row] = job(row, its values, state)` for every row, each on whichever worker is free, with that worker's
    /// own state. For rows that cost enough to be handed out one by one.
    ///
    /// # Panics
    /// If there are fewer states than workers, or fewer values than results ask for.
    pub fn map_rows<R: Send, S: Send>(
        &mut self,
        rows: RowsInto<'_, R>,
        states: &mut [S],
        job: &(impl Fn(usize, &mut [f32], &mut S) -> R + Sync),
    ) {
        assert!(states.len() >= self.threads(), "a state per worker");
        let RowsInto { data, width, results } = rows;
        let count = results.len();
        let (data, results) = (SharedMut::of(data), SharedMut::of(results));
        let states = SharedMut::of(states);
        let next = AtomicUsize::new(0);
        let work = |worker: usize| {
            // SAFETY: worker indices are distinct, and `states` is borrowed for the whole call.
            let [state] = unsafe { states.array(worker) };
            loop {
                let row = next.fetch_add(1, Ordering::Relaxed);
                if row >= count {
                    break;
                }
                // SAFETY: each row is handed out once, and both arrays are borrowed for the whole call.
                let (values, [result]) = unsafe { (data.slice(row * width, width), results.array(row)) };
                *result = job(row, values, state);
            }
        };
        if count == 1 { work(0) } else { self.pool.run(&work) }
    }
}

/// Whoever lends a [`Compute`] to a forward pass, layer by layer. It may change how many workers take part, and may let
/// others compute between two layers.
pub trait ComputeSource {
    /// What the current operations run on.
    fn compute(&mut self) -> &mut Compute;

    /// Called before every layer.
    fn start_layer(&mut self) {}
}

impl ComputeSource for Compute {
    fn compute(&mut self) -> &mut Compute {
        self
    }
}

/// Rows of numbers, and the place of each row's result.
pub struct RowsInto<'a, R> {
    /// `[row][width]`, at least as many rows as results.
    pub data: &'a mut [f32],
    /// Numbers in a row.
    pub width: usize,
    /// One per row.
    pub results: &'a mut [R],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_gives_its_own_result_with_a_state_of_its_worker() {
        for threads in [1, 2, 3] {
            let mut compute = Compute::new(Isa::reference(), threads);
            for count in [0, 1, 2, 50] {
                let mut data: Vec<f32> = (0..count * 4).map(|i| i as f32).collect();
                let mut results = vec![String::new(); count];
                let mut seen = vec![Vec::new(); threads];
                let rows = RowsInto { data: &mut data, width: 4, results: &mut results };
                compute.set_threads(1 + count % threads);
                compute.map_rows(rows, &mut seen, &|row, values, seen: &mut Vec<usize>| {
                    seen.push(row);
                    values[0] += 0.5;
                    format!("{row}: {}", values[0])
                });
                for (row, result) in results.iter().enumerate() {
                    assert_eq!(*result, format!("{row}: {}.5", row * 4));
                }
                let mut all = seen.concat();
                all.sort_unstable();
                assert_eq!(all, (0..count).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    #[should_panic(expected = "outside the array")]
    fn results_without_values_are_refused() {
        let rows = RowsInto { data: &mut [0.0; 7], width: 4, results: &mut [0; 2] };
        Compute::new(Isa::reference(), 1).map_rows(rows, &mut [()], &|row, _, ()| row);
    }
}
