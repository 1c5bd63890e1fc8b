//! What the files of a model say, without loading it: facts for lists, remembered, and everything for `/api/show`.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use ropeway_hub::ModelFiles;
use ropeway_hub::checksum::Sha256;
use ropeway_hub::manifest::Manifest;
use ropeway_model::DecoderSpec;
use ropeway_model::encoder::EncoderSpec;
use ropeway_server::ModelFacts;
use ropeway_server::library::{Description, Detail};
use ropeway_server::model::capability::Capability;
use ropeway_text::{ChatTemplate, Infill, OutputStyle, Tokenizer};
use ropeway_weights::gguf::{Kind, Metadata};
use ropeway_weights::{Checkpoint, Config, WeightsError};
use serde_json::{Map, Value, json};

use crate::facts::Facts;

/// Endings of files that hold weights.
const WEIGHTS: [&str; 2] = [".gguf", ".safetensors"];

/// GGUF's own words that are told elsewhere in an answer.
const TOLD_ELSEWHERE: [&str; 2] = ["general.name", "tokenizer.chat_template"];

/// Facts of models, by where they are and how large: reading a vocabulary takes some tens of milliseconds, and clients ask
/// for lists often.
#[derive(Default)]
pub struct FactsCache(Mutex<HashMap<(PathBuf, u64), ModelFacts>>);

impl FactsCache {
    /// About files that may be unreadable: what they do not say is left out.
    pub fn of(&self, files: &ModelFiles) -> ModelFacts {
        let key = (files.checkpoint().to_owned(), files.bytes());
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        known.unwrap_or_else(|| {
            let facts = match Checkpoint::open(files.checkpoint()) {
                Ok(checkpoint) => facts(files, &checkpoint),
                Err(_) => ModelFacts { bytes: files.bytes(), ..ModelFacts::default() },
            };
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, facts.clone());
            facts
        })
    }
}

fn facts(files: &ModelFiles, checkpoint: &Checkpoint) -> ModelFacts {
    let capabilities = capabilities(checkpoint);
    ModelFacts { capabilities, ..Facts::of(files, checkpoint).for_server() }
}

/// What the model could do if it were loaded.
fn capabilities(checkpoint: &Checkpoint) -> Vec<Capability> {
    if DecoderSpec::from_checkpoint(checkpoint).is_err() {
        let embeds = EncoderSpec::from_checkpoint(checkpoint).is_ok();
        return embeds.then_some(Capability::Embedding).into_iter().collect();
    }
    let (Some(template), Ok(tokenizer)) = (template(checkpoint), Tokenizer::from_checkpoint(checkpoint))
    else {
        return vec![Capability::Completion];
    };
    let style = OutputStyle::detect(Some(template.source()), |token| tokenizer.token_id(token).is_some());
    Capability::of_text_model(&template, &style, Infill::of(&tokenizer).is_some())
}

/// The template that it would be served with; one without is spoken to in ChatML.
fn template(checkpoint: &Checkpoint) -> Option<ChatTemplate> {
    let own = ChatTemplate::from_checkpoint(checkpoint).ok()?;
    own.or_else(|| ChatTemplate::chatml().ok())
}

/// Facts with what a manifest tells: the digest of the weights, and when they were pulled.
pub fn noted_in(manifest: &Manifest, facts: ModelFacts) -> ModelFacts {
    ModelFacts { digest: weights_digest(manifest), modified: manifest.pulled_at, ..facts }
}

/// The sha256 of a pulled model's weights; of several files, that of all of theirs.
fn weights_digest(manifest: &Manifest) -> String {
    let is_weights = |path: &str| WEIGHTS.iter().any(|ending| path.ends_with(ending));
    let files = manifest.files.iter().filter(|file| is_weights(file.path.as_str()));
    let sums: Vec<_> = files.map(|file| file.sha256.to_string()).collect();
    match sums.as_slice() {
        [] => String::new(),
        [only] => only.clone(),
        several => Sha256::of(several.concat().as_bytes()).to_string(),
    }
}

/// Everything that the files say.
pub fn describe(name: String, files: &ModelFiles, detail: Detail) -> Result<Description, WeightsError> {
    let checkpoint = Checkpoint::open(files.checkpoint())?;
    let facts = facts(files, &checkpoint);
    let generates = facts.capabilities.contains(&Capability::Completion);
    let template = template(&checkpoint).filter(|_| generates);
    let (mut info, license) = match checkpoint.config() {
        Config::Gguf(metadata) => {
            (of_gguf(metadata, detail), metadata.str("general.license").unwrap_or_default().to_owned())
        }
        Config::HuggingFace(config) => (of_hugging_face(config, &facts.family), String::new()),
    };
    info.insert("general.architecture".into(), facts.family.clone().into());
    info.insert("general.parameter_count".into(), facts.parameters.into());
    Ok(Description {
        name,
        template: template.map(|template| template.source().to_owned()).unwrap_or_default(),
        info,
        license,
        tensors: if detail == Detail::Full { tensors(&checkpoint) } else { Vec::new() },
        facts,
    })
}

fn of_gguf(metadata: &Metadata, detail: Detail) -> Map<String, Value> {
    let keys = metadata.keys().filter(|key| !TOLD_ELSEWHERE.contains(key));
    keys.map(|key| (key.to_owned(), gguf_value(metadata, key, detail))).collect()
}

fn gguf_value(metadata: &Metadata, key: &str, detail: Detail) -> Value {
    match metadata.kind(key) {
        Some(Kind::String) => metadata.str(key).into(),
        Some(Kind::Bool) => metadata.bool(key).into(),
        Some(Kind::F32 | Kind::F64) => metadata.f32(key).into(),
        Some(Kind::Array) if detail == Detail::Brief => Value::Null,
        Some(Kind::Array) => gguf_list(metadata, key),
        Some(_) => metadata.u64(key).into(),
        None => Value::Null,
    }
}

fn gguf_list(metadata: &Metadata, key: &str) -> Value {
    let texts = || metadata.strs(key).map(Iterator::collect);
    let whole = || metadata.i32s(key).map(Iterator::collect);
    let numbers = || metadata.f32s(key).map(Iterator::collect);
    let switches = || metadata.bools(key).map(Iterator::collect);
    texts().or_else(whole).or_else(numbers).or_else(switches).unwrap_or(Value::Null)
}

/// A Hugging Face configuration under GGUF's names.
fn of_hugging_face(config: &Value, family: &str) -> Map<String, Value> {
    let text = config.get("text_config").unwrap_or(config);
    let named = [
        ("context_length", "max_position_embeddings"),
        ("embedding_length", "hidden_size"),
        ("block_count", "num_hidden_layers"),
        ("feed_forward_length", "intermediate_size"),
        ("attention.head_count", "num_attention_heads"),
        ("attention.head_count_kv", "num_key_value_heads"),
        ("vocab_size", "vocab_size"),
    ];
    let known = named.iter().filter_map(|(ours, theirs)| Some((ours, text.get(theirs)?.clone())));
    known.map(|(ours, value)| (format!("{family}.{ours}"), value)).collect()
}

fn tensors(checkpoint: &Checkpoint) -> Vec<Value> {
    let tensor = |name: &str| {
        let tensor = checkpoint.find(name)?;
        let form = crate::facts::form_name(tensor.form());
        Some(json!({ "name": name, "type": form, "shape": tensor.shape() }))
    };
    checkpoint.names().filter_map(tensor).collect()
}
