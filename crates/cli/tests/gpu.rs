//! Commands on a GPU: an emulated one, whose libraries the C++ compiler builds.

#[path = "../../cuda/tests/emulator/mod.rs"]
mod emulator;
mod support;

use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::server::{PATIENCE, Server};
use support::{Ran, Sandbox};

fn model() -> String {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/models/llama");
    model.display().to_string()
}

/// A sandbox whose programs find the emulated GPU, for the test whose turn it is: all share what the GPU suffers.
struct Machine {
    libraries: String,
    _turn: MutexGuard<'static, ()>,
}

fn machine() -> Option<Machine> {
    static TURN: Mutex<()> = Mutex::new(());
    let libraries = emulator::folder()?.display().to_string();
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    std::fs::write(emulator::memory(), (1 << 30).to_string()).unwrap();
    Some(Machine { libraries, _turn: turn })
}

fn run(sandbox: &Sandbox, libraries: &str, arguments: &str) -> Ran {
    let model = model();
    let named = |word| if word == "MODEL" { model.as_str() } else { word };
    let arguments: Vec<_> = arguments.split(' ').map(named).collect();
    sandbox.command(&arguments).env("ROPEWAY_CUDA_LIBS", libraries).output().unwrap().into()
}

fn health(server: &Server) -> (u16, Value) {
    let (status, body) = server.request("GET", "/health", "");
    (status, serde_json::from_str(&body).unwrap())
}

#[test]
fn a_server_survives_a_lost_gpu_and_says_so_when_it_stays_lost() {
    let Some(machine) = machine() else { return };
    let flags = ["--device", "cuda", "--kv-memory", "1MiB", "--kv-disk", "256MiB"];
    let server =
        Server::start_in(Sandbox::new(), &model(), &flags, &[("ROPEWAY_CUDA_LIBS", &machine.libraries)]);
    let ask = || {
        let body = json!({ "model": "m", "max_tokens": 4, "temperature": 0,
                           "messages": [{ "role": "user", "content": "a b" }] });
        server.post("/v1/chat/completions", body.to_string())
    };
    let lose = || std::fs::write(emulator::loss(), "once").unwrap();
    let text = |body: &str| serde_json::from_str::<Value>(body).unwrap()["choices"][0]["message"].clone();
    let (status, first) = ask();
    assert_eq!(status, 200, "{first}");
    lose();
    let (status, after) = ask();
    assert_eq!((status, text(&after)), (200, text(&first)), "the answer goes on where it was");
    assert_eq!((health(&server).0, server.count("device_restarts_total", "")), (200, 1));
    lose();
    assert!(ask().0 >= 500, "whoever runs when the GPU is lost again ends");
    assert_eq!((ask().0, health(&server).0), (200, 200), "others don't");
    for _ in 0..2 {
        lose();
        assert_eq!(ask().0, 503);
        let (status, body) = health(&server);
        assert_eq!((status, &body["status"]), (503, &json!("unavailable")), "{body}");
        let told = body["models"].as_object().unwrap().values().next().unwrap();
        assert_eq!(told["state"], "device lost", "{body}");
        assert!(told["reason"].as_str().unwrap().contains("3 times in a row"), "{body}");
    }
    std::fs::remove_file(emulator::loss()).unwrap();
}

#[test]
fn a_server_whose_process_the_driver_serves_no_more_begins_anew_and_the_third_time_stays_down() {
    let Some(machine) = machine() else { return };
    let flags = ["--device", "cuda", "--kv-memory", "1MiB"];
    let server =
        Server::start_in(Sandbox::new(), &model(), &flags, &[("ROPEWAY_CUDA_LIBS", &machine.libraries)]);
    let body = json!({ "model": "m", "max_tokens": 4, "temperature": 0, "prompt": "a b" }).to_string();
    // An answer that is cut off is none: the program that was asked has gone.
    let ask = || {
        let mut told = String::new();
        server.send("/v1/completions", &body).read_to_string(&mut told).ok()?;
        let status = told.split(' ').nth(1)?.parse::<u16>().ok()?;
        let answer = told.split_once("\"text\":").map(|(_, rest)| rest.split(',').next().unwrap().to_owned());
        Some((status, answer))
    };
    let lose = || std::fs::write(emulator::loss(), "process").unwrap();
    let first = ask().unwrap();
    assert_eq!(first.0, 200);
    for _ in 0..2 {
        lose();
        assert!(ask().unwrap().0 >= 500, "whoever runs when the GPU is lost ends");
        let start = Instant::now();
        while ask() != Some(first.clone()) {
            assert!(start.elapsed() < PATIENCE, "it did not begin anew");
        }
        assert_eq!(health(&server).0, 200);
        let command = std::fs::read(format!("/proc/{}/cmdline", server.pid())).unwrap();
        assert!(!command.is_empty(), "another process answers");
    }
    lose();
    assert!(ask().unwrap().0 >= 500);
    let (status, body) = health(&server);
    assert_eq!((status, ask().unwrap().0), (503, 503), "{body}");
    let told = body["models"].as_object().unwrap().values().next().unwrap();
    assert_eq!(told["state"], "device lost", "{body}");
}

#[test]
fn a_signal_while_a_server_finishes_what_runs_before_it_begins_anew_ends_it_for_good() {
    let Some(machine) = machine() else { return };
    let flags = ["--device", "cuda", "--kv-memory", "1MiB", "--drain-timeout", "4"];
    let mut server =
        Server::start_in(Sandbox::new(), &model(), &flags, &[("ROPEWAY_CUDA_LIBS", &machine.libraries)]);
    let body = json!({ "model": "m", "max_tokens": 4, "prompt": "a b" }).to_string();
    let host = server.address;
    // A request that is half there runs until the drain time is over.
    let mut half = server.connect();
    write!(half, "POST /v1/completions HTTP/1.1\r\nhost: {host}\r\ncontent-length: 100\r\n\r\n{{").unwrap();
    std::fs::write(emulator::loss(), "process").unwrap();
    assert!(server.post("/v1/completions", body).0 >= 500);
    let nobody_accepts = || {
        let (mut stream, mut told) = (server.connect(), String::new());
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let sent = write!(stream, "GET /health HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        let read = stream.read_to_string(&mut told).map_err(|error| error.kind());
        sent.is_ok() && matches!(read, Err(ErrorKind::WouldBlock | ErrorKind::TimedOut))
    };
    let start = Instant::now();
    while !nobody_accepts() {
        assert!(start.elapsed() < PATIENCE, "it goes on as if nothing had happened");
    }
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    drop(half);
}

#[test]
fn a_model_that_a_relaunched_server_can_t_load_is_down_and_the_server_is_not() {
    let Some(machine) = machine() else { return };
    let flags = ["--device", "cuda", "--kv-memory", "1MiB"];
    let server =
        Server::start_in(Sandbox::new(), &model(), &flags, &[("ROPEWAY_CUDA_LIBS", &machine.libraries)]);
    std::fs::write(emulator::memory(), "4096").unwrap();
    std::fs::write(emulator::loss(), "process").unwrap();
    let body = json!({ "model": "m", "max_tokens": 4, "prompt": "a b" }).to_string();
    assert!(server.post("/v1/completions", body).0 >= 500);
    // The program that is asked may go before it answers.
    let health = || {
        let (mut stream, mut told) = (server.connect(), String::new());
        let host = server.address;
        write!(stream, "GET /health HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").ok()?;
        stream.read_to_string(&mut told).ok()?;
        let (head, body) = told.split_once("\r\n\r\n")?;
        Some((head.contains(" 503 "), body.to_owned()))
    };
    let start = Instant::now();
    let told = loop {
        match health() {
            Some((true, body)) if body.contains("failed to load") => break body,
            other => assert!(start.elapsed() < PATIENCE, "{other:?}"),
        }
    };
    assert!(told.contains("the GPU has"), "{told}");
}

#[test]
fn benchmarks_and_single_answers_run_on_the_gpu_that_is_named() {
    let Some(Machine { libraries, .. }) = &machine() else { return };
    let sandbox = Sandbox::new();
    let sizes = "--prefill 16 --batch 1,2 --held 4 --tokens 2 --chunk 16 --repeat 1";
    let told = run(&sandbox, libraries, &format!("bench model MODEL --device cuda --json {sizes}")).ok();
    let report: Value = serde_json::from_str(&told).unwrap();
    assert!(report["device"].as_str().unwrap().starts_with("emulated GPU"), "{told}");
    assert!(report["decode"][1]["tok_s"].as_f64().unwrap() > 0.0, "{told}");
    let sizes = "--prompt 10 --new 4 --requests 1,2 --repeat 1 --kv-memory 1MiB --scenario throughput";
    let told = run(
        &sandbox,
        libraries,
        &format!("bench engine MODEL --draft-model MODEL --device cuda --json {sizes}"),
    )
    .ok();
    let report: Value = serde_json::from_str(&told).unwrap();
    let point = &report["scenarios"]["throughput"]["points"][1];
    assert!(point["device_ms"].as_f64().unwrap() > 0.0 && point["host_ms"].as_f64().unwrap() > 0.0, "{told}");
}

#[test]
fn keys_and_values_in_8_bits_run_on_the_gpu_and_other_formats_are_told_to_be_the_cpu_s() {
    let Some(Machine { libraries, .. }) = &machine() else { return };
    let sandbox = Sandbox::new();
    let sizes = "--prefill 16 --batch 1 --held 4 --tokens 2 --chunk 16 --repeat 1";
    let told = run(&sandbox, libraries, &format!("bench model MODEL --kv q8 --json {sizes}")).ok();
    let report: Value = serde_json::from_str(&told).unwrap();
    assert!(report["device"].as_str().unwrap().starts_with("emulated GPU"), "{told}");
    for format in ["s16", "f32"] {
        let command = format!("bench model MODEL --device cuda --kv {format} {sizes}");
        let failed = run(&sandbox, libraries, &command).failed();
        assert!(failed.contains(&format!("--kv {format} works on the CPU only")), "{failed}");
    }
}

/// The vectors of the lines of a file.
fn vectors(told: &str) -> Vec<Vec<f64>> {
    let number = |value: &Value| value.as_f64().unwrap();
    let vector = |line: &str| match serde_json::from_str(line).unwrap() {
        Value::Array(values) => values.iter().map(number).collect(),
        other => other["embedding"].as_array().unwrap().iter().map(number).collect(),
    };
    told.lines().map(vector).collect()
}

#[test]
fn texts_are_embedded_on_the_gpu_that_is_named() {
    let Some(Machine { libraries, .. }) = &machine() else { return };
    let sandbox = Sandbox::new();
    let encoder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/encoders/bert");
    let texts = sandbox.write("texts", b"A cable car on the hill.\nwho sat\n");
    let embed = |device: &str| {
        let encoder = encoder.display();
        vectors(&run(&sandbox, libraries, &format!("embed {texts} --model {encoder} --device {device}")).ok())
    };
    let (on_gpu, on_cpu) = (embed("cuda"), embed("cpu"));
    assert_eq!((on_gpu.len(), on_cpu.len()), (2, 2));
    for (gpu, cpu) in on_gpu.iter().zip(&on_cpu) {
        assert_ne!(gpu, cpu, "it did not run on the GPU");
        let cosine: f64 = gpu.iter().zip(cpu).map(|(gpu, cpu)| gpu * cpu).sum();
        assert!(cosine > 0.999, "{cosine}");
    }
}

#[test]
fn a_gpu_that_is_not_there_is_an_error_that_says_what_to_do() {
    let sandbox = Sandbox::new();
    let encoder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/encoders/bert");
    let command = format!("embed --model {} --device cuda:7", encoder.display());
    let failed = run(&sandbox, "/nonexistent", &command).failed();
    assert!(failed.contains("--device cpu"), "{failed}");
}
