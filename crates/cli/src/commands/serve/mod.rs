//! `ropeway serve`: models on the network.
//!
//! Layout: [`access`], [`limits`], [`logs`] and [`embeddings`] are groups of its flags, [`banner`] is what a person sees at the start,
//! [`library`] knows the models on disk and [`ledger`] the memory they take, [`engines`] loads them and starts them again
//! if they fall, [`upstreams`] are other servers that compute models for this one, [`end`] makes sure that the server ends.

mod access;
mod banner;
mod embeddings;
mod end;
mod engines;
mod ledger;
mod library;
mod limits;
mod logs;
mod relaunch;
mod upstreams;
mod vllm;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use clap::Args;
use ropeway_engine::Handle;
use ropeway_hub::catalogue::{DEFAULT_CHAT_MODEL, DEFAULT_EMBEDDING_MODEL};
use ropeway_server::connections::slots::ConnectionLimits;
use ropeway_server::embedding::EmbeddingModels;
use ropeway_server::guard::Guard;
use ropeway_server::library::{Library, Shelf};
use ropeway_server::model::lease::KeepAlive;
use ropeway_server::model::promised::Arrival;
use ropeway_server::observe::otlp::Exporter;
use ropeway_server::ops::health::Phase;
use ropeway_server::serve::Listening;
use ropeway_server::{Alias, App, Model, Models};

use self::access::AccessArgs;
use self::embeddings::EmbedArgs;
use self::library::{Shelves, served_name};
use self::limits::LimitArgs;
use self::logs::LogArgs;
use self::upstreams::{UpstreamArgs, Upstreams};
use self::vllm::VllmArgs;
use crate::descriptors::raise_limit;
use crate::engine_args::EngineArgs;
use crate::failure::Failure;
use crate::interrupt;
use crate::model_args::ModelArgs;
use crate::output::tell;
use crate::settings::Resolved;

/// Time for storing keys and values when the drain time is used up; less than what is left until the process ends for
/// certain.
const LAST_BLOCKS: Duration = Duration::from_millis(300);

/// Where Ollama's clients look.
const OLLAMA_PORT: &str = "11434";

const EXAMPLES: &str = "\
Examples:
  ropeway serve                                    the default model on port 8000
  ropeway serve --ollama-port                      where Ollama's clients look, too
  ropeway serve --model ./model.gguf --listen 127.0.0.1:11434
  ropeway serve --alias 'claude-*=smollm2:135m'    what Claude clients call it
  ropeway serve --listen 0.0.0.0:8000 --api-keys-file keys.txt
  ropeway serve --upstream http://gpu1:8000 --upstream http://gpu2:8000
  ropeway serve --vllm Qwen/Qwen2.5-7B-Instruct -- --max-model-len 8192
Any OpenAI, Anthropic or Ollama client works: give it this server's address.
Every option is a setting too: --drain-timeout is ROPEWAY_DRAIN_TIMEOUT in the
environment and drain-timeout in ropeway.toml; see `ropeway config`.";

/// Serve models to OpenAI, Anthropic and Ollama clients
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Serve {
    /// A model to serve; may be given several times (default: smollm2:135m,
    /// or none with --upstream)
    #[arg(long = "model", value_name = "MODEL")]
    models: Vec<String>,
    /// Where to listen; may be given several times
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8000")]
    listen: Vec<SocketAddr>,
    /// Another name for a model, as in 'claude-*=smollm2:135m'; may be given
    /// several times
    #[arg(long = "alias", value_name = "NAME=MODEL")]
    aliases: Vec<Alias>,
    /// Take every model name that clients send for the first model
    #[arg(long)]
    any_model: bool,
    /// Listen on Ollama's port as well, or on another one, at the same
    /// addresses
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = OLLAMA_PORT)]
    ollama_port: Option<u16>,
    /// Clients may not fetch, load, unload or delete models
    #[arg(long)]
    fixed_models: bool,
    /// A question for a model that is on disk loads it; nothing is fetched
    /// (default: true if only this machine can ask, and not with --upstream
    /// alone)
    #[arg(long, value_name = "true|false", num_args = 0..=1, default_missing_value = "true")]
    load_on_demand: Option<bool>,
    /// How long a model that a client had loaded stays after its last request,
    /// as in 30m or 1h; -1 is for good (default: 5m)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    keep_alive: Option<KeepAlive>,
    /// File of settings (default: ropeway.toml here, or in ~/.config/ropeway)
    #[arg(long, value_name = "FILE")]
    #[allow(dead_code, reason = "it is read before the rest of the command line: see `settings`")]
    config: Option<PathBuf>,
    /// Seconds that running requests get to finish when the server is told to
    /// end
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    drain_timeout: u64,
    #[command(flatten)]
    vllm: VllmArgs,
    #[command(flatten)]
    upstreams: UpstreamArgs,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    embed: EmbedArgs,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    logs: LogArgs,
    #[command(flatten)]
    options: ModelArgs,
    #[command(flatten)]
    engine: EngineArgs,
}

impl Serve {
    pub fn run(mut self, resolved: &Resolved) -> Result<(), Failure> {
        self.models = self.models();
        let taken = resolved.taken_from_ollama();
        if let Some(taken) = taken.as_ref().filter(|_| self.logs.is_for_people()) {
            tell(&format!("taken from Ollama's settings: {taken}"));
        }
        self.check()?;
        self.logs.start();
        if let Some(taken) = taken.filter(|_| !self.logs.is_for_people()) {
            tracing::info!(target: "serve", taken, "taken from Ollama's settings");
        }
        raise_limit();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(workers()).enable_all().build()?;
        let served = runtime.block_on(self.serve());
        // Whatever still blocks a thread is not waited for: it ends with the process.
        runtime.shutdown_background();
        served
    }

    /// The models that are loaded here.
    fn models(&self) -> Vec<String> {
        let given = self.vllm.models(&self.models);
        let default = given.is_empty() && self.upstreams.is_empty();
        if default { vec![DEFAULT_CHAT_MODEL.into()] } else { given }
    }

    /// Whether it could be served with these settings: keys and certificates are there and fit.
    pub fn check(&self) -> Result<(), Failure> {
        self.access.keys(&self.addresses()?)?;
        self.access.tls()?;
        self.upstreams.check()
    }

    async fn serve(self) -> Result<(), Failure> {
        let listening = self.listening().await?;
        let (held, addresses) = (listening.held()?, listening.addresses()?);
        let shelves = Arc::new(self.shelves()?);
        let app = Arc::new(self.app(&addresses, &shelves)?);
        let upstreams = Arc::new(self.upstreams.start(&app, self.engine.settings().queue)?);
        self.report_loading(&app);
        let drain = Duration::from_secs(self.drain_timeout);
        let ending = end::hear(drain)?;
        let (failed, failure) = tokio::sync::oneshot::channel();
        let kv_disk = self.engine.kv_disk.clone();
        let loading =
            Loading { app: Arc::clone(&app), shelves, upstreams: Arc::clone(&upstreams), addresses };
        self.load(loading, failed);
        let (told, was_told) = tokio::sync::oneshot::channel();
        let (relaunching, relaunch) = tokio::sync::oneshot::channel();
        let began = Arc::new(OnceLock::new());
        let begins = Arc::clone(&began);
        let shutdown = async move {
            tokio::select! {
                biased;
                () = ending => drop(held),
                () = relaunch::needed() => drop(relaunching.send(held)),
                // A pull that was stopped because the server ends is no failure.
                Ok(failure) = failure => if !interrupt::pulls().is_cancelled() {
                    end::fail(drain, &failure);
                    let _ = told.send(failure);
                }
            }
            let _ = begins.set(Instant::now());
        };
        listening.serve(Arc::clone(&app), drain, shutdown).await?;
        upstreams.stop();
        let left = drain.saturating_sub(began.get().map_or(Duration::ZERO, Instant::elapsed));
        kv_disk.finish(&engines(&app), left.max(LAST_BLOCKS));
        // A signal that came meanwhile ends the server for good.
        if let (Ok(held), false) = (relaunch.await, interrupt::pulls().is_cancelled()) {
            return Err(relaunch::begin_anew(&held));
        }
        was_told.await.map_or(Ok(()), Err)
    }

    /// The sockets of the program that this process was before, or new ones.
    async fn listening(&self) -> Result<Listening, Failure> {
        let addresses = self.addresses()?;
        let listening = match relaunch::inherited(&addresses) {
            Some(sockets) => Listening::adopt(sockets)?,
            None => Listening::bind(&addresses).await?,
        };
        Ok(listening.with_tls(self.access.tls()?))
    }

    fn shelves(&self) -> Result<Shelves, Failure> {
        Shelves::new(self.engine.clone(), self.options.clone(), &self.models, self.logs.log_batches)
    }

    fn app(&self, addresses: &[SocketAddr], shelves: &Arc<Shelves>) -> Result<App, Failure> {
        let alias = |alias: &Alias| Alias { model: served_name(&alias.model), ..alias.clone() };
        let first = self.models.first().map_or(DEFAULT_CHAT_MODEL, String::as_str);
        let aliases: Vec<_> = self.vllm.aliases(first).chain(self.aliases.iter().cloned()).collect();
        let models = Models::new(aliases.iter().map(alias).collect())
            .giving(self.models.iter().map(|given| served_name(given)));
        for copy in shelves.copies() {
            models.add_copy(copy);
        }
        for derived in shelves.derived() {
            models.add_derived(derived);
        }
        for given in &self.models {
            models.promise(&served_name(given));
        }
        self.upstreams.models()?.iter().for_each(|name| models.promise(name));
        let library: Arc<dyn Library> = Arc::clone(shelves) as _;
        let app = App {
            embeddings: self.embeddings(shelves),
            embedding_ids: self.embed.ids_of(),
            shelf: (!self.fixed_models).then(|| self.shelf(library, addresses)),
            limits: self.limits.limits(),
            memory: self.limits.memory(),
            connections: ConnectionLimits { proxies: self.access.proxies(), ..self.limits.connections() },
            guard: Guard {
                allowance: self.limits.allowance(),
                ..self.access.guard(&self.addresses()?, addresses)?
            },
            exporter: self.logs.otlp_endpoint.clone().map(Exporter::start),
            ..App::new(if self.any_model { models.taking_any_name() } else { models })
        };
        Ok(match self.engine.kv_disk.disk()? {
            Some(disk) => app.with_disk(disk),
            None => app,
        })
    }

    /// The models that embed; where nothing else is computed here, only those that were asked for.
    fn embeddings(&self, shelves: &Arc<Shelves>) -> EmbeddingModels {
        let default = (!self.models.is_empty()).then_some(DEFAULT_EMBEDDING_MODEL);
        self.embed.models(default, &self.options, shelves, self.logs.log_batches)
    }

    /// Where to listen, with Ollama's port at the same addresses if it was asked for.
    fn addresses(&self) -> Result<Vec<SocketAddr>, Failure> {
        let mut addresses = self.vllm.listen(&self.listen)?;
        for index in 0..addresses.len() {
            let other = self.ollama_port.map(|port| SocketAddr::new(addresses[index].ip(), port));
            addresses.extend(other.filter(|other| !addresses.contains(other)));
        }
        Ok(addresses)
    }

    fn shelf(&self, library: Arc<dyn Library>, addresses: &[SocketAddr]) -> Shelf {
        let is_private = addresses.iter().all(|address| address.ip().is_loopback());
        Shelf::new(library)
            .keeping(self.keep_alive.unwrap_or_default())
            .loading_on_demand(self.load_on_demand.unwrap_or(is_private && !self.models.is_empty()))
    }

    /// Tells those who ask for a promised model how far it is.
    fn report_loading(&self, app: &Arc<App>) {
        let app = Arc::downgrade(app);
        self.options.report.subscribe(move |given, done| {
            if let Some(app) = app.upgrade() {
                app.models.load_progress(&served_name(given), done);
            }
        });
    }

    /// Loads the models beside the server, so that it answers questions about its health from the start.
    fn load(self, loading: Loading, failed: tokio::sync::oneshot::Sender<Failure>) {
        let runtime = tokio::runtime::Handle::current();
        std::thread::spawn(move || {
            let models = self.models.iter().try_for_each(|given| match loading.load(given) {
                // The GPU may be gone for good: the others are served, and `/health` says why this one is not.
                Err(failure) if relaunch::is_relaunched() => {
                    tracing::error!(target: "serve", model = given, %failure, "not loaded again");
                    Ok(())
                }
                loaded => loaded,
            });
            let is_for_people = self.logs.is_for_people();
            let all = models.and_then(|()| runtime.block_on(loading.upstreams.first_contact(is_for_people)));
            if let Err(failure) = all {
                let _ = failed.send(failure);
                return;
            }
            let Loading { app, addresses, .. } = &loading;
            app.life.enter(Phase::Ready);
            let urls = self.access.urls(addresses);
            if is_for_people {
                let access = AccessArgs::summary(&app.guard, addresses);
                tell(&banner::ready(app, &urls, &access));
            } else {
                tracing::info!(target: "serve", urls = urls.join(" "), "ready");
            }
        });
    }
}

/// Threads that talk to clients: two keep up with what a small machine computes, and leave its CPUs to that; a GPU beside many CPUs
/// can give 100,000 tokens a second.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(2, |cpus| (cpus.get() / 4).clamp(2, 8))
}

/// What is loaded while the server runs already.
struct Loading {
    app: Arc<App>,
    shelves: Arc<Shelves>,
    upstreams: Arc<Upstreams>,
    addresses: Vec<SocketAddr>,
}

impl Loading {
    /// Loads one of the operator's models.
    fn load(&self, given: &str) -> Result<(), Failure> {
        let (models, name) = (&self.app.models, served_name(given));
        models.arrives(&name, Arrival::Loading { since: Instant::now(), done: None });
        let model = start(&self.app, &self.shelves, given).inspect_err(|failure| {
            models.arrives(&name, Arrival::Failed { why: failure.to_string() });
        })?;
        models.add(model);
        Ok(())
    }
}

/// The engines of this process.
fn engines(app: &App) -> Vec<Handle> {
    app.models.all().iter().filter_map(|model| model.engine().engine().cloned()).collect()
}

/// Loads a model, unless its name is taken.
fn start(app: &App, shelves: &Shelves, given: &str) -> Result<Arc<Model>, Failure> {
    let name = served_name(given);
    if app.models.all().iter().any(|other| other.name == name) {
        let what = format!("two models are called {name}");
        return Err(Failure::new(what, "leave one --model out, or give its file another name"));
    }
    shelves.start(given)
}
