//! The ropeway command

fn main() {}
