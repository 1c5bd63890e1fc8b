//! Answers that follow a schema: many at once, against one after another and against the same load without a schema.
//!
//! Two schemas are measured: one of a knowledge-graph pipeline, whose answers are mostly the model's own words, and one
//! of long keys and short values, most of which is forced. Both go on until the last token asked for.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ropeway_engine::{Grammar, Request, StepRecord};
use ropeway_grammar::{Compiler, GrammarSpec, Strictness};
use ropeway_text::Tokenizer;
use serde::Serialize;
use serde_json::{Value, json};

use super::Sizes;
use super::lab::{Lab, finish};
use crate::commands::bench::statistics::median;
use crate::failure::Failure;
use crate::grammar_workers::grammar_workers;

/// Requests at once: what the pipeline sends.
const AT_ONCE: usize = 18;

/// Requests measured one after another.
const IN_TURN: usize = 6;

/// What was found.
#[derive(Debug, Serialize)]
pub struct Structured {
    requests: usize,
    prompt_tokens: usize,
    new_tokens: usize,
    /// The same requests without a schema, at once.
    free_tok_s: f64,
    schemas: Vec<Measured>,
}

/// One schema.
#[derive(Debug, Serialize)]
struct Measured {
    schema: &'static str,
    compile_ms: f64,
    one_after_another_tok_s: f64,
    tok_s: f64,
    /// Against one after another.
    speedup: f64,
    /// Against the same without a schema.
    of_free: f64,
    /// Tokens that were forced, of all.
    forced_share: f64,
    /// Microseconds for one mask and the token chosen by it.
    mask_us: f64,
    /// What masks add to steps: their time shared by the threads, of the time to compute.
    mask_share: f64,
}

pub fn measure(
    lab: &mut Lab,
    sizes: &Sizes,
    tokenizer: &Tokenizer,
    threads: usize,
) -> Result<Structured, Failure> {
    let compiler = Compiler::new(tokenizer).with_workers(grammar_workers());
    let compile = |schema: Value| {
        let spec = GrammarSpec::JsonSchema { schema, strictness: Strictness::Strict };
        compiler.compile(&spec, None).map_err(|error| Failure::new(error, "report this as a bug"))
    };
    // The first grammar brings the vocabulary into shape.
    compile(json!({"type": "null"}))?;
    let mut runs = Vec::new();
    for (name, schema) in [("graph", graph()), ("key-heavy", key_heavy())] {
        let began = Instant::now();
        let grammar: Arc<dyn Grammar> = compile(schema)?;
        let compile = began.elapsed();
        let (one_after_another, at_once, steps) = (Vec::new(), Vec::new(), Vec::new());
        runs.push(Runs { name, grammar, compile, one_after_another, at_once, steps });
    }
    let mut free = Vec::new();
    for _ in 0..sizes.repeat {
        free.push(at_once(lab, sizes, None)?.0);
        for runs in &mut runs {
            runs.one_after_another.push(one_after_another(lab, sizes, &runs.grammar)?);
            let (tok_s, steps) = at_once(lab, sizes, Some(&runs.grammar))?;
            runs.at_once.push(tok_s);
            runs.steps.extend(steps);
        }
    }
    let free_tok_s = median(free);
    Ok(Structured {
        requests: AT_ONCE,
        prompt_tokens: sizes.prompt,
        new_tokens: sizes.new,
        free_tok_s,
        schemas: runs.into_iter().map(|runs| runs.measured(free_tok_s, threads)).collect(),
    })
}

/// All measurements of one schema.
struct Runs {
    name: &'static str,
    grammar: Arc<dyn Grammar>,
    compile: Duration,
    one_after_another: Vec<f64>,
    at_once: Vec<f64>,
    steps: Vec<StepRecord>,
}

impl Runs {
    fn measured(self, free_tok_s: f64, threads: usize) -> Measured {
        let (one_after_another_tok_s, tok_s) = (median(self.one_after_another), median(self.at_once));
        let sum = |of: fn(&StepRecord) -> f64| self.steps.iter().map(of).sum::<f64>();
        let (guided, forced) = (sum(|step| step.guided as f64), sum(|step| step.forced as f64));
        let (masks, computing) =
            (sum(|step| step.guiding.as_secs_f64()), sum(|step| step.execute.as_secs_f64()));
        Measured {
            schema: self.name,
            compile_ms: self.compile.as_secs_f64() * 1e3,
            one_after_another_tok_s,
            tok_s,
            speedup: tok_s / one_after_another_tok_s,
            of_free: tok_s / free_tok_s,
            forced_share: forced / (guided + forced).max(1.0),
            mask_us: masks / guided.max(1.0) * 1e6,
            mask_share: masks / threads as f64 / computing,
        }
    }
}

fn one_after_another(lab: &mut Lab, sizes: &Sizes, grammar: &Arc<dyn Grammar>) -> Result<f64, Failure> {
    let (start, mut tokens) = (Instant::now(), 0);
    for _ in 0..IN_TURN {
        let request = request(lab, sizes, Some(grammar));
        tokens += finish(lab.submit_request(request)?)?.generated;
    }
    Ok(tokens as f64 / start.elapsed().as_secs_f64())
}

fn at_once(
    lab: &mut Lab,
    sizes: &Sizes,
    grammar: Option<&Arc<dyn Grammar>>,
) -> Result<(f64, Vec<StepRecord>), Failure> {
    let requests: Vec<Request> = (0..AT_ONCE).map(|_| request(lab, sizes, grammar)).collect();
    lab.settle();
    let (before, start, mut tokens) = (lab.steps(), Instant::now(), 0);
    let streams: Vec<_> =
        requests.into_iter().map(|request| lab.submit_request(request)).collect::<Result<_, _>>()?;
    for stream in streams {
        tokens += finish(stream)?.generated;
    }
    let tok_s = tokens as f64 / start.elapsed().as_secs_f64();
    lab.settle();
    Ok((tok_s, lab.steps_since(before)))
}

fn request(lab: &mut Lab, sizes: &Sizes, grammar: Option<&Arc<dyn Grammar>>) -> Request {
    Request { grammar: grammar.cloned(), ..Request::greedy(lab.prompt(sizes.prompt), sizes.new) }
}

/// Facts between entities, as Graphiti asks for them.
fn graph() -> Value {
    let text = || json!({"type": "string", "maxLength": 60});
    let date = || json!({"anyOf": [{"type": "string", "maxLength": 30}, {"type": "null"}], "default": null});
    json!({
        "$defs": {"Edge": {
            "type": "object",
            "properties": {
                "relation_type": text(), "source_entity_id": {"type": "integer"}, "target_entity_id": {"type": "integer"},
                "fact": text(), "valid_at": date(), "invalid_at": date(),
            },
            "required": ["relation_type", "source_entity_id", "target_entity_id", "fact"],
        }},
        "type": "object",
        "properties": {"edges": {"type": "array", "items": {"$ref": "#/$defs/Edge"}, "minItems": 40}},
        "required": ["edges"],
    })
}

/// Long keys, short values.
fn key_heavy() -> Value {
    let keys = [
        "has_relationship_to_source",
        "contradicts_previous_statement",
        "mentions_a_point_in_time",
        "requires_human_review",
        "is_duplicate_of_existing_entity",
        "confidence_is_above_threshold",
    ];
    let properties: serde_json::Map<String, Value> =
        keys.iter().map(|key| ((*key).to_owned(), json!({"enum": ["yes", "no"]}))).collect();
    let item = json!({"type": "object", "properties": properties, "required": keys});
    json!({"type": "array", "items": item, "minItems": 40})
}

impl fmt::Display for Structured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, prompt_tokens, new_tokens, free_tok_s, .. } = self;
        writeln!(f, "structured: {requests} requests, {prompt_tokens} tokens in, {new_tokens} out")?;
        writeln!(f, "  without a schema   {free_tok_s:>8.1} tok/s")?;
        for one in &self.schemas {
            writeln!(
                f,
                "  {:<10} at once {:>8.1} tok/s  {:>5.2}x one after another ({:.1}), {:.2}x without a schema",
                one.schema, one.tok_s, one.speedup, one.one_after_another_tok_s, one.of_free
            )?;
            writeln!(
                f,
                "             compiled in {:.1} ms; {:.0} % of tokens forced; {:.0} us a mask, {:.1} % of the step",
                one.compile_ms,
                100.0 * one.forced_share,
                one.mask_us,
                100.0 * one.mask_share
            )?;
        }
        Ok(())
    }
}
