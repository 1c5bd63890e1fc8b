//! What a step costs: given, or measured by `bench model`.

use ropeway_engine::cost::{CostModel, Work};
use ropeway_testkit::simulate::hardware::HARDWARE;
use serde::Deserialize;

/// Tokens of a step while `bench model` prefills, unless told otherwise.
const BENCH_STEP: usize = ropeway_cpu::executor::DEFAULT_STEP_TOKENS;

/// How often the measurements are shown to the model; it has settled long before.
const ROUNDS: usize = 200;

/// A cost model from the command line.
#[derive(Clone, Debug)]
pub struct Cost(pub CostModel);

/// The part of `bench model --json` that matters here.
#[derive(Debug, Deserialize)]
struct Bench {
    prefill: Vec<Prefill>,
    decode: Vec<Decode>,
}

#[derive(Debug, Deserialize)]
struct Prefill {
    tokens: usize,
    tok_s: f64,
}

#[derive(Debug, Deserialize)]
struct Decode {
    batch: usize,
    context: usize,
    tok_s: f64,
}

/// Four or five numbers, or a file.
pub fn parse(text: &str) -> Result<Cost, String> {
    let numbers: Result<Vec<f64>, _> = text.split(',').map(str::parse).collect();
    match numbers.as_deref() {
        Ok(numbers) if numbers.iter().any(|number| !number.is_finite() || *number < 0.0) => {
            Err("a cost is a number of seconds, 0 or more".into())
        }
        Ok([step, token, row, pair]) => Ok(Cost(CostModel::known([*step, *token, *row, *pair, 0.0]))),
        Ok([step, token, row, pair, read]) => Ok(Cost(CostModel::known([*step, *token, *row, *pair, *read]))),
        Ok(_) => Err("four or five numbers of seconds: STEP,TOKEN,ROW,PAIR[,READ]".into()),
        Err(_) => from_file(text),
    }
}

fn from_file(path: &str) -> Result<Cost, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("could not read {path}: {error}"))?;
    let bench: Bench = serde_json::from_str(&text)
        .map_err(|error| format!("{path} is not what `ropeway bench model --json` writes: {error}"))?;
    fit(&bench).ok_or_else(|| format!("{path} needs two prompt lengths and two batch sizes at least"))
}

/// Fits the coefficients to the measured steps.
fn fit(bench: &Bench) -> Option<Cost> {
    if bench.prefill.len() < 2 || bench.decode.len() < 2 {
        return None;
    }
    let mut cost = HARDWARE[0].cost();
    for _ in 0..ROUNDS {
        for (work, seconds) in steps(bench) {
            cost.observe(work, std::time::Duration::from_secs_f64(seconds));
        }
    }
    Some(Cost(cost))
}

/// The mean step of every measurement, and what it took.
fn steps(bench: &Bench) -> impl Iterator<Item = (Work, f64)> {
    let prefill = bench.prefill.iter().filter(|run| run.tokens > 0 && run.tok_s > 0.0).map(|run| {
        let steps = run.tokens.div_ceil(BENCH_STEP);
        let whole = (0..steps).fold(Work::default(), |whole, step| {
            let start = step * BENCH_STEP;
            whole.and(Work::chunk(start, BENCH_STEP.min(run.tokens - start), 0))
        });
        let mean = |sum: u64| sum / steps as u64;
        let work = Work {
            tokens: whole.tokens / steps,
            rows: 0,
            pairs: mean(whole.pairs),
            reads: mean(whole.reads),
        };
        (work, run.tokens as f64 / run.tok_s / steps as f64)
    });
    let decode = bench
        .decode
        .iter()
        .filter(|run| run.batch > 0 && run.tok_s > 0.0)
        .map(|run| (decoding(run.batch, run.context), run.batch as f64 / run.tok_s));
    prefill.chain(decode)
}

/// A step of `batch` streams that hold `context` tokens each.
fn decoding(batch: usize, context: usize) -> Work {
    let positions = (batch * context) as u64;
    Work { tokens: batch, rows: batch, pairs: positions, reads: positions }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_of_a_machine_give_its_cost_back() {
        let truth = CostModel::known(HARDWARE[0].cost.map(|seconds| 2.0 * seconds));
        let prefill = |tokens: usize| {
            let seconds = truth.alone(0, tokens, BENCH_STEP);
            Prefill { tokens, tok_s: tokens as f64 / seconds }
        };
        let decode = |batch: usize| Decode {
            batch,
            context: 100,
            tok_s: batch as f64 / truth.predict(decoding(batch, 100)),
        };
        let bench =
            Bench { prefill: vec![prefill(512), prefill(4000)], decode: [1, 8, 32, 64].map(decode).into() };
        let fitted = fit(&bench).unwrap().0;
        for work in [Work::chunk(3000, 200, 1), decoding(16, 200)] {
            let ratio = fitted.predict(work) / truth.predict(work);
            // Two prompt lengths hardly tell attending to a position from reading it.
            assert!((0.9..1.1).contains(&ratio), "{ratio}");
        }
    }

    #[test]
    fn four_or_five_numbers_are_a_cost_and_anything_else_says_what_is_missing() {
        assert!(parse("0.005,0.0007,0.0002,3e-7").is_ok() && parse("0.005,0.0007,0.0002,3e-7,1e-6").is_ok());
        assert!(parse("0.005,0.0007").unwrap_err().contains("four or five numbers"));
        assert!(parse("0.005,0.0007,-1,0").unwrap_err().contains("0 or more"));
        assert!(parse("no-such-file.json").unwrap_err().contains("could not read"));
    }
}
