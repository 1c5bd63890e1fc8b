//! Which files of a repository make a model.
//!
//! ```text
//! config.json and *.safetensors    all of them, and what belongs to them
//! one GGUF model                   its file, or all its parts
//! several GGUF models              the named one, else the first of `quant`'s order that can be read
//! ```

use std::path::Path;

use super::parts::{self, Model};
use crate::error::SourceError;
use crate::manifest::RelativePath;
use crate::quant::Quant;

/// What a folder checkpoint may need besides its weights, by extension.
const COMPANIONS: [&str; 4] = ["json", "jinja", "txt", "model"];

/// What a tokenizer consists of; nothing goes without the first.
const TOKENIZER: [&str; 6] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "config.json",
];

/// Weights that lie beside the real ones: the same in another layout, or only a difference to another model.
const NOT_THE_WEIGHTS: [&str; 2] = ["consolidated", "adapter"];

/// GGUF files that are no language model: image encoders, and statistics for quantizing.
const NOT_A_MODEL: [&str; 3] = ["mmproj", "imatrix", "mtp-"];

/// How pooled embedding models keep their pooling.
const POOLING: &str = "1_Pooling/config.json";

/// What is wanted of a repository.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wish<'a> {
    /// The model it holds, or the best of several.
    Any,
    /// A file by its name, a quantization, or a part of a file's name.
    Named(&'a RelativePath),
    /// A quantization.
    Quant(Quant),
    /// This file, or if there is none of that name, one of the same quantization.
    Usual(&'a str),
    /// The tokenizer, and what its chat template and its model's shape are; no weights.
    Tokenizer,
}

/// What was chosen.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub files: Vec<RelativePath>,
    /// The quantizations that were not chosen, where nobody had said which.
    pub others: Vec<Quant>,
}

/// Chooses from a repository's files. Names that are no plain paths are not choosable.
pub(crate) fn choose(listed: &[String], wish: Wish<'_>) -> Result<Choice, SourceError> {
    let names: Vec<RelativePath> = listed.iter().filter_map(|name| RelativePath::parse(name)).collect();
    match wish {
        Wish::Any => any_model(names),
        Wish::Named(wanted) => named(names, wanted).map(Choice::of),
        Wish::Quant(quant) => quantized(&names, quant).map(Choice::of),
        Wish::Usual(file) => usual(names, file).map(Choice::of),
        Wish::Tokenizer => tokenizer(names).map(Choice::of),
    }
}

impl Choice {
    fn of(files: Vec<RelativePath>) -> Choice {
        Choice { files, others: Vec::new() }
    }
}

/// Files by which texts and tokens are turned into each other, as far as they are there.
fn tokenizer(mut names: Vec<RelativePath>) -> Result<Vec<RelativePath>, SourceError> {
    names.retain(|name| TOKENIZER.contains(&name.as_str()));
    if names.iter().any(|name| name.as_str() == TOKENIZER[0]) {
        Ok(names)
    } else {
        Err(SourceError::NotFound { what: TOKENIZER[0].into() })
    }
}

/// The file of exactly this name, else the model of that quantization, else the one GGUF model whose name contains it.
fn named(names: Vec<RelativePath>, wanted: &RelativePath) -> Result<Vec<RelativePath>, SourceError> {
    if names.contains(wanted) {
        return Ok(parts::all_of(names, wanted));
    }
    if let Some(quant) = Quant::parse(wanted.as_str()) {
        return quantized(&names, quant);
    }
    let part = wanted.as_str().to_ascii_lowercase();
    let fits = |model: &Model| model.name().to_ascii_lowercase().contains(&part);
    only(models(names).filter(fits).collect(), SourceError::NotFound { what: wanted.to_string() })
}

fn quantized(names: &[RelativePath], quant: Quant) -> Result<Vec<RelativePath>, SourceError> {
    let (fitting, others): (Vec<_>, Vec<_>) =
        models(names.to_vec()).partition(|model| model.quant() == Some(quant));
    let offered = others.iter().filter_map(Model::quant).collect();
    only(fitting, SourceError::NoSuchQuant { quant, offered })
}

fn usual(names: Vec<RelativePath>, file: &str) -> Result<Vec<RelativePath>, SourceError> {
    match (RelativePath::parse(file).filter(|path| names.contains(path)), Quant::of_file(file)) {
        (Some(path), _) => Ok(parts::all_of(names, &path)),
        (None, Some(quant)) => quantized(&names, quant),
        (None, None) => Err(SourceError::NotFound { what: file.into() }),
    }
}

fn any_model(names: Vec<RelativePath>) -> Result<Choice, SourceError> {
    let has_config = names.iter().any(|name| name.as_str() == "config.json");
    if has_config && names.iter().any(is_weights) {
        let needed = |name: &RelativePath| is_weights(name) || is_companion(name);
        return Ok(Choice::of(names.into_iter().filter(needed).collect()));
    }
    let mut all: Vec<Model> = models(names).collect();
    match all.len() {
        0 => Err(SourceError::NoWeights),
        1 => Ok(Choice::of(all.remove(0).files)),
        _ => best(all),
    }
}

/// The first of the order of quantizations; several of the same are for the user to tell apart.
fn best(all: Vec<Model>) -> Result<Choice, SourceError> {
    let rank = |model: &Model| model.quant().and_then(Quant::rank);
    let least = all.iter().filter_map(rank).min();
    let (chosen, rest): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|model| least.is_none() || rank(model) == least);
    let mut others: Vec<Quant> = rest.iter().filter_map(Model::quant).collect();
    others.sort_by_key(|quant| (quant.rank().is_none(), quant.rank()));
    others.dedup();
    Ok(Choice { files: only(chosen, SourceError::NoWeights)?, others })
}

/// The files of the one model there is.
fn only(mut found: Vec<Model>, none: SourceError) -> Result<Vec<RelativePath>, SourceError> {
    match found.len() {
        0 => Err(none),
        1 => Ok(found.remove(0).files),
        _ => {
            let mut candidates: Vec<_> = found.iter().map(|model| model.files[0].to_string()).collect();
            candidates.sort();
            Err(SourceError::SeveralFiles { candidates })
        }
    }
}

fn models(names: Vec<RelativePath>) -> impl Iterator<Item = Model> {
    parts::models(names.into_iter().filter(is_gguf).filter(is_a_model).collect()).into_iter()
}

fn extension(name: &RelativePath) -> &str {
    Path::new(name.as_str()).extension().and_then(|extension| extension.to_str()).unwrap_or("")
}

fn is_gguf(name: &RelativePath) -> bool {
    extension(name).eq_ignore_ascii_case("gguf")
}

fn is_a_model(name: &RelativePath) -> bool {
    let file = name.as_str().rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    !NOT_A_MODEL.iter().any(|other| file.starts_with(other) || file.contains(&format!("-{other}")))
}

fn is_at_the_root(name: &RelativePath) -> bool {
    !name.as_str().contains('/')
}

fn is_weights(name: &RelativePath) -> bool {
    let beside = NOT_THE_WEIGHTS.iter().any(|start| name.as_str().starts_with(start));
    is_at_the_root(name) && extension(name) == "safetensors" && !beside
}

fn is_companion(name: &RelativePath) -> bool {
    (is_at_the_root(name) && COMPANIONS.contains(&extension(name))) || name.as_str() == POOLING
}

#[cfg(test)]
#[path = "selection_tests.rs"]
mod tests;
