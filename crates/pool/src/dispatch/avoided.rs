//! Where a request failed since its latest token: upstreams that it had better not go to again.

use super::types::UpstreamId;

/// Upstreams that are remembered: one less than attempts in a row, so that every attempt can be at another.
const MOST: usize = 3;

/// Upstreams to avoid, the latest last.
#[derive(Clone, Copy, Debug, Default)]
pub struct Avoided([Option<UpstreamId>; MOST]);

impl Avoided {
    /// It failed there, too.
    pub fn add(&mut self, upstream: UpstreamId) {
        let same = self.0.iter().position(|other| *other == Some(upstream)).unwrap_or(0);
        self.0[same..].rotate_left(1);
        self.0[MOST - 1] = Some(upstream);
    }

    /// Whether it failed there.
    pub fn contains(&self, upstream: UpstreamId) -> bool {
        self.0.contains(&Some(upstream))
    }

    /// Where it failed, the longest ago first.
    pub fn iter(&self) -> impl Iterator<Item = UpstreamId> {
        self.0.iter().flatten().copied()
    }

    /// Where it failed last.
    pub fn latest(&self) -> Option<UpstreamId> {
        self.0[MOST - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_remembered_once_each() {
        let mut avoided = Avoided::default();
        for upstream in [1, 2, 1, 3, 4, 3] {
            avoided.add(UpstreamId(upstream));
        }
        assert_eq!(avoided.iter().map(|upstream| upstream.0).collect::<Vec<_>>(), [1, 4, 3]);
        assert!(avoided.contains(UpstreamId(4)) && !avoided.contains(UpstreamId(2)));
        assert_eq!(avoided.latest(), Some(UpstreamId(3)));
    }
}
