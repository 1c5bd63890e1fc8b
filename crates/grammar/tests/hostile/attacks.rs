//! Attacks that were tried on a server, and one that every check before compiling lets through.

use ropeway_grammar::{GrammarSpec, Strictness};
use serde_json::{Map, Value, json};

/// A grammar that is refused.
pub struct Attack {
    pub name: &'static str,
    pub spec: GrammarSpec,
    /// Words of which the error holds one.
    pub told: &'static [&'static str],
}

fn schema(schema: Value) -> GrammarSpec {
    GrammarSpec::JsonSchema { schema, strictness: Strictness::Strict }
}

/// Divisors that no `allOf` combines to the eye: the references do.
pub fn past_every_check() -> GrammarSpec {
    schema(json!({
        "allOf": [{"$ref": "#/$defs/one"}, {"$ref": "#/$defs/other"}],
        "$defs": {"one": {"type": "integer", "multipleOf": 9973}, "other": {"type": "integer", "multipleOf": 9967}},
    }))
}

pub fn all() -> Vec<Attack> {
    let both = json!([{"type": "integer", "multipleOf": 9973}, {"type": "integer", "multipleOf": 9967}]);
    let embedded = json!({"allOf": both});
    let hidden = match past_every_check() {
        GrammarSpec::JsonSchema { schema, .. } => schema,
        _ => Value::Null,
    };
    let joined: Vec<String> = (0..30).map(|index| format!("/(.*[a-z]{{{}}}){{1,50}}/", index + 3)).collect();
    let deep = (0..200).fold(json!({"type": "string"}), |inner, _| json!({"items": inner}));
    let patterns: Map<String, Value> =
        (0..400).map(|index| (format!("^.*(a|b){{{index},1000}}$"), json!({}))).collect();
    vec![
        Attack { name: "allOf", spec: schema(embedded.clone()), told: &["#/allOf"] },
        Attack { name: "allOf of references", spec: past_every_check(), told: &["processor time"] },
        Attack {
            name: "%json",
            spec: GrammarSpec::Grammar(format!("start: %json {embedded}\n")),
            told: &["#/allOf"],
        },
        Attack {
            name: "%json of references",
            spec: GrammarSpec::Grammar(format!("start: %json {hidden}\n")),
            told: &["processor time"],
        },
        Attack { name: "multipleOf", spec: schema(json!({"multipleOf": 999_983})), told: &["multipleOf"] },
        Attack {
            name: "intersections",
            spec: GrammarSpec::Grammar(format!("start: T\nT: {}\n", joined.join(" & "))),
            told: &["`&`"],
        },
        Attack { name: "deep", spec: schema(deep), told: &["levels deep"] },
        Attack {
            name: "patternProperties",
            spec: schema(json!({"type": "object", "patternProperties": patterns})),
            told: &["patternProperty", "patternProperties"],
        },
        Attack {
            name: "enum",
            spec: schema(json!({"enum": (0..20_000).collect::<Vec<u32>>()})),
            told: &["#/enum"],
        },
        Attack {
            name: "choices",
            spec: GrammarSpec::Choice((0..20_000).map(|index| index.to_string()).collect()),
            told: &["entries"],
        },
    ]
}
