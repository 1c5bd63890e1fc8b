//! Runs the built command in a home of its own.
#![allow(dead_code, reason = "each test file uses its own part")]

#[path = "../../../hub/tests/support/fake_hub.rs"]
pub mod fake_hub;
pub mod server;
pub mod tiny_gguf;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// The file of the default model.
const DEFAULT_MODEL: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// A home for one test, without Python and without a reachable Hugging Face hub unless the test gives them.
pub struct Sandbox {
    folder: TempDir,
}

/// What a run printed and how it ended.
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Sandbox {
    pub fn new() -> Sandbox {
        Sandbox { folder: TempDir::new().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) -> String {
        std::fs::write(self.path(name), bytes).unwrap();
        self.path(name).display().to_string()
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        self.command_of(PathBuf::from(env!("CARGO_BIN_EXE_ropeway")), arguments)
    }

    /// The same of a copy of the executable, which others may run wherever the build lies.
    pub fn copied_command(&self, arguments: &[&str]) -> Command {
        std::fs::copy(env!("CARGO_BIN_EXE_ropeway"), self.path("ropeway")).unwrap();
        self.command_of(self.path("ropeway"), arguments)
    }

    fn command_of(&self, program: PathBuf, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.folder.path()).stdin(Stdio::null());
        command.env("ROPEWAY_HOME", self.path("home")).env("HF_HOME", self.path("huggingface"));
        command.env("ROPEWAY_PYTHON", self.path("no-python")).env("HF_ENDPOINT", "http://127.0.0.1:9");
        command
            .env("OLLAMA_MODELS", self.path("ollama"))
            .env("ROPEWAY_OLLAMA_REGISTRY", "http://127.0.0.1:9");
        let foreign = [
            "HF_TOKEN",
            "HF_HUB_CACHE",
            "HF_HUB_OFFLINE",
            "HTTP_PROXY",
            "http_proxy",
            "ALL_PROXY",
            "all_proxy",
        ];
        for variable in foreign {
            command.env_remove(variable);
        }
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Ran {
        self.command(arguments).output().unwrap().into()
    }

    pub fn run_with_input(&self, arguments: &[&str], input: &[u8]) -> Ran {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        child.wait_with_output().unwrap().into()
    }
}

impl Ran {
    /// The output of a run that must have succeeded.
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.err);
        self.out
    }

    /// The messages of a run that must have failed, having printed no result.
    pub fn failed(self) -> String {
        assert_eq!((self.code, self.out.as_str()), (Some(1), ""), "{}", self.err);
        self.err
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

/// The default model, or `None` with a printed reason.
pub fn smollm2() -> Option<String> {
    let given = std::env::var_os("ROPEWAY_TEST_MODEL_DIR").map(PathBuf::from);
    let home = std::env::var_os("ROPEWAY_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache/ropeway")));
    let cached = home.map(|home| home.join("models/smollm2-135m"));
    let found = [given, cached]
        .into_iter()
        .flatten()
        .map(|folder| folder.join(DEFAULT_MODEL))
        .find(|path| path.is_file());
    if found.is_none() {
        eprintln!(
            "skipped: {DEFAULT_MODEL} is not here; run `ropeway pull smollm2` or set ROPEWAY_TEST_MODEL_DIR"
        );
    }
    found.map(|path| path.display().to_string())
}
