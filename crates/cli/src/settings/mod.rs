//! Where the settings of a server come from: flags > environment > `ropeway.toml` > Ollama's environment > defaults.
//!
//! The flags of `ropeway serve` are the one table of settings. `--drain-timeout 5` may as well be written
//! `ROPEWAY_DRAIN_TIMEOUT=5`, or `drain-timeout = 5` in the file: what these say becomes the flag's default before the
//! command line is read, so that a new flag is a setting without further code. `ropeway config` prints the result.
//!
//! Must never: take a value that the flag itself would refuse, or ignore a key that is no flag.

mod file;
mod ollama;
mod origin;

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, Command, Parser};

pub use origin::{Origin, Resolved};

use crate::failure::Failure;

/// Commands whose flags are settings.
const COMMANDS: [&str; 2] = ["serve", "config"];

/// The flag that names the file; the only one that can't stand in it.
const CONFIG: &str = "config";

/// A setting that was given elsewhere than on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Given {
    /// The flag's long name.
    flag: String,
    values: Vec<String>,
    origin: Origin,
}

/// Reads the command line, with settings from elsewhere below it.
pub fn parse<A: Parser>() -> Result<(A, Resolved), Failure> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let mut command = A::command();
    let name = arguments.get(1).and_then(|name| name.to_str()).filter(|name| COMMANDS.contains(name));
    let mut given = Vec::new();
    if let Some(serve) = name.and_then(|name| command.find_subcommand(name)) {
        given = elsewhere(serve, &arguments)?;
    }
    if let Some(name) = name {
        command = command.mut_subcommand(name, |serve| serve.mut_args(|arg| with_default(arg, &given)));
    }
    let matches = command.clone().get_matches_from(&arguments);
    let resolved = match (matches.subcommand(), name) {
        (Some((name, matches)), Some(_)) => Resolved::new(command.find_subcommand(name), matches, &given),
        _ => Resolved::default(),
    };
    let parsed = A::from_arg_matches(&matches).map_err(|error| Failure::new(error, "see --help"))?;
    Ok((parsed, resolved))
}

/// What the environment, the file and Ollama's environment say; the first one's word counts.
fn elsewhere(serve: &Command, arguments: &[OsString]) -> Result<Vec<Given>, Failure> {
    let mut given = environment(serve)?;
    let path = named_file(arguments)
        .or_else(|| given.iter().find(|one| one.flag == CONFIG).map(|one| one.values.concat()));
    given.retain(|one| one.flag != CONFIG);
    let from_file = file::read(serve, path.as_deref())?;
    for one in from_file.into_iter().chain(ollama::given()) {
        if !given.iter().any(|other| other.flag == one.flag) {
            given.push(one);
        }
    }
    given.iter().try_for_each(|one| check(serve, one))?;
    Ok(given)
}

/// The file that `--config FILE` or `--config=FILE` names. It is needed before the command line can be read.
fn named_file(arguments: &[OsString]) -> Option<String> {
    let mut words = arguments.iter().map(|word| word.to_string_lossy());
    while let Some(word) = words.next() {
        if word == "--config" {
            return words.next().map(Into::into);
        }
        if let Some(path) = word.strip_prefix("--config=") {
            return Some(path.into());
        }
    }
    None
}

fn environment(serve: &Command) -> Result<Vec<Given>, Failure> {
    let mut given = Vec::new();
    for arg in settings(serve) {
        let Some(flag) = arg.get_long() else { continue };
        let variable = variable(flag);
        let Some(value) = std::env::var_os(&variable).filter(|value| !value.is_empty()) else { continue };
        let Some(value) = value.to_str() else {
            return Err(Failure::new(format!("{variable} is no text"), "write it in UTF-8"));
        };
        let values = match arg.get_action() {
            ArgAction::SetTrue => vec![switch(&variable, value)?],
            ArgAction::Append => value.split(',').map(|value| value.trim().to_owned()).collect(),
            _ => vec![value.to_owned()],
        };
        given.push(Given { flag: flag.into(), values, origin: Origin::Environment(variable) });
    }
    Ok(given)
}

/// `drain-timeout` as `ROPEWAY_DRAIN_TIMEOUT`.
fn variable(flag: &str) -> String {
    format!("ROPEWAY_{}", flag.to_ascii_uppercase().replace('-', "_"))
}

fn switch(variable: &str, value: &str) -> Result<String, Failure> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok("true".into()),
        "0" | "false" | "no" | "off" => Ok("false".into()),
        _ => Err(Failure::new(format!("{variable} is {value:?}"), "a switch is `true` or `false`")),
    }
}

/// The flags that are settings.
fn settings(serve: &Command) -> impl Iterator<Item = &Arg> {
    serve.get_arguments().filter(|arg| {
        !matches!(
            arg.get_action(),
            ArgAction::Help | ArgAction::HelpLong | ArgAction::HelpShort | ArgAction::Version
        )
    })
}

fn with_default(arg: Arg, given: &[Given]) -> Arg {
    match given.iter().find(|one| arg.get_long() == Some(&one.flag)) {
        Some(one) => arg.default_values(one.values.clone()),
        None => arg,
    }
}

/// Gives a value to its flag alone, so that a mistake is told with the place where it stands.
fn check(serve: &Command, given: &Given) -> Result<(), Failure> {
    let flag = &given.flag;
    let is_switch = settings(serve)
        .any(|arg| arg.get_long() == Some(flag) && matches!(arg.get_action(), ArgAction::SetTrue));
    let words: Vec<_> = if is_switch {
        given.values.iter().filter(|value| *value == "true").map(|_| format!("--{flag}")).collect()
    } else {
        given.values.iter().map(|value| format!("--{flag}={value}")).collect()
    };
    let Err(error) = serve.clone().try_get_matches_from(std::iter::once("serve".to_owned()).chain(words))
    else {
        return Ok(());
    };
    let about = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.trim_start_matches('-').to_owned()),
        _ => None,
    };
    let place = &given.origin;
    if error.kind() == clap::error::ErrorKind::UnknownArgument {
        let hint = match about(ContextKind::SuggestedArg) {
            Some(similar) => format!("did you mean `{similar}`? `ropeway config` lists all settings"),
            None => "`ropeway serve --help` lists all settings".into(),
        };
        return Err(Failure::new(format!("{place}: there is no setting `{flag}`"), hint));
    }
    let rendered = error.to_string();
    let first = rendered.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    Err(Failure::new(format!("{place}: {first}"), format!("`ropeway serve --help` says what --{flag} takes")))
}
