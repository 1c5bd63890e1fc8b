//! `ropeway serve`: models on the network.
//!
//! Layout: [`banner`] is what a person sees at the start, [`engines`] loads models and starts them again if they fall.

mod banner;
mod engines;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use ropeway_hub::catalogue::DEFAULT_CHAT_MODEL;
use ropeway_server::ops::health::Phase;
use ropeway_server::serve::Listening;
use ropeway_server::{Alias, App, Models};

use crate::descriptors::raise_limit;
use crate::engine_args::EngineArgs;
use crate::failure::Failure;
use crate::model_args::ModelArgs;
use crate::output::tell;

const EXAMPLES: &str = "\
Examples:
  ropeway serve                                    the default model on port 8000
  ropeway serve --model ./model.gguf --listen 127.0.0.1:11434
  ropeway serve --alias 'claude-*=smollm2:135m'    what Claude clients call it
Any OpenAI, Anthropic or Ollama client works: give it this server's address.";

/// Serve models to OpenAI, Anthropic and Ollama clients
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Serve {
    /// A model to serve; may be given several times
    #[arg(long = "model", value_name = "MODEL", default_value = DEFAULT_CHAT_MODEL)]
    models: Vec<String>,
    /// Where to listen; may be given several times
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8000")]
    listen: Vec<SocketAddr>,
    /// Another name for a model, as in 'claude-*=smollm2:135m'; may be given
    /// several times
    #[arg(long = "alias", value_name = "NAME=MODEL")]
    aliases: Vec<Alias>,
    /// Seconds that running requests get to finish when the server is told to
    /// end
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    drain_timeout: u64,
    /// Print a line about the batch every second while something runs
    #[arg(long)]
    log_batches: bool,
    /// Listen on addresses that others can reach
    #[arg(long)]
    insecure: bool,
    #[command(flatten)]
    options: ModelArgs,
    #[command(flatten)]
    engine: EngineArgs,
}

impl Serve {
    pub fn run(self) -> Result<(), Failure> {
        self.check_addresses()?;
        raise_limit();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(self.serve())
    }

    fn check_addresses(&self) -> Result<(), Failure> {
        let public = self.listen.iter().find(|address| !address.ip().is_loopback());
        match public {
            Some(address) if !self.insecure => Err(Failure::new(
                io::Error::other(format!(
                    "{address} can be reached by others, and nobody is asked for a key"
                )),
                "listen on 127.0.0.1, or say --insecure if the network is yours",
            )),
            _ => Ok(()),
        }
    }

    async fn serve(self) -> Result<(), Failure> {
        let listening = Listening::bind(&self.listen).await?;
        let addresses = listening.addresses()?;
        let app = Arc::new(App::new(Models::new(self.aliases.clone())));
        let drain = Duration::from_secs(self.drain_timeout);
        let (failed, failure) = tokio::sync::oneshot::channel();
        self.load(Arc::clone(&app), addresses, failed);
        let (told, was_told) = tokio::sync::oneshot::channel();
        let shutdown = async move {
            tokio::select! {
                () = signal() => {}
                Ok(failure) = failure => { let _ = told.send(failure); }
            }
            tokio::spawn(quit_at_once());
        };
        listening.serve(app, drain, shutdown).await?;
        was_told.await.map_or(Ok(()), Err)
    }

    /// Loads the models beside the server, so that it answers questions about its health from the start.
    fn load(self, app: Arc<App>, addresses: Vec<SocketAddr>, failed: tokio::sync::oneshot::Sender<Failure>) {
        std::thread::spawn(move || {
            for name in &self.models {
                if let Err(failure) = engines::start(&app, &self.engine, &self.options, name) {
                    let _ = failed.send(failure);
                    return;
                }
            }
            if self.log_batches {
                engines::log_batches(&app);
            }
            app.life.enter(Phase::Ready);
            tell(&banner::ready(&app, &addresses));
        });
    }
}

/// Waits for the word to end: SIGTERM or Ctrl-C.
async fn signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            tell("finishing what runs; Ctrl-C again to quit at once");
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}

async fn quit_at_once() {
    if tokio::signal::ctrl_c().await.is_ok() {
        std::process::exit(130);
    }
}
