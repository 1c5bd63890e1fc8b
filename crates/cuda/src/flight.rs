//! A step between its launch and its collection: pinned memory that it is uploaded from and downloaded to, and the marks around it.

use std::ops::Range;
use std::time::Duration;

use ropeway_executor::{Ask, Batch, GuideId, Guides, Row, RowError, StepOutput};

use crate::driver::{Device, DriverError, Event, Pinned};
use crate::kernels::MOST_ALTERNATIVES;
use crate::sampling::{SampleArrays, catch_panic, outcome};
use crate::shape::StepShape;

/// Pairs of copied blocks that are uploaded at a time.
pub const COPIES: usize = 1024;

/// One step's memory on the host.
pub struct InFlightStep {
    /// The step's arrays.
    pub arrays: Pinned,
    /// Which words of them are used.
    pub ranges: Vec<Range<usize>>,
    /// Pairs of copied blocks.
    pub copies: Pinned,
    /// Its rows, as sampling reads them, and where they are uploaded from.
    pub sampling: SampleArrays,
    /// Pinned memory for them.
    pub sample_words: Pinned,
    /// Results of its rows, as downloaded: four words each, `Outcome` in `sample.cu`.
    pub outcomes: Pinned,
    /// Their likeliest tokens, if a row asks for some: `[rows][MOST_ALTERNATIVES][token, log-probability]`.
    pub alternatives: Pinned,
    /// Passed when the device begins with it.
    pub began: Event,
    /// Passed when all of it is done.
    pub done: Event,
    rows: Vec<PendingRow>,
}

/// What is remembered of a row until its result is there.
struct PendingRow {
    ask: Ask,
    /// Whether its log-probability is wanted.
    reports: bool,
    guide: Option<GuideId>,
    refused: Option<RowError>,
}

impl PendingRow {
    fn new(row: &Row) -> Self {
        let reports = matches!(row.ask, Ask::Score(_)) || row.params.logprobs.is_some();
        Self { ask: row.ask, reports, guide: row.guide, refused: None }
    }
}

impl InFlightStep {
    /// Memory for steps of this shape.
    pub fn new(device: &Device, step: &StepShape, array_bytes: usize) -> Result<Self, DriverError> {
        Ok(Self {
            arrays: device.allocate_pinned(array_bytes)?,
            ranges: Vec::new(),
            copies: device.allocate_pinned(COPIES * 8)?,
            sampling: SampleArrays::default(),
            sample_words: device.allocate_pinned(1 << 16)?,
            outcomes: device.allocate_pinned(step.rows * 16)?,
            alternatives: device.allocate_pinned(step.rows * MOST_ALTERNATIVES * 8)?,
            began: device.event()?,
            done: device.event()?,
            rows: Vec::with_capacity(step.rows),
        })
    }

    /// Takes note of what the rows of a batch want.
    pub fn remember(&mut self, batch: &Batch) {
        self.rows.clear();
        self.rows.extend(batch.rows.iter().map(PendingRow::new));
        for (index, error) in self.sampling.take_refused() {
            self.rows[index].refused = Some(error);
        }
    }

    /// Waits until the step is done; how long the device took.
    pub fn wait(&self) -> Result<Duration, DriverError> {
        self.done.synchronize()?;
        Ok(Duration::from_secs_f64(self.done.seconds_since(&self.began)?.max(0.0)))
    }

    /// Fills `output` once the step is done.
    pub fn finish(&mut self, guides: &dyn Guides, output: &mut StepOutput) {
        let (outcomes, alternatives) = (&*self.outcomes.words_mut(), &*self.alternatives.words_mut());
        for (index, asked) in self.rows.drain(..).enumerate() {
            if let Some(error) = asked.refused {
                output.rows.push(Err(error));
                continue;
            }
            let sampled = outcome(outcomes, alternatives, index, asked.reports);
            output.rows.push(sampled.and_then(|sampled| match (asked.ask, asked.guide) {
                (Ask::Sample, Some(guide)) => {
                    catch_panic(|| guides.chose(guide, sampled.token)).map(|()| sampled)
                }
                _ => Ok(sampled),
            }));
        }
    }
}
