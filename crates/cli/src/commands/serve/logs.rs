//! What is written down while the server runs: the log on standard error, and spans for a collector.

use std::io;

use clap::{Args, ValueEnum};
use ropeway_engine::StepRecord;
use ropeway_server::observe::otlp::Collector;
use tracing_subscriber::filter::LevelFilter;

/// What is written down.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Log options")]
pub struct LogArgs {
    /// How log lines look: text or json
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
    /// What is logged: off, error, warn, info (a line per request) or debug
    /// (probes as well)
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: LogLevel,
    /// Log a line about the batch every second while something runs
    #[arg(long)]
    pub log_batches: bool,
    /// OpenTelemetry collector that gets a trace of each request over OTLP/HTTP,
    /// as in `http://127.0.0.1:4318`
    #[arg(long, value_name = "URL")]
    pub otlp_endpoint: Option<Collector>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogLevel {
    Off,
    Error,
    Warn,
    Info,
    Debug,
}

impl LogArgs {
    /// Log lines are written from now on.
    pub fn start(&self) {
        let level = match self.log_level {
            LogLevel::Off => LevelFilter::OFF,
            LogLevel::Error => LevelFilter::ERROR,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Info => LevelFilter::INFO,
            LogLevel::Debug => LevelFilter::DEBUG,
        };
        let lines = tracing_subscriber::fmt().with_max_level(level).with_writer(io::stderr);
        match self.log_format {
            LogFormat::Text => lines.with_ansi(false).init(),
            LogFormat::Json => lines.json().flatten_event(true).init(),
        }
    }

    /// Whether a person reads along, who wants to be told what to try.
    pub fn is_for_people(&self) -> bool {
        self.log_format == LogFormat::Text
    }
}

/// Logs one step.
pub fn batch(model: &str, record: &StepRecord) {
    let milliseconds = |time: std::time::Duration| (time.as_secs_f64() * 1e4).round() / 10.0;
    tracing::info!(
        target: "batch",
        model,
        step = record.step,
        decode = record.decode_tokens,
        prefill = record.prefill_tokens,
        cached = record.cached_tokens,
        running = record.running,
        waiting = record.waiting,
        preempted = record.preempted,
        drafted = record.drafted,
        accepted = record.accepted,
        kv_percent = (100 * record.blocks.referenced / record.blocks.total().max(1)),
        ms = milliseconds(record.plan + record.execute + record.commit),
        compute_ms = milliseconds(record.execute),
        device_ms = milliseconds(record.device),
        host_ms = milliseconds(record.host()),
        predicted_ms = milliseconds(record.predicted),
        allowed_ms = milliseconds(record.allowed),
    );
}
