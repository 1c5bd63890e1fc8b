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
fn wrong_workloads_and_costs_say_what_is_right() {
    for (arguments, hint) in [
        (["--preset", "party"], "agent-trio"),
        (["--kind", "urgent,1,2,3"], "interactive"),
        (["--cost", "1,2,3"], "STEP,TOKEN,ROW,PAIR[,READ]"),
        (["--policy", "lottery"], "shortest"),
    ] {
        let ran = Sandbox::new().run(&[&["simulate"], &arguments[..]].concat());
        assert!(ran.code == Some(2) && ran.err.contains(hint), "{arguments:?}: {}", ran.err);
    }
}
