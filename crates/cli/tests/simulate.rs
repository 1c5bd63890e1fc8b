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

#[test]
fn wrong_workloads_and_costs_say_what_is_right() {
    for (arguments, hint) in [
        (["--preset", "party"], "agent-trio"),
        (["--kind", "urgent,1,2,3"], "interactive"),
        (["--cost", "1,2,3"], "STEP,TOKEN,ROW,PAIR[,READ]"),
        (["--policy", "lottery"], "shortest"),
        (["--speculate", "17"], "1 to 16"),
        (["--acceptance", "1.5"], "from 0 to 1"),
    ] {
        let ran = Sandbox::new().run(&[&["simulate"], &arguments[..]].concat());
        assert!(ran.code == Some(2) && ran.err.contains(hint), "{arguments:?}: {}", ran.err);
    }
}
