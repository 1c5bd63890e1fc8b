//! What a checkpoint says about itself, as plain data to print.
//!
//! Reads headers and metadata only, never weights; anything that is missing is left out, so that a model Ropeway cannot
//! run yet can still be looked at.

use std::collections::BTreeMap;
use std::fmt;

use ropeway_hub::ModelFiles;
use ropeway_text::ChatTemplate;
use ropeway_weights::gguf::Metadata;
use ropeway_weights::{AffineForm, Bits, Checkpoint, Config, FloatType, Form, Zero};
use serde::Serialize;
use serde_json::Value;

/// What there is to know about a model without running it.
#[derive(Debug, Serialize)]
pub struct Facts {
    pub name: String,
    pub format: &'static str,
    pub architecture: Option<String>,
    pub parameters: u64,
    /// The longest sequence it was made for, in tokens.
    pub context: Option<u64>,
    pub quantization: Option<String>,
    pub chat_template: TemplateFacts,
    pub tensors: Vec<TensorFacts>,
    pub files: Vec<FileFacts>,
    pub bytes: u64,
}

/// Whether the model knows how a conversation is written.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TemplateFacts {
    Present,
    Absent,
    /// There is one, but it cannot be used for this reason.
    Unusable(String),
}

/// The tensors of one number format.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct TensorFacts {
    #[serde(rename = "type")]
    pub form: String,
    pub count: u64,
    pub parameters: u64,
}

/// One file of the model.
#[derive(Debug, Serialize)]
pub struct FileFacts {
    pub path: String,
    pub bytes: u64,
}

impl Facts {
    /// Looks at an opened checkpoint.
    pub fn of(files: &ModelFiles, checkpoint: &Checkpoint) -> Facts {
        let tensors = tensors(checkpoint);
        let said = Said::by(checkpoint.config());
        Facts {
            name: files.name.clone(),
            format: said.format,
            architecture: said.architecture,
            parameters: tensors.iter().map(|form| form.parameters).sum(),
            context: said.context,
            quantization: said.quantization,
            chat_template: TemplateFacts::of(checkpoint),
            tensors,
            files: files.files.iter().map(FileFacts::of).collect(),
            bytes: files.bytes(),
        }
    }
}

impl Facts {
    /// What clients of a server may ask about it.
    pub fn for_server(&self) -> ropeway_server::ModelFacts {
        let modified =
            self.files.first().and_then(|file| std::fs::metadata(&file.path).ok()?.modified().ok());
        let since_1970 = modified.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        ropeway_server::ModelFacts {
            format: if self.format == "GGUF" { "gguf".into() } else { "safetensors".into() },
            family: self.architecture.clone().unwrap_or_default(),
            quantization: self.quantization.clone().unwrap_or_default(),
            parameters: self.parameters,
            bytes: self.bytes,
            // Known when it is loaded.
            memory: 0,
            digest: String::new(),
            capabilities: Vec::new(),
            modified: since_1970.map_or(0, |time| time.as_secs()),
        }
    }
}

impl TemplateFacts {
    fn of(checkpoint: &Checkpoint) -> TemplateFacts {
        match ChatTemplate::from_checkpoint(checkpoint) {
            Ok(Some(_)) => TemplateFacts::Present,
            Ok(None) => TemplateFacts::Absent,
            Err(error) => TemplateFacts::Unusable(error.to_string()),
        }
    }
}

impl fmt::Display for TemplateFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TemplateFacts::Present => f.write_str("yes"),
            TemplateFacts::Absent => f.write_str("no"),
            TemplateFacts::Unusable(reason) => write!(f, "yes, but {reason}"),
        }
    }
}

impl FileFacts {
    fn of(file: &ropeway_hub::model_files::ModelFile) -> FileFacts {
        FileFacts { path: file.path.display().to_string(), bytes: file.bytes }
    }
}

/// What the checkpoint's own description says.
#[derive(Debug, Default, PartialEq)]
struct Said {
    format: &'static str,
    architecture: Option<String>,
    context: Option<u64>,
    quantization: Option<String>,
}

impl Said {
    fn by(config: &Config) -> Said {
        match config {
            Config::Gguf(metadata) => Said::by_gguf(metadata),
            Config::HuggingFace(config) => Said::by_hugging_face(config),
        }
    }

    fn by_gguf(metadata: &Metadata) -> Said {
        let architecture = metadata.str("general.architecture");
        let context = architecture.and_then(|name| metadata.u64(&format!("{name}.context_length")));
        let quantization = metadata.u32("general.file_type").and_then(gguf_file_type);
        Said {
            format: "GGUF",
            architecture: architecture.map(str::to_owned),
            context,
            quantization: quantization.map(str::to_owned),
        }
    }

    fn by_hugging_face(config: &Value) -> Said {
        let text = config.get("text_config").unwrap_or(config);
        let context =
            ["max_position_embeddings", "n_positions"].iter().find_map(|key| text.get(key)?.as_u64());
        Said {
            format: "Hugging Face",
            architecture: config.get("model_type").and_then(Value::as_str).map(str::to_owned),
            context,
            quantization: hugging_face_quantization(config),
        }
    }
}

fn hugging_face_quantization(config: &Value) -> Option<String> {
    let number = |value: &Value, key: &str| value.get(key).and_then(Value::as_u64);
    if let Some(mlx) = config.get("quantization") {
        let (bits, group) = (number(mlx, "bits")?, number(mlx, "group_size")?);
        return Some(format!("MLX, {bits} bits, groups of {group}"));
    }
    let method = config.pointer("/quantization_config/quant_method");
    let plain = ["torch_dtype", "dtype"].iter().find_map(|key| config.get(key));
    method.or(plain).and_then(Value::as_str).map(str::to_owned)
}

/// The names of GGUF's file types, as far as Ropeway reads them.
fn gguf_file_type(number: u32) -> Option<&'static str> {
    Some(match number {
        0 => "F32",
        1 => "F16",
        2 => "Q4_0",
        3 => "Q4_1",
        7 => "Q8_0",
        8 => "Q5_0",
        9 => "Q5_1",
        10 => "Q2_K",
        11 => "Q3_K_S",
        12 => "Q3_K_M",
        13 => "Q3_K_L",
        14 => "Q4_K_S",
        15 => "Q4_K_M",
        16 => "Q5_K_S",
        17 => "Q5_K_M",
        18 => "Q6_K",
        25 => "IQ4_NL",
        30 => "IQ4_XS",
        32 => "BF16",
        _ => return None,
    })
}

/// The tensors counted by number format, largest share first.
fn tensors(checkpoint: &Checkpoint) -> Vec<TensorFacts> {
    let mut forms: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for tensor in checkpoint.names().filter_map(|name| checkpoint.find(name)) {
        let (count, parameters) = forms.entry(form_name(tensor.form())).or_default();
        *count += 1;
        *parameters += tensor.shape().iter().map(|&n| n as u64).product::<u64>();
    }
    let facts = |(form, (count, parameters))| TensorFacts { form, count, parameters };
    let mut list: Vec<TensorFacts> = forms.into_iter().map(facts).collect();
    list.sort_by_key(|form| std::cmp::Reverse(form.parameters));
    list
}

/// A number format in words.
pub fn form_name(form: Form) -> String {
    match form {
        Form::Float(FloatType::F32) => "f32".into(),
        Form::Float(FloatType::F16) => "f16".into(),
        Form::Float(FloatType::Bf16) => "bf16".into(),
        Form::Affine(form) => affine_name(form),
    }
}

fn affine_name(form: AffineForm) -> String {
    let bits = match form.bits {
        Bits::Four => "int4",
        Bits::Eight => "int8",
    };
    let zero = match form.zero {
        Zero::Fixed => "scale",
        Zero::Mins => "scale and minimum",
    };
    format!("{bits}, {zero} per {}", form.group.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_hugging_face_config_is_understood() {
        let config = json!({
            "model_type": "gemma3", "torch_dtype": "bfloat16", "text_config": { "max_position_embeddings": 32768 },
        });
        let said = Said::by_hugging_face(&config);
        assert_eq!(said.architecture.as_deref(), Some("gemma3"));
        assert_eq!((said.context, said.quantization.as_deref()), (Some(32768), Some("bfloat16")));
    }

    #[test]
    fn quantised_folders_say_how() {
        let mlx = json!({ "quantization": { "bits": 4, "group_size": 64 }, "torch_dtype": "float16" });
        assert_eq!(hugging_face_quantization(&mlx).as_deref(), Some("MLX, 4 bits, groups of 64"));
        let other = json!({ "quantization_config": { "quant_method": "gptq" }, "torch_dtype": "float16" });
        assert_eq!(hugging_face_quantization(&other).as_deref(), Some("gptq"));
        assert_eq!(hugging_face_quantization(&json!({ "quantization": 7 })), None);
    }
}
