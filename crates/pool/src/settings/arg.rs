//! One `--upstream`, or one `[[upstream]]` table: read, then completed by what lies elsewhere.
//!
//! Reading touches nothing but the text; [`UpstreamArg::resolve`] reads key files and the environment.

use std::fmt;
use std::fs;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{Kind, Secret, Timeouts, UpstreamSettings, Url};

/// Longest time limit; whoever wants more wants none.
const DAY: Duration = Duration::from_secs(86_400);

/// Longest name: it stands in every line of the access log.
const MOST_NAME: usize = 64;

/// Largest key file: a file that is longer is not one.
const MOST_KEY: u64 = 16 << 10;

/// Fields that would hold a key itself.
const KEYS: [&str; 6] = ["key", "api-key", "api_key", "apikey", "token", "password"];

/// What an operator wrote about an upstream. Shows no key, because it holds none.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct UpstreamArg {
    #[serde(deserialize_with = "from_text")]
    url: Url,
    name: Option<String>,
    kind: Option<Kind>,
    #[serde(default)]
    models: Vec<String>,
    key_file: Option<PathBuf>,
    key_env: Option<String>,
    weight: Option<f64>,
    concurrency: Option<NonZeroUsize>,
    connect_timeout: Option<Limit>,
    first_token_timeout: Option<Limit>,
    token_timeout: Option<Limit>,
    tls_roots: Option<PathBuf>,
    tokenizer: Option<String>,
}

impl UpstreamArg {
    /// An upstream about which nothing but its address is said.
    pub fn new(url: Url) -> Self {
        Self {
            url,
            name: None,
            kind: None,
            models: Vec::new(),
            key_file: None,
            key_env: None,
            weight: None,
            concurrency: None,
            connect_timeout: None,
            first_token_timeout: None,
            token_timeout: None,
            tls_roots: None,
            tokenizer: None,
        }
    }

    /// Reads what is only referred to: the key, from its file or the environment.
    pub fn resolve(self) -> Result<UpstreamSettings, String> {
        let key = self.key()?;
        let usual = Timeouts::default();
        let limit = |given: Option<Limit>, usual| given.map_or(usual, |Limit(limit)| limit);
        Ok(UpstreamSettings {
            name: self.name.unwrap_or_else(|| format!("{}{}", self.url.authority(), self.url.base)),
            kind: self.kind,
            models: self.models,
            key,
            weight: self.weight.unwrap_or(1.0),
            concurrency: self.concurrency,
            timeouts: Timeouts {
                connect: limit(self.connect_timeout, usual.connect),
                first_token: limit(self.first_token_timeout, usual.first_token),
                between_tokens: limit(self.token_timeout, usual.between_tokens),
            },
            tls_roots: self.tls_roots,
            tokenizer: self.tokenizer,
            url: self.url,
        })
    }

    fn key(&self) -> Result<Option<Secret>, String> {
        let (key, from) = match (&self.key_file, &self.key_env) {
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => {
                return Err(format!("{self}: give its key with key-file or key-env, not both"));
            }
            (Some(path), None) => (self.read_key(path)?, format!("key-file {}", path.display())),
            (None, Some(name)) => {
                let value = std::env::var(name)
                    .map_err(|_| format!("{self}: {name} is not set; key-env names it"))?;
                (value, format!("key-env {name}"))
            }
        };
        let key = key.trim();
        // A header carries it.
        if key.is_empty() || !key.chars().all(|c| c.is_ascii_graphic()) {
            return Err(format!("{self}: {from} holds no key; it must be one line of printable characters"));
        }
        Ok(Some(Secret::new(key)))
    }

    fn read_key(&self, path: &PathBuf) -> Result<String, String> {
        let unreadable = |why: String| format!("{self}: key-file {} can't be read: {why}", path.display());
        let size = fs::metadata(path).map_err(|error| unreadable(error.to_string()))?.len();
        if size > MOST_KEY {
            return Err(unreadable(format!("it has {size} bytes, and a key at most {MOST_KEY}")));
        }
        fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))
    }

    /// What its parts say together, and what their types don't.
    fn check(self) -> Result<Self, String> {
        if let Some(name) = &self.name {
            check_name(name)?;
        }
        if self.weight.is_some_and(|weight| !(weight.is_finite() && weight > 0.0)) {
            return Err(format!("{self}: weight is a number above 0"));
        }
        if self.tls_roots.is_some() && !self.url.is_tls {
            return Err(format!("{self}: tls-roots is for https:// URLs"));
        }
        Ok(self)
    }

    fn from_table(mut table: Value) -> Result<Self, String> {
        if let Some(field) = KEYS.iter().find(|field| table.get(**field).is_some()) {
            return Err(format!(
                "an upstream's {field} does not stand here; put it into a file and name that with key-file, or into a variable with key-env"
            ));
        }
        // A name that stands beside it is the one that is meant.
        if table["models"].is_string() {
            table["models"] = Value::Array(vec![table["models"].take()]);
        }
        serde_json::from_value::<Self>(table)
            .map_err(|error| format!("an upstream's settings: {error}"))?
            .check()
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:@/".contains(c);
    if name.is_empty() || name.len() > MOST_NAME || !name.chars().all(is_plain) {
        return Err(format!(
            "an upstream's name has 1 to {MOST_NAME} letters, digits, dots, dashes and the like"
        ));
    }
    Ok(())
}

impl FromStr for UpstreamArg {
    type Err = String;

    /// Reads `URL`, `NAME=URL`, or a table as JSON.
    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.starts_with('{') {
            let table = serde_json::from_str(text)
                .map_err(|error| format!("an upstream's settings are no JSON: {error}"))?;
            return Self::from_table(table);
        }
        // A name has no `://` in it: what does is a URL with a `=` of its own.
        match text.split_once('=').filter(|(name, _)| !name.contains("://")) {
            Some((name, url)) => Self { name: Some(name.trim().into()), ..Self::new(url.trim().parse()?) },
            None => Self::new(text.parse()?),
        }
        .check()
    }
}

impl fmt::Display for UpstreamArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name}={}", self.url),
            None => write!(f, "{}", self.url),
        }
    }
}

/// Resolves all upstreams of a server, whose names must differ.
pub fn resolve_all(args: impl IntoIterator<Item = UpstreamArg>) -> Result<Vec<UpstreamSettings>, String> {
    let mut all: Vec<UpstreamSettings> = Vec::new();
    for arg in args {
        let settings = arg.resolve()?;
        if all.iter().any(|other| other.name == settings.name) {
            return Err(format!(
                "two upstreams are called {}; give them names, as in --upstream NAME=URL",
                settings.name
            ));
        }
        all.push(settings);
    }
    Ok(all)
}

fn from_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Url, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

/// A time limit: seconds, or a text such as `500ms`, `2s` or `5m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
struct Limit(Duration);

impl TryFrom<Value> for Limit {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let bad = || format!("{value} is no time limit; write seconds, or as in \"500ms\", \"2s\" or \"5m\"");
        let seconds = match &value {
            Value::Number(seconds) => seconds.as_f64(),
            Value::String(text) => seconds(text),
            _ => None,
        };
        let limit = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).ok_or_else(bad)?;
        if limit.is_zero() || limit > DAY {
            return Err(format!("{value} is no time limit; it must be above 0 and at most a day"));
        }
        Ok(Self(limit))
    }
}

fn seconds(text: &str) -> Option<f64> {
    let text = text.trim();
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let scale = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    number.trim().parse::<f64>().ok().map(|number| number * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<UpstreamSettings, String> {
        text.parse::<UpstreamArg>()?.resolve()
    }

    #[test]
    fn an_address_alone_is_named_by_its_host_and_port() {
        let settings = read("http://gpu1:8000/v1").expect("settings");
        assert_eq!((settings.name.as_str(), settings.kind), ("gpu1:8000", None));
        assert_eq!(settings.timeouts, Timeouts::default());
        let behind = read("https://proxy/gpu2/v1").expect("settings");
        assert_eq!(behind.name, "proxy:443/gpu2");
    }

    #[test]
    fn a_name_stands_before_the_address() {
        assert_eq!(read("big=https://gpu2:8000").expect("settings").name, "big");
        assert!(read("=http://gpu2").is_err());
        assert!(read("a b=http://gpu2").is_err());
    }

    #[test]
    fn a_table_says_everything() {
        let key = tempfile::NamedTempFile::new().expect("file");
        fs::write(key.path(), " sk-hidden \n").expect("write");
        let table = serde_json::json!({
            "url": "https://gpu2:8443/v1", "name": "big", "kind": "llama-server", "models": ["a", "b"], "weight": 2,
            "concurrency": 8, "connect-timeout": "500ms", "first-token-timeout": 10, "token-timeout": "1m",
            "tokenizer": "org/model", "tls-roots": "roots.pem", "key-file": key.path(),
        });
        let settings = read(&table.to_string()).expect("settings");
        assert_eq!((settings.name.as_str(), settings.kind), ("big", Some(Kind::LlamaServer)));
        assert_eq!(settings.models, ["a", "b"]);
        let [connect, first_token, between_tokens] = [500, 10_000, 60_000].map(Duration::from_millis);
        assert_eq!(settings.timeouts, Timeouts { connect, first_token, between_tokens });
        assert_eq!(settings.key.as_ref().map(Secret::reveal), Some("sk-hidden"));
        assert!(!format!("{settings:?}").contains("sk-hidden"));
    }

    #[test]
    fn an_unknown_field_is_an_error_that_names_the_known_ones() {
        let said = read(r#"{"url": "http://gpu", "wieght": 2}"#).expect_err("unknown");
        assert!(
            said.contains("wieght") && said.contains("weight") && said.contains("first-token-timeout"),
            "{said}"
        );
        let said = read(r#"{"name": "a"}"#).expect_err("no url");
        assert!(said.contains("url"), "{said}");
    }

    #[test]
    fn a_key_that_is_written_out_is_refused_and_not_repeated() {
        let said = read(r#"{"url": "http://gpu", "key": "sk-hidden"}"#).expect_err("a key");
        assert!(said.contains("key-file") && !said.contains("sk-hidden"), "{said}");
    }

    #[test]
    fn what_can_not_be_is_refused() {
        for table in [
            r#"{"url": "http://gpu", "weight": 0}"#,
            r#"{"url": "http://gpu", "concurrency": 0}"#,
            r#"{"url": "http://gpu", "token-timeout": 0}"#,
            r#"{"url": "http://gpu", "token-timeout": "soon"}"#,
            r#"{"url": "http://gpu", "token-timeout": "2d"}"#,
            r#"{"url": "http://gpu", "tls-roots": "a.pem"}"#,
            r#"{"url": "http://gpu", "kind": "gpt"}"#,
            r#"{"url": "http://gpu", "key-file": "a", "key-env": "B"}"#,
            r#"{"url": "http://gpu", "key-file": "/there/is/no/such/file"}"#,
            r#"{"url": "http://gpu", "key-env": "ROPEWAY_NO_SUCH_VARIABLE"}"#,
            "{",
        ] {
            assert!(read(table).is_err(), "{table}");
        }
    }

    #[test]
    fn two_of_one_name_are_an_error_that_says_how_to_name_them() {
        let args = ["http://gpu", "http://gpu/v1"].map(|text| text.parse::<UpstreamArg>().expect("arg"));
        assert!(resolve_all(args).expect_err("twice").contains("NAME=URL"));
    }
}
