//! Where chat templates come from: GGUF metadata, or the files of a Hugging Face folder.

use super::{ChatTemplate, DEFAULT, TOOL_USE, TemplateTokens};
use crate::error::TextError;
use crate::source::{TokenizerConfig, read_json, read_text, token_field};
use ropeway_weights::{Checkpoint, Config, gguf::Metadata};
use serde_json::Value;
use std::path::Path;

/// The template sources of a model.
#[derive(Default)]
struct Sources {
    default: Option<String>,
    tool_use: Option<String>,
}

impl ChatTemplate {
    /// The chat template of a checkpoint, `None` if it has none; [`ChatTemplate::chatml`] is a fair guess then.
    pub fn from_checkpoint(checkpoint: &Checkpoint) -> Result<Option<Self>, TextError> {
        match checkpoint.config() {
            Config::Gguf(metadata) => Self::from_gguf(metadata),
            Config::HuggingFace(_) => Self::from_folder(checkpoint.folder()),
        }
    }

    /// The chat template that a GGUF file carries.
    pub fn from_gguf(metadata: &Metadata) -> Result<Option<Self>, TextError> {
        let source = |key: &str| metadata.str(key).map(str::to_owned);
        let sources = Sources {
            default: source("tokenizer.chat_template"),
            tool_use: source("tokenizer.chat_template.tool_use"),
        };
        let token = |key: &str| {
            let id = metadata.u32(key)? as usize;
            metadata.strs("tokenizer.ggml.tokens")?.nth(id).map(str::to_owned)
        };
        let tokens = TemplateTokens {
            bos: token("tokenizer.ggml.bos_token_id"),
            eos: token("tokenizer.ggml.eos_token_id"),
        };
        sources.build(tokens)
    }

    /// The chat template of a folder: `chat_template.jinja`, else `chat_template.json`, else
    /// `tokenizer_config.json`.
    pub fn from_folder(folder: &Path) -> Result<Option<Self>, TextError> {
        let config: TokenizerConfig = read_json(&folder.join("tokenizer_config.json"))?.unwrap_or_default();
        let text = |field: &Option<Value>| token_field(field.as_ref()).map(str::to_owned);
        let tokens = TemplateTokens { bos: text(&config.bos_token), eos: text(&config.eos_token) };
        if let Some(template) = read_text(&folder.join("chat_template.jinja"))? {
            return Self::new(&template, tokens).map(Some);
        }
        let file: Option<Value> = read_json(&folder.join("chat_template.json"))?;
        let template = file.as_ref().and_then(|file| file.get("chat_template"));
        let sources = template.or(config.chat_template.as_ref()).map(Sources::from_json);
        sources.unwrap_or_default().build(tokens)
    }
}

impl Sources {
    /// A template, or a list of templates with names.
    fn from_json(value: &Value) -> Self {
        let named = |name: &str| {
            let is_named = |entry: &&Value| entry.get("name").and_then(Value::as_str) == Some(name);
            let entry = value.as_array()?.iter().find(is_named)?;
            entry.get("template")?.as_str().map(str::to_owned)
        };
        match value.as_str() {
            Some(template) => Self { default: Some(template.to_owned()), tool_use: None },
            None => Self { default: named(DEFAULT), tool_use: named(TOOL_USE) },
        }
    }

    fn build(self, tokens: TemplateTokens) -> Result<Option<ChatTemplate>, TextError> {
        let Some(default) = self.default.as_ref().or(self.tool_use.as_ref()) else { return Ok(None) };
        ChatTemplate::with_tool_use(default, self.tool_use.as_deref(), tokens).map(Some)
    }
}
