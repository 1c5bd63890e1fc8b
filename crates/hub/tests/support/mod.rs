//! A hub in a temporary folder, with a stand-in for pip and for the Hugging Face hub.
#![allow(dead_code, reason = "each test file uses its own part")]

pub mod fake_hub;

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use ropeway_hub::catalogue::{Entry, FileSpec, PinnedRepo, PipPackage, Source};
use ropeway_hub::checksum::Sha256;
use ropeway_hub::config::{HuggingFaceConfig, OllamaConfig, Patience, Token, Transfers};
use ropeway_hub::{Catalogue, Config, Hub, HubError, SourceError};
use tempfile::TempDir;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// The name of the one model in a test's catalogue.
pub const MODEL: &str = "tiny:1b";

pub use fake_hub::REPO;

/// An address nobody listens on.
const NOWHERE: &str = "http://127.0.0.1:9";

/// Longer than any test may take: whatever ends in this time was ended by something else.
pub const PATIENT: Patience =
    Patience { connect: Duration::from_secs(3600), silence: Duration::from_secs(3600) };

/// So short that a test can wait for its end.
pub const IMPATIENT: Patience =
    Patience { connect: Duration::from_millis(300), silence: Duration::from_millis(300) };

/// A home for one test.
pub struct Sandbox {
    folder: TempDir,
    pub config: Config,
}

impl Sandbox {
    /// A sandbox whose only Python does not exist and whose Hugging Face hub cannot be reached.
    pub fn new() -> Sandbox {
        let folder = TempDir::new().unwrap();
        let config = Config {
            home: folder.path().join("home"),
            pythons: vec![folder.path().join("no-such-python")],
            hugging_face: HuggingFaceConfig {
                cache: folder.path().join("huggingface/hub"),
                endpoint: NOWHERE.into(),
                token: None,
            },
            ollama: OllamaConfig { models: folder.path().join("ollama/models"), registry: NOWHERE.into() },
            patience: PATIENT,
            transfers: Transfers::default(),
            offline: false,
        };
        Sandbox { folder, config }
    }

    /// Adds a stand-in for pip that offers a wheel with these members.
    pub fn with_wheel(mut self, members: &[(&str, &[u8])]) -> Sandbox {
        self.link_python();
        let mut zip = ZipWriter::new(File::create(self.path("offer.whl")).unwrap());
        for (name, bytes) in members {
            zip.start_file(*name, SimpleFileOptions::default()).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap();
        self
    }

    /// Adds a stand-in for pip that prints this and fails.
    pub fn with_failing_pip(mut self, says: &str) -> Sandbox {
        self.link_python();
        fs::write(self.path("says"), says).unwrap();
        self
    }

    /// Waits so long for sources.
    pub fn with_patience(mut self, patience: Patience) -> Sandbox {
        self.config.patience = patience;
        self
    }

    /// Points the hub at a stand-in for the Hugging Face hub.
    pub fn with_hugging_face(mut self, endpoint: &str) -> Sandbox {
        self.config.hugging_face.endpoint = endpoint.into();
        self
    }

    /// Points the hub at a stand-in for the Ollama registry.
    pub fn with_registry(mut self, registry: &str) -> Sandbox {
        self.config.ollama.registry = registry.into();
        self
    }

    /// Fetches in pieces of so many bytes.
    pub fn with_pieces(mut self, piece: u64) -> Sandbox {
        self.config.transfers.piece = piece;
        self
    }

    /// May fetch nothing.
    pub fn offline(mut self) -> Sandbox {
        self.config.offline = true;
        self
    }

    pub fn with_token(mut self, token: &str) -> Sandbox {
        self.config.hugging_face.token = Some(Token::new(token));
        self
    }

    /// A path in the sandbox.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A path in the store.
    pub fn home(&self, name: &str) -> PathBuf {
        self.config.home.join(name)
    }

    /// The hub with a catalogue of one model that consists of these files.
    pub fn hub(&self, files: &[(&'static str, &[u8])]) -> Hub {
        Hub::new(self.config.clone(), Catalogue::new(entries(files)))
    }

    /// How often pip was run.
    pub fn pip_runs(&self) -> usize {
        fs::read_to_string(self.path("runs")).unwrap_or_default().lines().count()
    }

    /// Nothing of a pull is left behind.
    pub fn assert_no_leftovers(&self) {
        let staging = self.home("staging");
        let left: Vec<_> = fs::read_dir(&staging).into_iter().flatten().flatten().map(|e| e.path()).collect();
        assert!(left.is_empty(), "left behind: {left:?}");
    }

    fn link_python(&mut self) {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/fake_python.sh");
        let python = self.path("python");
        std::os::unix::fs::symlink(script, &python).unwrap();
        self.config.pythons = vec![python];
    }
}

/// A catalogue's entries are static; a test's few live as long as the test program.
fn entries(files: &[(&'static str, &[u8])]) -> &'static [Entry] {
    let spec = |(path, bytes): &(&'static str, &[u8])| FileSpec {
        path,
        bytes: bytes.len() as u64,
        sha256: Sha256::of(bytes),
    };
    let entry = Entry {
        name: MODEL,
        aliases: &["tiny"],
        folder: "tiny-1b",
        about: "a model for tests",
        sources: &[
            Source::Pip(PipPackage { name: "tiny", version: "1.0", wheel_bytes: 1000, prefix: "tiny/" }),
            Source::HuggingFace(PinnedRepo { repo: REPO, revision: "main", file: None }),
        ],
        parameters: "1B",
        license: "MIT",
        capabilities: &["chat"],
        approximate_bytes: 0,
        ollama: &[],
        files: Vec::leak(files.iter().map(spec).collect()),
    };
    Vec::leak(vec![entry])
}

/// Pulls without listening; says whether anything was fetched.
pub fn pull(hub: &Hub, name: &str) -> Result<ropeway_hub::Pulled, HubError> {
    hub.pull(name, &mut |_| ())
}

/// A file large enough to be cut in the middle.
pub fn weights() -> Vec<u8> {
    (0..100_000_u32).map(|i| (i * 31 % 251) as u8).collect()
}

/// Puts a model where Ollama would have it.
pub fn give_ollama(sandbox: &Sandbox, name: &str, tag: &str, weights: &[u8]) {
    let models = &sandbox.config.ollama.models;
    let manifests = models.join("manifests/registry.ollama.ai/library").join(name);
    for folder in [&manifests, &models.join("blobs")] {
        fs::create_dir_all(folder).unwrap();
    }
    fs::write(manifests.join(tag), fake_hub::ollama_manifest(weights).to_string()).unwrap();
    fs::write(models.join("blobs").join(format!("sha256-{}", Sha256::of(weights))), weights).unwrap();
}

/// Why the last source failed.
pub fn failure(error: HubError) -> SourceError {
    match error {
        HubError::AllSourcesFailed { attempts, .. } => attempts.into_iter().last().unwrap().error,
        other => panic!("not a failed pull: {other}"),
    }
}
