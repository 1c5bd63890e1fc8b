//! Fetching and verifying a model while showing how it goes, on standard error: a bar on a terminal, plain lines elsewhere.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::{DecimalBytes, ProgressBar, ProgressStyle};
use ropeway_hub::progress::Stage;
use ropeway_hub::{
    Check, CudaMajor, Hub, HubError, ModelRef, Outcome, Progress, PullOptions, Pulled, Report, Verified,
};

use crate::interrupt;
use crate::output::tell;

/// Fits 80 columns with sizes up to 999.99 GB.
const BAR: &str = "{msg:11} [{bar:30}] {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}";

/// How often the bar is redrawn while nothing arrives, so that it is seen to be alive.
const TICK: Duration = Duration::from_millis(200);

/// Steps smaller than this are over before a line about them is read.
const WORTH_A_LINE: u64 = 1_000_000;

/// Whether a broken file of names was told of.
static TOLD: AtomicBool = AtomicBool::new(false);

/// The hub as the environment describes it. A file of names that can't be used is told of, once.
pub fn open_hub() -> Result<Hub, HubError> {
    let hub = Hub::from_env()?;
    tell_broken_aliases(&hub, |error| tell(&format!("warning: {error}; {}", error.hint())));
    Ok(hub)
}

/// Tells of a file of names that can't be used, unless somebody did before.
pub fn tell_broken_aliases(hub: &Hub, tell: impl FnOnce(&HubError)) {
    if let Some(error) = hub.broken_aliases()
        && !TOLD.swap(true, Ordering::Relaxed)
    {
        tell(&error);
    }
}

/// Makes sure the model is on this machine; see [`Hub::pull_model`].
pub fn pull(hub: &Hub, model: &str, check: Check) -> Result<Pulled, HubError> {
    let (model, options) = (hub.parse(model)?, PullOptions { check, cancel: interrupt::pulls().child() });
    shown(|report| hub.pull_model(&model, &options, report))
}

/// Makes sure that NVIDIA's libraries are on this machine; see [`Hub::pull_cuda_libraries`].
pub fn pull_cuda_libraries(hub: &Hub, major: CudaMajor) -> Result<(PathBuf, Outcome), HubError> {
    shown(|report| hub.pull_cuda_libraries(major, interrupt::pulls(), report))
}

/// Compares every byte of a model with its checksums; see [`Hub::verify`].
pub fn verify(hub: &Hub, model: &ModelRef) -> Result<Verified, HubError> {
    shown(|report| hub.verify(model, interrupt::pulls(), report))
}

/// Does something while its progress is shown.
fn shown<T>(work: impl FnOnce(Report<'_>) -> T) -> T {
    if io::stderr().is_terminal() {
        let mut display = Bar::default();
        work(&mut |progress| display.show(&progress))
    } else {
        let mut display = Lines::default();
        work(&mut |progress| display.show(&progress))
    }
}

/// What a stage of a pull works on, and how far it is.
#[derive(Debug, PartialEq, Eq, Default)]
struct Step {
    doing: &'static str,
    file: String,
}

impl Step {
    fn of(stage: Stage, file: &str) -> Step {
        let doing = match stage {
            Stage::Download => "downloading",
            Stage::Check => "checking",
        };
        Step { doing, file: file.into() }
    }
}

/// The events that are told in words, on a terminal and elsewhere.
fn in_words(progress: &Progress<'_>) -> Option<String> {
    match progress {
        Progress::Waiting => Some("waiting: someone else is pulling the same model".into()),
        Progress::Trying { source } => Some(format!("from {source}")),
        Progress::SourceFailed { source, error } => Some(format!("{source} failed: {error}")),
        Progress::Chosen { chosen, others, example } => {
            Some(format!("taking {chosen}; there are also {} (as {example})", others.join(", ")))
        }
        Progress::Bytes { .. } => None,
    }
}

/// One bar for each step, gone when the step is done.
#[derive(Default)]
struct Bar {
    step: Step,
    bar: Option<ProgressBar>,
}

impl Bar {
    fn show(&mut self, progress: &Progress<'_>) {
        if let Progress::Bytes { stage, file, done, total } = progress {
            self.advance(Step::of(*stage, file), *done, *total);
        } else if let Some(line) = in_words(progress) {
            self.clear();
            tell(&line);
        }
    }

    fn advance(&mut self, step: Step, done: u64, total: u64) {
        if self.bar.is_none() || step != self.step {
            self.clear();
            let style = ProgressStyle::with_template(BAR).unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar =
                ProgressBar::new(total).with_style(style.progress_chars("=> ")).with_message(step.doing);
            bar.enable_steady_tick(TICK);
            (self.bar, self.step) = (Some(bar), step);
        }
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
    }

    fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A line when a step begins, and one for each further quarter; none for small files.
#[derive(Default)]
struct Lines {
    step: Step,
    quarters: u64,
}

impl Lines {
    fn show(&mut self, progress: &Progress<'_>) {
        if let Progress::Bytes { stage, file, done, total } = progress {
            if let Some(line) = self.advance(Step::of(*stage, file), *done, *total) {
                tell(&line);
            }
        } else if let Some(line) = in_words(progress) {
            tell(&line);
        }
    }

    fn advance(&mut self, step: Step, done: u64, total: u64) -> Option<String> {
        let quarters = (done * 4).checked_div(total).unwrap_or(4);
        if step != self.step {
            let line = format!("{} {} ({})", step.doing, step.file, DecimalBytes(total));
            (self.step, self.quarters) = (step, quarters);
            return (total >= WORTH_A_LINE).then_some(line);
        }
        let further = quarters > self.quarters;
        self.quarters = quarters;
        let told = further && total >= WORTH_A_LINE;
        told.then(|| format!("{} {} {}%", self.step.doing, self.step.file, quarters * 25))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_told_at_its_start_and_at_each_quarter() {
        let mut lines = Lines::default();
        let mut told = Vec::new();
        for done in [0, 1_000, 250_000, 260_000, 900_000, 1_000_000] {
            told.extend(lines.advance(Step::of(Stage::Download, "m"), done, 1_000_000));
        }
        assert_eq!(
            told,
            ["downloading m (1.00 MB)", "downloading m 25%", "downloading m 75%", "downloading m 100%"]
        );
        assert!(lines.advance(Step::of(Stage::Check, "m"), 0, 1_000_000).is_some());
    }

    #[test]
    fn a_small_step_is_not_worth_a_line() {
        let mut lines = Lines::default();
        for done in [0, 0, 190] {
            assert_eq!(lines.advance(Step::of(Stage::Check, "config.json"), done, 190), None);
        }
        assert_eq!(lines.advance(Step::of(Stage::Check, "empty"), 0, 0), None);
    }

    #[test]
    fn the_template_of_the_bar_is_well_formed() {
        assert!(ProgressStyle::with_template(BAR).is_ok());
    }
}
