//! Where the hub keeps things and whom it asks, resolved from the environment once.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use crate::error::HubError;

const DEFAULT_ENDPOINT: &str = "https://huggingface.co";

/// The hub's surroundings.
#[derive(Debug, Clone)]
pub struct Config {
    /// The store's root: `ROPEWAY_HOME`, else `~/.cache/ropeway`.
    pub home: PathBuf,
    /// Python interpreters to look for pip in, in order: `ROPEWAY_PYTHON`, else `python3` and `python`.
    pub pythons: Vec<PathBuf>,
    /// How to reach the Hugging Face hub.
    pub hugging_face: HuggingFaceConfig,
}

/// How to reach the Hugging Face hub, with the variables its own tools use.
#[derive(Debug, Clone)]
pub struct HuggingFaceConfig {
    /// The shared download cache: `$HF_HOME/hub`, else `~/.cache/huggingface/hub`.
    pub cache: PathBuf,
    /// The server: `HF_ENDPOINT`, else the public hub.
    pub endpoint: String,
    /// The access token: `HF_TOKEN`, else the one saved by the hub's login command.
    pub token: Option<Token>,
}

/// An access token; never printed.
#[derive(Clone)]
pub struct Token(String);

impl Config {
    /// Reads the environment.
    pub fn from_env() -> Result<Config, HubError> {
        Ok(Config {
            home: folder("ROPEWAY_HOME", ".cache/ropeway")?,
            pythons: pythons(set("ROPEWAY_PYTHON")),
            hugging_face: HuggingFaceConfig::from_env()?,
        })
    }
}

impl HuggingFaceConfig {
    fn from_env() -> Result<HuggingFaceConfig, HubError> {
        let cache = folder("HF_HOME", ".cache/huggingface")?.join("hub");
        let endpoint = set("HF_ENDPOINT").and_then(|url| url.into_string().ok());
        let token = set("HF_TOKEN").and_then(|token| token.into_string().ok());
        let saved = || hf_hub::Cache::new(cache.clone()).token();
        Ok(HuggingFaceConfig {
            endpoint: endpoint.map_or(DEFAULT_ENDPOINT.into(), |url| url.trim_end_matches('/').into()),
            token: token.or_else(saved).map(Token::new),
            cache,
        })
    }
}

impl Token {
    /// Wraps a token, without the white space around it.
    pub fn new(text: impl AsRef<str>) -> Token {
        Token(text.as_ref().trim().to_owned())
    }

    pub(crate) fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// A variable that is set and not empty.
fn set(variable: &str) -> Option<OsString> {
    env::var_os(variable).filter(|value| !value.is_empty())
}

/// The folder a variable names, else one below the user's home; absolute, so that a later change of the working
/// directory does not move it.
fn folder(variable: &'static str, below_home: &str) -> Result<PathBuf, HubError> {
    let path = match set(variable) {
        Some(path) => PathBuf::from(path),
        None => env::home_dir().ok_or(HubError::NoHome { variable })?.join(below_home),
    };
    std::path::absolute(&path).map_err(HubError::io("use the folder", &path))
}

fn pythons(chosen: Option<OsString>) -> Vec<PathBuf> {
    match chosen {
        Some(python) => vec![python.into()],
        None => vec!["python3".into(), "python".into()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_not_printed() {
        assert!(!format!("{:?}", Token::new("hf_secret")).contains("secret"));
    }

    #[test]
    fn a_chosen_python_is_the_only_one_tried() {
        assert_eq!(pythons(Some("/opt/py".into())), [PathBuf::from("/opt/py")]);
        assert_eq!(pythons(None).len(), 2);
    }
}
