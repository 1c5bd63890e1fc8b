//! The tokens that filters leave over.
//!
//! Filters need the likeliest few of a large vocabulary in order, and only those. Selection therefore goes by ranks in
//! stretches of growing length, and stops at the stretch that completes the mass; with top-p or min-p alone, tokens far
//! below the likeliest are not even collected unless the mass turns out to need them.

use ropeway_executor::SamplingParams;
use ropeway_kernels::Isa;

use super::row::{Row, highest, passing};

/// How far below the likeliest token (in natural logarithms of weight) candidates are collected for top-p, until their
/// mass is enough. Weights there are 2 %, 0.03 % and 0.00001 % of the likeliest's: a confident model needs a handful of
/// tokens, a usual one a few hundred, and hardly any row the whole vocabulary.
const DEPTHS: [f32; 4] = [4.0, 8.0, 16.0, f32::INFINITY];

/// Room for rounding when a threshold on weights is turned into one on exponents.
const SLACK: f32 = 1e-3;

/// Tokens that are passed over together when the highest of them is too low.
const PIECE: usize = 64;

/// First stretch of an ordered selection; most distributions complete a usual top-p within it.
const FIRST_STRETCH: usize = 64;

/// Whether any filter would remove a token.
pub(super) fn filters(params: &SamplingParams, vocab: usize) -> bool {
    let top_k = (1..vocab).contains(&(params.top_k as usize));
    top_k || params.typical_p < 1.0 || params.top_p < 1.0 || params.min_p > 0.0
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Candidate {
    id: u32,
    weight: f32,
    /// Larger is preferred; the lower id among equals.
    rank: f32,
}

impl Candidate {
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        other.rank.total_cmp(&self.rank).then(self.id.cmp(&other.id))
    }
}

/// Tokens still in the running, and the mass that their shares refer to.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    list: Vec<Candidate>,
    /// The mass of the list, and of tokens that no filter could keep and that were therefore not collected.
    total: f64,
}

impl Candidates {
    /// Collects candidates and applies the filters in their order.
    pub(super) fn filter(&mut self, row: &Row<'_>, params: &SamplingParams) {
        self.collect(row, params);
        if params.typical_p < 1.0 {
            self.keep_typical(row, f64::from(params.typical_p));
        }
        if params.top_p < 1.0 {
            self.keep_mass(f64::from(params.top_p) * self.total);
        }
        if params.min_p > 0.0 {
            self.keep_near_best(params.min_p.min(1.0));
        }
    }

    /// The candidate at which the weights, added up in the list's order, pass `share` of their mass.
    pub(super) fn draw(&self, share: f64) -> u32 {
        let weights = self.list.iter().map(|candidate| candidate.weight);
        self.list[passing(weights, share * self.mass()) as usize].id
    }

    /// The `count` largest logits with their tokens, best first.
    pub(super) fn largest(
        &mut self,
        isa: Isa,
        logits: &[f32],
        count: usize,
    ) -> impl Iterator<Item = (u32, f32)> {
        self.collect_largest(isa, logits, count, |_| 0.0);
        self.list.iter().map(|candidate| (candidate.id, candidate.rank))
    }

    fn collect(&mut self, row: &Row<'_>, params: &SamplingParams) {
        let top_k = params.top_k as usize;
        if (1..row.logits.len()).contains(&top_k) {
            self.collect_largest(row.isa, row.logits, top_k, |logit| row.weight(logit));
            self.total = self.mass();
        } else if params.typical_p < 1.0 {
            self.collect_above(row, f32::NEG_INFINITY);
            self.total = self.mass();
        } else if params.min_p > 0.0 {
            // What min-p removes after top-p, top-p need not see.
            self.collect_above(row, params.min_p.min(1.0).ln() - SLACK);
            self.total = if params.top_p < 1.0 { row.mass() } else { 0.0 };
        } else {
            self.total = row.mass();
            for depth in DEPTHS {
                self.collect_above(row, -depth);
                if self.mass() >= f64::from(params.top_p) * self.total {
                    break;
                }
            }
        }
    }

    /// Tokens whose exponent is above `floor`, by id.
    fn collect_above(&mut self, row: &Row<'_>, floor: f32) {
        self.list.clear();
        for (index, piece) in row.logits.chunks(PIECE).enumerate() {
            if row.exponent(highest(row.isa, piece)) <= floor {
                continue;
            }
            for (within, &logit) in piece.iter().enumerate() {
                if row.exponent(logit) > floor {
                    let id = (index * PIECE + within) as u32;
                    self.list.push(Candidate { id, weight: row.weight(logit), rank: logit });
                }
            }
        }
    }

    /// The `count` largest logits above minus infinity, best first: one pass with a rising floor.
    fn collect_largest(&mut self, isa: Isa, logits: &[f32], count: usize, weight: impl Fn(f32) -> f32) {
        self.list.clear();
        if count == 0 {
            return;
        }
        let mut floor = f32::NEG_INFINITY;
        for (index, piece) in logits.chunks(PIECE).enumerate() {
            if highest(isa, piece) <= floor {
                continue;
            }
            for (within, &logit) in piece.iter().enumerate() {
                if logit <= floor {
                    continue;
                }
                let id = (index * PIECE + within) as u32;
                self.list.push(Candidate { id, weight: weight(logit), rank: logit });
                if self.list.len() == 2 * count {
                    self.list.select_nth_unstable_by(count - 1, Candidate::order);
                    self.list.truncate(count);
                    floor = self.list[count - 1].rank;
                }
            }
        }
        self.list.sort_unstable_by(Candidate::order);
        self.list.truncate(count);
    }

    /// Locally typical sampling: ranks by how close a token's surprise is to the expected surprise.
    fn keep_typical(&mut self, row: &Row<'_>, share: f64) {
        let (total, log_total) = (self.total, self.total.ln());
        let surprise =
            |candidate: &Candidate| log_total - f64::from(row.exponent(row.logits[candidate.id as usize]));
        let expected = |candidate: &Candidate| f64::from(candidate.weight) / total * surprise(candidate);
        let entropy: f64 = self.list.iter().filter(|candidate| candidate.weight > 0.0).map(expected).sum();
        for candidate in &mut self.list {
            candidate.rank = -(surprise(candidate) - entropy).abs() as f32;
        }
        self.keep_mass(share * total);
        for candidate in &mut self.list {
            candidate.rank = row.logits[candidate.id as usize];
        }
        self.total = self.mass();
    }

    /// Keeps the best candidates, in order, until their mass reaches `goal`; at least one.
    fn keep_mass(&mut self, goal: f64) {
        let (mut kept, mut mass, mut stretch) = (0, 0.0, FIRST_STRETCH);
        while kept < self.list.len() {
            let rest = &mut self.list[kept..];
            let len = stretch.min(rest.len());
            if len < rest.len() {
                rest.select_nth_unstable_by(len - 1, Candidate::order);
            }
            rest[..len].sort_unstable_by(Candidate::order);
            for candidate in &rest[..len] {
                mass += f64::from(candidate.weight);
                kept += 1;
                if mass >= goal {
                    self.list.truncate(kept);
                    return;
                }
            }
            stretch *= 4;
        }
    }

    fn keep_near_best(&mut self, share: f32) {
        let best = self.list.iter().map(|candidate| candidate.weight).fold(0.0, f32::max);
        self.list.retain(|candidate| candidate.weight >= share * best);
    }

    fn mass(&self) -> f64 {
        self.list.iter().map(|candidate| f64::from(candidate.weight)).sum()
    }

    #[cfg(test)]
    pub(super) fn ids(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self.list.iter().map(|candidate| candidate.id).collect();
        ids.sort_unstable();
        ids
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.list.capacity()
    }
}
