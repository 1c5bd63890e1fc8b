//! What is generated with and without drafts: answers that quote their prompt or repeat themselves, JSON by a schema, and
//! free chat.

use std::sync::Arc;

use ropeway_engine::{Grammar, Request};
use ropeway_executor::{SamplingParams, Seed};
use ropeway_grammar::{Compiler, GrammarSpec, Strictness};
use ropeway_text::{ChatRequest, ChatTemplate, Tokenizer};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::grammar_workers::grammar_workers;

/// Most tokens of an answer.
const NEW: usize = 200;

/// Most tokens of a prompt; none of these has as many.
const PROMPT: usize = 600;

const CODE: &str = r#"```python
def area(width, height):
    if width <= 0 or height <= 0:
        raise ValueError("width and height must be positive")
    return width * height

def perimeter(width, height):
    if width <= 0 or height <= 0:
        raise ValueError("width and height must be positive")
    return 2 * (width + height)
```"#;

const CLASS: &str = r#"```python
class Account:
    """A bank account with a history of its transactions."""

    def __init__(self, owner, balance=0):
        self.owner = owner
        self.balance = balance
        self.history = []

    def deposit(self, amount):
        if amount <= 0:
            raise ValueError("the amount must be positive")
        self.balance += amount
        self.history.append(("deposit", amount))
```"#;

const PEOPLE: &str = "Anna Kowalska, 34, is a nurse from Krakow. Thomas Lindqvist, 51, teaches music in Uppsala. Maria \
Fernandes, 28, repairs bicycles in Porto. Kenji Watanabe, 45, runs a small bakery in Sapporo. Fatima El Amrani, 39, is an \
architect from Rabat. George Papadopoulos, 62, grows olives near Kalamata.";

/// One kind of request.
pub struct Workload {
    pub name: &'static str,
    /// One per stream; they differ by a number.
    prompts: Vec<Vec<u32>>,
    /// Most tokens of an answer.
    new: usize,
    temperature: f32,
    grammar: Option<Arc<dyn Grammar>>,
    ends: Vec<u32>,
}

impl Workload {
    /// The request of stream `number`.
    pub fn request(&self, number: usize) -> Request {
        let seed = Seed(number as u64);
        Request {
            params: SamplingParams { temperature: self.temperature, seed, ..SamplingParams::default() },
            grammar: self.grammar.clone(),
            ends: self.ends.clone(),
            ..Request::greedy(self.prompts[number % self.prompts.len()].clone(), self.new)
        }
    }
}

/// Writes prompts in the words of a model.
struct Author<'a> {
    tokenizer: &'a Tokenizer,
    template: &'a ChatTemplate,
    streams: usize,
    /// Tokens that prompt and answer may have together.
    context: usize,
}

impl Author<'_> {
    fn workload(&self, name: &'static str, task: &str) -> Result<Workload, Failure> {
        let prompts = (1..=self.streams).map(|number| self.prompt(number, task)).collect::<Result<_, _>>()?;
        let ends = self.tokenizer.eos_tokens().to_vec();
        let new = NEW.min(self.context / 4);
        Ok(Workload { name, prompts, new, temperature: 0.0, grammar: None, ends })
    }

    fn prompt(&self, number: usize, task: &str) -> Result<Vec<u32>, Failure> {
        let messages = [
            json!({"role": "system", "content": format!("You are a helpful assistant. This is conversation {number}.")}),
            json!({"role": "user", "content": task}),
        ];
        let tokens = self.template.encode(&ChatRequest::new(&messages), self.tokenizer)?;
        // A model with a tiny window sees the end of it.
        let most = PROMPT.min(self.context / 2);
        Ok(tokens[tokens.len().saturating_sub(most)..].to_vec())
    }
}

/// All of them, for up to so many streams.
pub fn workloads(
    tokenizer: &Tokenizer,
    template: &ChatTemplate,
    streams: usize,
    context: usize,
) -> Result<Vec<Workload>, Failure> {
    let author = Author { tokenizer, template, streams, context };
    let story = "Tell me a short story about a lighthouse keeper who finds a letter in a bottle.";
    let schema = author.workload("json by schema", &format!("List the people of this text. {PEOPLE}"))?;
    Ok(vec![
        author.workload("copy code", &format!("Repeat this code:\n{CODE}"))?,
        author.workload(
            "edit code",
            &format!("{CLASS}\nRename the class Account to Wallet. Write the whole code."),
        )?,
        author.workload("count in words", "Count: one, two, three, four, five, six. Continue to fifty.")?,
        author.workload("extract as json", &format!("Extract the people as JSON.\n{PEOPLE}"))?,
        Workload { grammar: Some(people(tokenizer)?), ..schema },
        author.workload("chat, greedy", story)?,
        Workload { temperature: 0.8, ..author.workload("chat, sampled", story)? },
    ])
}

fn people(tokenizer: &Tokenizer) -> Result<Arc<dyn Grammar>, Failure> {
    let text = || json!({"type": "string", "maxLength": 40});
    let person: Value = json!({
        "type": "object",
        "properties": {"name": text(), "age": {"type": "integer"}, "occupation": text(), "city": text()},
        "required": ["name", "age", "occupation", "city"],
    });
    let schema = json!({"type": "array", "items": person, "minItems": 6, "maxItems": 6});
    let spec = GrammarSpec::JsonSchema { schema, strictness: Strictness::Strict };
    let compiler = Compiler::new(tokenizer).with_workers(grammar_workers());
    let grammar =
        compiler.compile(&spec, None).map_err(|error| Failure::new(error, "report this as a bug"))?;
    Ok(grammar)
}
