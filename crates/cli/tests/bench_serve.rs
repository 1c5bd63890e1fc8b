//! `bench serve` and `bench compare` against a real server of a tiny model.

mod support;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::thread;

use serde_json::Value;
use support::Sandbox;
use support::server::Server;

fn server() -> Server {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/models/llama");
    Server::start(model.to_str().unwrap(), &["--kv-memory", "64MiB"])
}

fn read(sandbox: &Sandbox, name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(sandbox.path(name)).unwrap()).unwrap()
}

#[test]
fn every_load_is_measured_and_runs_are_compared() {
    let (server, sandbox) = (server(), Sandbox::new());
    let url = server.url();
    let bench = |more: &str| {
        let mut arguments = vec!["bench", "serve", "--url", &url];
        arguments.extend(more.split(' '));
        sandbox.run(&arguments)
    };
    let closed = bench(
        "--concurrency 1,4 --requests 8 --prompt 24 --output 8 --repeat 2 --json a.json --report a.html",
    );
    assert!(closed.ok().contains("4 at once"));
    let run = read(&sandbox, "a.json");
    for point in run["points"].as_array().unwrap() {
        assert_eq!((&point["completed"], &point["repeats"]), (&16.into(), &2.into()), "{point}");
        assert_eq!(point["output_tokens"], 8.0, "the end of a text is ignored: {point}");
        assert_eq!(point["cached_tokens"], 0.0, "no prompt is like another: {point}");
        for times in ["first_token_ms", "inter_token_ms", "total_ms"] {
            assert!(point[times]["p50"].as_f64().unwrap() > 0.0, "{times}: {point}");
        }
        assert!(point["own_cpu"].as_f64().unwrap() > 0.0, "{point}");
    }
    let html = std::fs::read_to_string(sandbox.path("a.html")).unwrap();
    assert_eq!(html.matches("<svg").count(), 4, "over load, and three distributions");

    let open = "--endpoint chat --rate 200 --requests 20 --prompt uniform:40-60 --output lognormal:4 --repeat 1 --label <chat> --json b.json";
    bench(open).ok();
    assert_eq!(read(&sandbox, "b.json")["points"][0]["completed"], 20);
    bench("--trio 8,12,60 --output 4 --repeat 1 --json t.json").ok();
    let prompts = read(&sandbox, "t.json")["trio"]["prompts"].clone();
    assert_eq!(
        prompts.as_array().unwrap().iter().map(|prompt| &prompt["tokens"]).collect::<Vec<_>>(),
        [60, 12, 8]
    );

    let told = sandbox.run(&["bench", "compare", "a.json", "a.json", "--report", "both.html"]).ok();
    assert!(told.contains("(1.00x)"), "{told}");
    assert!(sandbox.path("both.html").is_file());
    let told = sandbox.run(&["bench", "compare", "a.json", "both.html"]).failed();
    assert!(told.contains("both.html can't be read") && told.contains("hint: "), "{told}");
}

#[test]
fn a_trace_is_sent_at_its_times_with_texts_that_a_prefix_cache_finds() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../testkit/tests/traces/mooncake_excerpt.jsonl");
    let (server, sandbox) = (server(), Sandbox::new());
    let url = server.url();
    let arguments = ["bench", "serve", "--url", &url, "--trace", trace, "--speed", "20", "--requests", "12"];
    let told = sandbox.run(&[&arguments[..], &["--json", "r.json"]].concat()).ok();
    let run = read(&sandbox, "r.json");
    let (point, replayed) = (&run["points"][0], &run["trace"]);
    assert_eq!((&point["completed"], &point["repeats"]), (&12.into(), &1.into()), "{run}");
    assert_eq!((&replayed["requests"], &replayed["speed"]), (&12.into(), &20.0.into()), "{run}");
    assert!(point["cached_tokens"].as_f64().unwrap() > 0.0, "equal ids are equal texts: {run}");
    let cut = replayed["cut_requests"].as_u64().unwrap();
    assert!(cut > 0 && told.contains(&format!("{cut} of them cut to its context")), "{told}");
    let told = sandbox.run(&[&arguments[..], &["--rate", "3"]].concat());
    assert_eq!(told.code, Some(2), "{}", told.err);
}

#[test]
fn failed_requests_are_counted_with_what_the_server_said() {
    let (server, sandbox) = (server(), Sandbox::new());
    let url = server.url();
    let load = ["--concurrency", "2", "--requests", "4", "--repeat", "1", "--prompt", "100000"];
    let ran = sandbox.run(&[&["bench", "serve", "--url", &url], &load[..]].concat());
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.out.contains("4 x http 400, such as: HTTP 400: This model's maximum context length"),
        "{}",
        ran.out
    );
    assert!(ran.err.contains("no request was answered"), "{}", ran.err);
}

#[test]
fn a_server_that_talks_nonsense_or_is_not_there_is_an_error_with_a_hint() {
    let sandbox = Sandbox::new();
    let told = sandbox.run(&["bench", "serve", "--url", "http://127.0.0.1:9"]).failed();
    assert!(told.contains("could not connect") && told.contains("hint: start a server"), "{told}");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let babbler = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(b"SSH-2.0-OpenSSH\r\n");
    });
    let told = sandbox.run(&["bench", "serve", "--url", &url]).failed();
    assert!(told.contains("did not list its models"), "{told}");
    babbler.join().unwrap();
}
