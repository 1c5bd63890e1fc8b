//! What may be expected of a machine, computed from its true costs alone: nothing here knows the engine.

use std::time::Duration;

use ropeway_engine::cost::Work;

use super::report::Report;
use super::scenario::{Machine, Scenario, Visit};

/// Steps of any request's bound that do not depend on its work: until it is noticed, and until costs are learnt.
const STEPS: f64 = 8.0;

/// How much longer than the work before it a request may take.
const FACTOR: f64 = 2.0;

/// Times its own duration by which later requests of the same class and account may overtake a request.
const OVERTAKEN: f64 = 4.0;

/// Throughput of a prompt computed in steps of the length of [`step`], as a share of that of full steps.
const THROUGHPUT: f64 = 0.97;

/// Seconds that the request takes on an empty machine, in steps of full size.
pub fn alone(machine: &Machine, visit: &Visit) -> f64 {
    prefill(machine, visit) + decode(machine, visit)
}

/// Seconds that the prompt takes on an empty machine, in steps of full size.
pub fn prefill(machine: &Machine, visit: &Visit) -> f64 {
    let cost = machine.time.slowest();
    let [fixed, ..] = cost.coefficients();
    let rows = if visit.scored { visit.prompt } else { 0 };
    let size = if visit.scored { machine.step_tokens.min(machine.step_rows) } else { machine.step_tokens };
    fixed * visit.prompt.div_ceil(size) as f64 + cost.marginal(Work::chunk(0, visit.prompt, rows + visit.n))
}

/// Seconds that the answers take after the prompt, if no step computes anything else.
fn decode(machine: &Machine, visit: &Visit) -> f64 {
    let width = visit.n.min(machine.step_rows).min(machine.step_tokens);
    let parts = visit.n.div_ceil(width) as f64;
    visit.answer.saturating_sub(1) as f64 * parts * streams(machine, width, visit.prompt + visit.answer)
}

/// Seconds of a step that computes one token for each of `width` streams of `len` tokens.
fn streams(machine: &Machine, width: usize, len: usize) -> f64 {
    let work = (0..width).fold(Work::default(), |work, _| work.and(Work::chunk(len, 1, 1)));
    machine.time.slowest().predict(work)
}

/// Seconds of a step that nobody has reason to complain about, the longest of:
/// - twice the inter-token target;
/// - what a prompt needs for nearly the throughput of full steps;
/// - what a step takes in which all answers of the scenario get a token, if there are rows for all.
pub fn step(scenario: &Scenario) -> f64 {
    let machine = &scenario.machine;
    let Machine { step_tokens, step_rows, target, .. } = *machine;
    let rows = scenario.visits.iter().map(|visit| visit.n).sum::<usize>().min(step_rows).min(step_tokens);
    let mean = scenario.visits.iter().map(|visit| visit.n * (visit.prompt + visit.answer)).sum::<usize>()
        / scenario.visits.iter().map(|visit| visit.n).sum::<usize>().max(1);
    efficient(scenario).max(2.0 * target.as_secs_f64()).max(streams(machine, rows, mean))
}

/// Seconds of the shortest step that computes the end of the longest prompt with nearly the throughput of full steps.
fn efficient(scenario: &Scenario) -> f64 {
    let cost = scenario.machine.time.slowest();
    let [fixed, token, ..] = cost.coefficients();
    let full = scenario.machine.step_tokens;
    let spare = (fixed / full as f64 + token) / THROUGHPUT - token;
    // What is left of a prompt may be taken along.
    let tokens = (2 * (fixed / spare).ceil() as usize).clamp(1, full);
    let longest = scenario.visits.iter().map(|visit| visit.prompt).max().unwrap_or(0);
    cost.predict(Work::chunk(longest.saturating_sub(tokens), tokens, 1))
}

/// Seconds from its arrival within which a request must finish; see the module's documentation. It must have arrived.
pub fn finish(scenario: &Scenario, report: &Report, index: usize) -> f64 {
    let seconds = |visit: usize| alone(&scenario.machine, &scenario.visits[visit]);
    let own = seconds(index);
    let Overlap { before, urgent, later, beside, account, accounts } = overlap(scenario, report, index);
    let sum = |visits: Vec<usize>| visits.into_iter().map(seconds).sum::<f64>();
    let cap = accounts as f64 * (OVERTAKEN * own + sum(account));
    let step = step(scenario);
    let beside = sum(beside).min(scenario.visits[index].answer as f64 * step);
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

fn overlap(scenario: &Scenario, report: &Report, index: usize) -> Overlap {
    let visits = &scenario.visits;
    let came = |visit: usize| report.answers[visit].arrived.map(|at| (at, visit));
    let left = |visit: usize| report.answers[visit].finished.unwrap_or(Duration::MAX);
    let (arrival, own) = (came(index).expect("it arrived"), &visits[index]);
    let others = || (0..visits.len()).filter(|other| *other != index && came(*other).is_some());
    let open = |other: &usize| left(*other) > arrival.0 && came(*other) < Some((left(index), 0));
    let later = |other: &usize| open(other) && came(*other) > Some(arrival);
    let mut accounts: Vec<u32> = others().filter(open).map(|other| visits[other].account).collect();
    accounts.push(own.account);
    accounts.sort_unstable();
    accounts.dedup();
    Overlap {
        before: others().filter(|other| open(other) && !later(other)).collect(),
        urgent: others().filter(|other| later(other) && visits[*other].class < own.class).collect(),
        later: others().filter(|other| later(other) && visits[*other].class == own.class).collect(),
        beside: others().filter(|other| later(other) && visits[*other].class > own.class).collect(),
        account: others()
            .filter(|other| visits[*other].account == own.account && came(*other) < Some(arrival))
            .collect(),
        accounts: accounts.len(),
    }
}
