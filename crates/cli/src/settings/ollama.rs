//! Ollama's own variables, for those who set them once and forgot: they hold where Ropeway's flags, environment and file say
//! nothing.
//!
//! | variable | flag |
//! |---|---|
//! | `OLLAMA_HOST` | `--listen` |
//! | `OLLAMA_ORIGINS` | `--cors-origin` |
//! | `OLLAMA_KEEP_ALIVE` | `--keep-alive` |
//! | `OLLAMA_CONTEXT_LENGTH` | `--context` |

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{Given, Origin};
use crate::output::tell;

/// What all of them begin with.
pub(super) const PREFIX: &str = "OLLAMA_";

/// Where Ollama listens.
const PORT: u16 = 11434;

/// What the environment says in Ollama's words.
pub(super) fn given() -> Vec<Given> {
    let variable = |name: &str| std::env::var(name).ok().map(|value| value.trim().to_owned());
    read(variable)
}

fn read(variable: impl Fn(&str) -> Option<String>) -> Vec<Given> {
    let text = |name: &str| variable(name).filter(|value| !value.is_empty());
    let given = |name: &str, flag: &str, values: Vec<String>| Given {
        flag: flag.into(),
        values,
        origin: Origin::Environment(name.into()),
    };
    let one = |name: &str, flag: &str| text(name).map(|value| given(name, flag, vec![value]));
    let listen = text("OLLAMA_HOST").and_then(|host| {
        let address = address(&host);
        if address.is_none() {
            tell(&format!("OLLAMA_HOST={host} names no address of this machine; give one with --listen"));
        }
        Some(given("OLLAMA_HOST", "listen", vec![address?.to_string()]))
    });
    let origins = text("OLLAMA_ORIGINS").map(|origins| {
        let each = origins.split(',').map(|origin| origin.trim().to_owned());
        given("OLLAMA_ORIGINS", "cors-origin", each.filter(|origin| !origin.is_empty()).collect())
    });
    // 0 leaves it to the model.
    let context = one("OLLAMA_CONTEXT_LENGTH", "context").filter(|context| context.values != ["0"]);
    [listen, origins, one("OLLAMA_KEEP_ALIVE", "keep-alive"), context].into_iter().flatten().collect()
}

/// Where Ollama would listen. Its clients take the same variable for a server elsewhere, whose name is none of ours.
fn address(host: &str) -> Option<SocketAddr> {
    let (scheme, rest) = host.split_once("://").unwrap_or(("", host));
    let port = match scheme {
        "http" => 80,
        "https" => 443,
        _ => PORT,
    };
    let rest = rest.split('/').next().unwrap_or_default();
    let (name, given) = match rest.rsplit_once(':') {
        // More than one colon and no brackets: an IPv6 address alone.
        Some((name, _)) if name.contains(':') && !name.ends_with(']') => (rest, None),
        Some((name, port)) => (name, Some(port.parse().ok()?)),
        None => (rest, None),
    };
    let ip = match name.trim_matches(['[', ']']) {
        "" | "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
        ip => ip.parse().ok()?,
    };
    Some(SocketAddr::new(ip, given.unwrap_or(port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_read_as_ollama_reads_it() {
        for (host, listen) in [
            ("127.0.0.1", Some("127.0.0.1:11434")),
            ("0.0.0.0:8080", Some("0.0.0.0:8080")),
            (":1234", Some("127.0.0.1:1234")),
            ("localhost", Some("127.0.0.1:11434")),
            ("http://127.0.0.1:11500/", Some("127.0.0.1:11500")),
            ("http://127.0.0.1", Some("127.0.0.1:80")),
            ("https://localhost", Some("127.0.0.1:443")),
            ("::1", Some("[::1]:11434")),
            ("[::1]:99", Some("[::1]:99")),
            ("gpu-box.lan:11434", None),
            ("127.0.0.1:many", None),
        ] {
            assert_eq!(address(host).map(|address| address.to_string()).as_deref(), listen, "{host}");
        }
    }

    #[test]
    fn what_is_set_becomes_a_flag_and_what_is_empty_does_not() {
        let set = |name: &str| match name {
            "OLLAMA_ORIGINS" => Some("https://a.example, moz-extension://*".into()),
            "OLLAMA_KEEP_ALIVE" => Some("1h".into()),
            "OLLAMA_HOST" => Some(String::new()),
            "OLLAMA_CONTEXT_LENGTH" => Some("0".into()),
            _ => None,
        };
        let flags: Vec<_> = read(set).into_iter().map(|given| (given.flag, given.values)).collect();
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let origins = texts(&["https://a.example", "moz-extension://*"]);
        assert_eq!(flags, [("cors-origin".into(), origins), ("keep-alive".into(), texts(&["1h"]))]);
    }
}
