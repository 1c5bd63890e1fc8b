//! What `--verbose` tells after an answer: speed and memory.

use std::fmt;
use std::time::Duration;

use ropeway_engine::Usage;
use ropeway_engine::draft::DraftTotals;

/// How an answer went.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// How many of them were computed in an earlier turn.
    pub reused: usize,
    /// Until the first token was there.
    pub first_token: Duration,
    /// Tokens of the answer.
    pub generated: usize,
    /// From the first token to the end.
    pub decoding: Duration,
    /// Tokens in that time; the last may have been the end token, which is no part of the answer.
    pub decoded: usize,
    /// What was drafted, and how much of it was right.
    pub drafting: DraftTotals,
    /// Steps that chose a token.
    pub steps: usize,
    /// Resident memory in bytes, where the system tells.
    pub memory: Option<u64>,
}

impl Report {
    /// What an answer of `said` tokens used.
    pub fn new(usage: &Usage, said: usize) -> Report {
        let answered = usage.generated > 0;
        let first_token = if answered { usage.first_token } else { usage.total };
        Report {
            prompt: usage.prompt,
            reused: usage.cached,
            first_token,
            generated: said,
            decoding: usage.total.saturating_sub(first_token),
            decoded: usage.generated.saturating_sub(1),
            drafting: usage.drafting,
            steps: usage.sampled_steps(),
            memory: resident_bytes(),
        }
    }
}

impl Report {
    /// What speculation gained; nothing where nothing was drafted.
    fn write_speculation(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DraftTotals { drafted, accepted, .. } = self.drafting;
        if drafted == 0 {
            return Ok(());
        }
        let per_step = (self.steps + accepted) as f64 / self.steps.max(1) as f64;
        write!(f, "\nspeculation  {accepted} of {drafted} drafted tokens right, {per_step:.2} tokens a step")
    }
}

/// Memory of this process that is in RAM.
fn resident_bytes() -> Option<u64> {
    resident_in(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// The resident size in Linux's description of a process.
fn resident_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

fn per_second(count: usize, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefill = per_second(self.prompt - self.reused, self.first_token);
        let decode = per_second(self.decoded, self.decoding);
        writeln!(f, "prompt       {} tokens, {} of them reused", self.prompt, self.reused)?;
        writeln!(f, "prefill      {prefill:.1} tok/s")?;
        writeln!(f, "first token  {:.1} ms", self.first_token.as_secs_f64() * 1e3)?;
        writeln!(f, "generated    {} tokens", self.generated)?;
        write!(f, "decode       {decode:.1} tok/s")?;
        self.write_speculation(f)?;
        let Some(memory) = self.memory else { return Ok(()) };
        write!(f, "\nmemory       {:.1} MB resident", memory as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_count_what_was_computed_in_the_time_it_took() {
        let report = Report {
            prompt: 110,
            reused: 10,
            first_token: Duration::from_millis(50),
            generated: 40,
            decoding: Duration::from_millis(200),
            decoded: 40,
            drafting: DraftTotals { drafts: 5, drafted: 20, accepted: 15, ..DraftTotals::default() },
            steps: 25,
            memory: Some(123_400_000),
        };
        let expected = "prompt       110 tokens, 10 of them reused\nprefill      2000.0 tok/s\n\
                        first token  50.0 ms\ngenerated    40 tokens\ndecode       200.0 tok/s\n\
                        speculation  15 of 20 drafted tokens right, 1.60 tokens a step\n\
                        memory       123.4 MB resident";
        assert_eq!(report.to_string(), expected);
    }

    #[test]
    fn an_answer_without_a_second_token_has_no_decode_speed_and_one_without_drafts_no_line_about_them() {
        let told = Report::default().to_string();
        assert!(told.contains("decode       0.0 tok/s") && !told.contains("speculation"), "{told}");
    }

    #[test]
    fn the_end_token_counts_as_a_step_but_not_as_a_word() {
        let (first_token, total) = (Duration::from_millis(20), Duration::from_millis(50));
        let usage = Usage { generated: 3, first_token, total, ..Usage::default() };
        let report = Report::new(&usage, 2);
        assert_eq!((report.generated, report.decoded), (2, 2));
        assert_eq!(report.decoding, Duration::from_millis(30));
    }

    #[test]
    fn resident_memory_is_read_from_the_status_of_a_process() {
        assert_eq!(resident_in("Name:\tropeway\nVmRSS:\t    2048 kB\nThreads:\t2\n"), Some(2 << 20));
        assert_eq!(resident_in("VmRSS: much\n"), None);
    }
}
