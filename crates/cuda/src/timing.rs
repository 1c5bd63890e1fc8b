//! How long queued work takes, on the device's clock.

use crate::driver::{Event, Graph, Stream};
use crate::error::CudaError;

/// Seconds that each graph took in each of so many rounds. The graphs take turns, without a pause: a GPU that is kept busy slows down, and all
/// of them should be timed as busy as they will be.
pub(crate) fn in_turn<'a>(
    stream: &Stream,
    graphs: impl Iterator<Item = &'a Graph> + Clone,
    rounds: usize,
) -> Result<Vec<Vec<f64>>, CudaError> {
    let mark = || -> Result<Event, CudaError> {
        let event = stream.device().event()?;
        stream.record(&event)?;
        Ok(event)
    };
    let mut marks = vec![mark()?];
    for _ in 0..rounds {
        for graph in graphs.clone() {
            stream.launch_graph(graph)?;
            marks.push(mark()?);
        }
    }
    stream.synchronize()?;
    let mut seconds = vec![Vec::with_capacity(rounds); graphs.count()];
    for (index, pair) in marks.windows(2).enumerate() {
        let graph = index % seconds.len();
        seconds[graph].push(pair[1].seconds_since(&pair[0])?);
    }
    Ok(seconds)
}

/// The median of some seconds; infinity if there are none.
pub(crate) fn median(seconds: &[f64]) -> f64 {
    let mut sorted = seconds.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::INFINITY)
}
