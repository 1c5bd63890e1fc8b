//! `bench kernels`: numbers for every kernel, without a model.

mod support;

use serde_json::Value;
use support::Sandbox;

fn is_positive(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| number.is_finite() && number > 0.0)
}

#[test]
fn a_quick_run_measures_every_kind_of_kernel_next_to_the_machine() {
    let text = Sandbox::new().run(&["bench", "kernels", "--quick", "--json", "--threads", "2"]).ok();
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["threads"], 2);
    for limit in ["int_dot_gops", "f32_gflops", "read_gb_s"] {
        assert!(is_positive(&report["machine"][limit]), "{limit} in {text}");
    }
    let kernels = report["kernels"].as_array().unwrap();
    for group in ["matmul", "attention", "rows"] {
        assert!(kernels.iter().any(|kernel| kernel["group"] == group), "no {group} in {text}");
    }
    for kernel in kernels {
        assert!(["rows", "us", "median_us", "gb_s"].iter().all(|key| is_positive(&kernel[key])), "{kernel}");
        let counted = ["gops", "share"].iter().all(|key| is_positive(&kernel[key]));
        assert!(counted || kernel["group"] == "rows", "{kernel}");
    }
}

#[test]
fn an_unknown_instruction_set_is_answered_with_the_known_ones() {
    let ran = Sandbox::new().run(&["bench", "kernels", "--isa", "mmx"]);
    assert!(ran.code == Some(2) && ran.err.contains("avx512-vnni"), "{}", ran.err);
}
