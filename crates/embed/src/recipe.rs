//! What a model's own files say about making a vector out of a text.
//!
//! | file | what is taken from it |
//! |---|---|
//! | modules.json | which steps there are: pooling, normalisation |
//! | the pooling step's config.json | which vector stands for a text |
//! | `sentence_bert_config.json` | the longest text |
//! | `config_sentence_transformers.json` | what is written before queries and documents |
//! | GGUF metadata | `pooling_type` |
//!
//! An encoder without such files is pooled by the mean and normalised, as most are trained.

use std::path::{Path, PathBuf};

use ropeway_model::encoder::{EncoderSpec, Pooling};
use ropeway_weights::{Checkpoint, Config, gguf::Metadata};
use serde_json::Value;

use crate::EmbedError;

/// How a text becomes a vector.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// Which vector stands for a text.
    pub pooling: Pooling,
    /// Whether vectors have length 1.
    pub normalise: bool,
    /// The longest text, where the files limit it further than the model does.
    pub max_tokens: Option<usize>,
    /// What is written before texts.
    pub prompts: Prompts,
}

/// What is written before texts, by what they are for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prompts {
    /// Before a search query.
    pub query: String,
    /// Before a text to be found.
    pub document: String,
    /// Before any other text.
    pub plain: String,
}

/// The largest of these files read: they are a few hundred bytes.
const LARGEST_FILE: u64 = 1 << 20;

impl Recipe {
    /// Reads what lies beside, or in, a checkpoint.
    pub fn of(checkpoint: &Checkpoint) -> Result<Recipe, EmbedError> {
        match checkpoint.config() {
            Config::Gguf(metadata) => Self::of_gguf(metadata, checkpoint),
            Config::HuggingFace(_) => Self::of_folder(checkpoint),
        }
    }

    fn usual() -> Self {
        Self { pooling: Pooling::Mean, normalise: true, max_tokens: None, prompts: Prompts::default() }
    }

    fn of_gguf(metadata: &Metadata, checkpoint: &Checkpoint) -> Result<Recipe, EmbedError> {
        let architecture = metadata.str("general.architecture").unwrap_or_default();
        let pooling = match metadata.u64(&format!("{architecture}.pooling_type")) {
            Some(1) => Pooling::Mean,
            // 4 marks rankers, which are pooled like that too.
            Some(2 | 4) => Pooling::First,
            Some(3) => Pooling::Last,
            None | Some(0) if EncoderSpec::describes(checkpoint) => Pooling::Mean,
            None | Some(0) => return Err(EmbedError::NotAnEmbedder),
            Some(kind) => return Err(EmbedError::Unsupported { what: format!("pooling of type {kind}") }),
        };
        Ok(Recipe { pooling, ..Self::usual() })
    }

    fn of_folder(checkpoint: &Checkpoint) -> Result<Recipe, EmbedError> {
        let folder = checkpoint.folder();
        let mut recipe = match JsonFile::read(folder.join("modules.json"))? {
            Some(modules) => Self::of_modules(folder, &modules)?,
            None if EncoderSpec::describes(checkpoint) => Self::usual(),
            None => return Err(EmbedError::NotAnEmbedder),
        };
        if let Some(file) = JsonFile::read(folder.join("sentence_bert_config.json"))? {
            let limit = file.value.get("max_seq_length").and_then(Value::as_u64);
            recipe.max_tokens = limit.map(|limit| limit as usize).filter(|&limit| limit > 0);
        }
        if let Some(file) = JsonFile::read(folder.join("config_sentence_transformers.json"))? {
            recipe.prompts = Prompts::read(&file.value);
        }
        Ok(recipe)
    }

    fn of_modules(folder: &Path, modules: &JsonFile) -> Result<Recipe, EmbedError> {
        let list = modules.value.as_array().ok_or_else(|| modules.bad("it is no list"))?;
        let mut recipe = Recipe { normalise: false, ..Self::usual() };
        for module in list {
            let kind = module.get("type").and_then(Value::as_str).unwrap_or_default();
            match kind.rsplit('.').next().unwrap_or_default() {
                "Transformer" => {}
                "Normalize" => recipe.normalise = true,
                "Pooling" => recipe.pooling = pooling(&module_folder(folder, module, modules)?)?,
                other => {
                    let what = format!("a step called `{}`", other.chars().take(60).collect::<String>());
                    return Err(EmbedError::Unsupported { what });
                }
            }
        }
        Ok(recipe)
    }
}

/// A module's own folder, which must lie inside the model's.
fn module_folder(folder: &Path, module: &Value, modules: &JsonFile) -> Result<PathBuf, EmbedError> {
    let path = Path::new(module.get("path").and_then(Value::as_str).unwrap_or_default());
    let inside = path.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    if inside { Ok(folder.join(path)) } else { Err(modules.bad("a path leads outside the model's folder")) }
}

/// One pooling mode must be on: files list them all, or name one.
fn pooling(folder: &Path) -> Result<Pooling, EmbedError> {
    const MODES: [(&str, Pooling); 4] = [
        ("cls", Pooling::First),
        ("mean", Pooling::Mean),
        ("max", Pooling::Max),
        ("lasttoken", Pooling::Last),
    ];
    let Some(file) = JsonFile::read(folder.join("config.json"))? else { return Ok(Pooling::Mean) };
    if file.value.get("include_prompt").and_then(Value::as_bool) == Some(false) {
        return Err(EmbedError::Unsupported { what: "pooling that leaves the prompt out".into() });
    }
    let named = |name: &str| MODES.iter().find(|(mode, _)| *mode == name).map(|(_, pooling)| *pooling);
    if let Some(name) = file.value.get("pooling_mode").and_then(Value::as_str) {
        return named(name).ok_or_else(|| EmbedError::Unsupported { what: format!("`{name}` pooling") });
    }
    let members = file.value.as_object().ok_or_else(|| file.bad("it is no object"))?;
    let on = members.iter().filter(|(_, value)| value.as_bool() == Some(true));
    let mut modes = on.filter_map(|(key, _)| key.strip_prefix("pooling_mode_"));
    let unsupported = |mode: &str| EmbedError::Unsupported {
        what: format!("pooling by `{}`", mode.chars().take(60).collect::<String>()),
    };
    match (modes.next(), modes.next()) {
        (None, _) => Ok(Pooling::Mean),
        (Some(mode), None) => {
            let name = mode.strip_suffix("_tokens").or_else(|| mode.strip_suffix("_token")).unwrap_or(mode);
            named(name).ok_or_else(|| unsupported(mode))
        }
        (Some(_), Some(_)) => Err(unsupported("several modes at once")),
    }
}

impl Prompts {
    fn read(config: &Value) -> Self {
        let text = |name: &str| config.pointer("/prompts")?.get(name)?.as_str().map(str::to_owned);
        let default = config.get("default_prompt_name").and_then(Value::as_str).and_then(text);
        let plain = default.unwrap_or_default();
        Self {
            query: text("query").unwrap_or_else(|| plain.clone()),
            document: text("document").or_else(|| text("passage")).unwrap_or_else(|| plain.clone()),
            plain,
        }
    }
}

struct JsonFile {
    path: PathBuf,
    value: Value,
}

impl JsonFile {
    /// The file's contents, if there is one.
    fn read(path: PathBuf) -> Result<Option<JsonFile>, EmbedError> {
        use std::io::Read;
        let Ok(file) = std::fs::File::open(&path) else { return Ok(None) };
        let mut bytes = Vec::new();
        let read = file.take(LARGEST_FILE + 1).read_to_end(&mut bytes);
        let why = match read {
            Ok(_) if bytes.len() as u64 > LARGEST_FILE => format!("it is larger than {LARGEST_FILE} bytes"),
            Ok(_) => match serde_json::from_slice(&bytes) {
                Ok(value) => return Ok(Some(JsonFile { path, value })),
                Err(error) => error.to_string(),
            },
            Err(error) => error.to_string(),
        };
        Err(EmbedError::BadFile { path, why })
    }

    fn bad(&self, why: &str) -> EmbedError {
        EmbedError::BadFile { path: self.path.clone(), why: why.to_owned() }
    }
}
