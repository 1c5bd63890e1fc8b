//! Grammars that are meant to be costly, from a seed.

use ropeway_grammar::{GrammarSpec, Strictness};
use serde_json::{Map, Value, json};

/// Parts of a schema, so that most grammars are no larger than what is looked at.
const PARTS: usize = 400;

/// Numbers that depend on a seed alone (xorshift64*).
pub struct Random {
    state: u64,
    /// Parts that may still be made.
    parts: usize,
}

impl Random {
    pub fn new(seed: u64) -> Self {
        Self { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, parts: PARTS }
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        (self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
    }

    fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    fn between(&mut self, from: usize, to: usize) -> usize {
        from + self.below(to - from + 1)
    }
}

/// The hostile grammar of a seed.
pub fn spec(seed: u64) -> GrammarSpec {
    let random = &mut Random::new(seed);
    match random.below(8) {
        0..=3 => schema_spec(random),
        4 => GrammarSpec::Regex(expression(random, 4)),
        5 => GrammarSpec::Choice(choices(random, &[5, 500, 9000])),
        6 => GrammarSpec::Grammar(lark(random)),
        _ => GrammarSpec::Grammar(gbnf(random)),
    }
}

fn schema_spec(random: &mut Random) -> GrammarSpec {
    let strictness = random.one_of(&[Strictness::Strict, Strictness::Lenient]);
    GrammarSpec::JsonSchema { schema: schema(random, 4), strictness }
}

/// A schema of which each level is one of the attacks.
fn schema(random: &mut Random, depth: usize) -> Value {
    let leaf = depth == 0 || random.parts == 0;
    random.parts = random.parts.saturating_sub(1);
    match random.below(if leaf { 6 } else { 14 }) {
        0 => json!({"type": "integer", "multipleOf": random.one_of(&[97, 1009, 9967, 9973, 9999])}),
        1 => {
            json!({"type": "number", "multipleOf": random.one_of(&[0.01, 0.003, 7.3, 99.97, 1e-7]), "minimum": -1e9})
        }
        2 => json!({"type": "string", "pattern": expression(random, 3), "minLength": random.below(2000)}),
        3 => {
            json!({"type": "string", "minLength": random.below(5000), "maxLength": random.between(5000, 1_000_000)})
        }
        4 => json!({"enum": choices(random, &[5, 20, if leaf { 100 } else { 5000 }])}),
        5 => {
            json!({"type": "string", "format": random.one_of(&["email", "uri", "date-time", "ipv6", "uuid", "hostname"]),
            "pattern": expression(random, 2)})
        }
        6 => json!({"allOf": many(random, 8, depth)}),
        7 => json!({"anyOf": many(random, 40, depth)}),
        8 => json!({"oneOf": many(random, 20, depth)}),
        9 => object(random, depth),
        10 => json!({"type": "array", "items": schema(random, depth - 1), "minItems": random.below(500),
            "maxItems": random.between(500, 100_000)}),
        11 => patterned(random, depth),
        12 => recursive(random, depth),
        _ => (0..random.between(1, 90)).fold(schema(random, 0), |inner, _| json!({"items": inner})),
    }
}

fn many(random: &mut Random, most: usize, depth: usize) -> Vec<Value> {
    (0..random.between(2, most)).map(|_| schema(random, depth - 1)).collect()
}

fn object(random: &mut Random, depth: usize) -> Value {
    let count = random.one_of(&[3, 10, 60, 300]);
    let mut properties = Map::new();
    for index in 0..count {
        let below = if count > 20 { 0 } else { depth - 1 };
        properties.insert(format!("p{index}"), schema(random, below));
    }
    let required: Vec<String> = (0..random.below(count)).map(|index| format!("p{index}")).collect();
    let additional = random.one_of(&[true, false]);
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": additional,
        "minProperties": random.below(10), "maxProperties": random.between(10, 1000)})
}

fn patterned(random: &mut Random, depth: usize) -> Value {
    let patterns: Map<String, Value> = (0..random.between(2, 80))
        .map(|index| (format!("^{index}{}", expression(random, 2)), schema(random, depth - 1)))
        .collect();
    json!({"type": "object", "patternProperties": patterns, "additionalProperties": schema(random, 0)})
}

fn recursive(random: &mut Random, depth: usize) -> Value {
    let count = random.between(1, 12);
    let definitions: Map<String, Value> = (0..count)
        .map(|index| {
            let next = format!("#/$defs/d{}", (index + 1) % count);
            let combine = random.one_of(&["allOf", "anyOf"]);
            (format!("d{index}"), json!({combine: [{"$ref": next}, schema(random, depth - 1)]}))
        })
        .collect();
    json!({"$ref": "#/$defs/d0", "$defs": definitions})
}

/// A regular expression with nested repetitions, classes and alternatives.
fn expression(random: &mut Random, depth: usize) -> String {
    if depth == 0 {
        return random
            .one_of(&["a", "[a-z]", ".", "\\w", "\\d+", "(ab|ba)", "[^x]", "\\p{L}", "é", "(a?)"])
            .into();
    }
    let inner = expression(random, depth - 1);
    match random.below(7) {
        0 => format!("({inner}){{1,{}}}", random.one_of(&[10, 100, 1000])),
        1 => format!("({inner})*{}", expression(random, depth - 1)),
        2 => format!("({inner}|{})+", expression(random, depth - 1)),
        3 => format!("(.*{inner}.{{{}}})", random.one_of(&[5, 12, 20, 30])),
        4 => format!("({inner}){{{},}}", random.one_of(&[2, 50, 999])),
        5 => (0..random.between(2, 30)).map(|_| expression(random, depth - 1)).collect::<Vec<_>>().join("|"),
        _ => format!("{inner}{}", expression(random, depth - 1)),
    }
}

fn choices(random: &mut Random, counts: &[usize]) -> Vec<String> {
    let length = random.one_of(&[1, 5, 20]);
    let count = random.one_of(counts);
    (0..count).map(|index| format!("{}{index}", "ab".repeat(random.between(1, length)))).collect()
}

fn lark(random: &mut Random) -> String {
    let operands = |random: &mut Random, most: usize, depth: usize| -> Vec<String> {
        (0..random.between(2, most)).map(|_| format!("/{}/", expression(random, depth))).collect()
    };
    match random.below(6) {
        0 => format!("start: T\nT: {}\n", operands(random, 30, 2).join(" & ")),
        1 => format!("start: T\nT: /.*/ & ~({})\n", operands(random, 8, 2).join(" | ")),
        2 => format!("start: %json {}\n", schema(random, 3)),
        3 => format!(
            "start: a{{1,{}}}\na: b{{1,1000}}\nb: /{}/\n",
            random.between(1, 1000),
            expression(random, 2)
        ),
        4 => "start: a\na: a a | \"x\" | a \"y\" a |\n".into(),
        _ => {
            let rules: Vec<String> = (0..random.between(10, 400))
                .map(|index| format!("r{index}: r{} /{}/ | \"z{index}\"", index + 1, expression(random, 1)))
                .collect();
            format!("start: r0\n{}\nr{}: \"e\"\n", rules.join("\n"), rules.len())
        }
    }
}

fn gbnf(random: &mut Random) -> String {
    match random.below(3) {
        0 => format!(
            "root ::= item{{1,{}}}\nitem ::= [a-z]{{1,1000}} | [0-9]{{1,1000}}\n",
            random.between(1, 1000)
        ),
        1 => "root ::= root root | \"a\" | root \"b\"\n".into(),
        _ => {
            let alternatives: Vec<String> =
                (0..random.between(10, 2000)).map(|index| format!("\"{index}\"")).collect();
            format!("root ::= ({})+\n", alternatives.join(" | "))
        }
    }
}
