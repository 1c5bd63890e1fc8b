//! Bounds on times, computed from the machine's true costs alone and independent of the engine.

use std::time::Duration;

use ropeway_engine::cost::Work;

use super::report::RunReport;
use super::scenario::{MachineSpec, RequestSpec, Scenario};

/// Steps of any request's bound that do not depend on its work: until it is noticed, and until costs are learnt.
const STEPS: f64 = 8.0;

/// How much longer than the work before it a request may take.
const FACTOR: f64 = 2.0;

/// Times its own duration by which later requests of the same class and account may overtake a request.
const OVERTAKEN: f64 = 4.0;

/// Share of an efficient step that its fixed cost takes.
const FIXED: f64 = 0.05;

/// Seconds that the request takes on an empty machine, in steps of full size.
pub fn alone(machine: &MachineSpec, request: &RequestSpec) -> f64 {
    prefill(machine, request) + decode(machine, request)
}

/// Seconds that the prompt takes on an empty machine, in steps of full size.
pub fn prefill(machine: &MachineSpec, request: &RequestSpec) -> f64 {
    let cost = machine.time.slowest();
    let [fixed, ..] = cost.coefficients();
    let rows = if request.scored { request.prompt } else { 0 };
    let size = if request.scored { machine.step_tokens.min(machine.step_rows) } else { machine.step_tokens };
    fixed * request.prompt.div_ceil(size) as f64
        + cost.marginal(Work::chunk(0, request.prompt, rows + request.n))
}

/// Seconds that the answers take after the prompt, if no step computes anything else.
fn decode(machine: &MachineSpec, request: &RequestSpec) -> f64 {
    let width = request.n.min(machine.step_rows).min(machine.step_tokens);
    let parts = request.n.div_ceil(width) as f64;
    request.answer.saturating_sub(1) as f64 * parts * streams(machine, width, request.prompt + request.answer)
}

/// Seconds of a step that computes one token for each of `width` streams of `len` tokens.
fn streams(machine: &MachineSpec, width: usize, len: usize) -> f64 {
    let work = (0..width).fold(Work::default(), |work, _| work.and(Work::chunk(len, 1, 1)));
    machine.time.slowest().predict(work)
}

/// Seconds of an acceptable step, the longest of:
/// - twice the inter-token target;
/// - a step of which the fixed cost takes at most 5 %, or a full one;
/// - what a step takes in which all answers of the scenario get a token, if there are rows for all.
pub fn step(scenario: &Scenario) -> f64 {
    let machine = &scenario.machine;
    let MachineSpec { step_tokens, step_rows, target, .. } = *machine;
    let rows =
        scenario.requests.iter().map(|request| request.n).sum::<usize>().min(step_rows).min(step_tokens);
    let mean =
        scenario.requests.iter().map(|request| request.n * (request.prompt + request.answer)).sum::<usize>()
            / scenario.requests.iter().map(|request| request.n).sum::<usize>().max(1);
    efficient(scenario).max(2.0 * target.as_secs_f64()).max(streams(machine, rows, mean))
}

/// Seconds of the shortest step that computes the end of the longest prompt and spends at most [`FIXED`] of its time on its
/// fixed cost; of a full step if there is none.
fn efficient(scenario: &Scenario) -> f64 {
    let cost = scenario.machine.time.slowest();
    let [fixed, token, ..] = cost.coefficients();
    let tokens = (fixed * (1.0 - FIXED) / FIXED / token).ceil() as usize;
    let tokens = tokens.clamp(1, scenario.machine.step_tokens);
    let longest = scenario.requests.iter().map(|request| request.prompt).max().unwrap_or(0);
    cost.predict(Work::chunk(longest.saturating_sub(tokens), tokens, 1))
}

/// Seconds from its arrival within which a request must finish, as [`super`] defines it. It must have arrived.
pub fn finish(scenario: &Scenario, report: &RunReport, index: usize) -> f64 {
    let seconds = |request: usize| alone(&scenario.machine, &scenario.requests[request]);
    let own = seconds(index);
    let Overlap { before, urgent, later, beside, account, accounts } = overlap(scenario, report, index);
    let sum = |requests: Vec<usize>| requests.into_iter().map(seconds).sum::<f64>();
    let cap = accounts as f64 * (OVERTAKEN * own + sum(account));
    let step = step(scenario);
    let beside = sum(beside).min(scenario.requests[index].answer as f64 * step);
    let work = own + sum(before) + sum(urgent) + sum(later).min(cap) + beside;
    FACTOR * work + STEPS * step * scenario.machine.time.stall_factor() + report.stalled
}

/// The requests that a request shares the machine with, by index.
struct Overlap {
    /// Open when it arrived.
    before: Vec<usize>,
    /// More urgent, and arrived later.
    urgent: Vec<usize>,
    /// Of its class, and arrived later.
    later: Vec<usize>,
    /// Less urgent, and arrived later.
    beside: Vec<usize>,
    /// Earlier ones of its account.
    account: Vec<usize>,
    /// Accounts that had requests open while it was.
    accounts: usize,
}

fn overlap(scenario: &Scenario, report: &RunReport, index: usize) -> Overlap {
    let requests = &scenario.requests;
    let came = |request: usize| report.outcomes[request].arrived.map(|at| (at, request));
    let left = |request: usize| report.outcomes[request].finished.unwrap_or(Duration::MAX);
    let (arrival, own) = (came(index).expect("it arrived"), &requests[index]);
    let others = || (0..requests.len()).filter(|other| *other != index && came(*other).is_some());
    let open = |other: &usize| left(*other) > arrival.0 && came(*other) < Some((left(index), 0));
    let later = |other: &usize| open(other) && came(*other) > Some(arrival);
    let mut accounts: Vec<u32> = others().filter(open).map(|other| requests[other].account).collect();
    accounts.push(own.account);
    accounts.sort_unstable();
    accounts.dedup();
    Overlap {
        before: others().filter(|other| open(other) && !later(other)).collect(),
        urgent: others().filter(|other| later(other) && requests[*other].class < own.class).collect(),
        later: others().filter(|other| later(other) && requests[*other].class == own.class).collect(),
        beside: others().filter(|other| later(other) && requests[*other].class > own.class).collect(),
        account: others()
            .filter(|other| requests[*other].account == own.account && came(*other) < Some(arrival))
            .collect(),
        accounts: accounts.len(),
    }
}
