//! The rules. Each runs a scenario, or two that differ in one respect, and describes the first violation.

use std::time::Duration;

use ropeway_engine::Class;
use ropeway_engine::scheduler::memory::MOST_PREEMPTIONS;

use super::report::{RequestOutcome, quantile};
use super::scenario::Scenario;
use super::{RunReport, bounds, run};

/// Tokens from which the engine should know what a machine costs.
const LEARNT: usize = 8000;

/// Time within which the engine should know what a machine costs while others stream: 50 steps of the default target.
const UNLEARNT: Duration = Duration::from_secs(5);

/// Whether a rule holds; an error describes the violation.
pub type Verdict = Result<(), String>;

fn ensure(holds: bool, violation: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(violation()) }
}

fn total(report: &RunReport, index: usize) -> f64 {
    report.outcomes[index].total().unwrap_or(f64::INFINITY)
}

/// Every request finishes within the bound of [`bounds::finish`].
pub fn everyone_finishes(scenario: &Scenario) -> Verdict {
    let report = run(scenario)?;
    for index in 0..scenario.requests.len() {
        let outcome = &report.outcomes[index];
        ensure(outcome.arrived.is_some(), || {
            format!("request {index} never came: the one before it is open")
        })?;
        let (took, bound) = (total(&report, index), bounds::finish(scenario, &report, index));
        ensure(took <= bound, || format!("request {index} took {took:.2} s, at most {bound:.2} s"))?;
    }
    Ok(())
}

/// No sequence is preempted too often.
pub fn preemptions_are_bounded(scenario: &Scenario) -> Verdict {
    let report = run(scenario)?;
    for (index, outcome) in report.outcomes.iter().enumerate() {
        let times = outcome.preemptions;
        ensure(times <= MOST_PREEMPTIONS, || format!("request {index} was preempted {times} times"))?;
    }
    Ok(())
}

/// The requests that the rule is about, by index.
fn measured(scenario: &Scenario) -> Vec<usize> {
    (0..scenario.requests.len()).filter(|index| scenario.requests[*index].measured).collect()
}

/// A measured request finishes within three times its time alone.
pub fn long_one_keeps_a_third(scenario: &Scenario) -> Verdict {
    let report = run(scenario)?;
    for index in measured(scenario) {
        let took = total(&report, index);
        let alone = total(&run(&scenario.only(|other, _| other == index))?, 0);
        let most = 3.0 * alone + 2.0 * bounds::step(scenario);
        ensure(took <= most, || format!("the long request took {took:.2} s, {alone:.2} s alone"))?;
    }
    Ok(())
}

/// All requests but the measured ones have their first token within two steps of their submission, or within the time of
/// two steps of usual length; one in ten, for which memory is short, waits for another short answer to end.
pub fn short_ones_wait_for_two_steps(scenario: &Scenario) -> Verdict {
    let report = run(scenario)?;
    let step = bounds::step(scenario);
    let shorts = || scenario.requests.iter().zip(&report.outcomes).filter(|(request, _)| !request.measured);
    let waits: Vec<f64> = shorts().map(|(_, outcome)| steps_to_first(outcome, step)).collect();
    let longest = shorts().map(|(request, _)| request.answer).max().unwrap_or(0) as f64;
    for (share, most) in [(0.9, 2.0), (1.0, 2.0 + longest)] {
        let steps = quantile(&waits, share);
        ensure(steps <= most, || format!("p{:.0} of the first tokens: {steps} steps", 100.0 * share))?;
    }
    Ok(())
}

/// Steps from a request's submission to its first token; if they are shorter than `step` seconds, the time divided by
/// `step`, rounded up.
fn steps_to_first(outcome: &RequestOutcome, step: f64) -> f64 {
    let (Some(first), Some(submitted)) = (outcome.first, outcome.submitted) else { return f64::INFINITY };
    let time = first.saturating_sub(submitted).as_secs_f64();
    (time / step).ceil().min(outcome.steps_to_first as f64)
}

/// What the interactive requests experienced.
fn interactive(scenario: &Scenario) -> Result<Vec<RequestOutcome>, String> {
    let outcomes = run(scenario)?.outcomes;
    let requests = scenario.requests.iter().zip(outcomes);
    Ok(requests
        .filter(|(request, _)| request.class == Class::Interactive)
        .map(|(_, outcome)| outcome)
        .collect())
}

/// What the interactive requests experienced, with bulk requests and without.
fn with_and_without_bulk(scenario: &Scenario) -> Result<[Vec<RequestOutcome>; 2], String> {
    let without = scenario.only(|_, request| request.class != Class::Bulk);
    Ok([interactive(scenario)?, interactive(&without)?])
}

/// Seconds to the first token; infinite if there was none.
fn first_token(outcome: &RequestOutcome) -> f64 {
    outcome.first_token().unwrap_or(f64::INFINITY)
}

/// The distribution of interactive first tokens is that without bulk requests, within 1.3 times and one step.
pub fn bulk_delays_no_percentile(scenario: &Scenario) -> Verdict {
    let outcomes = with_and_without_bulk(scenario)?;
    let [with, without] = outcomes.map(|outcomes| outcomes.iter().map(first_token).collect::<Vec<_>>());
    for share in [0.5, 0.9, 0.99] {
        let (got, usual) = (quantile(&with, share), quantile(&without, share));
        let most = 1.3 * usual + bounds::step(scenario);
        let place = 100.0 * share;
        ensure(got <= most, || format!("p{place:.0}: {got:.2} s, {usual:.2} s without bulk requests"))?;
    }
    Ok(())
}

/// Every interactive first token comes when it does without bulk requests, within 1.3 times and two steps: the one in
/// flight when the request comes, and one for other requests that came during it.
pub fn bulk_delays_no_one(scenario: &Scenario) -> Verdict {
    let [with, without] = with_and_without_bulk(scenario)?;
    for (index, (with, without)) in with.iter().zip(&without).enumerate() {
        let (got, usual) = (first_token(with), first_token(without));
        let most = 1.3 * usual + 2.0 * bounds::step(scenario);
        ensure(got <= most, || {
            format!("interactive request {index}: {got:.2} s, {usual:.2} s without bulk requests")
        })?;
    }
    Ok(())
}

/// Every interactive request needs at most one step more for its first token than without bulk requests, however long
/// steps are.
pub fn bulk_delays_by_one_step(scenario: &Scenario) -> Verdict {
    let [with, without] = with_and_without_bulk(scenario)?;
    for (index, (with, without)) in with.iter().zip(&without).enumerate() {
        let (got, usual) = (with.steps_to_first, without.steps_to_first);
        ensure(with.first.is_some() && got <= usual + 1, || {
            format!("interactive request {index}: {got} steps, {usual} without bulk requests")
        })?;
    }
    Ok(())
}

/// Requests that do not fit together are computed one after another, with at most a quarter of the time wasted.
pub fn little_is_recomputed(scenario: &Scenario) -> Verdict {
    let report = run(scenario)?;
    let work: f64 = scenario.requests.iter().map(|request| bounds::alone(&scenario.machine, request)).sum();
    let last = (0..scenario.requests.len()).map(|index| total(&report, index)).fold(0.0, f64::max);
    let most = 1.25 * work + bounds::step(scenario);
    ensure(last <= most, || format!("all were done after {last:.2} s, one after another takes {work:.2} s"))
}

/// Every measured prompt, each alone on the machine, has its first token after little more than full steps take, once
/// the engine has seen [`LEARNT`] tokens.
pub fn prompts_keep_their_speed(scenario: &Scenario) -> Verdict {
    let report = run(scenario)?;
    for index in measured(scenario) {
        let request = &scenario.requests[index];
        let seen: usize = scenario.requests[..index].iter().map(|request| request.prompt).sum();
        let took = report.outcomes[index].first_token().unwrap_or(f64::INFINITY);
        let share = bounds::prefill(&scenario.machine, request) / took;
        ensure(share >= 0.95 || seen < LEARNT, || {
            format!("{} tokens: {:.0} % of the speed", request.prompt, 100.0 * share)
        })?;
    }
    Ok(())
}

/// A measured prompt takes at most four times as long beside streams as alone, and an eighth more: until it insists, and
/// because chunks are cut to whole tiles.
pub fn a_prompt_keeps_a_quarter(scenario: &Scenario) -> Verdict {
    let report = run(scenario)?;
    for index in measured(scenario) {
        let took = report.outcomes[index].first_token().unwrap_or(f64::INFINITY);
        let own = bounds::prefill(&scenario.machine, &scenario.requests[index]);
        let most = 4.5 * own + 3.0 * bounds::step(scenario);
        ensure(took <= most, || format!("the prompt took {took:.2} s, {own:.2} s alone"))?;
        let first = report.outcomes[index].first;
        let ended = |outcome: &RequestOutcome| outcome.finished.is_some() && outcome.finished < first;
        ensure(!report.outcomes.iter().any(ended), || "a stream ended before the prompt".into())?;
    }
    Ok(())
}

/// 99 of 100 tokens of the measured streams come within 1.3 times the target while prompts are computed beside them,
/// once costs are learnt: the first [`UNLEARNT`] of the run do not count, nor those after a change of the machine.
pub fn gaps_stay_within_the_target(scenario: &Scenario) -> Verdict {
    let report = run(scenario)?;
    let target = scenario.machine.target.as_secs_f64();
    let outcomes = || scenario.requests.iter().zip(&report.outcomes);
    let ended =
        outcomes().filter(|(request, _)| !request.measured).filter_map(|(_, outcome)| outcome.finished).max();
    let unlearnt = [Some(Duration::ZERO), scenario.machine.time.change_at()];
    let learnt =
        |at: Duration| !unlearnt.iter().flatten().any(|from| (*from..*from + UNLEARNT).contains(&at));
    let streams = outcomes().filter(|(request, _)| request.measured).flat_map(|(_, outcome)| &outcome.gaps);
    let counted = streams.filter(|(at, _)| learnt(*at) && Some(*at) <= ended);
    let gaps: Vec<f64> = counted.map(|(_, gap)| *gap).collect();
    let p99 = quantile(&gaps, 0.99);
    ensure(p99 <= 1.3 * target, || {
        format!("p99 between tokens {:.0} ms at a target of {:.0} ms", 1e3 * p99, 1e3 * target)
    })
}

/// Tokens that an account received, as fairness counts them.
fn received(scenario: &Scenario, report: &RunReport, account: u32) -> f64 {
    let outcomes = scenario.requests.iter().zip(&report.outcomes);
    outcomes.filter(|(request, _)| request.account == account).map(|(_, outcome)| outcome.received()).sum()
}

/// All accounts receive the same within a factor of `within`. Each must have something to ask until the end.
pub fn accounts_receive_the_same(scenario: &Scenario, within: f64) -> Verdict {
    let report = run(scenario)?;
    let mut accounts: Vec<u32> = scenario.requests.iter().map(|request| request.account).collect();
    accounts.sort_unstable();
    accounts.dedup();
    for account in &accounts {
        let mut outcomes = scenario.requests.iter().zip(&report.outcomes);
        let asks =
            outcomes.any(|(request, outcome)| request.account == *account && outcome.finished.is_none());
        ensure(asks, || format!("account {account} has nothing more to ask"))?;
    }
    let received: Vec<f64> = accounts.iter().map(|account| received(scenario, &report, *account)).collect();
    let (least, most) = (quantile(&received, 0.0), quantile(&received, 1.0));
    ensure(most <= within * least, || format!("accounts received {received:.0?} tokens"))
}
