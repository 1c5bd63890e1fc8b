//! `ropeway.toml`: one line per flag.

use std::path::PathBuf;
use std::{env, fs, io};

use clap::{ArgAction, Command};
use toml::{Table, Value};

use super::{Given, Origin, settings};
use crate::failure::Failure;

/// The file's name, here and in the user's own configuration.
const NAME: &str = "ropeway.toml";

/// The settings in the file: the one that was named, or the first of the usual ones that is there.
pub fn read(serve: &Command, named: Option<&str>) -> Result<Vec<Given>, Failure> {
    let places = named.map_or_else(usual, |path| vec![PathBuf::from(path)]);
    for path in places {
        let shown = path.display().to_string();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound && named.is_none() => continue,
            Err(error) => {
                return Err(Failure::new(format!("{shown} can't be read: {error}"), "check --config"));
            }
        };
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            Failure::new(format!("{shown}: {error}"), "settings are written as `drain-timeout = 30`")
        })?;
        return table.iter().map(|(key, value)| entry(serve, &shown, key, value)).collect();
    }
    Ok(Vec::new())
}

fn usual() -> Vec<PathBuf> {
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".config"));
    let own = env::var_os("XDG_CONFIG_HOME").filter(|path| !path.is_empty()).map(PathBuf::from).or_else(home);
    std::iter::once(PathBuf::from(NAME)).chain(own.map(|folder| folder.join("ropeway").join(NAME))).collect()
}

fn entry(serve: &Command, file: &str, key: &str, value: &Value) -> Result<Given, Failure> {
    // `drain_timeout` is what some will write.
    let flag = key.replace('_', "-");
    let refuse = |what: &str| {
        Err(Failure::new(format!("{file}: `{key}` {what}"), "settings are written as `drain-timeout = 30`"))
    };
    if flag == super::CONFIG {
        return refuse("can't stand in the file itself");
    }
    let is_list = settings(serve)
        .any(|arg| arg.get_long() == Some(&flag) && matches!(arg.get_action(), ArgAction::Append));
    let values = match value {
        Value::Array(items) if is_list => items.iter().map(item).collect::<Option<Vec<_>>>(),
        table @ Value::Table(_) if is_list => item(table).map(|value| vec![value]),
        one => plain(one).map(|value| vec![value]),
    };
    match values {
        Some(values) => Ok(Given { flag, values, origin: Origin::File(file.to_owned()) }),
        None => refuse("is neither a text, a number nor a switch"),
    }
}

/// One of a list's values. A table, as of `[[upstream]]`, is given as JSON.
fn item(value: &Value) -> Option<String> {
    match value {
        Value::Table(table) => serde_json::to_string(table).ok(),
        other => plain(other),
    }
}

fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(switch) => Some(switch.to_string()),
        Value::Datetime(_) | Value::Array(_) | Value::Table(_) => None,
    }
}
