//! The resolved settings, and where each came from.

use std::fmt;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::ollama::PREFIX;
use super::{CONFIG, Given, settings};

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The command line.
    Flag,
    /// This environment variable.
    Environment(String),
    /// This file.
    File(String),
    /// Nobody said anything.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Flag => f.write_str("command line"),
            Origin::Environment(variable) => f.write_str(variable),
            Origin::File(path) => f.write_str(path),
            Origin::Default => f.write_str("default"),
        }
    }
}

/// Every setting with its value, as lines of TOML, and its origin.
#[derive(Clone, Debug, Default)]
pub struct Resolved(Vec<(String, Origin)>);

impl Resolved {
    pub(super) fn new(serve: Option<&Command>, matches: &ArgMatches, given: &[Given]) -> Self {
        let args = serve.into_iter().flat_map(settings).filter(|arg| arg.get_long() != Some(CONFIG));
        Self(args.filter_map(|arg| line(arg, matches, given)).collect())
    }

    /// What was taken from Ollama's own variables, in words; nothing if none was.
    pub fn taken_from_ollama(&self) -> Option<String> {
        let taken = self.0.iter().filter_map(|(line, origin)| match origin {
            Origin::Environment(variable) if variable.starts_with(PREFIX) => {
                Some(format!("{line} (from {variable})"))
            }
            _ => None,
        });
        let taken: Vec<_> = taken.collect();
        (!taken.is_empty()).then(|| taken.join(", "))
    }
}

impl fmt::Display for Resolved {
    /// A `ropeway.toml` that gives the same, with origins as comments.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.iter().map(|(line, _)| line.chars().count()).max().unwrap_or(0).min(48);
        self.0.iter().try_for_each(|(line, origin)| writeln!(f, "{line:width$}  # {origin}"))
    }
}

fn line(arg: &Arg, matches: &ArgMatches, given: &[Given]) -> Option<(String, Origin)> {
    let (flag, id) = (arg.get_long()?, arg.get_id().as_str());
    let Some(values) = matches.get_raw(id) else {
        return Some((format!("# {flag} ="), Origin::Default));
    };
    let values: Vec<_> = values.map(|value| literal(&value.to_string_lossy())).collect();
    let value = match arg.get_action() {
        ArgAction::Append => format!("[{}]", values.join(", ")),
        _ => values.concat(),
    };
    let elsewhere = || given.iter().find(|one| one.flag == flag).map(|one| one.origin.clone());
    let origin = match matches.value_source(id) {
        Some(ValueSource::CommandLine) => Origin::Flag,
        _ => elsewhere().unwrap_or(Origin::Default),
    };
    Some((format!("{flag} = {value}"), origin))
}

/// A value as TOML writes it.
fn literal(text: &str) -> String {
    let is_number = text.parse::<u64>().is_ok_and(|number| number.to_string() == text);
    if is_number || text == "true" || text == "false" {
        return text.to_owned();
    }
    toml_text(text)
}

fn toml_text(text: &str) -> String {
    // JSON's escapes are TOML's.
    serde_json::Value::from(text).to_string()
}
