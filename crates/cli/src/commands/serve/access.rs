//! Who may ask, and what they may do: keys, names, pages, proxies and certificates.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::{env, fs};

use clap::Args;
use ropeway_server::guard::Guard;
use ropeway_server::guard::host::Hosts;
use ropeway_server::guard::keys::KeyRing;
use ropeway_server::guard::origin::{Network, TrustedProxies};
use ropeway_server::tls::Tls;

use crate::failure::Failure;

/// Keys without a file, for containers.
const KEYS: &str = "ROPEWAY_API_KEYS";

/// Where clients take a key from.
const HOW_TO_SEND: &str =
    "Clients send it as OPENAI_API_KEY, ANTHROPIC_AUTH_TOKEN or authorization: Bearer KEY";

/// Who may ask.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Access options")]
pub struct AccessArgs {
    /// File of keys, one a line: KEY [name=NAME] [max-priority=CLASS]
    /// [concurrency=N] [tokens-per-minute=N] [models=A,B] [pull] [metrics]
    /// [admin]; or put them into `ROPEWAY_API_KEYS`. A key may ask every model
    /// and do nothing else, unless its line says so: models=A,B leaves it these
    /// models only, pull lets it fetch models, metrics read /metrics, admin
    /// load, unload, copy and delete models and all of these
    #[arg(long, value_name = "FILE")]
    api_keys_file: Option<PathBuf>,
    /// A key that clients must send; others on this machine can see it in the
    /// list of processes, which --api-keys-file keeps from them; may be given
    /// several times
    #[arg(long = "api-key", value_name = "KEY")]
    api_keys: Vec<String>,
    /// Listen on addresses that others can reach without asking for keys: they
    /// may ask every model, and change none
    #[arg(long)]
    insecure: bool,
    /// All clients share cached prompts, rather than each key its own: faster
    /// where they have prompts in common, but one can find out by time and
    /// `cached_tokens` what another has asked
    #[arg(long)]
    share_prefixes: bool,
    /// /metrics needs no key
    #[arg(long)]
    open_metrics: bool,
    /// Address or network of a proxy, as in 10.0.0.0/8, whose
    /// `X-Forwarded-For` or `Forwarded` is believed; may be given several times
    #[arg(long = "trusted-proxy", value_name = "NETWORK")]
    trusted_proxies: Vec<Network>,
    /// Another name this server answers to; may be given several times
    #[arg(long = "allowed-host", value_name = "NAME")]
    allowed_hosts: Vec<String>,
    /// Web origin whose pages may ask, as in
    /// `https://app.example`, or `*`; may be given several times
    #[arg(long = "cors-origin", value_name = "ORIGIN")]
    cors_origins: Vec<String>,
    /// Certificate for TLS, in PEM form, with its issuers' after it
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The certificate's key, in PEM form
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
}

impl AccessArgs {
    /// All keys. None are needed where only this machine can ask.
    pub fn keys(&self, listen: &[SocketAddr]) -> Result<KeyRing, Failure> {
        let mut keys = KeyRing::default();
        if let Some(path) = &self.api_keys_file {
            let unreadable = |error| {
                Failure::new(format!("{} can't be read: {error}", path.display()), "check --api-keys-file")
            };
            keys = parse(&fs::read_to_string(path).map_err(unreadable)?, &path.display().to_string())?;
            if keys.is_empty() {
                let what = format!("there is no key in {}", path.display());
                return Err(Failure::new(what, "write one a line, or leave --api-keys-file out"));
            }
        }
        for key in &self.api_keys {
            keys = keys.and(parse(key, "--api-key")?);
        }
        if let Ok(given) = env::var(KEYS) {
            keys = keys.and(parse(&given, KEYS)?);
        }
        let public = listen.iter().find(|address| !address.ip().is_loopback());
        match public {
            Some(address) if keys.is_empty() && !self.insecure => Err(Failure::new(
                format!("{address} can be reached by others, and nobody is asked for a key"),
                "give keys with --api-keys-file FILE, listen on 127.0.0.1, or say --insecure if the network is yours",
            )),
            _ => Ok(keys),
        }
    }

    /// Proxies whose word about their clients is believed.
    pub fn proxies(&self) -> TrustedProxies {
        TrustedProxies::new(self.trusted_proxies.clone())
    }

    /// Everything that is decided about a request before it is read, but for what clients may use.
    pub fn guard(&self, asked_for: &[SocketAddr], listening: &[SocketAddr]) -> Result<Guard, Failure> {
        Ok(Guard {
            hosts: self.hosts(listening),
            keys: self.keys(asked_for)?,
            proxies: self.proxies(),
            shares_prefixes: self.share_prefixes,
            has_open_metrics: self.open_metrics,
            ..Guard::default()
        })
    }

    /// Who may do what, in a sentence for the operator.
    pub fn summary(guard: &Guard, listening: &[SocketAddr]) -> String {
        let is_public = listening.iter().any(|address| !address.ip().is_loopback());
        match (guard.keys.len(), is_public) {
            (0, false) => "everyone on this machine, without a key".into(),
            (0, true) => {
                "EVERYONE who can reach it may ask, without a key; only this machine may load, pull or delete models".into()
            }
            (1, _) => format!("one key; nobody without it. {HOW_TO_SEND}"),
            (keys, _) => format!("{keys} keys; nobody without one. {HOW_TO_SEND}"),
        }
    }

    /// Names and pages that are let in.
    fn hosts(&self, listening: &[SocketAddr]) -> Hosts {
        Hosts::new(listening, &self.allowed_hosts, &self.cors_origins)
    }

    /// Where clients find a server on these addresses.
    pub fn urls(&self, addresses: &[SocketAddr]) -> Vec<String> {
        let scheme = if self.tls_cert.is_some() { "https" } else { "http" };
        addresses.iter().map(|address| format!("{scheme}://{address}")).collect()
    }

    /// The certificate, if there is one.
    pub fn tls(&self) -> Result<Option<Tls>, Failure> {
        match (&self.tls_cert, &self.tls_key) {
            (None, None) => Ok(None),
            (Some(certificate), Some(key)) => load(certificate, key).map(Some),
            _ => Err(Failure::new(
                "TLS needs both a certificate and its key",
                "give --tls-cert FILE and --tls-key FILE",
            )),
        }
    }
}

fn load(certificate: &Path, key: &Path) -> Result<Tls, Failure> {
    Tls::load(certificate, key).map_err(|error| {
        Failure::new(error, "give PEM files: --tls-cert with the chain, --tls-key with its key")
    })
}

fn parse(text: &str, place: &str) -> Result<KeyRing, Failure> {
    text.parse().map_err(|error| {
        let hint = "a line is KEY [name=NAME] [max-priority=CLASS] [concurrency=N] [tokens-per-minute=N] [models=A,B] \
                    [pull] [metrics] [admin]";
        Failure::new(format!("{place}: {error}"), hint)
    })
}
