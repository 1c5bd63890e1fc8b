//! Seeded numbers: the same seed gives the same numbers on every machine and in every build.

use std::time::Duration;

/// A counter-based generator: number `i` is a function of the seed and `i` alone (`SplitMix64`).
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// The numbers of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: mix(seed ^ 0x5851_F42D_4C95_7F2D) }
    }

    /// Another generator, its own for every `label`, that leaves this one where it is.
    pub fn fork(&self, label: u64) -> Self {
        Self::new(self.state ^ mix(label))
    }

    /// Any 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.state)
    }

    /// A number below `end`, which must not be 0.
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.bits()) * end as u128) >> 64) as usize
    }

    /// A number from `least` to `most`, both included.
    pub fn between(&mut self, least: usize, most: usize) -> usize {
        least + self.below(most - least + 1)
    }

    /// One of `choices`.
    pub fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }

    /// From 0 up to, but not including, 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// The gap to the next of events that happen independently `rate` times a second.
    pub fn gap(&mut self, rate: f64) -> Duration {
        Duration::from_secs_f64(-(1.0 - self.unit()).ln() / rate)
    }

    /// A length around `median`, now and then much longer: log-normal, `spread` being the standard deviation of its
    /// logarithm.
    pub fn length(&mut self, median: f64, spread: f64) -> f64 {
        let normal = (-2.0 * (1.0 - self.unit()).ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos();
        median * (spread * normal).exp()
    }
}

/// A bijection whose output bits all depend on all input bits.
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    x = (x ^ (x >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    x ^ (x >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_and_another_seed_others() {
        let numbers = |seed| std::iter::repeat_with(Rng::new(seed).bits_fn()).take(5).collect::<Vec<_>>();
        assert_eq!(numbers(1), numbers(1));
        assert_ne!(numbers(1), numbers(2));
    }

    #[test]
    fn numbers_are_spread_as_they_say() {
        let mut rng = Rng::new(7);
        let n = 20_000;
        let mean = |mut next: Box<dyn FnMut() -> f64>| (0..n).map(|_| next()).sum::<f64>() / f64::from(n);
        let mut other = rng.clone();
        assert!((mean(Box::new(move || rng.gap(4.0).as_secs_f64())) - 0.25).abs() < 0.01);
        assert!((mean(Box::new(move || other.below(11) as f64)) - 5.0).abs() < 0.1);
    }

    impl Rng {
        fn bits_fn(mut self) -> impl FnMut() -> u64 {
            move || self.bits()
        }
    }
}
