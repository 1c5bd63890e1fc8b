//! Scenarios by seed. All times are in multiples of what a short request takes on the machine at hand, so that the same
//! workload loads a fast and a slow machine alike.

use std::time::Duration;

use ropeway_engine::Class;
use ropeway_engine::cost::CostModel;

use super::bounds;
use super::scenario::{MachineSpec, RequestSpec, Scenario};
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
fn unit(machine: &MachineSpec) -> f64 {
    bounds::alone(machine, &RequestSpec::new(0.0, 60, 8))
}

/// A fast or a slow machine.
fn speed(rng: &mut Rng) -> MachineSpec {
    if rng.chance(0.5) { MachineSpec::fast() } else { MachineSpec::slow() }
}

/// Gives the machine one of the ways in which it is not what the engine expects; `busy` is about how long it has
/// something to do.
fn disturbed(rng: &mut Rng, machine: MachineSpec, busy: f64) -> MachineSpec {
    let seconds = Duration::from_secs_f64;
    let MachineSpec { time, guess, .. } = machine.clone();
    match rng.below(5) {
        0 => machine,
        1 => MachineSpec { guess: scaled(&guess, rng.pick(&[0.1, 10.0])), ..machine },
        2 => MachineSpec { time: time.changing(seconds(0.4 * busy), rng.pick(&[0.2, 5.0])), ..machine },
        3 => MachineSpec { time: time.stalling(seconds(0.2 * busy), 20.0), ..machine },
        _ => MachineSpec { time: time.jittering(0.1), ..machine },
    }
}

/// Short requests from `start` on for `span` seconds, each taking `load` of the time between two if it were alone.
fn shorts(rng: &mut Rng, machine: &MachineSpec, [start, span]: [f64; 2], load: f64) -> Vec<RequestSpec> {
    let rate = load / unit(machine);
    let mut requests = Vec::new();
    let mut at = start + rng.gap(rate).as_secs_f64();
    while at < start + span {
        requests.push(RequestSpec::new(at, rng.between(40, 80), 8));
        at += rng.gap(rate).as_secs_f64();
    }
    requests
}

/// A long prompt in a stream of short ones that take at most half of the machine, at memory of 1.1 times the long one.
/// The long request is measured.
pub fn long_among_short(seed: u64, senders: Senders) -> Scenario {
    let mut rng = Rng::new(seed);
    let machine = speed(&mut rng);
    let start = 10.0 * unit(&machine);
    let long = RequestSpec::new(start, LONG, 16).measured();
    let span = start + 6.0 * bounds::alone(&machine, &long);
    let load = rng.pick(&[0.2, 0.3, 0.4]);
    let mut requests = vec![long];
    requests.extend(shorts(&mut rng, &machine, [0.0, span], load));
    if senders == Senders::Many {
        requests.iter_mut().enumerate().for_each(|(index, request)| request.account = index as u32);
    }
    Scenario::new(machine.tight(&requests), requests)
}

/// Clients that ask again `pause` units after each answer, on average, `rounds` times each.
fn conversations(
    rng: &mut Rng,
    machine: &MachineSpec,
    [clients, rounds]: [usize; 2],
    pause: f64,
) -> Vec<RequestSpec> {
    let unit = unit(machine);
    let mut requests: Vec<RequestSpec> = Vec::new();
    for client in 0..clients {
        for round in 0..rounds {
            let pause = 2.0 * rng.unit() * pause * unit;
            let request = RequestSpec::new(pause, rng.between(30, 150), rng.between(4, 16));
            let request = request.of(Class::Interactive).from(client as u32);
            let earlier = requests.len().wrapping_sub(1);
            requests.push(if round == 0 { request } else { request.after(earlier, pause) });
        }
    }
    requests
}

/// Interactive clients that take about a third of the machine, and three bulk clients whose prompts do not fit into memory
/// together. A third of the seeds score the bulk prompts.
pub fn bulk_beside_conversations(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed);
    let machine = speed(&mut rng);
    let mut requests = conversations(&mut rng, &machine, [8, 40], 20.0);
    for account in 0..3 {
        let start = (5.0 + f64::from(account)) * unit(&machine);
        let bulk = RequestSpec::new(start, LONG, 32).of(Class::Bulk).from(100 + account);
        backlog(&mut requests, [1, 6], 0.0, |_| RequestSpec { scored: seed % 3 == 2, ..bulk });
    }
    Scenario::new(machine.tight(&requests), requests)
}

/// Interactive requests at fixed times that take a fifth of the machine, beside four bulk prompts at memory of 1.1 times
/// the largest.
pub fn bulk_beside_arrivals(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed);
    let machine = speed(&mut rng);
    let span = 3.0 * bounds::alone(&machine, &RequestSpec::new(0.0, LONG, 32));
    let mut requests = shorts(&mut rng, &machine, [0.0, span], 0.2);
    for request in &mut requests {
        request.class = Class::Interactive;
    }
    for index in 0..4 {
        let bulk = RequestSpec::new(rng.unit() * unit(&machine), rng.between(LONG / 2, LONG), 32);
        requests.push(bulk.of(Class::Bulk).from(100 + index));
    }
    Scenario::new(machine.tight(&requests), requests)
}

/// Four bulk requests of 128 answers each, which fill all rows of a step, and three interactive requests later.
pub fn bulk_in_every_row(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed);
    let machine = MachineSpec { step_rows: 512, ..speed(&mut rng) };
    let bulk = RequestSpec { n: 128, ..RequestSpec::new(0.0, 50, 60).of(Class::Bulk) };
    let mut requests: Vec<RequestSpec> = (0..4).map(|account| bulk.from(100 + account)).collect();
    for index in 0..3 {
        let at = (10.0 + 10.0 * f64::from(index)) * unit(&machine);
        requests.push(RequestSpec::new(at, rng.between(20, 100), 8).of(Class::Interactive).from(index));
    }
    Scenario::new(machine, requests)
}

/// A request with more answers than a step has tokens, and a short one after it.
pub fn more_answers_than_tokens(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed);
    let machine = MachineSpec { step_tokens: 64, step_rows: 512, ..speed(&mut rng) };
    let many = RequestSpec { n: 128, ..RequestSpec::new(0.0, rng.between(10, 100), 10) };
    let short = RequestSpec::new(unit(&machine), 60, 8).from(1);
    Scenario::new(machine, vec![many, short])
}

/// Several long requests at once of which no two fit into memory together.
pub fn longs_at_once(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed);
    let machine = speed(&mut rng);
    let class = rng.pick(&Class::ALL);
    let requests: Vec<RequestSpec> = (0..5)
        .map(|account| RequestSpec::new(0.0, rng.between(LONG * 2 / 3, LONG), 40).of(class).from(account))
        .collect();
    Scenario::new(machine.tight(&requests), requests)
}

/// Prompts one after another, each alone on a machine that the engine takes for another one. Those from which it may learn
/// otherwise are not measured.
pub fn prompts_alone(seed: u64) -> Scenario {
    let rng = &mut Rng::new(seed);
    let slow = MachineSpec::slow();
    let machine = MachineSpec { guess: scaled(&slow.guess, rng.pick(&[0.1, 1.0, 10.0])), ..slow };
    let mut requests = vec![RequestSpec::new(0.0, 100, 1)];
    for (index, prompt) in [4000, 300, 4000, 512, 2000, 7000].into_iter().enumerate() {
        let measured = index >= 3;
        requests.push(RequestSpec { measured, ..RequestSpec::new(0.0, prompt, 1).after(index, 1.0) });
    }
    Scenario::new(machine, requests)
}

/// A long prompt beside streams that last longer than it, on a machine whose steps cost anything from 5 ms to 1 s. The
/// prompt is measured.
pub fn prompt_beside_streams(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed);
    let fixed = [0.005, 0.03, 0.08, 0.15, 0.25, 1.0][seed as usize % 6];
    let token = rng.pick(&[0.0007, 0.005]);
    let machine = MachineSpec::known(CostModel::known([fixed, token, 0.0003, 1e-7, 1e-7]));
    let streams: u32 = rng.pick(&[1, 10, 40]);
    // The streams have begun by then, in steps of which their prompts get a quarter.
    let begun = 12.0 * (fixed + 0.1) + 5.0 * token * 20.0 * f64::from(streams);
    let long = RequestSpec::new(begun, LONG, 2).from(1).measured();
    // The shortest steps that the prompt allows are those of the streams alone.
    let answer = (5.0 * bounds::alone(&machine, &long) / fixed) as usize + 20;
    let mut requests = vec![long];
    requests
        .extend((0..streams).map(|account| RequestSpec::new(0.0, 20, answer.min(7000)).from(2 + account)));
    let scenario = Scenario::new(machine, requests);
    Scenario {
        until: Some(Duration::from_secs_f64(8.0 * bounds::alone(&scenario.machine, &long))),
        ..scenario
    }
}

/// Ten streams, which are measured, beside prompts of 8,000 tokens, one after another, on a machine that the engine takes
/// for another one, that changes, or that stalls in less than one of 200 steps.
pub fn streams_beside_prompts(seed: u64) -> Scenario {
    let machine = MachineSpec::fast();
    let prompt = RequestSpec::new(2.0, 8000, 4);
    let seconds = |share: f64| Duration::from_secs_f64(share * 3.0 * bounds::alone(&machine, &prompt));
    let MachineSpec { time, guess, .. } = machine.clone();
    let machine = match seed % 6 {
        0 => MachineSpec { guess: scaled(&guess, 0.1), ..machine },
        1 => MachineSpec { guess: scaled(&guess, 10.0), ..machine },
        2 => MachineSpec { time: time.changing(seconds(0.5), 0.2), ..machine },
        3 => MachineSpec { time: time.changing(seconds(0.5), 2.0), ..machine },
        4 => MachineSpec { time: time.stalling(seconds(0.6), 20.0), ..machine },
        _ => MachineSpec { time: time.jittering(0.1), ..machine },
    };
    let mut requests = vec![prompt, prompt.after(0, 0.0), prompt.after(1, 0.0)];
    requests.extend((0..10).map(|account| RequestSpec::new(0.0, 100, 1500).from(1 + account).measured()));
    Scenario::new(machine, requests)
}

/// `chains` conversations of `rounds` requests each, `pause` seconds between two: an account that always asks.
fn backlog(
    requests: &mut Vec<RequestSpec>,
    [chains, rounds]: [usize; 2],
    pause: f64,
    request: impl Fn(usize) -> RequestSpec,
) {
    for _ in 0..chains {
        for round in 0..rounds {
            let next = request(requests.len());
            let earlier = requests.len().wrapping_sub(1);
            requests.push(if round == 0 { next } else { next.after(earlier, pause) });
        }
    }
}

/// Two accounts that always ask, at memory so short that the long answers of account 0 are preempted and a third of its
/// tokens are computed again, while those of account 1 are not.
pub fn backlogs_under_preemption(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed);
    let (long, short) = (rng.between(200, 300), rng.between(100, 300));
    let mut requests = Vec::new();
    backlog(&mut requests, [8, 40], 0.0, |_| RequestSpec::new(0.0, long, 300).from(0));
    backlog(&mut requests, [8, 100], 0.0, |_| RequestSpec::new(0.0, short, 4).from(1));
    let machine = MachineSpec { blocks: 60, ..MachineSpec::fast() };
    Scenario { until: Some(Duration::from_secs(60)), ..Scenario::new(machine, requests) }
}

/// Two accounts that always ask for the same: account 0 in one session, account 1 in a new one for each request.
pub fn sessions(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed);
    let (prompt, answer) = (rng.between(100, 400), rng.between(4, 20));
    let mut requests = Vec::new();
    backlog(&mut requests, [12, 30], 0.0, |_| RequestSpec::new(0.0, prompt, answer).from(0));
    backlog(&mut requests, [12, 120], 0.0, |index| RequestSpec {
        session: index as u32,
        ..RequestSpec::new(0.0, prompt, answer).from(1)
    });
    Scenario { until: Some(Duration::from_secs(30)), ..Scenario::new(MachineSpec::fast(), requests) }
}

/// Accounts that send one request after another and have nothing open for a moment between two: account 0 short prompts
/// with many answers, which receive their tokens whatever the account owes, the others longer prompts with short answers.
/// There are enough of them that some prompt always waits.
pub fn one_after_another(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed);
    let many = RequestSpec { n: 60, ..RequestSpec::new(0.0, 50, 20).from(0) };
    let mut requests = Vec::new();
    backlog(&mut requests, [1, 200], 0.001, |_| many);
    for account in 1..7 {
        let prompt = rng.between(300, 1000);
        backlog(&mut requests, [1, 200], 0.001, |_| RequestSpec::new(0.0, prompt, 4).from(account));
    }
    let machine = MachineSpec { step_rows: 128, ..MachineSpec::fast() };
    Scenario { until: Some(Duration::from_secs(150)), ..Scenario::new(machine, requests) }
}

/// Any machine, any memory, any disturbance, any workload.
pub fn mixture(seed: u64) -> Scenario {
    let mut rng = Rng::new(seed);
    let scenario = match rng.below(6) {
        0 => long_among_short(rng.bits(), Senders::One),
        1 => long_among_short(rng.bits(), Senders::Many),
        2 => bulk_beside_conversations(rng.bits()),
        3 => longs_at_once(rng.bits()),
        4 => Scenario { requests: classes(&mut rng), ..longs_at_once(rng.bits()) },
        _ => preset(&mut rng),
    };
    let Scenario { machine, requests, .. } = scenario;
    let mut rng = rng.fork(MACHINE);
    let busy = requests.iter().map(|request| bounds::alone(&machine, request)).sum();
    let machine = disturbed(&mut rng, machine, busy);
    let machine =
        if rng.chance(0.5) { machine.tight(&requests) } else { MachineSpec { blocks: 8192, ..machine } };
    Scenario::new(machine, requests)
}

/// Requests of all classes, scored or with several answers now and then, all within a short time.
fn classes(rng: &mut Rng) -> Vec<RequestSpec> {
    let count = rng.between(10, 40);
    let request = |rng: &mut Rng| {
        let prompt = rng.length(200.0, 1.2).clamp(1.0, LONG as f64) as usize;
        let request = RequestSpec::new(2.0 * rng.unit(), prompt, rng.between(1, 40));
        let request = request.of(rng.pick(&Class::ALL)).from(rng.below(4) as u32);
        let n = if rng.chance(0.15) { rng.between(2, 16) } else { 1 };
        RequestSpec { n, scored: rng.chance(0.15), ..request }
    };
    (0..count).map(|_| request(rng)).collect()
}

/// Requests of one of the presets of `ropeway simulate`.
fn preset(rng: &mut Rng) -> Scenario {
    let machine = speed(rng);
    let workload = rng.pick(&PRESETS).workload();
    let cost = machine.time.cost();
    let rate = workload.rate(cost, 8192);
    let arrivals = workload.arrivals(rng.bits(), rate, 60, 8192);
    let requests = arrivals.map(|arrival| {
        let request = arrival.request;
        // What is not shared begins with a number of its own.
        let shared = request.prompt.iter().position(|token| *token >= 1000).unwrap_or(0);
        RequestSpec {
            account: request.client.account as u32,
            class: request.class,
            shared,
            ..RequestSpec::new(
                arrival.at.as_secs_f64(),
                request.prompt.len(),
                request.max_tokens.unwrap_or(1),
            )
        }
    });
    let requests = requests.collect();
    Scenario::new(machine, requests)
}
