//! `POST /api/create`: a model made of another one, or of a GGUF file that the client sent before (`/api/blobs`).
//!
//! ```text
//! from   a model on disk, a derived model (whose words are inherited), or files: {"x.gguf": "sha256:..."}
//! adds   system, template (Jinja), parameters, messages, license
//! ```
//! Ollama's own templates are written for Go and can't run here: a template is taken if it is the model's own or Jinja, and
//! turned down otherwise, rather than answered with prompts that the model was not made for.

use std::collections::BTreeMap;

use axum::Json;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use ropeway_executor::SamplingParams;
use ropeway_generation::Sampling;
use ropeway_text::{ChatTemplate, TemplateTokens};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::options::Options;
use super::show::describe;
use super::tolerance::{named, no_model, null_is_default};
use super::{OllamaError, chat};
use crate::app::Shared;
use crate::ask::{Ask, Wire};
use crate::error::{ApiError, Kind};
use crate::intake::shape::{Field, Holds};
use crate::library::{BlobDigest, Description, Detail, Library};
use crate::model::capability::Capability;
use crate::model::derived::Derived;
use crate::model::unix_seconds;
use crate::ndjson;

/// The longest name.
const LONGEST_NAME: usize = 128;

/// Models made of others. Whoever makes more makes them by mistake.
const MOST_DERIVED: usize = 1024;

/// What clients send.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct CreateRequest {
    model: Option<String>,
    /// The field of old.
    name: Option<String>,
    from: Option<String>,
    /// Names of files and their digests, as they were sent to `/api/blobs`.
    files: Option<BTreeMap<String, String>>,
    adapters: Option<BTreeMap<String, String>>,
    template: Option<String>,
    system: Option<String>,
    parameters: Option<Map<String, Value>>,
    #[serde(default, deserialize_with = "null_is_default")]
    messages: Vec<Value>,
    /// A text or a list of texts.
    license: Option<Value>,
    quantize: Option<String>,
    /// The field of old for a whole Modelfile.
    modelfile: Option<String>,
    stream: Option<bool>,
}

impl Wire for CreateRequest {
    const FIELDS: &'static [Field] =
        &[Field::new("messages", Holds::Conversation), Field::new("system", Holds::Prompt)];

    fn model(&self) -> Option<&str> {
        named(self.model.as_deref(), self.name.as_deref())
    }
}

pub async fn create(mut ask: Ask) -> Result<Response, OllamaError> {
    let request: CreateRequest = ask.body().await?;
    let (app, streams) = (ask.app(), request.stream != Some(false));
    let name = request.model().ok_or_else(no_model)?.to_owned();
    app.shelf()?;
    request.check()?;
    let inherited = request.from.as_deref().and_then(|from| app.models.derived_named(from));
    let from = request.source()?;
    let base = inherited.as_ref().map_or(from, |inherited| inherited.from.clone());
    let base = app.models.base_of(&base);
    let description = describe(app, ask.client(), &base, Detail::Brief).await?;
    if description.facts.capabilities.contains(&Capability::Embedding) {
        let what =
            format!("{} embeds texts, which leaves nothing to add; ask it by its own name", description.name);
        return Err(ApiError::invalid(what).about("from").into());
    }
    let inherited = inherited.map(|inherited| (*inherited).clone()).unwrap_or_default();
    request.check_template(app, &description)?;
    let derived = request.derive(name, inherited, &description)?;
    let layer = format!("using existing layer sha256:{}", description.facts.digest);
    keep(app, derived).await?;
    let statuses = ["reading model metadata", layer.as_str(), "writing manifest", "success"];
    let lines: Vec<_> = statuses.iter().map(|status| json!({ "status": status })).collect();
    if streams {
        return Ok(ndjson::respond(stream::iter(lines)));
    }
    Ok(Json(json!({ "status": "success" })).into_response())
}

/// Keeps a derived model on disk and serves it from now on.
pub async fn keep(app: &Shared, derived: Derived) -> Result<(), ApiError> {
    let shelf = app.shelf()?;
    check_name(&derived.name)?;
    let installed = shelf.with(Library::installed).await?;
    let own = installed.iter().map(|model| &model.name).any(|name| *name == derived.name);
    if own || app.models.all().iter().any(|model| model.name == derived.name) {
        let what =
            format!("{:?} is a model already, which is not overwritten; choose another name", derived.name);
        return Err(ApiError::new(Kind::Conflict, what).about("model"));
    }
    let others = app.models.derived().iter().filter(|other| other.name != derived.name).count();
    if others >= MOST_DERIVED {
        return Err(ApiError::invalid(format!("there are {MOST_DERIVED} such models already; delete some")));
    }
    let kept = derived.clone();
    shelf.with(move |library| library.keep_derived(&kept)).await?;
    app.models.add_derived(derived);
    Ok(())
}

impl CreateRequest {
    /// Turns down what can't be done with a model's weights.
    fn check(&self) -> Result<(), ApiError> {
        let is_given = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        let refuse = |field: &str, what: &str| Err(ApiError::invalid(what).about(field));
        if is_given(&self.quantize) {
            return refuse(
                "quantize",
                "weights are not quantised here; create from a GGUF that is, or start the server with --quantize",
            );
        }
        if self.adapters.as_ref().is_some_and(|adapters| !adapters.is_empty()) {
            return refuse("adapters", "adapters are not applied here; merge them into the weights first");
        }
        if is_given(&self.modelfile) {
            return refuse(
                "modelfile",
                "a Modelfile is read by the client: send from, system, template and parameters",
            );
        }
        Ok(())
    }

    /// Turns down a template for a model whose prompts another server writes.
    fn check_template(&self, app: &Shared, base: &Description) -> Result<(), ApiError> {
        let has_template = self.template.as_ref().is_some_and(|template| !template.is_empty());
        match app.models.loaded(&base.name).filter(|_| has_template) {
            Some(model) => {
                model.generator.token_model().map(|_| ()).map_err(|error| error.at("template").into())
            }
            None => Ok(()),
        }
    }

    /// The name of the model that it is made of; of a file that was sent, its digest.
    fn source(&self) -> Result<String, ApiError> {
        let from = self.from.clone().filter(|from| !from.is_empty());
        let files: Vec<_> = self.files.iter().flatten().collect();
        match (from, files.as_slice()) {
            (Some(from), []) => Ok(from),
            (None, [(_, digest)]) => digest
                .parse()
                .map(|digest: BlobDigest| digest.to_string())
                .map_err(|error| ApiError::invalid(error).about("files")),
            (None, []) => Err(ApiError::invalid("neither 'from' nor 'files' was specified").about("from")),
            _ => Err(ApiError::invalid(
                "a model is made of one thing: `from` a model, or `files` with one GGUF file (safetensors are not taken)",
            )
            .about("files")),
        }
    }

    /// The model that is asked for, with what is inherited where the request says nothing.
    fn derive(self, name: String, inherited: Derived, base: &Description) -> Result<Derived, ApiError> {
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let template = match given(self.template) {
            None => inherited.template,
            Some(own) if own == base.template => String::new(),
            Some(other) => readable(other)?,
        };
        let mut parameters = inherited.parameters;
        parameters.extend(self.parameters.unwrap_or_default());
        check_parameters(&parameters)?;
        let messages: Vec<_> = self.messages.into_iter().map(chat::message).collect::<Result<_, _>>()?;
        let license = licences(self.license)?;
        Ok(Derived {
            name,
            from: base.name.clone(),
            system: given(self.system).unwrap_or(inherited.system),
            template,
            parameters,
            messages: if messages.is_empty() { inherited.messages } else { messages },
            license: if license.is_empty() { inherited.license } else { license },
            created: unix_seconds(),
        })
    }
}

/// A template that can be read as Jinja.
fn readable(template: String) -> Result<String, ApiError> {
    match ChatTemplate::new(&template, TemplateTokens::default()) {
        Ok(_) => Ok(template),
        Err(error) => Err(ApiError::invalid(format!(
            "the template is no Jinja: {error}. Ollama's Go templates can't be run here; leave TEMPLATE out, and the model's \
             own chat template is used"
        ))
        .about("template")),
    }
}

/// Finds mistakes now rather than with the first question.
fn check_parameters(parameters: &Map<String, Value>) -> Result<(), ApiError> {
    let options: Options = serde_json::from_value(Value::Object(parameters.clone()))
        .map_err(|error| ApiError::invalid(error.to_string()).about("parameters"))?;
    Sampling::new(options.over(SamplingParams::default(), usize::MAX))?;
    Ok(())
}

fn licences(given: Option<Value>) -> Result<Vec<String>, ApiError> {
    match given {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(text)) if text.is_empty() => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![text]),
        Some(list) => serde_json::from_value(list)
            .map_err(|_| ApiError::invalid("license is a text or a list of texts").about("license")),
    }
}

/// Words of letters, digits, `.`, `_` and `-`, perhaps with `/` and one `:tag`; nothing that looks like a digest.
fn check_name(name: &str) -> Result<(), ApiError> {
    let is_word = |part: &str| {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        part.starts_with(|c: char| c.is_ascii_alphanumeric()) && part.chars().all(is_allowed)
    };
    let (base, tag) = name.split_once(':').unwrap_or((name, "latest"));
    if name.len() <= LONGEST_NAME && is_word(tag) && base.split('/').all(is_word) && base != "sha256" {
        return Ok(());
    }
    let what =
        format!("invalid model name {name:?}: it is made of letters, digits, dots and dashes, as in mine:7b");
    Err(ApiError::invalid(what).about("model"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(body: Value) -> CreateRequest {
        serde_json::from_value(body).expect("a request")
    }

    fn base() -> Description {
        Description { name: "m:1b".into(), template: "{{ .Prompt }}".into(), ..Description::default() }
    }

    fn derive(body: Value) -> Result<Derived, ApiError> {
        request(body).derive("mine".into(), Derived::default(), &base())
    }

    #[test]
    fn a_template_is_the_models_own_or_jinja() {
        assert_eq!(derive(json!({"template": "{{ .Prompt }}"})).map(|made| made.template), Ok(String::new()));
        let jinja = "{% for m in messages %}{{ m.content }}{% endfor %}";
        assert_eq!(derive(json!({ "template": jinja })).map(|made| made.template), Ok(jinja.into()));
        let go = "{{ if .System }}<|system|>{{ .System }}{{ end }}{{ .Prompt }}";
        let error = derive(json!({ "template": go })).expect_err("Go's");
        assert!(error.message.contains("Go templates"), "{error}");
    }

    #[test]
    fn mistakes_are_found_when_a_model_is_made() {
        for wrong in [
            json!({"parameters": {"temperature": "hot"}}),
            json!({"parameters": {"top_p": 7}}),
            json!({"messages": [{"role": "judge", "content": "x"}]}),
            json!({"license": 5}),
        ] {
            assert_eq!(derive(wrong.clone()).map_err(|error| error.kind), Err(Kind::Invalid), "{wrong}");
        }
        for wrong in
            [json!({"quantize": "q4_K_M"}), json!({"adapters": {"a": "b"}}), json!({"modelfile": "FROM x"})]
        {
            assert!(request(wrong.clone()).check().is_err(), "{wrong}");
        }
        for wrong in
            [json!({}), json!({"from": "m", "files": {"a.gguf": "b"}}), json!({"files": {"a.gguf": "b"}})]
        {
            assert!(request(wrong.clone()).source().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_a_derived_model_says_is_inherited() {
        let parent = Derived {
            system: "Be brief.".into(),
            parameters: json!({"temperature": 0.1, "seed": 3}).as_object().cloned().expect("an object"),
            ..Derived::default()
        };
        let child = request(json!({"parameters": {"seed": 4}, "license": "MIT"}));
        let child = child.derive("child".into(), parent, &base()).expect("made");
        assert_eq!((child.system.as_str(), child.from.as_str()), ("Be brief.", "m:1b"));
        assert_eq!(Value::from(child.parameters), json!({"temperature": 0.1, "seed": 4}));
        assert_eq!(child.license, ["MIT"]);
    }

    #[test]
    fn a_name_is_neither_a_path_nor_a_digest() {
        for bad in ["", ":x", "../x", "/x", "a b", "a:b:c", "a/", &format!("sha256:{}", "a".repeat(64))] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
        for good in ["mario", "mario:latest", "team/mario:7b"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
    }
}
