//! Reading the small files of a model folder, never more of them than is sensible.

use crate::error::TextError;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The largest tokenizer.json known (262,144 tokens) has 33 MB.
pub(crate) const MAX_BYTES: u64 = 256 << 20;

/// The file's text, or `None` if there is no such file.
pub(crate) fn read_text(path: &Path) -> Result<Option<String>, TextError> {
    let unreadable = |source| TextError::Unreadable { path: path.to_owned(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    let bytes = file.metadata().map_err(unreadable)?.len();
    if bytes > MAX_BYTES {
        return Err(TextError::FileTooLarge { path: path.to_owned(), bytes, limit: MAX_BYTES });
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).map_err(unreadable)?;
    Ok(Some(text))
}

/// The file's content, or `None` if there is no such file.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, TextError> {
    let Some(text) = read_text(path)? else { return Ok(None) };
    serde_json::from_str(&text)
        .map(Some)
        .map_err(|source| TextError::BadJson { path: path.to_owned(), source })
}
