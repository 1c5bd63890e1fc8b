//! `ropeway compile-grammar`: the process that compiles grammars on trial. Other commands start it; it is of no use to people.

use clap::Args;

use crate::failure::Failure;

/// Compile grammars that come in on standard input (started by other commands).
#[derive(Debug, Args)]
#[command(hide = true)]
pub struct CompileGrammar {}

impl CompileGrammar {
    /// Compiles until its input ends.
    #[allow(clippy::unused_self, reason = "as all commands are run")]
    pub fn run(self) -> Result<(), Failure> {
        Ok(ropeway_grammar::work()?)
    }
}
