//! HTTP as model hubs need it, with an end to every wait.
//!
//! ```text
//! connect          at most Patience::connect
//! headers          at most Patience::silence
//! each read        at most Patience::silence, and LEAST_PROGRESS bytes in that time
//! cancelled        the connection is closed, whatever it waits for
//! redirects        followed by hand: the token goes to the hub's own origin only, and https never becomes http
//! ```
//! Proxies come from the environment (`HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`). Must never: send the token to
//! another host, port or scheme than the hub's, or wait for ever.

use std::io::Read;
use std::time::{Duration, Instant};

use ureq::http::{HeaderMap, Response, StatusCode};
use ureq::{Agent, Body};

use super::address::{self, Hop};
use crate::cancel::Cancel;
use crate::config::{Patience, Token};
use crate::error::SourceError;

/// A hub that sends fewer bytes in the time that it may be silent counts as silent: at 30 seconds, less than any modem.
const LEAST_PROGRESS: u64 = 16 << 10;

/// Bytes of the longest listing: a repository of 100,000 files needs about 10 MB.
const LONGEST_LISTING: u64 = 32 << 20;

/// How often an address may lead to another one; hubs need two.
const MOST_REDIRECTS: usize = 8;

/// Asks one hub, for one pull.
pub(crate) struct Client {
    agent: Agent,
    /// `scheme://host:port` of the hub, the only place that sees the token.
    home: String,
    token: Option<Token>,
    patience: Patience,
    cancel: Cancel,
}

/// What is asked for.
#[derive(Clone, Copy, Default)]
pub(crate) struct Ask<'a> {
    pub url: &'a str,
    /// What it is, for errors.
    pub what: &'a str,
    pub range: Option<&'a str>,
    pub accept: Option<&'a str>,
}

/// How far redirects are followed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Follow {
    /// To wherever they lead.
    All,
    /// Within the hub: what it says of a file stands in the redirect that leaves it.
    Home,
}

/// Some bytes of a file on their way.
pub(crate) struct Bytes<'a> {
    /// Where they begin, or `None` if the whole file comes whatever was asked for.
    pub start: Option<u64>,
    pub body: Arriving<'a>,
}

impl Client {
    /// Speaks to the hub at `endpoint`.
    pub(crate) fn new(endpoint: &str, token: Option<Token>, patience: Patience, cancel: &Cancel) -> Client {
        let agent: Agent = Agent::config_builder()
            .user_agent(concat!("ropeway/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity")
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .timeout_resolve(Some(patience.connect))
            .timeout_connect(Some(patience.connect))
            .timeout_send_request(Some(patience.silence))
            .timeout_recv_response(Some(patience.silence))
            .timeout_per_read(Some(patience.silence))
            .build()
            .into();
        let ended = agent.clone();
        cancel.on_cancel(move || ended.shutdown());
        Client { agent, home: address::origin(endpoint).to_owned(), token, patience, cancel: cancel.clone() }
    }

    pub(crate) fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// A whole, short answer.
    pub(crate) fn read(&self, ask: Ask<'_>) -> Result<Vec<u8>, SourceError> {
        let mut response = self.follow(ask, Follow::All)?;
        let body = response.body_mut().with_config().limit(LONGEST_LISTING).read_to_vec();
        body.map_err(|error| self.explain(&error))
    }

    /// What the hub itself says of a file, without its bytes.
    pub(crate) fn headers(&self, ask: Ask<'_>) -> Result<HeaderMap, SourceError> {
        self.follow(ask, Follow::Home).map(|response| response.headers().clone())
    }

    /// What whoever delivers the file says of it.
    pub(crate) fn final_headers(&self, ask: Ask<'_>) -> Result<HeaderMap, SourceError> {
        self.follow(ask, Follow::All).map(|response| response.headers().clone())
    }

    /// The bytes that the range asks for.
    pub(crate) fn bytes(&self, ask: Ask<'_>) -> Result<Bytes<'_>, SourceError> {
        let response = self.follow(ask, Follow::All)?;
        let start = match response.status() {
            StatusCode::PARTIAL_CONTENT => start_of_range(response.headers()),
            _ => None,
        };
        let reader = Box::new(response.into_body().into_reader());
        Ok(Bytes { start, body: Arriving { client: self, reader, since: Instant::now(), bytes: 0 } })
    }

    fn follow(&self, ask: Ask<'_>, follow: Follow) -> Result<Response<Body>, SourceError> {
        let mut url = ask.url.to_owned();
        for _ in 0..=MOST_REDIRECTS {
            let response = self.send(&url, ask)?;
            if !response.status().is_redirection() {
                return Ok(response);
            }
            let location = header(response.headers(), "location").unwrap_or_default();
            match address::next(&url, &location) {
                Hop::Elsewhere(_) if follow == Follow::Home => return Ok(response),
                Hop::Within(next) | Hop::Elsewhere(next) => url = next,
                Hop::Unsafe => {
                    let detail =
                        format!("`{}` is redirected to `{location:.80}`, which is not followed", ask.what);
                    return Err(SourceError::BadAnswer { detail });
                }
            }
        }
        Err(SourceError::BadAnswer { detail: format!("`{}` leads in circles", ask.what) })
    }

    fn send(&self, url: &str, ask: Ask<'_>) -> Result<Response<Body>, SourceError> {
        self.cancel.check()?;
        let mut request = self.agent.get(url);
        let token = self.token.as_ref().filter(|_| address::origin(url) == self.home);
        let authorization = token.map(|token| format!("Bearer {}", token.secret()));
        let headers =
            [("authorization", authorization.as_deref()), ("range", ask.range), ("accept", ask.accept)];
        for (name, value) in headers {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        let response = request.call().map_err(|error| self.explain(&error))?;
        check_status(response.status().as_u16(), response.headers(), ask.what)?;
        Ok(response)
    }

    /// Says in our words what a request ran into.
    fn explain(&self, error: &ureq::Error) -> SourceError {
        match error {
            _ if self.cancel.is_cancelled() => SourceError::Cancelled,
            ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => {
                silent(self.patience.connect)
            }
            ureq::Error::Timeout(_) => silent(self.patience.silence),
            other => SourceError::Network { detail: other.to_string() },
        }
    }
}

fn check_status(status: u16, headers: &HeaderMap, what: &str) -> Result<(), SourceError> {
    match status {
        200..=399 => Ok(()),
        401 | 403 => Err(SourceError::Refused { status, page: None }),
        404 | 410 => Err(SourceError::NotFound { what: what.into() }),
        416 => Err(SourceError::NoSuchRange),
        429 | 500.. => Err(SourceError::Busy { status, retry_after: retry_after(headers) }),
        _ => Err(SourceError::BadAnswer { detail: format!("HTTP status {status}") }),
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
        let read = self.reader.read(buffer).map_err(|error| self.client.explain(&error.into()))?;
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

pub(crate) fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

/// `N` of `Content-Range: bytes A-B/N`.
pub(crate) fn total_of_range(headers: &HeaderMap) -> Option<u64> {
    header(headers, "content-range")?.rsplit_once('/')?.1.parse().ok()
}

/// `A` of `Content-Range: bytes A-B/N`.
fn start_of_range(headers: &HeaderMap) -> Option<u64> {
    header(headers, "content-range")?.trim_start_matches("bytes ").split_once('-')?.0.parse().ok()
}

/// Seconds of `Retry-After`; a date is not worth a calendar, the usual pause will do.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    header(headers, "retry-after")?.trim().parse().ok().map(Duration::from_secs)
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
    fn a_busy_server_says_how_long_to_wait() {
        let mut headers = HeaderMap::new();
        let busy = |headers: &HeaderMap| match check_status(429, headers, "x") {
            Err(SourceError::Busy { retry_after, .. }) => retry_after,
            other => panic!("{other:?}"),
        };
        assert_eq!(busy(&headers), None);
        headers.insert("retry-after", "7".parse().unwrap());
        assert_eq!(busy(&headers), Some(Duration::from_secs(7)));
        headers.insert("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT".parse().unwrap());
        assert_eq!(busy(&headers), None);
    }

    #[test]
    fn a_trickle_counts_as_silence() {
        let read = |silence, bytes: usize| {
            let client = Client::new("http://hub", None, Patience::of(silence), &Cancel::default());
            let since = Instant::now().checked_sub(Duration::from_secs(2)).expect("a clock that runs");
            let reader = Box::new(std::io::repeat(7));
            Arriving { client: &client, reader, since, bytes: 0 }.read(&mut vec![0; bytes])
        };
        let (short, long) = (Duration::from_secs(1), Duration::from_secs(3600));
        assert!(matches!(read(short, 100), Err(SourceError::Network { .. })));
        assert!(read(short, LEAST_PROGRESS as usize).is_ok());
        assert!(matches!(read(long, 100), Ok(100)));
    }
}
