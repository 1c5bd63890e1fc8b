//! Scenarios by seed. All times are in multiples of what a short request takes on the machine at hand, so that the same
//! workload loads a fast and a slow machine alike.

use std::time::Duration;

use ropeway_engine::Class;
use ropeway_engine::cost::CostModel;

use super::bounds;
use super::scenario::{Machine, Scenario, Visit};
use crate::rng::Rng;
use crate::simulate::presets::PRESETS;
use crate::step_time::scaled;

/// Tokens of a long prompt.
pub const LONG: usize = 2700;

/// Requests that take their time from this seed are the same as those of the seed without them.
const MACHINE: u64 = 1;

/// Who sends the short requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Senders {
    /// The account that sends the long one, too.
    One,
    /// Each request comes from another account.
    Many,
}

/// Seconds that a short request takes alone.
fn unit(machine: &Machine) -> f64 {
    bounds::alone(machine, &Visit::new(0.0, 60, 8))
}

/// A fast or a slow machine.
fn speed(rng: &mut Rng) -> Machine {
    if rng.chance(0.5) { Machine::fast() } else { Machine::slow() }
}

/// Gives the machine one of the ways in which it is not what the engine expects; `busy` is about how long it has
/// something to do.
fn disturbed(rng: &mut Rng, machine: Machine, busy: f64) -> Machine {
    let seconds = Duration::from_secs_f64;
    let Machine { time, guess, .. } = machine.clone();
    match rng.below(5) {
        0 => machine,
        1 => Machine { guess: scaled(&guess, rng.pick(&[0.1, 10.0])), ..machine },
        2 => Machine { time: time.changing(seconds(0.4 * busy), rng.pick(&[0.2, 5.0])), ..machine },
        3 => Machine { time: time.stalling(seconds(0.2 * busy), 20.0), ..machine },
        _ => Machine { time: time.jittering(0.1), ..machine },
    }
}

/// Short requests from `start` on for `span` seconds, each taking `load` of the time between two if it were alone.
fn shorts(rng: &mut Rng, machine: &Machine, [start, span]: [f64; 2], load: f64) -> Vec<Visit> {
    let rate = load / unit(machine);
    let mut visits = Vec::new();
    let mut at = start + rng.gap(rate).as_secs_f64();
    while at < start + span {
        visits.push(Visit::new(at, rng.between(40, 80), 8));
        at += rng.gap(rate).as_secs_f64();
    }
    visits
}

/// A long prompt in a stream of short ones that take at most half of the machine, at memory of 1.1 times the long one.
/// The long request is measured.
pub fn long_among_short(seed: u64, senders: Senders) -> Scenario {
    let mut rng = Rng::new(seed);
    let machine = speed(&mut rng);
    let start = 10.0 * unit(&machine);
    let long = Visit::new(start, LONG, 16).measured();
    let span = start + 6.0 * bounds::alone(&machine, &long);
    let load = rng.pick(&[0.2, 0.3, 0.4]);
    let mut visits = vec![long];
    visits.extend(shorts(&mut rng, &machine, [0.0, span], load));
    if senders == Senders::Many {
        visits.iter_mut().enumerate().for_each(|(index, visit)| visit.account = index as u32);
    }
    Scenario::new(machine.tight(&visits), visits)
}

/// Clients that ask again `pause` units after each answer, on average, `rounds` times each.
fn conversations(rng: &mut Rng, machine: &Machine, [clients, rounds]: [usize; 2], pause: f64) -> Vec<Visit> {
    let unit = unit(machine);
    let mut visits: Vec<Visit> = Vec::new();
    for client in 0..clients {
        for round in 0..rounds {
            let pause = 2.0 * rng.unit() * pause * unit;
            let visit = Visit::new(pause, rng.between(30, 150), rng.between(4, 16));
            let visit = visit.of(Class::Interactive).from(client as u32);
            let earlier = visits.len().wrapping_sub(1);
            visits.push(if round == 0 { visit } else { visit.after(earlier, pause) });
        }
    }
    visits
}

/// Interactive clients that take about a third of the machine, and three bulk prompts of which one fits into memory.
/// A third of the seeds score the bulk prompts.
pub fn bulk_beside_conversations(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed);
    let machine = speed(&mut rng);
    let mut visits = conversations(&mut rng, &machine, [8, 10], 20.0);
    for index in 0..3 {
        let visit = Visit::new((5.0 + f64::from(index)) * unit(&machine), LONG, 32);
        visits.push(Visit { scored: seed % 3 == 2, ..visit.of(Class::Bulk).from(100 + index) });
    }
    Scenario::new(machine.tight(&visits), visits)
}

/// Interactive requests at fixed times that take a fifth of the machine, beside four bulk prompts at memory of 1.1 times
/// the largest.
pub fn bulk_beside_arrivals(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed);
    let machine = speed(&mut rng);
    let span = 3.0 * bounds::alone(&machine, &Visit::new(0.0, LONG, 32));
    let mut visits = shorts(&mut rng, &machine, [0.0, span], 0.2);
    for visit in &mut visits {
        visit.class = Class::Interactive;
    }
    for index in 0..4 {
        let bulk = Visit::new(rng.unit() * unit(&machine), rng.between(LONG / 2, LONG), 32);
        visits.push(bulk.of(Class::Bulk).from(100 + index));
    }
    Scenario::new(machine.tight(&visits), visits)
}

/// Four bulk requests of 128 answers each, which fill all rows of a step, and three interactive requests later.
pub fn bulk_in_every_row(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed);
    let machine = Machine { step_rows: 512, ..speed(&mut rng) };
    let bulk = Visit { n: 128, ..Visit::new(0.0, 50, 60).of(Class::Bulk) };
    let mut visits: Vec<Visit> = (0..4).map(|account| bulk.from(100 + account)).collect();
    for index in 0..3 {
        let at = (10.0 + 10.0 * f64::from(index)) * unit(&machine);
        visits.push(Visit::new(at, rng.between(20, 100), 8).of(Class::Interactive).from(index));
    }
    Scenario::new(machine, visits)
}

/// A request with more answers than a step has tokens, and a short one after it.
pub fn more_answers_than_tokens(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed);
    let machine = Machine { step_tokens: 64, step_rows: 512, ..speed(&mut rng) };
    let many = Visit { n: 128, ..Visit::new(0.0, rng.between(10, 100), 10) };
    let short = Visit::new(unit(&machine), 60, 8).from(1);
    Scenario::new(machine, vec![many, short])
}

/// Several long requests at once of which no two fit into memory together.
pub fn longs_at_once(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed);
    let machine = speed(&mut rng);
    let class = rng.pick(&Class::ALL);
    let visits: Vec<Visit> = (0..5)
        .map(|account| Visit::new(0.0, rng.between(LONG * 2 / 3, LONG), 40).of(class).from(account))
        .collect();
    Scenario::new(machine.tight(&visits), visits)
}

/// Prompts one after another, each alone on a machine that the engine takes for another one. All but the first are
/// measured.
pub fn prompts_alone(seed: u64) -> Scenario {
    let rng = &mut Rng::new(seed);
    let slow = Machine { guess: CostModel::default(), ..Machine::slow() };
    let machine = Machine { guess: scaled(&slow.guess, rng.pick(&[0.1, 1.0, 10.0])), ..slow };
    let first = Visit::new(0.0, 4000, 1);
    let lengths = [512, 2000, 7000];
    let next = |(index, prompt)| Visit::new(0.0, prompt, 1).after(index, 1.0).measured();
    let visits = std::iter::once(first).chain(lengths.into_iter().enumerate().map(next)).collect();
    Scenario::new(machine, visits)
}

/// A long prompt beside streams that last longer than it, on a machine whose steps cost anything from 5 ms to 1 s. The
/// prompt is measured.
pub fn prompt_beside_streams(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed);
    let fixed = [0.005, 0.03, 0.08, 0.15, 0.25, 1.0][seed as usize % 6];
    let token = rng.pick(&[0.0007, 0.005]);
    let machine = Machine::known(CostModel::known([fixed, token, 0.0003, 1e-7, 1e-7]));
    let streams = rng.pick(&[1, 10, 40]);
    // The streams have begun by then, in steps of which their prompts get a quarter.
    let begun = 12.0 * (fixed + 0.1) + 5.0 * token * 20.0 * f64::from(streams);
    let long = Visit::new(begun, LONG, 2).from(1).measured();
    // The shortest steps that the prompt allows are those of the streams alone.
    let answer = (5.0 * bounds::alone(&machine, &long) / fixed) as usize + 20;
    let mut visits = vec![long];
    visits.extend((0..streams).map(|account| Visit::new(0.0, 20, answer.min(7000)).from(2 + account)));
    let scenario = Scenario::new(machine, visits);
    Scenario {
        until: Some(Duration::from_secs_f64(8.0 * bounds::alone(&scenario.machine, &long))),
        ..scenario
    }
}

/// Ten streams, which are measured, beside prompts of 8,000 tokens, one after another, on a machine that the engine takes
/// for another one, that changes, or that stalls in less than one of 200 steps.
pub fn streams_beside_prompts(seed: u64) -> Scenario {
    let machine = Machine::fast();
    let prompt = Visit::new(2.0, 8000, 4);
    let seconds = |share: f64| Duration::from_secs_f64(share * 3.0 * bounds::alone(&machine, &prompt));
    let Machine { time, guess, .. } = machine.clone();
    let machine = match seed % 6 {
        0 => Machine { guess: scaled(&guess, 0.1), ..machine },
        1 => Machine { guess: scaled(&guess, 10.0), ..machine },
        2 => Machine { time: time.changing(seconds(0.5), 0.2), ..machine },
        3 => Machine { time: time.changing(seconds(0.5), 2.0), ..machine },
        4 => Machine { time: time.stalling(seconds(0.6), 20.0), ..machine },
        _ => Machine { time: time.jittering(0.1), ..machine },
    };
    let mut visits = vec![prompt, prompt.after(0, 0.0), prompt.after(1, 0.0)];
    visits.extend((0..10).map(|account| Visit::new(0.0, 100, 1500).from(1 + account).measured()));
    Scenario::new(machine, visits)
}

/// `chains` conversations of `rounds` requests each, `pause` seconds between two: an account that always asks.
fn backlog(
    visits: &mut Vec<Visit>,
    [chains, rounds]: [usize; 2],
    pause: f64,
    visit: impl Fn(usize) -> Visit,
) {
    for _ in 0..chains {
        for round in 0..rounds {
            let next = visit(visits.len());
            let earlier = visits.len().wrapping_sub(1);
            visits.push(if round == 0 { next } else { next.after(earlier, pause) });
        }
    }
}

/// Two accounts that always ask, at memory so short that the long answers of account 0 are preempted and a third of its
/// tokens are computed again, while those of account 1 are not.
pub fn backlogs_under_preemption(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed);
    let (long, short) = (rng.between(200, 300), rng.between(100, 300));
    let mut visits = Vec::new();
    backlog(&mut visits, [8, 40], 0.0, |_| Visit::new(0.0, long, 300).from(0));
    backlog(&mut visits, [8, 100], 0.0, |_| Visit::new(0.0, short, 4).from(1));
    let machine = Machine { blocks: 60, ..Machine::fast() };
    Scenario { until: Some(Duration::from_secs(60)), ..Scenario::new(machine, visits) }
}

/// Two accounts that always ask for the same: account 0 in one session, account 1 in a new one for each request.
pub fn sessions(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed);
    let (prompt, answer) = (rng.between(100, 400), rng.between(4, 20));
    let mut visits = Vec::new();
    backlog(&mut visits, [12, 30], 0.0, |_| Visit::new(0.0, prompt, answer).from(0));
    backlog(&mut visits, [12, 120], 0.0, |index| Visit {
        session: index as u32,
        ..Visit::new(0.0, prompt, answer).from(1)
    });
    Scenario { until: Some(Duration::from_secs(30)), ..Scenario::new(Machine::fast(), visits) }
}

/// Accounts that send one request after another and have nothing open for a moment between two: account 0 short prompts
/// with many answers, which receive their tokens whatever the account owes, the others longer prompts with short answers.
/// There are enough of them that some prompt always waits.
pub fn one_after_another(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed);
    let many = Visit { n: 60, ..Visit::new(0.0, 50, 20).from(0) };
    let mut visits = Vec::new();
    backlog(&mut visits, [1, 200], 0.001, |_| many);
    for account in 1..7 {
        let prompt = rng.between(300, 1000);
        backlog(&mut visits, [1, 200], 0.001, |_| Visit::new(0.0, prompt, 4).from(account));
    }
    let machine = Machine { step_rows: 128, ..Machine::fast() };
    Scenario { until: Some(Duration::from_secs(150)), ..Scenario::new(machine, visits) }
}

/// Any machine, any memory, any disturbance, any workload.
pub fn mixture(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed);
    let scenario = match rng.below(6) {
        0 => long_among_short(rng.bits(), Senders::One),
        1 => long_among_short(rng.bits(), Senders::Many),
        2 => bulk_beside_conversations(rng.bits()),
        3 => longs_at_once(rng.bits()),
        4 => Scenario { visits: classes(&mut rng), ..longs_at_once(rng.bits()) },
        _ => preset(&mut rng),
    };
    let Scenario { machine, visits, .. } = scenario;
    let mut rng = rng.fork(MACHINE);
    let busy = visits.iter().map(|visit| bounds::alone(&machine, visit)).sum();
    let machine = disturbed(&mut rng, machine, busy);
    let machine = if rng.chance(0.5) { machine.tight(&visits) } else { Machine { blocks: 8192, ..machine } };
    Scenario::new(machine, visits)
}

/// Requests of all classes, scored or with several answers now and then, all within a short time.
fn classes(rng: &mut Rng) -> Vec<Visit> {
    let count = rng.between(10, 40);
    let visit = |rng: &mut Rng| {
        let prompt = rng.length(200.0, 1.2).clamp(1.0, LONG as f64) as usize;
        let visit = Visit::new(2.0 * rng.unit(), prompt, rng.between(1, 40));
        let visit = visit.of(rng.pick(&Class::ALL)).from(rng.below(4) as u32);
        let n = if rng.chance(0.15) { rng.between(2, 16) } else { 1 };
        Visit { n, scored: rng.chance(0.15), ..visit }
    };
    (0..count).map(|_| visit(rng)).collect()
}

/// Requests of one of the presets of `ropeway simulate`.
fn preset(rng: &mut Rng) -> Scenario {
    let machine = speed(rng);
    let workload = rng.pick(&PRESETS).workload();
    let cost = machine.time.cost();
    let rate = workload.rate(cost, 8192);
    let arrivals = workload.arrivals(rng.bits(), rate, 60, 8192);
    let visits = arrivals.map(|arrival| {
        let request = arrival.request;
        // What is not shared begins with a number of its own.
        let shared = request.prompt.iter().position(|token| *token >= 1000).unwrap_or(0);
        Visit {
            account: request.client.account as u32,
            class: request.class,
            shared,
            ..Visit::new(arrival.at.as_secs_f64(), request.prompt.len(), request.max_tokens.unwrap_or(1))
        }
    });
    let visits = visits.collect();
    Scenario::new(machine, visits)
}
