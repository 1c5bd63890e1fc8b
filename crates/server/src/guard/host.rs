//! Which names this server answers to, and which web pages may ask it.
//!
//! A server on loopback trusts whoever can reach it; so can any web page that the machine's user opens. Two ways in are
//! closed: a name of the attacker's that resolves to 127.0.0.1 (DNS rebinding; the `Host` header tells), and requests that
//! a page sends to another origin without being allowed to read the answer (the `Origin` header tells).

use std::net::{IpAddr, SocketAddr};

use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, Uri};

use crate::error::{ApiError, Kind};

/// Names and origins that are let in.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    /// Names this server goes by; `None` asks nobody.
    names: Option<Vec<String>>,
    /// Web origins that may ask, such as `https://app.example`; `*` is all of them.
    origins: Vec<String>,
}

impl Hosts {
    /// Answers to these names beside those of loopback. A server that others can reach has names it does not know, so it
    /// asks only if some are given.
    pub fn new(listening: &[SocketAddr], names: &[String], origins: &[String]) -> Self {
        let public = listening.iter().any(|address| !address.ip().is_loopback());
        let mut known = vec!["localhost".to_owned(), "127.0.0.1".into(), "[::1]".into()];
        known.extend(listening.iter().map(|address| bracketed(address.ip())));
        let names = (!public || !names.is_empty())
            .then(|| known.into_iter().chain(names.iter().map(|name| name.to_ascii_lowercase())).collect());
        Self { names, origins: origins.to_vec() }
    }

    /// Web origins that may ask.
    pub fn origins(&self) -> &[String] {
        &self.origins
    }

    /// Turns down requests for other names, and those of other origins' pages.
    pub fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
        let header =
            |name| headers.get(name).map(|value: &axum::http::HeaderValue| value.to_str().unwrap_or("?"));
        let host = uri.authority().map(axum::http::uri::Authority::as_str).or_else(|| header(HOST));
        if let (Some(names), Some(host)) = (&self.names, host) {
            let name = without_port(host).to_ascii_lowercase();
            if !names.contains(&name) {
                let what = format!(
                    "this server does not answer to the name {name:?}; start it with --allowed-host {name}"
                );
                return Err(ApiError::new(Kind::Forbidden, what).coded("unknown_host"));
            }
        }
        match header(ORIGIN) {
            Some(origin) if !self.is_allowed(origin, host) => {
                let what = format!(
                    "pages of {origin:?} may not ask this server; start it with --cors-origin {origin}"
                );
                Err(ApiError::new(Kind::Forbidden, what).coded("unknown_origin"))
            }
            _ => Ok(()),
        }
    }

    /// A page of this server's own, or of an origin that was allowed.
    fn is_allowed(&self, origin: &str, host: Option<&str>) -> bool {
        let own = origin.split_once("://").is_some_and(|(_, authority)| Some(authority) == host);
        own || self.origins.iter().any(|allowed| allowed == "*" || allowed == origin)
    }
}

fn bracketed(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

/// `localhost:8000` and `[::1]:8000` without their ports.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.is_empty() => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(hosts: &Hosts, host: &str, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::from_iter([(HOST, host.parse().unwrap())]);
        headers.extend(origin.map(|origin| (ORIGIN, origin.parse().unwrap())));
        hosts.check(&Uri::from_static("/"), &headers).is_ok()
    }

    #[test]
    fn a_server_on_loopback_answers_to_its_own_names_only() {
        let listening = ["127.0.0.2:8000".parse().unwrap()];
        let hosts = Hosts::new(&listening, &["Box.lan".into()], &[]);
        for name in
            ["localhost:8000", "LOCALHOST", "127.0.0.1", "127.0.0.2:8000", "[::1]:8000", "[::1]", "box.lan"]
        {
            assert!(check(&hosts, name, None), "{name}");
        }
        for name in ["evil.example", "127.0.0.1.evil.example:8000", "localhost.evil.example", "", ":8000"] {
            assert!(!check(&hosts, name, None), "{name}");
        }
        assert!(hosts.check(&Uri::from_static("/"), &HeaderMap::new()).is_ok(), "HTTP/1.0 has no names");
    }

    #[test]
    fn a_public_server_asks_for_a_name_only_if_it_was_given_one() {
        let listening = ["0.0.0.0:8000".parse().unwrap()];
        assert!(check(&Hosts::new(&listening, &[], &[]), "anything.example", None));
        assert!(!check(&Hosts::new(&listening, &["a.example".into()], &[]), "b.example", None));
    }

    #[test]
    fn pages_of_other_origins_are_turned_down_unless_allowed() {
        let hosts = Hosts::new(&[], &[], &["https://app.example".into()]);
        assert!(check(&hosts, "localhost:8000", Some("http://localhost:8000")));
        assert!(check(&hosts, "localhost:8000", Some("https://app.example")));
        for origin in ["https://evil.example", "null", "http://localhost:3000"] {
            assert!(!check(&hosts, "localhost:8000", Some(origin)), "{origin}");
        }
    }
}
