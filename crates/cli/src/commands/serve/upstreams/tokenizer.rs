//! The tokenizer and chat template of a model that another server computes.
//!
//! ```text
//! what the operator said  >  files where the server says its model is  >  models on disk here  >  the Hugging Face hub
//! ```
//! Only small files are fetched, never weights. Without a tokenizer the model is served as text.

use std::path::Path;

use ropeway_hub::Hub;
use ropeway_pool::pools::Found;
use ropeway_text::{ChatTemplate, Tokenizer};
use ropeway_weights::Checkpoint;

use crate::failure::Failure;
use crate::interrupt;
use crate::pulling::open_hub;

/// What is needed to speak in tokens.
pub struct Words {
    /// Text to tokens and back.
    pub tokenizer: Tokenizer,
    /// Messages to text.
    pub template: ChatTemplate,
}

/// The words of a model that was found; why there are none, otherwise.
pub fn find(found: &Found) -> Result<Words, String> {
    if let Some(given) = &found.upstream.settings().tokenizer {
        return given_by_operator(given);
    }
    let names = [found.model.root.as_deref(), Some(found.model.id.as_str())];
    let names: Vec<_> = names.into_iter().flatten().collect();
    let here = names.iter().find_map(|name| at_path(Path::new(name)).and_then(Result::ok));
    if let Some(words) = here {
        return Ok(words);
    }
    let hub = open_hub().map_err(|failure| failure.to_string())?;
    let on_disk = names.iter().find_map(|name| of_installed(&hub, name));
    on_disk.map_or_else(|| fetched(&hub, &names), Ok)
}

fn given_by_operator(given: &str) -> Result<Words, String> {
    if let Some(words) = at_path(Path::new(given)) {
        return words.map_err(|failure| failure.to_string());
    }
    let hub = open_hub().map_err(|failure| failure.to_string())?;
    of_installed(&hub, given).map_or_else(|| fetched(&hub, &[given]), Ok)
}

/// The words of files that lie here; `None` if there are none.
fn at_path(path: &Path) -> Option<Result<Words, Failure>> {
    if path.join("tokenizer.json").is_file() {
        return Some(of_folder(path));
    }
    let is_file = path.extension().is_some_and(|extension| extension == "gguf") && path.is_file();
    is_file.then(|| of_checkpoint(path))
}

fn of_installed(hub: &Hub, name: &str) -> Option<Words> {
    let files = hub.resolve(name).ok()?;
    of_checkpoint(files.checkpoint()).ok()
}

/// Small files from the hub, where a name is one of the hub's.
fn fetched(hub: &Hub, names: &[&str]) -> Result<Words, String> {
    let mut why = String::from("no name of it is known to the hub");
    for name in names {
        match hub.tokenizer(name, interrupt::pulls(), &mut |_| {}) {
            Ok(folder) => return of_folder(&folder).map_err(|failure| failure.to_string()),
            Err(error) => why = error.to_string(),
        }
    }
    Err(why)
}

fn of_folder(folder: &Path) -> Result<Words, Failure> {
    let template = ChatTemplate::from_folder(folder)?;
    words(Tokenizer::from_folder(folder)?, template)
}

fn of_checkpoint(path: &Path) -> Result<Words, Failure> {
    let checkpoint = Checkpoint::open(path)?;
    let template = ChatTemplate::from_checkpoint(&checkpoint)?;
    words(Tokenizer::from_checkpoint(&checkpoint)?, template)
}

fn words(tokenizer: Tokenizer, template: Option<ChatTemplate>) -> Result<Words, Failure> {
    let template = match template {
        Some(template) => template,
        None => ChatTemplate::chatml()?,
    };
    Ok(Words { tokenizer, template })
}
