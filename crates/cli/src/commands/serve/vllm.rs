//! Flags as those who come from vLLM type them:
//! `ropeway serve MODEL --host 0.0.0.0 --port 9000 --api-key KEY --served-model-name NAME`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};

use clap::Args;
use ropeway_server::Alias;

use crate::failure::Failure;

/// Where vLLM listens unless told otherwise.
const PORT: u16 = 8000;

/// What vLLM calls otherwise.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Options as vLLM has them")]
pub struct VllmArgs {
    /// A model to serve, before those of --model
    #[arg(value_name = "MODEL")]
    model: Option<String>,
    /// Address to listen on, in place of --listen
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// Port to listen on, in place of --listen
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// What clients call the first model, beside its own name; several are
    /// possible
    #[arg(long, value_name = "NAME", num_args = 1..)]
    served_model_name: Vec<String>,
}

impl VllmArgs {
    /// The models to serve, those given by flags included.
    pub fn models(&self, given: &[String]) -> Vec<String> {
        self.model.iter().chain(given).cloned().collect()
    }

    /// Where to listen: `given` unless host or port say otherwise.
    pub fn listen(&self, given: &[SocketAddr]) -> Result<Vec<SocketAddr>, Failure> {
        let port = self.port.unwrap_or(PORT);
        match &self.host {
            None if self.port.is_none() => Ok(given.to_vec()),
            None => Ok(vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)]),
            Some(host) => {
                let name = host.trim_matches(['[', ']']);
                let first = (name, port).to_socket_addrs().ok().and_then(|mut found| found.next());
                let unknown = || {
                    Failure::new(
                        format!("--host {host} is no address of this machine"),
                        "give an address such as 127.0.0.1 or 0.0.0.0",
                    )
                };
                Ok(vec![first.ok_or_else(unknown)?])
            }
        }
    }

    /// The first model's other names.
    pub fn aliases(&self, first: &str) -> impl Iterator<Item = Alias> {
        self.served_model_name.iter().map(|name| Alias { pattern: name.clone(), model: first.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> VllmArgs {
        VllmArgs { model: None, host: None, port: None, served_model_name: Vec::new() }
    }

    #[test]
    fn a_model_without_a_flag_comes_before_those_with_one() {
        let given = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let named = VllmArgs { model: Some("x".into()), ..args() };
        assert!(args().models(&[]).is_empty());
        assert_eq!(named.models(&[]), ["x"]);
        assert_eq!(named.models(&given(&["y", "z"])), ["x", "y", "z"]);
    }

    #[test]
    fn host_and_port_stand_for_an_address() {
        let listen: [SocketAddr; 1] = ["127.0.0.1:8000".parse().unwrap()];
        let of = |host: Option<&str>, port| {
            let args = VllmArgs { host: host.map(Into::into), port, ..args() };
            args.listen(&listen).map(|addresses| addresses[0].to_string()).ok()
        };
        assert_eq!(of(None, None).as_deref(), Some("127.0.0.1:8000"));
        assert_eq!(of(None, Some(9000)).as_deref(), Some("127.0.0.1:9000"));
        assert_eq!(of(Some("0.0.0.0"), None).as_deref(), Some("0.0.0.0:8000"));
        assert_eq!(of(Some("[::1]"), Some(1)).as_deref(), Some("[::1]:1"));
        assert_eq!(of(Some("not an address"), None), None);
    }
}
