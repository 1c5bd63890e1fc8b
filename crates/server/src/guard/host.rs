//! Which names this server answers to, and which web pages may ask it.
//!
//! A server on loopback trusts whoever can reach it; so can any web page that the machine's user opens. Two ways in are
//! closed: a name of the attacker's that resolves to 127.0.0.1 (DNS rebinding; the `Host` header tells), and requests that
//! a page sends to another origin without being allowed to read the answer (the `Origin` header tells).

use std::net::{IpAddr, SocketAddr};

use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, Uri};

use crate::error::{ApiError, Kind};

/// What this machine calls itself.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// What containers call the machine that they run on. A hostile resolver could give these names too, so that browsers may not
/// use them.
const CONTAINER_HOSTS: [&str; 2] = ["host.docker.internal", "host.containers.internal"];

/// Origins of programs on this machine, rather than of web pages: desktop applications, editors and browser extensions, whose
/// pages no other site can have. Ollama lets the same ones in.
const LOCAL_SCHEMES: [&str; 8] = [
    "app",
    "file",
    "tauri",
    "vscode-webview",
    "vscode-file",
    "chrome-extension",
    "moz-extension",
    "safari-web-extension",
];

/// Names and origins that are let in.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    /// Names this server goes by; `None` asks nobody.
    names: Option<Vec<String>>,
    /// Web origins that may ask, such as `https://app.example`; `*` is all of them.
    origins: Vec<String>,
    /// Whether programs and pages of this machine may ask: where only this machine can be asked from.
    trusts_local_origins: bool,
}

impl Hosts {
    /// Answers to these names beside those of loopback. A server that others can reach has names it does not know, so it
    /// asks only if some are given.
    pub fn new(listening: &[SocketAddr], names: &[String], origins: &[String]) -> Self {
        let public = listening.iter().any(|address| !address.ip().is_loopback());
        let mut known: Vec<_> = LOOPBACK.map(str::to_owned).into();
        known.extend(listening.iter().map(|address| bracketed(address.ip())));
        let names = (!public || !names.is_empty())
            .then(|| known.into_iter().chain(names.iter().map(|name| name.to_ascii_lowercase())).collect());
        Self { names, origins: origins.to_vec(), trusts_local_origins: !public && !listening.is_empty() }
    }

    /// Whether pages of other origins may read answers at all.
    pub fn lets_pages_in(&self) -> bool {
        self.trusts_local_origins || !self.origins.is_empty()
    }

    /// Whether pages of every origin may ask.
    pub fn lets_every_page_in(&self) -> bool {
        self.origins.iter().any(|origin| origin == "*")
    }

    /// Turns down requests for other names, and those of other origins' pages.
    pub fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
        let header =
            |name| headers.get(name).map(|value: &axum::http::HeaderValue| value.to_str().unwrap_or("?"));
        let host = uri.authority().map(axum::http::uri::Authority::as_str).or_else(|| header(HOST));
        if let (Some(names), Some(host)) = (&self.names, host) {
            let name = without_port(host).to_ascii_lowercase();
            let is_program = !headers.contains_key(ORIGIN) && !headers.contains_key("sec-fetch-site");
            let is_container = is_program && CONTAINER_HOSTS.contains(&name.as_str());
            if !names.contains(&name) && !is_container {
                let what = format!(
                    "this server does not answer to the name {name:?}; start it with --allowed-host {name}"
                );
                return Err(ApiError::new(Kind::Forbidden, what).coded("unknown_host"));
            }
        }
        match header(ORIGIN) {
            Some(origin) if !is_own(origin, host) && !self.lets_in(origin) => {
                let what = format!(
                    "pages of {origin:?} may not ask this server; start it with --cors-origin {origin}"
                );
                Err(ApiError::new(Kind::Forbidden, what).coded("unknown_origin"))
            }
            _ => Ok(()),
        }
    }

    /// Whether a request calls this machine by a name that no web page of another can have: rights that depend on the
    /// asker's address do so only then.
    pub fn is_called_by_its_own_name(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let header = headers.get(HOST).and_then(|host| host.to_str().ok());
        let Some(host) = uri.authority().map(axum::http::uri::Authority::as_str).or(header) else {
            return true;
        };
        let name = without_port(host).to_ascii_lowercase();
        let is_known = self.names.as_ref().is_some_and(|names| names.contains(&name));
        is_known || LOOPBACK.contains(&name.as_str()) || CONTAINER_HOSTS.contains(&name.as_str())
    }

    /// Whether it is an origin that was allowed, or one of this machine's where those are trusted.
    pub fn lets_in(&self, origin: &str) -> bool {
        let is_given = self.origins.iter().any(|allowed| allowed == "*" || covers(allowed, origin));
        is_given || (self.trusts_local_origins && is_local(origin))
    }
}

/// A page of this server's own.
fn is_own(origin: &str, host: Option<&str>) -> bool {
    origin.split_once("://").is_some_and(|(_, authority)| Some(authority) == host)
}

/// Whether an allowed origin is meant; a `*` at its end stands for any port or anything after a scheme, as with Ollama.
fn covers(allowed: &str, origin: &str) -> bool {
    match allowed.strip_suffix('*') {
        Some(start) if start.ends_with(':') || start.ends_with("://") => origin.starts_with(start),
        _ => allowed == origin,
    }
}

/// Whether a program or a page of this machine asks.
fn is_local(origin: &str) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else { return false };
    let name = without_port(authority);
    match scheme {
        // Other names below localhost are not safe: some systems ask a resolver for them.
        "http" | "https" => LOOPBACK.contains(&name) || name == "tauri.localhost",
        _ => LOCAL_SCHEMES.contains(&scheme),
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
    fn containers_reach_a_server_on_loopback_by_the_name_of_their_host() {
        let hosts = Hosts::new(&["127.0.0.1:11434".parse().unwrap()], &[], &[]);
        assert!(check(&hosts, "host.docker.internal:11434", None));
        assert!(!check(&hosts, "host.docker.internal.evil.example", None));
        assert!(!check(&hosts, "evil.docker.internal", None));
        let page = Some("http://host.docker.internal:11434");
        assert!(
            !check(&hosts, "host.docker.internal:11434", page),
            "a page that a hostile resolver sent here"
        );
    }

    #[test]
    fn rights_of_this_machine_need_its_own_name_even_where_others_are_answered() {
        let hosts = Hosts::new(&["0.0.0.0:8000".parse().unwrap()], &[], &[]);
        let own = |host: &str| {
            let headers = HeaderMap::from_iter([(HOST, host.parse().unwrap())]);
            hosts.is_called_by_its_own_name(&Uri::from_static("/"), &headers)
        };
        assert!(own("localhost:8000") && own("127.0.0.1:8000") && own("[::1]"));
        assert!(!own("evil.example:8000") && !own("localhost.evil.example"));
    }

    #[test]
    fn pages_of_other_origins_are_turned_down_unless_allowed() {
        let public = ["0.0.0.0:8000".parse().unwrap()];
        let hosts = Hosts::new(&public, &[], &["https://app.example".into(), "http://box.lan:*".into()]);
        assert!(check(&hosts, "localhost:8000", Some("http://localhost:8000")));
        assert!(check(&hosts, "localhost:8000", Some("https://app.example")));
        assert!(check(&hosts, "localhost:8000", Some("http://box.lan:3000")));
        for origin in ["https://evil.example", "null", "http://localhost:3000", "app://obsidian.md"] {
            assert!(!check(&hosts, "localhost:8000", Some(origin)), "{origin}");
        }
    }

    #[test]
    fn programs_and_pages_of_this_machine_may_ask_a_server_on_loopback() {
        let hosts = Hosts::new(&["127.0.0.1:11434".parse().unwrap()], &[], &[]);
        for origin in [
            "http://localhost",
            "http://localhost:3000",
            "https://127.0.0.1:8443",
            "http://[::1]:5173",
            "http://tauri.localhost",
            "app://obsidian.md",
            "file://",
            "tauri://localhost",
            "vscode-webview://0abc",
            "vscode-file://vscode-app",
            "chrome-extension://abcdef",
            "moz-extension://12-34",
            "safari-web-extension://12-34",
        ] {
            assert!(check(&hosts, "localhost:11434", Some(origin)), "{origin}");
        }
        for origin in [
            "https://evil.example",
            "null",
            "http://localhost.evil.example",
            "http://evil.localhost",
            "http://evil.example:11434",
            "http://127.0.0.1.evil.example",
            "http://localhost:3000.evil.example",
            "http://user@evil.example#localhost",
            "data://x",
            "",
        ] {
            assert!(!check(&hosts, "localhost:11434", Some(origin)), "{origin}");
        }
        assert!(!check(&hosts, "evil.example", Some("http://localhost")), "the name still counts");
    }
}
