//! Downloads by the hub, told in the words and the order that Ollama's clients know:
//!
//! ```text
//! pulling manifest -> pulling 0123456789ab (digest, total, completed), file by file -> verifying sha256 digest
//!                  -> writing manifest -> success
//! ```

use ropeway_hub::checksum::Sha256;
use ropeway_hub::progress::Stage;
use ropeway_hub::{Cancel, Check, Hub, ModelRef, Progress, PullOptions};
use ropeway_server::error::ApiError;
use ropeway_server::library::{Download, Fetching, FileProgress};

use super::told::told;

/// Digits of a digest that Ollama shows.
const SHOWN_DIGITS: usize = 12;

/// A download from where the hub gets models.
pub struct HubDownload {
    pub hub: Hub,
    /// The model's own name.
    pub name: String,
    pub model: ModelRef,
    pub cancel: Cancel,
}

impl Download for HubDownload {
    fn model(&self) -> &str {
        &self.name
    }

    fn run(&self, report: &mut dyn FnMut(Fetching)) -> Result<(), ApiError> {
        let options = PullOptions { check: Check::Checksums, cancel: self.cancel.clone() };
        let mut statuses = Statuses::begin(&self.name, report);
        let pulled = self.hub.pull_model(&self.model, &options, &mut |progress| statuses.hear(&progress));
        pulled.map_err(|error| told(&error))?;
        statuses.finish();
        Ok(())
    }

    fn stop(&self) {
        self.cancel.cancel();
    }
}

/// Turns what the hub tells into Ollama's lines.
struct Statuses<'a> {
    model: &'a str,
    report: &'a mut dyn FnMut(Fetching),
    is_verifying: bool,
}

impl<'a> Statuses<'a> {
    fn begin(model: &'a str, report: &'a mut dyn FnMut(Fetching)) -> Self {
        report(Fetching::words("pulling manifest"));
        Self { model, report, is_verifying: false }
    }

    fn hear(&mut self, progress: &Progress<'_>) {
        match progress {
            Progress::Waiting => self.say("waiting: someone else is pulling the same model"),
            Progress::Trying { source } => tracing::debug!(target: "library", source, "pulling"),
            Progress::Chosen { chosen, .. } => {
                tracing::info!(target: "library", chosen, "one of several quantizations");
            }
            Progress::SourceFailed { source, error } => self.say(&format!("{source} failed: {error}")),
            Progress::Bytes { stage: Stage::Download, file, done, total } => {
                self.is_verifying = false;
                let digest = digest(self.model, file);
                let status = format!("pulling {}", &digest[..SHOWN_DIGITS]);
                let digest = format!("sha256:{digest}");
                (self.report)(Fetching {
                    status,
                    file: Some(FileProgress { digest, done: *done, total: *total }),
                });
            }
            Progress::Bytes { stage: Stage::Check, .. } => self.verify(),
        }
    }

    fn verify(&mut self) {
        if !self.is_verifying {
            self.is_verifying = true;
            self.say("verifying sha256 digest");
        }
    }

    fn finish(mut self) {
        self.verify();
        self.say("writing manifest");
    }

    fn say(&mut self, status: &str) {
        (self.report)(Fetching::words(status));
    }
}

/// What stands for a file while it arrives: clients draw one bar per digest, and a file's own is not known before it is here.
fn digest(model: &str, file: &str) -> String {
    Sha256::of(format!("{model}/{file}").as_bytes()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pull_is_told_in_ollamas_order_with_a_digest_per_file() {
        let mut lines = Vec::new();
        let mut report = |line: Fetching| lines.push(line);
        let mut statuses = Statuses::begin("m:1b", &mut report);
        let bytes = |stage, file, done| Progress::Bytes { stage, file, done, total: 10 };
        statuses.hear(&Progress::Trying { source: "pip" });
        for (file, done) in [("a.gguf", 5), ("a.gguf", 10), ("b.json", 10)] {
            statuses.hear(&bytes(Stage::Download, file, done));
        }
        statuses.hear(&bytes(Stage::Check, "a.gguf", 3));
        statuses.hear(&bytes(Stage::Check, "a.gguf", 10));
        statuses.finish();
        let words: Vec<_> = lines.iter().map(|line| line.status.split(' ').next().unwrap()).collect();
        assert_eq!(words, ["pulling", "pulling", "pulling", "pulling", "verifying", "writing"]);
        assert_eq!(lines[0], Fetching::words("pulling manifest"));
        let file = |line: usize| lines[line].file.clone().expect("a file");
        assert_eq!((file(1).done, file(2).done, file(2).total), (5, 10, 10));
        assert!(file(1).digest == file(2).digest && file(2).digest != file(3).digest);
        assert_eq!((file(1).digest.len(), &lines[1].status[8..]), (71, &file(1).digest[7..19]));
    }
}
