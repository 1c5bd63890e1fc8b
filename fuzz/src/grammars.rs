//! Hostile schemas, expressions and grammars: compiled, and followed for a few tokens where that works.

use ropeway_engine::{Grammar, Progress};
use ropeway_grammar::{Compiled, Compiler, GrammarSpec};
use ropeway_text::Tokenizer;
use std::sync::{Mutex, OnceLock};

use crate::tokenizers::llama_tokenizer;

/// Tokens of an answer that are chosen, each by a byte of the input.
const TOKENS: usize = 24;

/// What an answer of at most [`TOKENS`] tokens is chosen by where the input says nothing: any fixed bytes do.
const CHOICES: [u8; TOKENS] =
    [7, 1, 201, 34, 90, 0, 3, 255, 17, 64, 128, 5, 99, 42, 2, 11, 180, 77, 31, 6, 250, 13, 150, 60];

/// Inputs that share a compiler. Making one takes as long as some hundred small grammars; it keeps what it compiled.
const SHARED_BY: usize = 64;

/// A compiler, and how many inputs it was used for.
static COMPILER: Mutex<Option<(Compiler, usize)>> = Mutex::new(None);

/// Compiles a grammar for the small model's tokenizer and follows it.
pub fn follow(spec: &GrammarSpec) {
    let mut shared = COMPILER.lock().expect("one thread");
    if shared.as_ref().is_none_or(|(_, inputs)| *inputs == SHARED_BY) {
        *shared = Some((Compiler::new(tokenizer()), 0));
    }
    let Some((compiler, inputs)) = &mut *shared else { return };
    *inputs += 1;
    let Ok(compiled) = compiler.compile(spec, None) else { return };
    walk(&compiled);
}

/// Chooses tokens of an answer.
fn walk(compiled: &Compiled) {
    let mut guide = compiled.begin();
    let mut mask = vec![0_u32; tokenizer().vocab_size().div_ceil(32)];
    let mut forced = Vec::new();
    for choice in CHOICES {
        if guide.allow(&mut mask).is_err() {
            return;
        }
        guide.land(&mut mask);
        let Some(token) = chosen(&mask, choice) else { return };
        let Ok(Progress::Open) = guide.accept(token) else { return };
        let Ok(Progress::Open) = guide.forced(&mut forced) else { return };
    }
}

/// One of the allowed tokens.
fn chosen(mask: &[u32], choice: u8) -> Option<u32> {
    let is_allowed = |token: &u32| mask[*token as usize / 32] >> (token % 32) & 1 == 1;
    let allowed: Vec<u32> = (0..mask.len() as u32 * 32).filter(is_allowed).collect();
    allowed.get(usize::from(choice) % allowed.len().max(1)).copied()
}

fn tokenizer() -> &'static Tokenizer {
    static TOKENIZER: OnceLock<Tokenizer> = OnceLock::new();
    TOKENIZER.get_or_init(llama_tokenizer)
}
