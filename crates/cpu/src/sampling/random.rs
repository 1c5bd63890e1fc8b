//! The random number of one choice, as a function of seed and position: Philox4x32-10 (Salmon et al., 2011).
//!
//! ```text
//! key      | seed low | seed high |
//! counter  | position low | position high | 0 | 0 |     ten rounds of two 32 x 32 -> 64 bit products
//! ```
//! There is no state to save, share or restore: a preempted sequence resumes with the numbers it would have had.

use ropeway_executor::Seed;

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// A number in `0 <= x < 1`, uniform to 53 bits.
pub(super) fn uniform(seed: Seed, position: u64) -> f64 {
    let block =
        philox([position as u32, (position >> 32) as u32, 0, 0], [seed.0 as u32, (seed.0 >> 32) as u32]);
    let bits = u64::from(block[0]) << 32 | u64::from(block[1]);
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let first = u64::from(MULTIPLIERS[0]) * u64::from(counter[0]);
        let second = u64::from(MULTIPLIERS[1]) * u64::from(counter[2]);
        counter = [
            (second >> 32) as u32 ^ counter[1] ^ key[0],
            second as u32,
            (first >> 32) as u32 ^ counter[3] ^ key[1],
            first as u32,
        ];
        key = [key[0].wrapping_add(KEY_STEPS[0]), key[1].wrapping_add(KEY_STEPS[1])];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_the_published_answers() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    /// The mean square of 100 windows' distances from the expected mean, in standard deviations: near 1 for numbers
    /// that are uniform and independent, with a standard deviation of its own of 0.14. One window alone proves little:
    /// one in a few thousand lies 3.5 deviations off.
    fn spread_of_windows(number: impl Fn(u64, u64) -> f64) -> f64 {
        const LEN: u64 = 2000;
        let deviation = (12.0 * LEN as f64).sqrt().recip();
        let mean = |window| (0..LEN).map(|index| number(window, index)).sum::<f64>() / LEN as f64;
        (0..100).map(|window| ((mean(window) - 0.5) / deviation).powi(2)).sum::<f64>() / 100.0
    }

    #[test]
    fn numbers_are_spread_evenly_over_positions_and_over_seeds() {
        let by_position = spread_of_windows(|seed, position| uniform(Seed(seed), position));
        let by_seed = spread_of_windows(|position, seed| uniform(Seed(seed), position));
        for spread in [by_position, by_seed] {
            assert!((0.5..1.5).contains(&spread), "{spread}");
        }
    }

    #[test]
    fn high_halves_of_seed_and_position_count() {
        let base = uniform(Seed(1), 1);
        assert!(base < 1.0);
        assert!(base.to_bits() != uniform(Seed(1 | 1 << 40), 1).to_bits());
        assert!(base.to_bits() != uniform(Seed(1), 1 | 1 << 40).to_bits());
    }
}
