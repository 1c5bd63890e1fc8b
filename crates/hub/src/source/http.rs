//! HTTP as the Hugging Face hub needs it, with an end to every wait.
//!
//! ```text
//! connect          at most Patience::connect
//! headers          at most Patience::silence
//! each read        at most Patience::silence, and LEAST_PROGRESS bytes in that time
//! cancelled        the connection is closed, whatever it waits for
//! ```
//! Must never: send the token to another host than the hub's, or wait for ever.

use std::io::Read;
use std::time::{Duration, Instant};

use ureq::config::RedirectAuthHeaders;
use ureq::http::{HeaderMap, Response};
use ureq::{Agent, Body};

use crate::cancel::Cancel;
use crate::config::{HuggingFaceConfig, Patience, Token};
use crate::error::SourceError;

/// A hub that sends fewer bytes in the time that it may be silent counts as silent: at 30 seconds, less than any modem.
const LEAST_PROGRESS: u64 = 16 << 10;

/// Bytes of the longest listing: a repository of 100,000 files needs about 10 MB.
const LONGEST_LISTING: u64 = 32 << 20;

/// How often a file's address may lead to another address of the same host.
const MOST_REDIRECTS: usize = 5;

/// Asks one hub, for one pull.
pub(crate) struct Client {
    /// Follows redirects, without the token to other hosts.
    agent: Agent,
    /// Follows none: what the hub says of a file stands in the redirect.
    direct: Agent,
    token: Option<Token>,
    patience: Patience,
    cancel: Cancel,
}

/// What the hub says of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct About {
    pub etag: String,
    pub commit: String,
    pub size: u64,
}

/// A file's bytes from `start` on.
pub(crate) struct Rest<'a> {
    pub start: u64,
    pub body: Arriving<'a>,
}

impl Client {
    pub(crate) fn new(config: &HuggingFaceConfig, patience: Patience, cancel: &Cancel) -> Client {
        let settings = || {
            Agent::config_builder()
                .user_agent(concat!("ropeway/", env!("CARGO_PKG_VERSION")))
                .accept_encoding("identity")
                .redirect_auth_headers(RedirectAuthHeaders::SameHost)
                .timeout_resolve(Some(patience.connect))
                .timeout_connect(Some(patience.connect))
                .timeout_send_request(Some(patience.silence))
                .timeout_recv_response(Some(patience.silence))
                .timeout_per_read(Some(patience.silence))
        };
        let agent: Agent = settings().build().into();
        let direct: Agent = settings().max_redirects(0).build().into();
        for agent in [agent.clone(), direct.clone()] {
            cancel.on_cancel(move || agent.shutdown());
        }
        Client { agent, direct, token: config.token.clone(), patience, cancel: cancel.clone() }
    }

    /// A whole answer; `what` names it in errors.
    pub(crate) fn read(&self, url: &str, what: &str) -> Result<Vec<u8>, SourceError> {
        let mut response = self.get(&self.agent, url, None, what)?;
        let body = response.body_mut().with_config().limit(LONGEST_LISTING).read_to_vec();
        body.map_err(|error| self.explain(&error, what))
    }

    /// What the hub says of the file at `url`.
    pub(crate) fn about(&self, url: &str, what: &str) -> Result<About, SourceError> {
        let first_byte = Some("bytes=0-0");
        let response = self.head(url, what)?;
        let etag = header(&response, "x-linked-etag").or_else(|| header(&response, "etag"));
        let commit = header(&response, "x-repo-commit");
        let size = match total_of_range(response.headers()) {
            Some(size) => Some(size),
            None => total_of_range(self.get(&self.agent, url, first_byte, what)?.headers()),
        };
        let lacking =
            |name: &str| SourceError::BadAnswer { detail: format!("`{what}` comes without {name}") };
        Ok(About {
            etag: etag.ok_or_else(|| lacking("an etag"))?.replace('"', ""),
            commit: commit.ok_or_else(|| lacking("a commit"))?,
            size: size.ok_or_else(|| lacking("its size"))?,
        })
    }

    /// The file's first answer that is not merely another address of the same host.
    fn head(&self, url: &str, what: &str) -> Result<Response<Body>, SourceError> {
        let mut url = url.to_owned();
        for _ in 0..MOST_REDIRECTS {
            let response = self.get(&self.direct, &url, Some("bytes=0-0"), what)?;
            let elsewhere = header(&response, "location").filter(|_| response.status().is_redirection());
            match elsewhere.filter(|location| location.starts_with('/') && !location.starts_with("//")) {
                Some(path) => url = format!("{}{path}", origin(&url)),
                None => return Ok(response),
            }
        }
        Err(SourceError::BadAnswer { detail: format!("`{what}` leads in circles") })
    }

    /// The bytes of a file from `start` on, or from 0 if the other side can't do that.
    pub(crate) fn rest(&self, url: &str, start: u64, what: &str) -> Result<Rest<'_>, SourceError> {
        let range = format!("bytes={start}-");
        let response = self.get(&self.agent, url, Some(&range), what)?;
        let start = start_of_range(response.headers()).unwrap_or(0);
        let reader = Box::new(response.into_body().into_reader());
        let body = Arriving { client: self, reader, since: Instant::now(), bytes: 0 };
        Ok(Rest { start, body })
    }

    fn get(
        &self,
        agent: &Agent,
        url: &str,
        range: Option<&str>,
        what: &str,
    ) -> Result<Response<Body>, SourceError> {
        self.cancel.check()?;
        let mut request = agent.get(url);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {}", token.secret()));
        }
        if let Some(range) = range {
            request = request.header("range", range);
        }
        request.call().map_err(|error| self.explain(&error, what))
    }

    /// Says in our words what a request ran into.
    fn explain(&self, error: &ureq::Error, what: &str) -> SourceError {
        match error {
            _ if self.cancel.is_cancelled() => SourceError::Cancelled,
            ureq::Error::StatusCode(status @ (401 | 403)) => SourceError::Refused { status: *status },
            ureq::Error::StatusCode(404) => SourceError::NotFound { what: what.into() },
            ureq::Error::StatusCode(status @ (429 | 500..)) => {
                SourceError::Network { detail: format!("the server is busy or broken ({status})") }
            }
            ureq::Error::StatusCode(status) => {
                SourceError::BadAnswer { detail: format!("HTTP status {status}") }
            }
            ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => {
                silent(self.patience.connect)
            }
            ureq::Error::Timeout(_) => silent(self.patience.silence),
            other => SourceError::Network { detail: other.to_string() },
        }
    }
}

/// A body on its way here.
pub(crate) struct Arriving<'a> {
    client: &'a Client,
    reader: Box<dyn Read>,
    /// When the current stretch of progress began, and what came in it.
    since: Instant,
    bytes: u64,
}

impl Arriving<'_> {
    /// The next bytes; 0 at the end.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, SourceError> {
        let read =
            self.reader.read(buffer).map_err(|error| self.client.explain(&error.into(), "the file"))?;
        self.client.cancel.check()?;
        self.bytes += read as u64;
        if self.bytes >= LEAST_PROGRESS {
            (self.since, self.bytes) = (Instant::now(), 0);
        }
        if read > 0 && self.since.elapsed() > self.client.patience.silence {
            return Err(silent(self.client.patience.silence));
        }
        Ok(read)
    }
}

fn silent(time: Duration) -> SourceError {
    SourceError::Network {
        detail: format!("nothing, or next to nothing, came for {} seconds", time.as_secs()),
    }
}

fn header(response: &Response<Body>, name: &str) -> Option<String> {
    response.headers().get(name)?.to_str().ok().map(str::to_owned)
}

/// `N` of `Content-Range: bytes A-B/N`.
fn total_of_range(headers: &HeaderMap) -> Option<u64> {
    content_range(headers)?.rsplit_once('/')?.1.parse().ok()
}

/// `A` of `Content-Range: bytes A-B/N`.
fn start_of_range(headers: &HeaderMap) -> Option<u64> {
    content_range(headers)?.trim_start_matches("bytes ").split_once('-')?.0.parse().ok()
}

fn content_range(headers: &HeaderMap) -> Option<&str> {
    headers.get("content-range")?.to_str().ok()
}

/// `https://host:port` of an address.
fn origin(url: &str) -> &str {
    let host = url.find("://").map_or(0, |scheme| scheme + 3);
    let end = url[host..].find('/').map_or(url.len(), |path| host + path);
    &url[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_range_tells_where_it_begins_and_how_long_the_whole_is() {
        let mut headers = HeaderMap::new();
        assert_eq!((start_of_range(&headers), total_of_range(&headers)), (None, None));
        headers.insert("content-range", "bytes 40-99/100".parse().unwrap());
        assert_eq!((start_of_range(&headers), total_of_range(&headers)), (Some(40), Some(100)));
        headers.insert("content-range", "bytes x/*".parse().unwrap());
        assert_eq!((start_of_range(&headers), total_of_range(&headers)), (None, None));
    }

    #[test]
    fn a_trickle_counts_as_silence() {
        let config = HuggingFaceConfig { cache: "".into(), endpoint: String::new(), token: None };
        let read = |silence, bytes: usize| {
            let client = Client::new(&config, Patience::of(silence), &Cancel::default());
            let since = Instant::now().checked_sub(Duration::from_secs(2)).expect("a clock that runs");
            let reader = Box::new(std::io::repeat(7));
            Arriving { client: &client, reader, since, bytes: 0 }.read(&mut vec![0; bytes])
        };
        let (short, long) = (Duration::from_secs(1), Duration::from_secs(3600));
        assert!(matches!(read(short, 100), Err(SourceError::Network { .. })));
        assert!(read(short, LEAST_PROGRESS as usize).is_ok());
        assert!(matches!(read(long, 100), Ok(100)));
    }

    #[test]
    fn an_origin_ends_before_the_path() {
        assert_eq!(origin("https://hub.example:8443/a/b"), "https://hub.example:8443");
        assert_eq!(origin("http://hub.example"), "http://hub.example");
    }
}
