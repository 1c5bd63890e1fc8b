//! `bench engine`: numbers for every scenario, on a tiny model of random weights.

mod support;

use std::path::Path;

use serde_json::Value;
use support::Sandbox;

fn is_positive(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| number.is_finite() && number > 0.0)
}

#[test]
fn every_scenario_is_measured() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/models/llama");
    let small = "--prompt 20 --new 8 --long 96 --cached 32,64 --requests 1,3 --drafted 1,3 --repeat 1 --kv-memory 64MiB --json";
    let mut arguments = vec!["bench", "engine", model.to_str().unwrap()];
    arguments.extend(small.split(' '));
    let text = Sandbox::new().run(&arguments).ok();
    let report: Value = serde_json::from_str(&text).unwrap();
    let found = &report["scenarios"];
    assert!(
        found["throughput"]["points"].as_array().unwrap().iter().all(|point| is_positive(&point["tok_s"]))
    );
    for prompt in found["trio"]["prompts"].as_array().unwrap() {
        let told = ["alone_total_ms", "together_total_ms", "total_ratio"];
        assert!(told.iter().all(|key| is_positive(&prompt[key])), "{prompt}");
    }
    assert!(is_positive(&found["itl"]["p99_ms"]) && is_positive(&found["itl"]["prefill_share"]), "{text}");
    let cached: Vec<_> =
        found["prefix"]["points"].as_array().unwrap().iter().map(|point| &point["cached_tokens"]).collect();
    assert_eq!(cached, [32, 64]);
    let speculation = found["speculation"]["rows"].as_array().unwrap();
    assert!(speculation.iter().all(|row| is_positive(&row["speedup"])) && speculation.len() == 14, "{text}");
    assert!(is_positive(&found["scheduler"]["share"]) && is_positive(&report["kv_tokens"]), "{text}");
}
