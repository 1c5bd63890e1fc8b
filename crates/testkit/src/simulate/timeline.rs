//! A value over time, in bounded memory: when there are too many points, every two become one.

use std::time::Duration;

/// Most points kept; enough for any picture.
const POINTS: usize = 512;

/// How many sequences wait and run, over time.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Time that a point stands for.
    width: Duration,
    /// Per point: the most that waited, and the most that ran.
    points: Vec<[usize; 2]>,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { width: Duration::from_millis(100), points: Vec::with_capacity(POINTS) }
    }
}

impl Timeline {
    /// At `at`, so many wait and run.
    pub fn note(&mut self, at: Duration, [waiting, running]: [usize; 2]) {
        while at.as_nanos() / self.width.as_nanos() >= POINTS as u128 {
            self.halve();
        }
        let index = (at.as_nanos() / self.width.as_nanos()) as usize;
        if index >= self.points.len() {
            self.points.resize(index + 1, [0, 0]);
        }
        let point = &mut self.points[index];
        *point = [point[0].max(waiting), point[1].max(running)];
    }

    /// Seconds, and the most that waited and ran around then.
    pub fn points(&self) -> impl Iterator<Item = (f64, [usize; 2])> {
        let width = self.width.as_secs_f64();
        self.points.iter().enumerate().map(move |(index, point)| (index as f64 * width, *point))
    }

    fn halve(&mut self) {
        self.width *= 2;
        for index in 0..self.points.len().div_ceil(2) {
            let second = self.points.get(2 * index + 1).copied().unwrap_or_default();
            let first = self.points[2 * index];
            self.points[index] = [first[0].max(second[0]), first[1].max(second[1])];
        }
        self.points.truncate(self.points.len().div_ceil(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_length_of_time_fits_and_peaks_survive() {
        let mut timeline = Timeline::default();
        for second in 0..10_000 {
            let peak = if second == 5_000 { 99 } else { 1 };
            timeline.note(Duration::from_secs(second), [peak, 2]);
        }
        let points: Vec<_> = timeline.points().collect();
        assert!(points.len() <= POINTS);
        let (at, _) = points.iter().find(|(_, [waiting, _])| *waiting == 99).expect("the peak");
        assert!((at - 5_000.0).abs() < 60.0, "{at}");
    }
}
