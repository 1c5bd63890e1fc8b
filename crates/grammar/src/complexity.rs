//! Grammars that would take too long to compile, told before they are, and the part that costs most of those that turn
//! out to.
//!
//! Each bound here is far above what programs ask for. It spares a trial ([`workers`](crate::workers)) and can say what is wrong;
//! what stays within all of them may still be refused by a trial.

use serde_json::{Map, Value};

use crate::spec::GrammarSpec;

/// JSON objects in a schema: compiling takes time with the square of an object's properties.
const MAX_NODES: usize = 2000;

/// Levels of JSON in a schema, which is read recursively.
const MAX_DEPTH: usize = 96;

/// Expressions of a schema that combines some: an answer would have to match all of them at once.
const MAX_COMBINED_PATTERNS: usize = 12;

/// Largest divisor, and largest product of divisors that have to hold at once: one of `n` takes an automaton with `n`
/// states.
const MAX_DIVISOR: f64 = 10_000.0;

/// Values of an `enum`, as many as a list of choices may have.
const MAX_ENUM: usize = 10_000;

/// Schemas inside a grammar: each may be as long as the grammar.
const MAX_EMBEDDED: usize = 64;

/// Bytes of a place in a schema that are told; names inside may be of any length.
const MAX_PLACE: usize = 200;

/// Marks a JSON schema inside a grammar.
const EMBEDDED: &str = "%json";

/// Why a grammar is turned down, if it is.
pub(crate) fn excess(spec: &GrammarSpec) -> Option<String> {
    if let GrammarSpec::Grammar(text) = spec
        && text.matches(EMBEDDED).count() > MAX_EMBEDDED
    {
        return Some(format!("it has more than {MAX_EMBEDDED} `{EMBEDDED}`"));
    }
    schemas(spec).iter().find_map(|schema| Survey::of(schema).excess)
}

/// The part of a grammar that most likely costs most, in words that follow "its most demanding part is".
pub(crate) fn costliest(spec: &GrammarSpec) -> Option<String> {
    let schemas = schemas(spec);
    let found = schemas.iter().map(Survey::of).filter_map(|survey| survey.costliest);
    let part = found.max_by(|one, other| one.cost.total_cmp(&other.cost));
    part.map(|part| part.name).or_else(|| costliest_operator(spec))
}

/// The JSON schemas of a grammar: itself, or those that it embeds.
fn schemas(spec: &GrammarSpec) -> Vec<Value> {
    match spec {
        GrammarSpec::JsonSchema { schema, .. } => vec![schema.clone()],
        GrammarSpec::Grammar(text) => embedded(text),
        GrammarSpec::JsonObject | GrammarSpec::Regex(_) | GrammarSpec::Choice(_) => Vec::new(),
    }
}

/// The values that follow `%json`. What is no JSON is left to llguidance to complain about.
fn embedded(text: &str) -> Vec<Value> {
    let after = text.match_indices(EMBEDDED).take(MAX_EMBEDDED).map(|(at, mark)| &text[at + mark.len()..]);
    let read = |rest: &str| serde_json::Deserializer::from_str(rest).into_iter::<Value>().next();
    after.filter_map(|rest| read(rest)?.ok()).collect()
}

fn costliest_operator(spec: &GrammarSpec) -> Option<String> {
    let text = match spec {
        GrammarSpec::Regex(text) | GrammarSpec::Grammar(text) => text,
        GrammarSpec::Choice(choices) => {
            return Some(format!("the number of its choices ({})", choices.len()));
        }
        GrammarSpec::JsonSchema { .. } | GrammarSpec::JsonObject => return None,
    };
    let count = |operator: char| text.matches(operator).count();
    let lark = matches!(spec, GrammarSpec::Grammar(_));
    let operators = [('&', "its intersections (`&`)"), ('~', "its complements (`~`)")];
    let found = operators.into_iter().filter(|(operator, _)| lark && count(*operator) > 0);
    let most = found.max_by_key(|(operator, _)| count(*operator)).map(|(_, name)| name.to_owned());
    most.or_else(|| text.contains('{').then(|| "its repetitions (`{m,n}`)".to_owned()))
}

/// A part of a schema and about what it costs, next to others.
struct Part {
    cost: f64,
    name: String,
}

/// What a schema holds.
#[derive(Default)]
struct Survey {
    nodes: usize,
    patterns: usize,
    combines: bool,
    excess: Option<String>,
    costliest: Option<Part>,
}

/// A value on the way through a schema.
struct Visit<'a> {
    value: &'a Value,
    /// A JSON pointer.
    place: String,
    depth: usize,
}

impl Survey {
    fn of(schema: &Value) -> Self {
        let mut survey = Self::default();
        let mut left = vec![Visit { value: schema, place: "#".into(), depth: 0 }];
        while let Some(Visit { value, place, depth }) = left.pop() {
            if depth > MAX_DEPTH {
                survey.refuse(format!("it is nested more than {MAX_DEPTH} levels deep at {place}"));
                break;
            }
            let child = |name: &str, value| Visit { value, place: within(&place, name), depth: depth + 1 };
            match value {
                Value::Object(object) => {
                    survey.object(object, &place);
                    if survey.nodes > MAX_NODES {
                        break;
                    }
                    left.extend(object.iter().map(|(name, value)| child(name, value)));
                }
                Value::Array(items) => {
                    let holds_more = |item: &&Value| item.is_object() || item.is_array();
                    let items = items.iter().enumerate().filter(|(_, item)| holds_more(item));
                    left.extend(items.map(|(index, value)| child(&index.to_string(), value)));
                }
                _ => {}
            }
        }
        survey.sum_up();
        survey
    }

    fn object(&mut self, object: &Map<String, Value>, place: &str) {
        self.nodes += 1;
        if let Some(all) = object.get("allOf").and_then(Value::as_array) {
            self.combines = true;
            let divisor = product(all);
            if divisor > MAX_DIVISOR {
                self.refuse(format!(
                    "the multipleOf that {place}/allOf combines multiply to {divisor}, at most {MAX_DIVISOR} is taken"
                ));
            }
            self.costs(divisor * 4.0 + all.len() as f64 * 20.0, || format!("{place}/allOf"));
        }
        if let Some(divisor) = object.get("multipleOf").and_then(Value::as_f64) {
            if divisor > MAX_DIVISOR {
                self.refuse(format!("multipleOf may be at most {MAX_DIVISOR}, at {place} it is {divisor}"));
            }
            self.costs(divisor, || format!("{place}/multipleOf"));
        }
        if let Some(values) = object.get("enum").and_then(Value::as_array) {
            if values.len() > MAX_ENUM {
                self.refuse(format!(
                    "{place}/enum has {} values, at most {MAX_ENUM} are taken",
                    values.len()
                ));
            }
            self.costs(values.len() as f64, || format!("{place}/enum"));
        }
        if let Some(pattern) = object.get("pattern").and_then(Value::as_str) {
            self.patterns += 1;
            self.costs(10.0 * pattern.len() as f64, || format!("{place}/pattern"));
        }
        let fields = |keyword: &str| object.get(keyword).and_then(Value::as_object).map_or(0, Map::len);
        self.patterns += fields("patternProperties");
        self.costs(100.0 * fields("patternProperties") as f64, || format!("{place}/patternProperties"));
        self.costs(5.0 * fields("properties") as f64, || format!("{place}/properties"));
    }

    fn sum_up(&mut self) {
        if self.nodes > MAX_NODES {
            self.refuse(format!("it holds more than {MAX_NODES} objects"));
        }
        let patterns = self.patterns;
        if self.combines && patterns > MAX_COMBINED_PATTERNS {
            self.refuse(format!(
                "beside allOf it has {patterns} patterns, at most {MAX_COMBINED_PATTERNS} are taken"
            ));
        }
    }

    /// The first reason is the one that is told.
    fn refuse(&mut self, reason: String) {
        self.excess.get_or_insert(reason);
    }

    fn costs(&mut self, cost: f64, name: impl FnOnce() -> String) {
        if cost > self.costliest.as_ref().map_or(0.0, |part| part.cost) {
            self.costliest = Some(Part { cost, name: name() });
        }
    }
}

/// The place of what has this name inside of another place, as far as it is told.
fn within(place: &str, name: &str) -> String {
    if place.len() + name.len() > MAX_PLACE {
        let cut = if place.ends_with("..") { "" } else { "/.." };
        return format!("{place}{cut}");
    }
    format!("{place}/{name}")
}

/// All divisors in a list of schemas multiplied: what has to hold at once.
fn product(schemas: &[Value]) -> f64 {
    let (mut product, mut left): (f64, Vec<&Value>) = (1.0, schemas.iter().collect());
    while let Some(value) = left.pop() {
        match value {
            Value::Object(object) => {
                let divisor = object.get("multipleOf").and_then(Value::as_f64);
                product *= divisor.unwrap_or(1.0).max(1.0);
                left.extend(object.values());
            }
            Value::Array(items) => left.extend(items),
            _ => {}
        }
    }
    product
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::spec::Strictness;

    fn schema(schema: Value) -> GrammarSpec {
        GrammarSpec::JsonSchema { schema, strictness: Strictness::Strict }
    }

    #[test]
    fn divisors_that_have_to_hold_at_once_count_as_their_product() {
        let both = json!({"allOf": [{"multipleOf": 9973}, {"multipleOf": 9967}]});
        let reason = excess(&schema(json!({"properties": {"a": both}}))).expect("too large");
        assert!(reason.contains("#/properties/a/allOf"), "{reason}");
        assert_eq!(excess(&schema(json!({"allOf": [{"multipleOf": 50}, {"multipleOf": 0.5}]}))), None);
        assert!(excess(&schema(json!({"multipleOf": 999_983}))).expect("too large").contains("999983"));
    }

    #[test]
    fn schemas_inside_a_grammar_are_surveyed_too() {
        let lark = GrammarSpec::Grammar("start: \"a\" %json {\"multipleOf\": 999983}\n".into());
        assert!(excess(&lark).expect("too large").contains("multipleOf"));
        let mentioned = GrammarSpec::Grammar("start: \"%json\" /a/\n".into());
        assert_eq!(excess(&mentioned), None);
    }

    #[test]
    fn deep_schemas_are_turned_down() {
        let deep = (0..60).fold(json!({}), |inner, _| json!({"items": inner}));
        assert_eq!(excess(&schema(deep.clone())), None);
        let deeper = (0..60).fold(deep, |inner, _| json!({"items": inner}));
        assert!(excess(&schema(deeper)).expect("too deep").contains("levels deep"));
    }

    #[test]
    fn the_costliest_part_is_named() {
        let spec =
            schema(json!({"properties": {"a": {"enum": [1, 2]}, "b": {"pattern": "^(a|b){1,1000}$"}}}));
        assert_eq!(costliest(&spec).as_deref(), Some("#/properties/b/pattern"));
        let lark = GrammarSpec::Grammar("start: A\nA: /a/ & /b/ & /c/\n".into());
        assert!(costliest(&lark).expect("a part").contains("`&`"));
    }
}
