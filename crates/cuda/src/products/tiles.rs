//! Tiles of the library beyond those that it proposes.
//!
//! A block computes one tile of results. The library proposes a few sizes for a shape, seldom those whose number fills the device in whole
//! waves: 28,672 outputs of 256 rows are 256 tiles of 224 x 128, 1.94 waves of an H200's 132 blocks, and are computed 4 % sooner than by the
//! best proposal. So the sizes that should be the fastest by counting are measured beside the proposals; should the library not know or not
//! accept one, it is left out.

use std::ops::RangeInclusive;

use crate::blas::{ProductShape, Tiling};

/// Rows for which it pays: with fewer, reading weights takes longer than multiplying, and with more, so many waves are needed that the last
/// one does not matter.
const ROWS: RangeInclusive<usize> = 129..=512;

/// Sizes that are proposed.
const PROPOSED: usize = 4;

/// Tiles of 128 and of 256 rows: the library's number for a size, and its outputs.
const OF_128: [(u32, usize); 21] = [
    (28, 96),
    (158, 104),
    (165, 112),
    (171, 120),
    (20, 128),
    (179, 136),
    (184, 144),
    (189, 152),
    (30, 160),
    (197, 168),
    (201, 176),
    (205, 184),
    (31, 192),
    (212, 200),
    (215, 208),
    (218, 216),
    (221, 224),
    (224, 232),
    (227, 240),
    (230, 248),
    (24, 256),
];
const OF_256: [(u32, usize); 15] = [
    (19, 64),
    (127, 72),
    (137, 80),
    (146, 88),
    (152, 96),
    (160, 104),
    (167, 112),
    (173, 120),
    (23, 128),
    (181, 136),
    (186, 144),
    (191, 152),
    (195, 160),
    (199, 168),
    (203, 176),
];

/// Values of a tile up to which two warpgroups compute a tile each (the library's option 0); of a larger one, each computes a half (4).
const OWN_TILE: usize = 22_528;
const OPTION_HALVES: u32 = 4;

/// The library's number for how many blocks share what they read, in outputs and rows, and the option that suits it: in which order blocks
/// take tiles.
const CLUSTERS: [(u16, u32); 3] = [(2, 0), (3, 0), (5, 2)];

/// What reading a row or an output of a tile costs, in values of it that could be computed instead: what was seen on an H200.
const EDGE: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tile {
    number: u32,
    outputs: usize,
    rows: usize,
}

impl Tile {
    fn values(self) -> usize {
        self.outputs * self.rows
    }

    /// How long a product takes: waves of tiles, and what each costs.
    fn cost(self, shape: &ProductShape, multiprocessors: usize) -> usize {
        let tiles = shape.n.div_ceil(self.outputs) * shape.rows.div_ceil(self.rows) * shape.slices;
        tiles.div_ceil(multiprocessors) * (self.values() + EDGE * (self.outputs + self.rows))
    }

    fn tilings(self) -> impl Iterator<Item = Tiling> {
        let whole = if self.values() <= OWN_TILE { 0 } else { OPTION_HALVES };
        CLUSTERS.into_iter().map(move |(cluster, order)| Tiling {
            tile: self.number,
            cluster,
            option: whole + order,
        })
    }
}

/// Tilings that should suit a product, the best first.
pub(super) fn suited(shape: &ProductShape, multiprocessors: usize) -> Vec<Tiling> {
    if !ROWS.contains(&shape.rows) {
        return Vec::new();
    }
    let of = |rows| move |(number, outputs)| Tile { number, outputs, rows };
    let mut tiles: Vec<Tile> =
        OF_128.into_iter().map(of(128)).chain(OF_256.into_iter().map(of(256))).collect();
    tiles.sort_by_key(|tile| tile.cost(shape, multiprocessors));
    tiles.into_iter().take(PROPOSED).flat_map(Tile::tilings).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Results;

    fn sizes(n: usize, rows: usize, slices: usize) -> Vec<u32> {
        let shape = ProductShape { n, rows, k: 4096, stride: 4096, slices, results: Results::Bf16 };
        let mut numbers: Vec<u32> = suited(&shape, 132).into_iter().map(|tiling| tiling.tile).collect();
        numbers.dedup();
        numbers
    }

    #[test]
    fn tiles_that_fill_the_device_in_whole_waves_come_first() {
        assert_eq!(sizes(28_672, 256, 1)[..2], [221, 167], "8B gate and up: 224 x 128 and 112 x 256");
        assert_eq!(sizes(4096, 256, 2)[0], 20, "8B down: 128 x 128");
        assert_eq!(sizes(6144, 256, 1)[0], 28, "8B qkv: 96 x 128");
    }

    #[test]
    fn few_and_many_rows_are_left_to_the_library() {
        let proposed = [128, 192, 512, 640].map(|rows| !sizes(28_672, rows, 1).is_empty());
        assert_eq!(proposed, [false, true, true, false]);
    }

    #[test]
    fn a_large_tile_is_computed_by_halves() {
        let options = |outputs, rows| -> Vec<u32> {
            Tile { number: 0, outputs, rows }.tilings().map(|tiling| tiling.option).collect()
        };
        assert_eq!(options(176, 128), [0, 0, 2]);
        assert_eq!(options(184, 128), [4, 4, 6]);
    }
}
