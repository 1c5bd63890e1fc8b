//! Grammars that are meant to hurt: each is refused, or compiled in bounded time and memory, and whoever leaves takes the work
//! along. Workers are processes of their own here as in the server.
//!
//! The long form, which prints the worst of 1,000 grammars, and what a trial adds to ordinary ones:
//! ```sh
//! cargo test --release -p ropeway-grammar --test hostile -- --ignored --nocapture
//! ```
//! `ROPEWAY_SEEDS=1000` before it tries so many fresh ones, `ROPEWAY_REPLAY=1471` one seed again.

mod attacks;
#[path = "../../../../tests/default_models.rs"]
mod default_models;
mod generator;
mod worst;

use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use default_models::smollm2;
use ropeway_grammar::{Account, Compiler, GrammarError, GrammarSpec, Strictness, Workers};
use ropeway_text::Tokenizer;
use ropeway_weights::Checkpoint;
use serde_json::{Map, Value, json};
use worst::Worst;

const WORKER: &str = env!("CARGO_BIN_EXE_grammar-worker");

/// Processor time and memory that a worker may take, with what it needs to start.
const MAX_TIME: Duration = Duration::from_secs(2);
const MAX_MEMORY: usize = 256 << 20;

fn tokenizer() -> Option<Tokenizer> {
    let checkpoint = Checkpoint::open(&smollm2()?).expect("the default model opens");
    Some(Tokenizer::from_checkpoint(&checkpoint).expect("its tokenizer loads"))
}

fn workers() -> Workers {
    Workers::new(|| Command::new(WORKER))
}

fn compiler() -> Option<Compiler> {
    Some(Compiler::new(&tokenizer()?).with_workers(workers()))
}

fn strict(schema: Value) -> GrammarSpec {
    GrammarSpec::JsonSchema { schema, strictness: Strictness::Strict }
}

#[test]
fn every_known_attack_is_refused_and_the_error_says_which_part() {
    let Some(compiler) = compiler() else { return };
    for attack in attacks::all() {
        let error = compiler.compile(&attack.spec, None).expect_err(attack.name);
        let text = error.to_string();
        assert!(attack.told.iter().any(|part| text.contains(part)), "{}: {text}", attack.name);
    }
}

#[test]
fn a_costly_grammar_is_tried_once_and_then_known() {
    let Some(tokenizer) = tokenizer() else { return };
    let started = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&started);
    let workers = Workers::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
        Command::new(WORKER)
    });
    let compiler = Compiler::new(&tokenizer).with_workers(workers);
    let spec = attacks::past_every_check();
    let first = compiler.compile(&spec, None).expect_err("too costly");
    assert!(matches!(first, GrammarError::TooCostly { .. }), "{first}");
    assert_eq!(compiler.compile(&spec, None).expect_err("still too costly"), first);
    assert_eq!(started.load(Ordering::Relaxed), 1, "the worker of the first trial was the only one");
}

#[test]
fn schemas_of_programs_still_compile_after_an_attack_and_beside_one() {
    let Some(compiler) = compiler() else { return };
    compiler.compile(&attacks::past_every_check(), None).expect_err("too costly");
    let schema =
        json!({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}});
    compiler.compile(&strict(schema), None).expect("an ordinary schema");
    compiler.compile(&GrammarSpec::JsonObject, None).expect("any object");
    compiler.compile(&GrammarSpec::Regex("[a-z]{3,9}".into()), None).expect("an expression");
}

#[tokio::test]
async fn whoever_leaves_ends_the_trial_and_another_account_is_served_meanwhile() {
    let Some(compiler) = compiler() else { return };
    let spec = attacks::past_every_check();
    let schema = strict(json!({"type": "integer"}));
    let hostile = compiler.admit(&spec, None, Account(1));
    let honest = compiler.admit(&schema, None, Account(2));
    tokio::select! {
        biased;
        refused = hostile => panic!("refused while the other was served: {refused:?}"),
        admitted = honest => assert!(admitted.is_ok(), "{admitted:?}"),
    }
    // Dropped by now: its worker is ended, and the account's next trial finds another.
    let again = compiler.admit(&strict(json!({"type": "boolean"})), None, Account(1)).await;
    assert!(again.is_ok(), "{again:?}");
}

#[test]
fn no_process_is_left_when_the_last_user_is_gone() {
    let Some(tokenizer) = tokenizer() else { return };
    let started = |workers: Workers| {
        let compiler = Compiler::new(&tokenizer).with_workers(workers);
        compiler.compile(&strict(json!({"type": "integer"})), None).expect("compiles");
    };
    let marker = format!("left-{}", std::process::id());
    let argument = marker.clone();
    started(Workers::new(move || {
        let mut command = Command::new(WORKER);
        command.arg(&argument);
        command
    }));
    assert_eq!(with_argument(&marker), [0; 0], "idle workers end with their owner");
}

#[cfg(target_os = "linux")]
#[test]
fn a_worker_that_was_ended_while_it_waited_costs_nobody_a_trial() {
    let Some(tokenizer) = tokenizer() else { return };
    let marker = format!("ended-{}", std::process::id());
    let (argument, started) = (marker.clone(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&started);
    let workers = Workers::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
        let mut command = Command::new(WORKER);
        command.arg(&argument);
        command
    });
    let compiler = Compiler::new(&tokenizer).with_workers(workers);
    compiler.compile(&strict(json!({"type": "integer"})), None).expect("compiles");
    let [worker] = with_argument(&marker)[..] else { panic!("one worker is kept") };
    let worker = rustix::process::Pid::from_raw(worker).expect("a process");
    rustix::process::kill_process(worker, rustix::process::Signal::KILL).expect("ended");
    compiler.compile(&strict(json!({"type": "boolean"})), None).expect("compiles on another");
    assert_eq!(started.load(Ordering::Relaxed), 2);
}

#[test]
fn generated_attacks_stay_within_the_bounds() {
    let Some(compiler) = compiler() else { return };
    let worst = Worst::of(&compiler, 0..60);
    println!("{worst}");
    assert!(worst.memory <= MAX_MEMORY, "{worst}");
}

#[test]
#[ignore = "takes minutes; the bounds are of a release build"]
fn a_thousand_generated_attacks_stay_within_the_bounds() {
    let Some(compiler) = compiler() else { return };
    let worst = Worst::of(&compiler, seeds());
    println!("{worst}");
    assert!(worst.memory <= MAX_MEMORY, "{worst}");
    assert!(worst.time <= MAX_TIME, "{worst}");
}

#[test]
#[ignore = "a measurement"]
fn what_a_trial_adds_to_ordinary_schemas() {
    let Some(tokenizer) = tokenizer() else { return };
    for (name, compiler) in [
        ("without workers", Compiler::new(&tokenizer)),
        ("with workers", Compiler::new(&tokenizer).with_workers(workers())),
    ] {
        let mut times: Vec<Duration> = (0..101).map(|number| time_to_compile(&compiler, number)).collect();
        let first = times.remove(0);
        times.sort();
        println!("{name}: first {first:?}, then median {:?}, longest {:?}", times[50], times[99]);
    }
}

fn time_to_compile(compiler: &Compiler, number: usize) -> Duration {
    let fields: Map<String, Value> = (0..20)
        .map(|field| (format!("field{number}_{field}"), json!({"type": ["string", "null"], "maxLength": 80})))
        .collect();
    let spec = strict(json!({"type": "array", "items": {"type": "object", "properties": fields}}));
    let began = Instant::now();
    compiler.compile(&spec, None).expect("an ordinary schema");
    began.elapsed()
}

/// The usual thousand, as many fresh ones as `ROPEWAY_SEEDS` says, or the one that `ROPEWAY_REPLAY` names.
fn seeds() -> Range<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    if let Some(seed) = number("ROPEWAY_REPLAY") {
        return seed..seed + 1;
    }
    let Some(count) = number("ROPEWAY_SEEDS") else { return 1000..2000 };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock");
    let base = u64::from(now.subsec_nanos());
    println!("seeds from {base}");
    base..base + count
}

/// Processes that threads of this one started; none where the system does not tell.
fn children() -> Vec<String> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// Processes with this argument.
fn with_argument(argument: &str) -> Vec<i32> {
    let has_argument = |path: &Path| {
        let line = std::fs::read(path.join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|part| part == argument.as_bytes())
    };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = processes.filter(|process| has_argument(&process.path()));
    processes.filter_map(|process| process.file_name().to_str()?.parse().ok()).collect()
}
