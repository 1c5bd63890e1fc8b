//! Checks and measures the executor on a machine with a GPU, in one go.
//!
//! ```text
//! cuda-check [attention] [products] [families] [agreement] [encoders] [sampling] [invariance] [transfers] [speed] [profile] [loss]
//!            [--fixtures FOLDER] [--cache FOLDER] [--models NAMES] [--smollm2 FILE] [--encoder FOLDER] [--quantize q4|q8] [--kv q8] [--tma]
//! ```
//! Without names, all checks run; `loss` ruins a context and comes last. `--models` restricts measurements to these models: 135m, 1.5b, 8b, and
//! 30b-a3b (experts) and tiny (for an emulated GPU), which are measured only if they are named. `--quantize` packs the random weights of `invariance`, `speed` and `profile`, and
//! restricts `products` to that form. `--kv q8` keeps the keys and values of all decoders in 8 bits, and measures attention over them. `--tma`
//! lets TMA copy the keys and values of decoded rows, where it can, in place of threads. `agreement` needs the default model's file.
//! Every finding is a line that begins with `RES`; a check that fails makes the exit status 1.

mod agreement;
mod attention;
mod encoders;
mod every_filter;
mod families;
mod invariance;
mod loss;
mod meter;
mod models;
mod products;
mod profile;
mod sampling;
mod speed;
mod transfers;

use std::path::PathBuf;
use std::process::ExitCode;

use ropeway_cuda::{CudaError, CudaOptions, KvForm};
use ropeway_model::Quantize;

/// What to do, and where.
pub struct Task {
    names: Vec<String>,
    fixtures: PathBuf,
    options: CudaOptions,
    models: Vec<String>,
    /// A real encoder, to be measured.
    encoder: Option<PathBuf>,
    /// The default model's file.
    smollm2: Option<PathBuf>,
}

impl Task {
    fn from_arguments() -> Self {
        let (mut names, mut models, mut encoder, mut smollm2) = (Vec::new(), Vec::new(), None, None);
        let mut fixtures = PathBuf::from("tests/fixtures/models");
        let mut options =
            CudaOptions { cache: Some(PathBuf::from("/tmp/ropeway-cuda")), ..CudaOptions::default() };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().unwrap_or_default();
            match argument.as_str() {
                "--fixtures" => fixtures = value().into(),
                "--cache" => options.cache = Some(value().into()),
                "--encoder" => encoder = Some(value().into()),
                "--smollm2" => smollm2 = Some(value().into()),
                "--quantize" => {
                    options.quantize = match value().as_str() {
                        "q4" => Some(Quantize::Q4),
                        "q8" => Some(Quantize::Q8),
                        other => {
                            eprintln!("--quantize takes q4 or q8, not `{other}`");
                            std::process::exit(2);
                        }
                    }
                }
                "--kv" => {
                    options.kv = match value().as_str() {
                        "q8" => KvForm::Q8,
                        other => {
                            eprintln!("--kv takes q8, not `{other}`; without it, keys and values are bf16");
                            std::process::exit(2);
                        }
                    }
                }
                "--tma" => options.tma = true,
                "--models" => models = value().split(',').map(str::to_owned).collect(),
                _ => names.push(argument),
            }
        }
        Self { names, fixtures, options, models, encoder, smollm2 }
    }

    fn wants_model(&self, name: &str) -> bool {
        self.models.is_empty() || self.models.iter().any(|model| model == name)
    }

    fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|wanted| wanted == name)
    }
}

/// A check that failed.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// The executor.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// A step.
    #[error(transparent)]
    Step(#[from] ropeway_executor::ExecutorError),
    /// What was found is not what should be.
    #[error("{0}")]
    Wrong(String),
}

/// A part of the program.
type Check = fn(&Task) -> Result<(), Failed>;

fn main() -> ExitCode {
    let task = Task::from_arguments();
    let checks: [(&str, Check); 11] = [
        ("attention", attention::check),
        ("products", products::check),
        ("families", families::check),
        ("agreement", agreement::check),
        ("encoders", encoders::check),
        ("sampling", sampling::check),
        ("invariance", invariance::check),
        ("transfers", transfers::check),
        ("speed", speed::measure),
        ("profile", profile::measure),
        ("loss", loss::check),
    ];
    let mut failed = false;
    for (name, check) in checks.into_iter().filter(|(name, _)| task.wants(name)) {
        println!("== {name}");
        if let Err(error) = check(&task) {
            println!("RES {name} FAILED: {error}");
            failed = true;
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
