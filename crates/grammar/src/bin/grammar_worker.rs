//! The process that compiles grammars on trial, for tests of this crate.

fn main() -> std::io::Result<()> {
    ropeway_grammar::work()
}
