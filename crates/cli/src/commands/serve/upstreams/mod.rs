//! Other servers that compute models for this one: `--upstream`, `[[upstream]]` in the settings, and `--vllm`.
//!
//! Layout: [`host`] serves the models that upstreams offer ([`embedder`]: those that embed), [`tokenizer`] finds the tokenizer of one, [`child`] runs vLLM.

mod child;
mod embedder;
mod host;
mod tokenizer;

use std::sync::Arc;

use clap::Args;
use ropeway_pool::dispatch;
use ropeway_pool::pools::{Contact, Pools, served_name};
use ropeway_pool::settings::{UpstreamArg, UpstreamSettings, resolve_all};
use ropeway_server::App;

use self::child::Child;
use self::host::AppHost;
use crate::failure::Failure;
use crate::output::tell;

/// Which other servers compute models for this one.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Upstream options")]
pub struct UpstreamArgs {
    /// Another server whose models are served here: vLLM, SGLang, llama-server,
    /// Ollama, Ropeway or anything that speaks as OpenAI does; may be given
    /// several times. Servers of the same model share its requests. Keys,
    /// weights and limits stand in ropeway.toml under [[upstream]]; see
    /// docs/pool.md. Without --model, nothing is loaded here
    #[arg(long = "upstream", value_name = "[NAME=]URL")]
    // Read later: an error about a value of the command line shows that value, which may hold a key by mistake.
    upstreams: Vec<String>,
    /// Start `vllm serve MODEL` on this machine and stand in front of it; flags
    /// for it follow at the end, as in: --vllm MODEL -- --max-model-len 8192
    #[arg(long, value_name = "MODEL")]
    vllm: Option<String>,
    /// Flags for vLLM
    #[arg(last = true, value_name = "VLLM FLAGS", requires = "vllm")]
    vllm_flags: Vec<String>,
}

impl UpstreamArgs {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.upstreams.is_empty() && self.vllm.is_none()
    }

    /// Whether the settings could be used: keys are readable, names are unique.
    pub fn check(&self) -> Result<(), Failure> {
        if self.vllm.is_some() {
            child::installed()?;
        }
        self.settings().map(|_| ())
    }

    /// The models that upstreams were said to have.
    pub fn models(&self) -> Result<Vec<String>, Failure> {
        Ok(self
            .settings()?
            .into_iter()
            .flat_map(|upstream| upstream.models)
            .map(|id| served_name(&id))
            .collect())
    }

    fn settings(&self) -> Result<Vec<UpstreamSettings>, Failure> {
        let hint = "an upstream is [NAME=]URL, or a table [[upstream]] in ropeway.toml; see docs/pool.md";
        let all = self.upstreams.iter().map(|given| given.parse()).collect::<Result<Vec<UpstreamArg>, _>>();
        all.and_then(resolve_all).map_err(|error| Failure::new(error, hint))
    }

    /// Begins to look after the upstreams, and starts vLLM if that was asked for.
    pub fn start(&self, app: &Arc<App>, most_waiting: usize) -> Result<Upstreams, Failure> {
        let mut settings = self.settings()?;
        let child = self.vllm.as_ref().map(|model| Child::start(model, &self.vllm_flags)).transpose()?;
        settings.extend(child.as_ref().map(Child::settings));
        let host = Arc::new(AppHost::new(app));
        let dispatch = dispatch::Settings { most_waiting, ..dispatch::Settings::default() };
        let pools = Pools::start(settings, dispatch, host);
        let pools = pools.map_err(|error| Failure::new(error, "check the [[upstream]] settings"))?;
        let _ = app.pools.set(Arc::clone(&pools));
        Ok(Upstreams { pools, child })
    }
}

/// The upstreams of a running server.
pub struct Upstreams {
    pools: Arc<Pools>,
    child: Option<Child>,
}

impl Upstreams {
    /// Waits until each was asked once, and until vLLM is there or given up; says which can't be used.
    pub async fn first_contact(&self, is_for_people: bool) -> Result<(), Failure> {
        if let Some(child) = &self.child {
            let upstream = child.settings().name;
            tokio::select! {
                failure = child.failed() => return Err(failure),
                () = self.pools.reached(&upstream) => child.served(),
            }
        }
        self.pools.first_contact().await;
        for upstream in self.pools.upstreams() {
            if let (Contact::Down { why }, true) = (&upstream.contact, is_for_people) {
                tell(&format!("{why} (it is tried again)"));
            }
        }
        Ok(())
    }

    /// Ends what was started.
    pub fn stop(&self) {
        if let Some(child) = &self.child {
            child.stop();
        }
    }
}
