//! The address of the server under test.

use std::fmt;
use std::str::FromStr;

/// Where the server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// A name or an address, without brackets.
    pub host: String,
    pub port: u16,
    /// What stands before every path; empty, or begins with a slash.
    base: String,
}

impl Target {
    /// The path of a route, such as `/v1/models`.
    pub fn path(&self, route: &str) -> String {
        format!("{}{route}", self.base)
    }

    /// Host and port as HTTP writes them.
    pub fn authority(&self) -> String {
        let bracketed = self.host.contains(':');
        let host = if bracketed { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{host}:{}", self.port)
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        let wrong = || format!("{text:?} is no address; write it as http://127.0.0.1:8000");
        if text.starts_with("https://") {
            return Err("https is not spoken here; measure the plain port behind it (http://...)".into());
        }
        let rest = text.strip_prefix("http://").unwrap_or(text);
        if rest.contains("://") || rest.contains(char::is_whitespace) {
            return Err(wrong());
        }
        let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
        let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':')),
            None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
        };
        let port = port.map_or(Ok(80), str::parse).map_err(|_| wrong())?;
        if host.is_empty() {
            return Err(wrong());
        }
        // Clients are given addresses that end with /v1; the routes bring their own.
        let path = path.trim_end_matches('/');
        let base = path.strip_suffix("/v1").unwrap_or(path).to_owned();
        Ok(Target { host: host.to_owned(), port, base })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority(), self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_understood_with_and_without_its_parts() {
        for (text, shown) in [
            ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
            ("localhost:8080/v1/", "http://localhost:8080"),
            ("http://gpu/llm/v1", "http://gpu:80/llm"),
            ("http://[::1]:9/", "http://[::1]:9"),
        ] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), shown);
        }
        assert_eq!("http://gpu/llm/v1".parse::<Target>().unwrap().path("/v1/models"), "/llm/v1/models");
    }

    #[test]
    fn what_is_no_address_is_told_what_one_looks_like() {
        for text in ["", "ftp://x", "http://", "http://host:port", "http://a b", "[::1"] {
            assert!(text.parse::<Target>().unwrap_err().contains("http://127.0.0.1:8000"), "{text}");
        }
        assert!("https://api.example.com".parse::<Target>().unwrap_err().contains("https is not spoken"));
    }
}
