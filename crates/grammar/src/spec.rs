//! What can be asked of an answer, and how that is written for llguidance.

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::error::GrammarError;
use crate::{complexity, gbnf, schema};

/// Largest schema or grammar that is looked at. The largest public schemas in practical use (FHIR, Kubernetes) have a few
/// megabytes and take seconds; extraction schemas have a few kilobytes.
const MAX_BYTES: usize = 256 << 10;

/// Most choices of a list: each is a branch at the start of the answer.
const MAX_CHOICES: usize = 10_000;

/// What an answer has to look like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum GrammarSpec {
    /// JSON that is valid under a schema.
    JsonSchema {
        /// The schema.
        schema: Value,
        /// What happens to keywords that can't be enforced.
        strictness: Strictness,
    },
    /// Any JSON object.
    JsonObject,
    /// Text that a regular expression matches as a whole.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// A context-free grammar in llguidance's variant of Lark's syntax, or in llama.cpp's GBNF.
    Grammar(String),
}

/// What happens to keywords of a schema that can't be enforced while an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Strictness {
    /// The schema is turned down.
    Strict,
    /// They are ignored; answers follow the rest of the schema.
    Lenient,
}

/// A model's thoughts before an answer: free text up to a closing tag.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reasoning {
    /// The tag after which the answer begins.
    pub close: String,
    /// Whether the tag is a control token of the model, and no text.
    pub is_control: bool,
}

impl GrammarSpec {
    /// What it is, in errors.
    pub(crate) fn what(&self) -> &'static str {
        match self {
            Self::JsonSchema { .. } => "JSON schema",
            Self::JsonObject => "JSON object",
            Self::Regex(_) => "regular expression",
            Self::Choice(_) => "list of choices",
            Self::Grammar(_) => "grammar",
        }
    }

    /// Whether answers are JSON.
    pub(crate) fn is_json(&self) -> bool {
        matches!(self, Self::JsonSchema { .. } | Self::JsonObject)
    }

    /// Its name in the cache: the same for the same grammar.
    pub(crate) fn hash(&self, reasoning: Option<&Reasoning>) -> [u8; 32] {
        let mut hasher = Sha256::new();
        hasher.update(format!("{reasoning:?}"));
        match self {
            Self::JsonSchema { schema, strictness } => {
                hasher.update(format!("{strictness:?}"));
                hasher.update(schema.to_string());
            }
            other => hasher.update(format!("{other:?}")),
        }
        hasher.finalize().into()
    }

    /// Turns down what is too large or too complex to be compiled.
    pub(crate) fn check(&self) -> Result<(), GrammarError> {
        let bytes = match self {
            Self::JsonSchema { schema, .. } => schema.to_string().len(),
            Self::JsonObject => 0,
            Self::Regex(text) | Self::Grammar(text) => text.len(),
            Self::Choice(choices) if choices.is_empty() => return Err(GrammarError::NoChoices),
            Self::Choice(choices) if choices.len() > MAX_CHOICES => {
                let reason = format!("it has {} entries, at most {MAX_CHOICES} are taken", choices.len());
                return Err(GrammarError::Invalid { what: self.what(), reason });
            }
            Self::Choice(choices) => choices.iter().map(String::len).sum(),
        };
        if bytes > MAX_BYTES {
            return Err(GrammarError::TooLarge { what: self.what(), bytes, limit: MAX_BYTES });
        }
        match complexity::excess(self) {
            Some(reason) => Err(GrammarError::Invalid { what: self.what(), reason }),
            None => Ok(()),
        }
    }

    /// The grammar as llguidance reads it.
    pub(crate) fn grammar(&self, reasoning: Option<&Reasoning>) -> Result<TopLevelGrammar, GrammarError> {
        let answer = match self {
            Self::JsonSchema { schema, strictness } => {
                GrammarWithLexer::from_json_schema(schema::prepare(schema, *strictness))
            }
            Self::JsonObject => GrammarWithLexer::from_json_schema(schema::prepare(
                &json!({"type": "object", "additionalProperties": true}),
                Strictness::Strict,
            )),
            Self::Regex(expression) => GrammarWithLexer::from_regex(expression),
            Self::Choice(choices) => GrammarWithLexer::from_lark(choice(choices)),
            Self::Grammar(text) if gbnf::is_gbnf(text) => {
                let lark = gbnf::to_lark(text)
                    .map_err(|reason| GrammarError::Invalid { what: self.what(), reason })?;
                GrammarWithLexer::from_lark(lark)
            }
            Self::Grammar(text) => GrammarWithLexer::from_lark(text.clone()),
        };
        let Some(reasoning) = reasoning else { return Ok(TopLevelGrammar::from_grammar(answer)) };
        let answer = GrammarWithLexer { name: Some("answer".into()), ..answer };
        let grammars = vec![GrammarWithLexer::from_lark(reasoning.before("@answer")), answer];
        Ok(TopLevelGrammar { grammars, max_tokens: None })
    }
}

impl Reasoning {
    /// A Lark grammar: thoughts, the closing tag, white space, then `answer`.
    fn before(&self, answer: &str) -> String {
        if self.is_control {
            return format!(
                "start: THOUGHTS {} SPACE {answer}\nTHOUGHTS: /(.|\\n)*/\nSPACE: /\\s{{0,4}}/\n",
                self.close
            );
        }
        let tag: String = self.close.chars().map(escaped).collect();
        format!("start: thoughts SPACE {answer}\nthoughts[lazy]: /(.|\\n)*{tag}/\nSPACE: /\\s{{0,4}}/\n")
    }
}

/// A character inside `/../`.
fn escaped(character: char) -> String {
    if character.is_alphanumeric() { character.to_string() } else { format!("\\u{{{:x}}}", character as u32) }
}

/// Each choice as a JSON string, which is what Lark's strings are. As one terminal, they are one item of the parser.
fn choice(choices: &[String]) -> String {
    let literals: Vec<String> = choices.iter().map(|choice| json!(choice).to_string()).collect();
    format!("start: CHOICE\nCHOICE: {}\n", literals.join(" | "))
}
