//! The default model in an engine, its tokenizer, and a compiler for it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::default_models::smollm2;
use ropeway_cpu::{CpuExecutor, CpuOptions};
use ropeway_engine::{Completion, Handle, Pace, Request, Settings, spawn};
use ropeway_grammar::{Compiled, Compiler, GrammarError, GrammarSpec};
use ropeway_text::{Special, SpecialTokens, Tokenizer};
use ropeway_weights::Checkpoint;

/// Each test uses all cores; together they would only wait for each other.
pub fn my_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn tokenizer() -> Option<Tokenizer> {
    let checkpoint = Checkpoint::open(&smollm2()?).expect("the default model opens");
    Some(Tokenizer::from_checkpoint(&checkpoint).expect("its tokenizer loads"))
}

pub fn compiler() -> Option<Compiler> {
    Some(Compiler::new(&tokenizer()?))
}

pub struct Model {
    pub handle: Handle,
    tokenizer: Tokenizer,
    compiler: Compiler,
}

impl Model {
    pub fn open() -> Option<Self> {
        let path = smollm2()?;
        let options = CpuOptions { context: Some(1024), kv_tokens: Some(32 << 10), ..CpuOptions::default() };
        let executor = CpuExecutor::open(&path, &options, &mut |_, _| {}).expect("the default model loads");
        let tokenizer = tokenizer()?;
        let compiler = Compiler::new(&tokenizer);
        // Steps as long as their tokens allow: everyone is let in at once.
        let settings = Settings { pace: Pace::new(Duration::from_secs(600)), ..Settings::default() };
        Some(Self { handle: spawn(Box::new(executor), &settings).0, tokenizer, compiler })
    }

    pub fn compile(&self, spec: &GrammarSpec) -> Result<Arc<Compiled>, GrammarError> {
        self.compiler.compile(spec, None)
    }

    /// A question, with room for 120 tokens of answer.
    pub fn request(&self, question: &str) -> Request {
        let prompt = format!("<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n");
        let prompt = self.tokenizer.encode(&prompt, Special::TEMPLATE).expect("a prompt");
        Request { ends: self.tokenizer.eos_tokens().to_vec(), ..Request::greedy(prompt, 120) }
    }

    pub fn together(&self, requests: impl IntoIterator<Item = Request>) -> Vec<Completion> {
        let submit = |request| self.handle.submit(request).expect("a request that fits");
        let streams: Vec<_> = requests.into_iter().map(submit).collect();
        streams.into_iter().map(|mut stream| stream.collect()).collect()
    }

    pub fn text(&self, answer: &Completion) -> String {
        let tokens: Vec<u32> = answer.tokens.iter().map(|sampled| sampled.token).collect();
        self.tokenizer.decode(&tokens, SpecialTokens::Skip)
    }
}
