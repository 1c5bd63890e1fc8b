//! `ropeway simulate`: the same seed gives the same report, and the report says what it should.

mod support;

use serde_json::Value;
use support::Sandbox;

fn simulate(arguments: &[&str]) -> String {
    let all = [&["simulate", "--requests", "600", "--json"], arguments].concat();
    Sandbox::new().run(&all).ok()
}

fn number(report: &Value, path: &str) -> f64 {
    report.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} in {report}"))
}

#[test]
fn the_same_seed_gives_the_same_report_and_another_seed_another() {
    let arguments = ["--preset", "mixed", "--policy", "fair", "--seed"];
    let report = |seed| simulate(&[&arguments[..], &[seed]].concat());
    assert_eq!(report("5"), report("5"));
    assert_ne!(report("5"), report("6"));
}

#[test]
fn short_requests_do_not_wait_for_an_agents_long_prompt_unless_served_in_order() {
    let report: Value = serde_json::from_str(&simulate(&["--preset", "agent-trio"])).unwrap();
    let names: Vec<_> =
        report["policies"].as_array().unwrap().iter().map(|policy| &policy["policy"]).collect();
    assert_eq!(names, ["fair", "fifo", "shortest", "balance"]);
    let first_token =
        |policy: usize| number(&report, &format!("/policies/{policy}/classes/all/first_token_s/p50"));
    let (fair, fifo) = (first_token(0), first_token(1));
    assert!(3.0 * fair < fifo, "fair {fair}, in order {fifo}");
    for policy in 0..4 {
        assert!((number(&report, &format!("/policies/{policy}/classes/all/answered")) - 600.0).abs() < 1e-9);
    }
}

#[test]
fn an_overloaded_machine_turns_requests_down_and_keeps_interactive_ones_quick() {
    let arguments = ["--preset", "overload", "--policy", "fair", "--queue", "50"];
    let report: Value = serde_json::from_str(&simulate(&arguments)).unwrap();
    let class = |name: &str, what: &str| number(&report, &format!("/policies/0/classes/{name}/{what}"));
    assert!(class("all", "rejected") > 0.0);
    assert!(class("interactive", "first_token_s/p50") * 10.0 < class("bulk", "first_token_s/p50"));
    assert!(number(&report, "/policies/0/utilisation") > 0.9);
}

#[test]
fn the_table_and_the_plot_name_every_policy() {
    let sandbox = Sandbox::new();
    let text = sandbox.run(&["simulate", "--requests", "200", "--svg", "plot.svg"]).ok();
    let plot = std::fs::read_to_string(sandbox.path("plot.svg")).unwrap();
    for policy in ["fair", "fifo", "shortest", "balance"] {
        assert!(text.contains(policy) && plot.contains(&format!(">{policy}</text>")), "{policy}");
    }
    assert!(plot.starts_with("<svg") && plot.ends_with("</svg>\n"));
}

#[test]
fn drafts_are_right_as_often_as_told_and_make_the_machine_faster_where_they_pay() {
    let speculate = |arguments: &[&str]| -> Value {
        let all = [&["--policy", "fair", "--load", "0.3", "--speculate"], arguments].concat();
        serde_json::from_str(&simulate(&all)).unwrap()
    };
    let figure = |report: &Value, what: &str| number(report, &format!("/policies/0/speculation/{what}"));
    let good = speculate(&["--acceptance", "0.8"]);
    let per_step = figure(&good, "tokens_per_step");
    assert!(figure(&good, "speed_up") > 1.15 && figure(&good, "total_p50_speed_up") > 1.15, "{good}");
    assert!(per_step > 1.2 && figure(&good, "mean_depth") > 1.0, "{good}");
    let shallow = speculate(&["2", "--acceptance", "0.8"]);
    assert!(figure(&shallow, "mean_depth") <= 2.0 && figure(&shallow, "tokens_per_step") < per_step);
    let useless = speculate(&["--acceptance", "0"]);
    assert!(figure(&useless, "accepted_tokens").abs() < 1e-9, "{useless}");
    assert!(figure(&useless, "speed_up") > 0.97, "wrong drafts are given up: {useless}");
    let off: Value = serde_json::from_str(&simulate(&["--policy", "fair", "--load", "0.3"])).unwrap();
    assert!(off["policies"][0]["speculation"].is_null());
    let switched_off = speculate(&["off"]);
    assert_eq!(off, switched_off);
}

/// Some requests of a conversation trace (`kvcache-ai/Mooncake`, Apache-2.0).
const EXCERPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../testkit/tests/traces/mooncake_excerpt.jsonl");

/// The first requests of `azure_conv_2023.csv` (`AzurePublicDataset`, CC BY 4.0).
const AZURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../testkit/tests/traces/azure_head.csv");

fn replay(file: &str, arguments: &str) -> String {
    let all = ["simulate", "--json", "--machine", "h200-8b", "--trace", file].into_iter();
    Sandbox::new().run(&all.chain(arguments.split(' ')).collect::<Vec<_>>()).ok()
}

#[test]
fn a_trace_is_replayed_with_every_pair_of_sizes_and_finds_on_disk_what_memory_lost() {
    let arguments = "--speed 0.1 --kv-memory 1GB,endless --kv-disk 1TB --disk-speed 50,50";
    let text = replay(EXCERPT, arguments);
    assert_eq!(text, replay(EXCERPT, arguments), "the same every time");
    let report: Value = serde_json::from_str(&text).unwrap();
    let sizes: Vec<_> = (0..4).map(|run| report["runs"][run]["kv_disk"].as_str()).collect();
    assert_eq!(sizes, [None, Some("1 TB"), None, Some("1 TB")]);
    let endless = number(&report, "/endless/found_blocks");
    let found = |run: usize| {
        let at = |what: &str| number(&report, &format!("/runs/{run}/{what}"));
        assert!((at("all/answered") - 39.0).abs() < 1e-9, "{report}");
        (at("found_in_memory"), at("found_on_disk"))
    };
    assert!(endless > 100.0 && endless <= number(&report, "/endless/repeated_blocks"));
    let (memory, disk) = found(0);
    assert!(memory < endless / 2.0 && disk.abs() < 1e-9, "{report}");
    let (memory, disk) = found(1);
    assert!(disk > 0.0 && (memory + disk - endless).abs() < 1e-9, "{report}");
    for run in [2, 3] {
        assert_eq!(found(run), (endless, 0.0), "{report}");
    }
}

#[test]
fn prompts_that_are_not_known_are_not_found_and_those_that_do_not_fit_are_cut() {
    let report: Value =
        serde_json::from_str(&replay(AZURE, "--requests 30 --kv-memory 140MB --kv-disk 1GB")).unwrap();
    assert_eq!((&report["requests"], &report["endless"]["repeated_blocks"]), (&30.into(), &0.into()));
    assert!(number(&report, "/cut_requests") > 0.0, "{report}");
    for run in 0..2 {
        let at = |what: &str| number(&report, &format!("/runs/{run}/{what}"));
        assert_eq!((at("found_in_memory"), at("found_on_disk"), at("all/answered")), (0.0, 0.0, 30.0));
    }
}

#[test]
fn a_bad_trace_names_the_line_and_a_replay_is_a_table() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("bad.csv"), "TIMESTAMP,ContextTokens,GeneratedTokens\nnow,1,2\n").unwrap();
    let told = sandbox.run(&["simulate", "--trace", "bad.csv"]).failed();
    assert!(told.contains("bad.csv, line 2: \"now\" is no time") && told.contains("hint: "), "{told}");
    let told = sandbox.run(&["simulate", "--trace", AZURE, "--kv-memory", "1MB"]).failed();
    assert!(told.contains("less than two blocks"), "{told}");
    let table = sandbox.run(&["simulate", "--trace", EXCERPT, "--machine", "h200-8b"]).ok();
    assert!(table.contains("endless cache: 135 of 261 prompt blocks came before (51.72 %)"), "{table}");
    assert!(table.contains("110 GB     none"), "{table}");
}

#[test]
fn wrong_workloads_and_costs_say_what_is_right() {
    for (arguments, hint) in [
        (["--preset", "party"], "agent-trio"),
        (["--kind", "urgent,1,2,3"], "interactive"),
        (["--cost", "1,2,3"], "STEP,TOKEN,ROW,PAIR[,READ]"),
        (["--policy", "lottery"], "shortest"),
        (["--speculate", "17"], "1 to 16"),
        (["--acceptance", "1.5"], "from 0 to 1"),
        (["--machine", "abacus"], "h200-8b"),
        (["--kv-disk", "1TB"], "--trace"),
        (["--trace=a", "--kv-memory=much"], "110GB"),
    ] {
        let ran = Sandbox::new().run(&[&["simulate"], &arguments[..]].concat());
        assert!(ran.code == Some(2) && ran.err.contains(hint), "{arguments:?}: {}", ran.err);
    }
}

/// The report of a pool, of which `find` picks runs by their scenario and label.
struct PoolReport(Value);

impl PoolReport {
    fn of(arguments: &str) -> (String, PoolReport) {
        let all = ["simulate", "--json"].into_iter().chain(arguments.split(' '));
        let text = Sandbox::new().run(&all.collect::<Vec<_>>()).ok();
        let report = serde_json::from_str(&text).unwrap();
        (text, PoolReport(report))
    }

    fn find(&self, scenario: &str, label: &str) -> &Value {
        let runs = self.0["runs"].as_array().unwrap();
        let found = runs.iter().find(|run| run["scenario"] == scenario && run["label"] == label);
        found.unwrap_or_else(|| panic!("{scenario} {label} in {}", self.0))
    }
}

#[test]
fn every_request_to_a_pool_is_answered_or_turned_down_and_affinity_finds_more_than_chance() {
    let arguments = "--pool 6 --users 1200 --seed 4";
    let (text, report) = PoolReport::of(arguments);
    assert_eq!(text, PoolReport::of(arguments).0, "the same every time");
    for run in report.0["runs"].as_array().unwrap() {
        let at = |path: &str| number(run, path);
        let ended = at("/classes/all/answered") + at("/classes/all/rejected") + at("/classes/all/failed");
        assert!((ended - at("/requests")).abs() < 1e-9 && at("/lost").abs() < 1e-9, "{run}");
    }
    let cached = |routing: &str| {
        let run = report.find("routing", routing);
        number(run, "/cached_tokens") / number(run, "/prompt_tokens")
    };
    assert!(cached("affinity") > 1.2 * cached("random"), "{} {}", cached("affinity"), cached("random"));
    let dying = report.find("failures", "60 s");
    assert!(number(dying, "/deaths") > 0.0 && number(dying, "/moved") > 0.0, "{dying}");
}

#[test]
fn a_pool_with_too_much_to_do_turns_those_down_who_ask_for_most() {
    let (_, report) = PoolReport::of("--pool 2 --users 6000 --scenario overload --load 2");
    let run = report.find("overload", "8 accounts");
    let turned_down = |who: &str| {
        let at = |what: &str| number(run, &format!("/classes/{who}/{what}"));
        at("rejected") / (at("answered") + at("rejected"))
    };
    assert!(turned_down("8 accounts") > 2.0 * turned_down("interactive"), "{run}");
    let first_token = |run: &Value, who: &str| number(run, &format!("/classes/{who}/first_token_s/p90"));
    assert!(first_token(run, "interactive") < first_token(run, "8 accounts"), "{run}");
    let everyone = report.find("overload", "own accounts");
    assert!(first_token(everyone, "interactive") * 5.0 < first_token(everyone, "bulk"), "{everyone}");
}

#[test]
fn one_upstream_with_endless_memory_finds_all_that_can_be_found_of_a_trace_and_four_find_most_of_it_by_affinity()
 {
    let arguments = format!("--pool 1,4 --speed 0.01 --kv-memory endless --trace {EXCERPT}");
    let (_, report) = PoolReport::of(&arguments);
    let findable = number(&report.0, "/endless/findable_blocks");
    assert!(findable > 100.0);
    let runs = report.0["runs"].as_array().unwrap();
    for run in runs {
        let cached = number(run, "/cached_blocks");
        assert!(cached <= findable, "{run}");
        assert!(run["upstreams"] != 1 || (cached - findable).abs() < 1e-9, "{run}");
    }
    let found_by = |routing: &str| {
        let run = runs.iter().find(|run| run["upstreams"] == 4 && run["label"] == routing).unwrap();
        number(run, "/cached_blocks") / findable
    };
    // Of requests that come at the same moment with the same beginning, some go elsewhere instead of waiting.
    assert!(found_by("affinity") > 0.9 && found_by("random") < 0.8, "{report:?}", report = report.0);
}

#[test]
fn options_of_a_single_machine_are_an_error_for_a_pool() {
    let run = Sandbox::new().run(&["simulate", "--pool", "4", "--requests", "100"]);
    assert!(run.failed().contains("--users"), "says what to give instead");
}
