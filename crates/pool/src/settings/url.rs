//! Addresses of upstreams.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// Scheme, host, port and the path that every request's own path follows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Url {
    /// Whether TLS is spoken.
    pub is_tls: bool,
    /// Name or address, IPv6 without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// What comes before `/v1/...`: empty, or as in `/llm`, without a slash at its end.
    pub base: String,
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.base)
    }
}

impl Url {
    /// Host and port as a `Host` header has them.
    pub fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

impl FromStr for Url {
    type Err = String;

    /// Reads `http://gpu1:8000`; an end in `/` or `/v1`, as clients have it, is left off. No error repeats the text: there may be a key
    /// in it.
    fn from_str(text: &str) -> Result<Self, String> {
        let example = "such as http://gpu1:8000";
        let (scheme, rest) =
            text.split_once("://").ok_or_else(|| format!("an upstream's URL has a scheme, {example}"))?;
        let is_tls = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(format!("an upstream's URL begins with http:// or https://, {example}")),
        };
        let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
        if authority.contains('@') {
            return Err(
                "an upstream's URL holds no user or key; give the key with key-file or key-env".into()
            );
        }
        if rest.contains(['?', '#']) {
            return Err(format!("an upstream's URL has no query and no fragment, {example}"));
        }
        let (host, port) = host_and_port(authority)?;
        let port = port.map_or(Ok(if is_tls { 443 } else { 80 }), |port| {
            port.parse()
                .ok()
                .filter(|port| *port > 0)
                .ok_or_else(|| format!("{port} is no port; 1 to 65535 are"))
        })?;
        Ok(Self { is_tls, host, port, base: base(path)? })
    }
}

fn host_and_port(authority: &str) -> Result<(String, Option<&str>), String> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or("an IPv6 address in a URL ends with ]")?;
        host.parse::<Ipv6Addr>().map_err(|_| format!("{host} is no IPv6 address"))?;
        let port = rest.strip_prefix(':');
        return if rest.is_empty() || port.is_some() {
            Ok((host.into(), port))
        } else {
            Err(format!("{rest} is no port"))
        };
    }
    let (host, port) = authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)));
    let is_name = |host: &str| host.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
    if host.is_empty() || !is_name(host) {
        return Err(
            "an upstream's URL has a host of letters, digits, dots and dashes, such as http://gpu1:8000"
                .into(),
        );
    }
    Ok((host.to_ascii_lowercase(), port))
}

/// A path without its last slash, and without the `/v1` that OpenAI's clients want in a URL.
fn base(path: &str) -> Result<String, String> {
    let mut path = path.trim_end_matches('/');
    while let Some(before) = path.strip_suffix("/v1") {
        path = before.trim_end_matches('/');
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-._~%".contains(c);
    if path.chars().all(is_plain) {
        return Ok(path.into());
    }
    Err("the path of an upstream's URL has letters, digits, slashes, dots, dashes and %-escapes only".into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> String {
        text.parse::<Url>().map_or_else(|error| error, |url| url.to_string())
    }

    #[test]
    fn every_usual_way_to_write_an_address_is_read() {
        for (written, meant) in [
            ("http://gpu1:8000", "http://gpu1:8000"),
            ("http://gpu1:8000/", "http://gpu1:8000"),
            ("http://gpu1:8000/v1", "http://gpu1:8000"),
            ("http://gpu1:8000/v1/", "http://gpu1:8000"),
            ("HTTPS://API.example.com", "https://api.example.com:443"),
            ("http://api.example.com/llm/v1", "http://api.example.com:80/llm"),
            ("http://[::1]:8000/v1", "http://[::1]:8000"),
            ("http://127.0.0.1", "http://127.0.0.1:80"),
        ] {
            assert_eq!(read(written), meant, "{written}");
        }
    }

    #[test]
    fn what_is_no_address_says_what_one_is() {
        for (written, said) in [
            ("gpu1:8000", "scheme"),
            ("ftp://gpu1", "http:// or https://"),
            ("http://", "host"),
            ("http://gpu 1", "host"),
            ("http://gpu1:x", "no port"),
            ("http://gpu1:0", "no port"),
            ("http://gpu1?key=1", "query"),
            ("http://[::1", "ends with ]"),
            ("http://gpu1/a b", "path"),
        ] {
            assert!(read(written).contains(said), "{written}: {}", read(written));
        }
    }

    #[test]
    fn a_key_in_an_address_is_refused_and_not_repeated() {
        let said = read("https://user:hunter2@api.example.com/v1");
        assert!(said.contains("key-file") && !said.contains("hunter2"), "{said}");
    }

    proptest! {
        #[test]
        fn nothing_written_makes_it_panic_and_what_is_read_is_read_the_same_again(text in "(http|https)?(://)?[a-z0-9:/@.\\[\\]?#v1-]{0,24}") {
            if let Ok(url) = text.parse::<Url>() {
                prop_assert_eq!(url.to_string().parse::<Url>(), Ok(url));
            }
        }
    }
}
