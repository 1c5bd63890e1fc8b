//! What must hold. Each rule runs a scenario, or two that differ in one respect, and says how it was violated.

use std::time::Duration;

use ropeway_engine::Class;

use super::report::{Answer, quantile};
use super::scenario::Scenario;
use super::{Report, bounds, run};

/// Most preemptions of one sequence.
const PREEMPTIONS: u32 = 8;

/// Tokens from which the engine should know what a machine costs.
const LEARNT: usize = 2000;

/// Time within which the engine should know what a machine costs while others stream: 50 steps of the default target.
const UNLEARNT: Duration = Duration::from_secs(5);

/// A violated rule, in words.
pub type Verdict = Result<(), String>;

fn ensure(holds: bool, violation: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(violation()) }
}

fn total(report: &Report, index: usize) -> f64 {
    report.answers[index].total().unwrap_or(f64::INFINITY)
}

/// Every request finishes within the bound of [`bounds::finish`].
pub fn everyone_finishes(scenario: &Scenario) -> Verdict {
    let report = run(scenario)?;
    for index in 0..scenario.visits.len() {
        let answer = &report.answers[index];
        ensure(answer.arrived.is_some(), || {
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
    for (index, answer) in report.answers.iter().enumerate() {
        let times = answer.preemptions;
        ensure(times <= PREEMPTIONS, || format!("request {index} was preempted {times} times"))?;
    }
    Ok(())
}

/// The requests that the rule is about, by index.
fn measured(scenario: &Scenario) -> Vec<usize> {
    (0..scenario.visits.len()).filter(|index| scenario.visits[*index].measured).collect()
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
/// two steps of usual length; one in twenty, for which memory is short, waits for another short answer to end.
pub fn short_ones_wait_for_two_steps(scenario: &Scenario) -> Verdict {
    let report = run(scenario)?;
    let step = bounds::step(scenario);
    let shorts = || scenario.visits.iter().zip(&report.answers).filter(|(visit, _)| !visit.measured);
    let waits: Vec<f64> = shorts().map(|(_, answer)| steps_to_first(answer, step)).collect();
    let longest = shorts().map(|(visit, _)| visit.answer).max().unwrap_or(0) as f64;
    for (share, most) in [(0.95, 2.0), (1.0, 2.0 + longest)] {
        let steps = quantile(&waits, share);
        ensure(steps <= most, || format!("p{:.0} of the first tokens: {steps} steps", 100.0 * share))?;
    }
    Ok(())
}

/// Steps from a request's submission to its first token; if they are shorter than `step` seconds, the time divided by
/// `step`, rounded up.
fn steps_to_first(answer: &Answer, step: f64) -> f64 {
    let (Some(first), Some(submitted)) = (answer.first, answer.submitted) else { return f64::INFINITY };
    let time = first.saturating_sub(submitted).as_secs_f64();
    (time / step).ceil().min(answer.steps_to_first as f64)
}

/// What the interactive requests experienced.
fn interactive(scenario: &Scenario) -> Result<Vec<Answer>, String> {
    let answers = run(scenario)?.answers;
    let visits = scenario.visits.iter().zip(answers);
    Ok(visits.filter(|(visit, _)| visit.class == Class::Interactive).map(|(_, answer)| answer).collect())
}

/// What the interactive requests experienced, with bulk requests and without.
fn with_and_without_bulk(scenario: &Scenario) -> Result<[Vec<Answer>; 2], String> {
    let without = scenario.only(|_, visit| visit.class != Class::Bulk);
    Ok([interactive(scenario)?, interactive(&without)?])
}

/// Seconds to the first token; infinite if there was none.
fn first_token(answer: &Answer) -> f64 {
    answer.first_token().unwrap_or(f64::INFINITY)
}

/// The distribution of interactive first tokens is that without bulk requests, within 1.3 times and one step.
pub fn bulk_delays_no_percentile(scenario: &Scenario) -> Verdict {
    let answers = with_and_without_bulk(scenario)?;
    let [with, without] = answers.map(|answers| answers.iter().map(first_token).collect::<Vec<_>>());
    for share in [0.5, 0.9, 0.99] {
        let (got, usual) = (quantile(&with, share), quantile(&without, share));
        let most = 1.3 * usual + bounds::step(scenario);
        let place = 100.0 * share;
        ensure(got <= most, || format!("p{place:.0}: {got:.2} s, {usual:.2} s without bulk requests"))?;
    }
    Ok(())
}

/// Every interactive first token comes when it does without bulk requests, within 1.3 times and one step.
pub fn bulk_delays_no_one(scenario: &Scenario) -> Verdict {
    let [with, without] = with_and_without_bulk(scenario)?;
    for (index, (with, without)) in with.iter().zip(&without).enumerate() {
        let (got, usual) = (first_token(with), first_token(without));
        let most = 1.3 * usual + bounds::step(scenario);
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
pub fn nothing_is_computed_in_vain(scenario: &Scenario) -> Verdict {
    let report = run(scenario)?;
    let work: f64 = scenario.visits.iter().map(|visit| bounds::alone(&scenario.machine, visit)).sum();
    let last = (0..scenario.visits.len()).map(|index| total(&report, index)).fold(0.0, f64::max);
    let most = 1.25 * work + bounds::step(scenario);
    ensure(last <= most, || format!("all were done after {last:.2} s, one after another takes {work:.2} s"))
}

/// Every measured prompt, each alone on the machine, has its first token after little more than full steps take, once
/// the engine has seen [`LEARNT`] tokens.
pub fn prompts_keep_their_speed(scenario: &Scenario) -> Verdict {
    let report = run(scenario)?;
    for index in measured(scenario) {
        let visit = &scenario.visits[index];
        let seen: usize = scenario.visits[..index].iter().map(|visit| visit.prompt).sum();
        let took = report.answers[index].first_token().unwrap_or(f64::INFINITY);
        let share = bounds::prefill(&scenario.machine, visit) / took;
        ensure(share >= 0.95 || seen < LEARNT, || {
            format!("{} tokens: {:.0} % of the speed", visit.prompt, 100.0 * share)
        })?;
    }
    Ok(())
}

/// A measured prompt takes at most four times as long beside streams as alone, and a little for its patience.
pub fn a_prompt_keeps_a_quarter(scenario: &Scenario) -> Verdict {
    let report = run(scenario)?;
    for index in measured(scenario) {
        let took = report.answers[index].first_token().unwrap_or(f64::INFINITY);
        let own = bounds::prefill(&scenario.machine, &scenario.visits[index]);
        let most = 4.2 * own + 3.0 * bounds::step(scenario);
        let beside = report.answers.iter().enumerate().filter(|(other, _)| *other != index);
        let first = report.answers[index].first;
        let streams = |answer: &Answer| answer.finished.is_none_or(|finished| Some(finished) >= first);
        let streaming = beside.filter(|(_, answer)| streams(answer)).count();
        ensure(took <= most, || format!("the prompt took {took:.2} s, {own:.2} s alone"))?;
        ensure(streaming + 1 == scenario.visits.len(), || "a stream ended before the prompt".into())?;
    }
    Ok(())
}

/// 99 of 100 tokens of the measured streams come within 1.3 times the target while prompts are computed beside them,
/// once costs are learnt: the first [`UNLEARNT`] of the run do not count, nor those after a change of the machine.
pub fn gaps_stay_within_the_target(scenario: &Scenario) -> Verdict {
    let report = run(scenario)?;
    let target = scenario.machine.target.as_secs_f64();
    let answers = || scenario.visits.iter().zip(&report.answers);
    let ended =
        answers().filter(|(visit, _)| !visit.measured).filter_map(|(_, answer)| answer.finished).max();
    let unlearnt = [Some(Duration::ZERO), scenario.machine.time.change_at()];
    let learnt =
        |at: Duration| !unlearnt.iter().flatten().any(|from| (*from..*from + UNLEARNT).contains(&at));
    let streams = answers().filter(|(visit, _)| visit.measured).flat_map(|(_, answer)| &answer.gaps);
    let counted = streams.filter(|(at, _)| learnt(*at) && Some(*at) <= ended);
    let gaps: Vec<f64> = counted.map(|(_, gap)| *gap).collect();
    let p99 = quantile(&gaps, 0.99);
    ensure(p99 <= 1.3 * target, || {
        format!("p99 between tokens {:.0} ms at a target of {:.0} ms", 1e3 * p99, 1e3 * target)
    })
}

/// Tokens that an account received, as fairness counts them.
fn received(scenario: &Scenario, report: &Report, account: u32) -> f64 {
    let answers = scenario.visits.iter().zip(&report.answers);
    answers.filter(|(visit, _)| visit.account == account).map(|(_, answer)| answer.received()).sum()
}

/// All accounts receive the same within a factor of `within`. Each must have something to ask until the end.
pub fn accounts_receive_the_same(scenario: &Scenario, within: f64) -> Verdict {
    let report = run(scenario)?;
    let mut accounts: Vec<u32> = scenario.visits.iter().map(|visit| visit.account).collect();
    accounts.sort_unstable();
    accounts.dedup();
    for account in &accounts {
        let mut answers = scenario.visits.iter().zip(&report.answers);
        let asks = answers.any(|(visit, answer)| visit.account == *account && answer.finished.is_none());
        ensure(asks, || format!("account {account} has nothing more to ask"))?;
    }
    let received: Vec<f64> = accounts.iter().map(|account| received(scenario, &report, *account)).collect();
    let (least, most) = (quantile(&received, 0.0), quantile(&received, 1.0));
    ensure(most <= within * least, || format!("accounts received {received:.0?} tokens"))
}
