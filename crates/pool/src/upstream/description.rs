//! What an upstream is and which models it has.
//!
//! ```text
//! /v1/models     owned_by tells vLLM, SGLang, llama-server and Ropeway apart, if it has a model
//! /version       vLLM     /model_info  SGLang     /props  llama-server     /api/version  Ollama
//! ```
//! Servers speak each other's dialects: Ropeway has `/version` and `/api/version` as well, SGLang has routes of Ollama. `owned_by` is asked
//! first for that reason, and the most telling route after it.

use serde_json::Value;

use super::Upstream;
use super::dialect::vllm;
use super::version::Version;
use crate::error::UpstreamError;
use crate::settings::Kind;

/// A server as it describes itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// What it is.
    pub kind: Kind,
    /// Its version, in its own words.
    pub version: Option<String>,
    /// The models it has, those that the operator left out excluded.
    pub models: Vec<OfferedModel>,
}

/// A model of an upstream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OfferedModel {
    /// What the upstream calls it.
    pub id: String,
    /// Where its files are, as the upstream says: a name of the hub, or a path on its machine.
    pub root: Option<String>,
    /// Tokens of a prompt and its answer together.
    pub context: Option<usize>,
    /// Whether it makes vectors instead of text, if that is known.
    pub embeds: Option<bool>,
    /// How conversations become prompts, in Jinja.
    pub chat_template: Option<String>,
}

pub(super) async fn of(upstream: &Upstream) -> Result<Description, UpstreamError> {
    let listed = listed(upstream).await?;
    let kind = match upstream.settings().kind {
        Some(kind) => kind,
        None => detect(upstream, &listed).await,
    };
    let mut models: Vec<_> = rows(&listed).filter_map(offered).collect();
    let mut version = None;
    match kind {
        Kind::Vllm | Kind::Ropeway => version = text(&told(upstream, "/version").await["version"]),
        Kind::Sglang => {
            version = text(&told(upstream, "/server_info").await["version"]);
            complete_sglang(&told_by_either(upstream, "/model_info", "/get_model_info").await, &mut models);
        }
        Kind::LlamaServer => {
            let props = told(upstream, "/props").await;
            version = text(&props["build_info"]);
            complete_llama(&props, &mut models);
        }
        Kind::Ollama => version = text(&told(upstream, "/api/version").await["version"]),
        Kind::Openai => {}
    }
    let kind = as_it_can_speak(upstream, kind, version.as_deref());
    if kind == Kind::Ropeway && upstream.settings().models.is_empty() {
        leave_aliases_out(&mut models);
    }
    keep_wanted(&upstream.settings().models, &mut models);
    Ok(Description { kind, version, models })
}

/// `/v1/models`. A server without it can still be used if the operator names its models.
async fn listed(upstream: &Upstream) -> Result<Value, UpstreamError> {
    match upstream.get("/v1/models").await {
        Err(UpstreamError::Refused { status: 404 | 405, .. } | UpstreamError::Foreign { .. })
            if !upstream.settings().models.is_empty() =>
        {
            Ok(Value::Null)
        }
        Ok(listed) if !listed["data"].is_array() => Err(UpstreamError::Foreign {
            upstream: upstream.name().into(),
            expected: upstream.expected(),
            why: "/v1/models gives no list of models".into(),
        }),
        other => other,
    }
}

async fn detect(upstream: &Upstream, listed: &Value) -> Kind {
    let owner = rows(listed).find_map(|row| row["owned_by"].as_str());
    match owner {
        Some("ropeway") => return Kind::Ropeway,
        Some("vllm") => return Kind::Vllm,
        Some("sglang") => return Kind::Sglang,
        Some("llamacpp") => return Kind::LlamaServer,
        _ => {}
    }
    if told_by_either(upstream, "/model_info", "/get_model_info").await["model_path"].is_string() {
        return Kind::Sglang;
    }
    if told(upstream, "/props").await["default_generation_settings"].is_object() {
        return Kind::LlamaServer;
    }
    // Ollama's version and Ropeway's without models: only the latter has both.
    let (own, ollama) = (told(upstream, "/version").await, told(upstream, "/api/version").await);
    match (own["version"].is_string(), ollama["version"].is_string()) {
        (true, true) => Kind::Ropeway,
        (true, false) => Kind::Vllm,
        (false, true) => Kind::Ollama,
        (false, false) => Kind::Openai,
    }
}

/// A vLLM that gives no token ids is spoken to in text, unless the operator insists.
fn as_it_can_speak(upstream: &Upstream, kind: Kind, version: Option<&str>) -> Kind {
    let is_old = version.and_then(Version::parse).is_some_and(|version| version < vllm::GIVES_TOKENS);
    let detected = upstream.settings().kind.is_none();
    if kind == Kind::Vllm && is_old && detected { Kind::Openai } else { kind }
}

/// What a route says; nothing if it is not there.
async fn told(upstream: &Upstream, path: &str) -> Value {
    upstream.get(path).await.unwrap_or_default()
}

/// The route's new name, or the one it had before.
async fn told_by_either(upstream: &Upstream, path: &str, before: &str) -> Value {
    match told(upstream, path).await {
        Value::Null => told(upstream, before).await,
        told => told,
    }
}

fn rows(listed: &Value) -> impl Iterator<Item = &Value> {
    listed["data"].as_array().into_iter().flatten()
}

fn offered(row: &Value) -> Option<OfferedModel> {
    let context = [&row["max_model_len"], &row["meta"]["n_ctx"], &row["context_length"]];
    Some(OfferedModel {
        id: text(&row["id"])?,
        root: text(&row["root"]),
        context: context.into_iter().find_map(count),
        embeds: row["embeds"].as_bool(),
        chat_template: None,
    })
}

fn complete_sglang(info: &Value, models: &mut [OfferedModel]) {
    let root = text(&info["tokenizer_path"]).or_else(|| text(&info["model_path"]));
    for model in models {
        // Adapters have a context of their base model, which is not told, and files of their own.
        if model.context.is_some() {
            model.root = root.clone().or(model.root.take());
        }
        model.embeds = info["is_generation"].as_bool().map(|generates| !generates);
    }
}

fn complete_llama(props: &Value, models: &mut [OfferedModel]) {
    for model in models {
        model.root = text(&props["model_path"]).or(model.root.take());
        model.context = count(&props["default_generation_settings"]["n_ctx"]).or(model.context);
        model.chat_template = text(&props["chat_template"]);
    }
}

/// A Ropeway lists other names of its models with the model that they stand for. Names are given where clients ask.
fn leave_aliases_out(models: &mut Vec<OfferedModel>) {
    let ids: Vec<_> = models.iter().map(|model| model.id.clone()).collect();
    models.retain(|model| model.root.as_ref().is_none_or(|root| !ids.contains(root)));
}

/// Keeps what the operator named; what the server does not list is there all the same, or requests will say so.
fn keep_wanted(wanted: &[String], models: &mut Vec<OfferedModel>) {
    if wanted.is_empty() {
        return;
    }
    models.retain(|model| wanted.contains(&model.id));
    for id in wanted {
        if !models.iter().any(|model| model.id == *id) {
            models.push(OfferedModel { id: id.clone(), ..OfferedModel::default() });
        }
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

fn count(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|count| usize::try_from(count).ok()).filter(|count| *count > 0)
}
