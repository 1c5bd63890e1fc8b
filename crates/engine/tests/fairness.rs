//! Nobody starves, and no client lives at another's expense, on a machine that always has more to do than it can.

use std::sync::Arc;
use std::time::Duration;

use ropeway_engine::cost::CostModel;
use ropeway_engine::scheduler::policy::PolicyKind;
use ropeway_engine::{Class, ClientId, Clock, Engine, Event, Handle, Request, Settings};
use ropeway_executor::Limits;
use ropeway_testkit::readers::{Reader, Readers};
use ropeway_testkit::rng::Rng;
use ropeway_testkit::{MockExecutor, SimClock};

const LIMITS: Limits = Limits {
    block_tokens: 16,
    blocks: 4096,
    context: 8192,
    step_tokens: 256,
    step_rows: 64,
    vocab: 50_000,
    ..Limits::EXAMPLE
};

/// A request, as its reader sees it.
struct Seen {
    /// Who asked, and how urgently.
    client: ClientId,
    class: Class,
    /// Prompt tokens computed for it so far.
    computed: usize,
    /// Whether it is the one that the test is about.
    special: bool,
}

/// What the readers counted, since the start.
#[derive(Default)]
struct Counted {
    /// Prompt tokens computed, and tokens generated, per client (as far as clients are few).
    prompts: [usize; 4],
    generated: [usize; 4],
    /// Prompt tokens computed for others than the special request.
    others: usize,
    /// Prompt tokens computed for the special request.
    special: usize,
    /// When something of a bulk prompt was last computed.
    bulk: Duration,
    /// Requests of each client that are open.
    open: [usize; 4],
}

struct World {
    engine: Engine,
    handle: Handle,
    clock: SimClock,
    readers: Readers<Seen>,
    counted: Counted,
    rng: Rng,
}

impl World {
    fn new(policy: PolicyKind, seed: u64) -> Self {
        let clock = SimClock::new();
        let cost = CostModel::known([0.005, 0.0007, 0.0003, 3e-7, 1e-6]);
        let executor = MockExecutor::new(LIMITS).with_time(clock.clone(), cost);
        let settings = Settings { policy, ..Settings::default() };
        let (engine, handle) = Engine::new(Box::new(executor), Arc::new(clock.clone()), &settings);
        let (readers, counted) = (Readers::default(), Counted::default());
        Self { engine, handle, clock, readers, counted, rng: Rng::new(seed) }
    }

    fn submit(&mut self, client: u64, class: Class, len: usize, new: usize, special: bool) {
        let prompt = (0..len).map(|_| self.rng.below(LIMITS.vocab) as u32).collect();
        let client = ClientId::account(client);
        let request = Request { client, class, ..Request::greedy(prompt, new) };
        let stream = self.handle.submit(request).expect("room in the queue");
        self.readers.add(stream, Seen { client, class, computed: 0, special });
        if let Some(open) = self.counted.open.get_mut(client.account as usize) {
            *open += 1;
        }
    }

    fn step(&mut self) {
        self.engine.step();
        let (counted, now) = (&mut self.counted, self.clock.now());
        self.readers.read(|seen, event| {
            counted.hear(seen, &event, now);
            Reader::Stays
        });
    }

    fn now(&self) -> f64 {
        self.clock.now().as_secs_f64()
    }
}

impl Counted {
    fn hear(&mut self, seen: &mut Seen, event: &Event, now: Duration) {
        let client = seen.client.account as usize;
        match event {
            Event::Prefilled { computed, cached } => {
                let new = computed - cached - seen.computed;
                seen.computed += new;
                *(if seen.special { &mut self.special } else { &mut self.others }) += new;
                if let Some(prompts) = self.prompts.get_mut(client) {
                    *prompts += new;
                }
                if seen.class == Class::Bulk {
                    self.bulk = now;
                }
            }
            Event::Placed { .. } | Event::Scored(_) => {}
            Event::Token { .. } => {
                if let Some(generated) = self.generated.get_mut(client) {
                    *generated += 1;
                }
            }
            Event::Finished { .. } => {
                if let Some(open) = self.open.get_mut(client) {
                    *open -= 1;
                }
            }
        }
    }

    /// What a client received, as fairness counts it.
    fn received(&self, client: usize) -> f64 {
        self.prompts[client] as f64 + 2.0 * self.generated[client] as f64
    }
}

/// Prompt tokens of others that are computed before a long prompt is, while more short ones come than can be served.
/// `client` names the client of the `i`-th short one.
fn overtaken(policy: PolicyKind, seed: u64, long: usize, client: impl Fn(u64) -> u64) -> usize {
    let mut world = World::new(policy, seed);
    world.submit(0, Class::Default, long, 1, true);
    let mut count = 0;
    while world.counted.special < long {
        assert!(world.now() < 600.0, "the long prompt starves");
        while world.readers.len() < 200 {
            count += 1;
            let len = world.rng.between(20, 200);
            world.submit(client(count), Class::Default, len, 4, false);
        }
        world.step();
    }
    world.counted.others
}

/// Twice its length until its credit is full, and as much again while it shares the machine with newcomers: they have
/// the first word in every second step, and what it leaves over in the others.
#[test]
fn a_long_prompt_is_overtaken_by_at_most_four_times_its_length() {
    for seed in 0..10 {
        let long = 1000 * (1 + seed as usize % 4);
        let overtaken = overtaken(PolicyKind::Fair, seed, long, |_| 0);
        let most = 4 * long + 4 * LIMITS.step_tokens;
        assert!(overtaken <= most, "seed {seed}: {overtaken} tokens went before {long}, at most {most}");
    }
}

#[test]
fn among_ever_new_clients_a_long_prompt_gets_its_share() {
    for seed in 0..3 {
        let long = 1000;
        let overtaken = overtaken(PolicyKind::Fair, seed, long, |count| count);
        // 200 clients are present at any time.
        let most = 200 * long;
        assert!(overtaken <= most, "seed {seed}: {overtaken} tokens went before {long}, at most {most}");
    }
}

#[test]
fn bulk_work_gets_a_turn_every_two_seconds_however_busy_the_machine_is() {
    for seed in 0..5 {
        let mut world = World::new(PolicyKind::Fair, seed);
        world.submit(0, Class::Bulk, 8000, 1, true);
        let mut longest = 0.0_f64;
        while world.now() < 30.0 && world.counted.special < 8000 {
            while world.readers.len() < 100 {
                let len = world.rng.between(20, 400);
                world.submit(1, Class::Interactive, len, 4, false);
            }
            world.step();
            longest = longest.max(world.now() - world.counted.bulk.as_secs_f64());
        }
        assert!(longest < 2.0 + 2.0 * 0.2, "seed {seed}: bulk stood still for {longest:.2} s");
    }
}

/// The largest difference between what three clients received over a minute, each of which always has 12 requests
/// open: many short ones, middling ones, and few long ones.
fn unfairness(policy: PolicyKind, seed: u64) -> f64 {
    let mut world = World::new(policy, seed);
    while world.now() < 60.0 {
        for (client, (len, new)) in [(30, 8), (200, 30), (1500, 20)].into_iter().enumerate() {
            while world.counted.open[client] < 12 {
                world.submit(client as u64, Class::Default, len, new, false);
            }
        }
        world.step();
    }
    let received: Vec<f64> = (0..3).map(|client| world.counted.received(client)).collect();
    received.iter().fold(0.0, |most: f64, one| most.max(*one))
        - received.iter().fold(f64::MAX, |least, one| one.min(least))
}

#[test]
fn backlogged_clients_receive_the_same_within_a_few_requests() {
    // Two of the largest requests, and a generated token (which counts 2) for every row that one of them may hold.
    let most = 2.0 * (1500.0 + 2.0 * 20.0) + 2.0 * 12.0 * 30.0;
    for seed in 0..5 {
        let difference = unfairness(PolicyKind::Fair, seed);
        assert!(difference <= most, "seed {seed}: {difference} tokens, at most {most}");
    }
    let without = unfairness(PolicyKind::Fifo, 0);
    assert!(without > 4.0 * most, "in order of submission the difference was {without} only");
}

/// The longest step of the next `seconds`.
fn longest_step(world: &mut World, seconds: f64) -> f64 {
    let (until, mut longest) = (world.now() + seconds, 0.0_f64);
    while world.now() < until {
        let began = world.now();
        world.step();
        longest = longest.max(world.now() - began);
    }
    longest
}

#[test]
fn steps_are_short_for_as_long_as_a_more_urgent_request_may_come() {
    let mut world = World::new(PolicyKind::Fair, 1);
    for _ in 0..60 {
        world.submit(0, Class::Bulk, 20, 4000, false);
    }
    world.submit(0, Class::Bulk, 7000, 1, false);
    assert!(longest_step(&mut world, 3.0) > 0.06, "60 streams in one step");
    world.submit(1, Class::Interactive, 20, 1, false);
    longest_step(&mut world, 0.2);
    let generated = world.counted.generated[0];
    let longest = longest_step(&mut world, 4.0);
    // 0.3 of the target for the streams, and a quarter of the step for the prompt.
    assert!(longest < 0.042, "a step of {longest:.3} s");
    let rate = (world.counted.generated[0] - generated) as f64 / 4.0;
    assert!(rate > 300.0, "{rate} tokens a second");
    assert!(longest_step(&mut world, 3.0) > 0.06, "nobody more urgent came for long");
}

#[test]
fn streams_of_every_class_go_on_every_two_seconds() {
    let mut world = World::new(PolicyKind::Fair, 1);
    for _ in 0..50 {
        world.submit(1, Class::Default, 20, 4000, false);
    }
    world.submit(2, Class::Bulk, 20, 4000, false);
    while world.counted.generated[1] + world.counted.generated[2] < 200 {
        world.step();
    }
    for second in 0..10 {
        let before = world.counted.generated[2];
        world.submit(0, Class::Interactive, 20, 1, false);
        longest_step(&mut world, 2.2);
        assert!(world.counted.generated[2] > before, "the bulk stream stood still in round {second}");
    }
}
