//! llguidance's parsers: what makes them for a vocabulary, within limits, and on a stack of their own.

use std::sync::Arc;
use std::thread;

use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::{ParserFactory, TokenParser};
use toktrie::{InferenceCapabilities, TokEnv};

use crate::error::GrammarError;
use crate::guide::{caught, is_bug, reason};
use crate::spec::{GrammarSpec, Reasoning};
use crate::vocabulary::Vocabulary;
use crate::workers;

/// Stack of the thread that compiles: twice what the same grammar got on trial.
const STACK: usize = 2 * workers::STACK;

/// What a grammar may cost once it is compiled: a mask some tens of milliseconds. An item is compared with all others of its
/// row, so that the product of the two bounds on items counts; schemas in practical use need fewer than 300 items for a mask.
fn limits() -> ParserLimits {
    ParserLimits {
        initial_lexer_fuel: 250_000,
        max_grammar_size: 100_000,
        step_lexer_fuel: 100_000,
        step_max_items: 20_000,
        max_items_in_row: 1000,
        max_lexer_states: 50_000,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

/// What makes parsers for a vocabulary.
pub(crate) fn factory(vocabulary: Vocabulary) -> Result<ParserFactory, String> {
    let environment: TokEnv = Arc::new(vocabulary);
    let capabilities = InferenceCapabilities { ff_tokens: true, ..InferenceCapabilities::default() };
    let slices = SlicedBiasComputer::general_slices();
    let mut factory =
        ParserFactory::new(&environment, capabilities, &slices).map_err(|error| error.to_string())?;
    factory.quiet();
    *factory.limits_mut() = limits();
    Ok(factory)
}

/// Compiles a grammar with more stack than any that passed its trial takes.
pub(crate) fn compile_on_own_stack(
    factory: &ParserFactory,
    spec: &GrammarSpec,
    reasoning: Option<&Reasoning>,
) -> Result<TokenParser, GrammarError> {
    let grammar = spec.grammar(reasoning)?;
    let what = spec.what();
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("grammar".into()).stack_size(STACK);
        let compiling = thread.spawn_scoped(scope, || compile(factory, grammar));
        let compiling = compiling.map_err(|error| GrammarError::Busy { what, reason: error.to_string() })?;
        let outcome = compiling.join().map_err(|_| GrammarError::Bug { what })?;
        outcome.map_err(|error| refused(what, &error))
    })
}

/// Why a grammar was refused, from llguidance's words.
pub(crate) fn refused(what: &'static str, error: &str) -> GrammarError {
    if is_bug(error) {
        GrammarError::Bug { what }
    } else {
        GrammarError::Invalid { what, reason: reason(error).into() }
    }
}

/// Compiles a grammar; an error is in llguidance's words.
pub(crate) fn compile(factory: &ParserFactory, grammar: TopLevelGrammar) -> Result<TokenParser, String> {
    let mut parser = factory.create_parser(grammar).map_err(|error| error.to_string())?;
    parser.start_without_prompt();
    // The first mask shows what compiling can't, and its lexer states are copied for every sequence.
    caught(|| parser.compute_mask())?;
    Ok(parser)
}
