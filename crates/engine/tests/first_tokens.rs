//! First tokens of small interactive chats beside clients that ask for as much as they can, in simulated time: what
//! `benches/attacks.py` measures on a real server, without its noise.

use std::sync::Arc;
use std::time::Duration;

use ropeway_engine::cost::CostModel;
use ropeway_engine::{Class, ClientId, Clock, Engine, Event, Handle, Request, Settings, Stepped};
use ropeway_executor::Limits;
use ropeway_testkit::readers::{Reader, Readers};
use ropeway_testkit::rng::Rng;
use ropeway_testkit::{MockExecutor, SimClock};

/// SmolLM2-135M on two cores, with KV memory for some 8,000 tokens.
const LIMITS: Limits = Limits {
    block_tokens: 32,
    blocks: 256,
    context: 2048,
    step_tokens: 512,
    step_rows: 512,
    vocab: 50_000,
    ..Limits::EXAMPLE
};
const COST: [f64; 5] = [0.0048, 0.00061, 0.00079, 3.6e-7, 0.0];

/// Time between a chat's answer and its next question.
const PAUSE: Duration = Duration::from_millis(50);

/// A client that asks again when it is answered.
#[derive(Clone, Copy)]
struct Asker {
    account: u64,
    class: Class,
    prompt: usize,
    answer: usize,
    n: usize,
    pause: Duration,
}

const CHAT: Asker =
    Asker { account: 1, class: Class::Interactive, prompt: 30, answer: 8, n: 1, pause: PAUSE };

struct World {
    engine: Engine,
    handle: Handle,
    clock: SimClock,
    rng: Rng,
    askers: Vec<Asker>,
    /// When each asks next; `None` while it is being answered.
    asks: Vec<Option<Duration>>,
    /// Sequences of each that are open, and when its request came if it has no token yet.
    open: Vec<usize>,
    came: Vec<Option<Duration>>,
    readers: Readers<usize>,
    /// Seconds to the first tokens of each.
    first: Vec<Vec<f64>>,
    generated: Vec<usize>,
}

impl World {
    fn new(askers: Vec<Asker>) -> Self {
        let clock = SimClock::new();
        let executor = MockExecutor::new(LIMITS).with_time(clock.clone(), CostModel::known(COST));
        let (engine, handle) = Engine::new(Box::new(executor), Arc::new(clock.clone()), &Settings::default());
        let count = askers.len();
        Self {
            engine,
            handle,
            clock,
            rng: Rng::new(1),
            askers,
            asks: vec![Some(Duration::ZERO); count],
            open: vec![0; count],
            came: vec![None; count],
            readers: Readers::default(),
            first: vec![Vec::new(); count],
            generated: vec![0; count],
        }
    }

    fn ask(&mut self, index: usize, at: Duration) {
        let Asker { account, class, prompt, answer, n, .. } = self.askers[index];
        let prompt = (0..prompt).map(|_| self.rng.below(LIMITS.vocab) as u32).collect();
        let client = ClientId { account, session: self.rng.below(1 << 30) as u64 };
        let request = Request { client, class, n, ..Request::greedy(prompt, answer) };
        self.readers.add(self.handle.submit(request).expect("room in the queue"), index);
        (self.asks[index], self.open[index], self.came[index]) = (None, n, Some(at));
    }

    fn step(&mut self) {
        let now = self.clock.now();
        for index in 0..self.askers.len() {
            if let Some(at) = self.asks[index].filter(|at| *at <= now) {
                self.ask(index, at);
            }
        }
        if self.engine.step() == Stepped::Idle
            && let Some(next) = self.asks.iter().flatten().min()
        {
            self.clock.advance_to(*next);
        }
        self.hear();
    }

    fn hear(&mut self) {
        let now = self.clock.now();
        let Self { readers, askers, asks, open, came, first, generated, .. } = self;
        readers.read(|index, event| {
            let index = *index;
            match event {
                Event::Token { .. } => {
                    generated[index] += 1;
                    if let Some(came) = came[index].take() {
                        first[index].push(now.saturating_sub(came).as_secs_f64());
                    }
                }
                Event::Finished { .. } => {
                    open[index] -= 1;
                    if open[index] == 0 {
                        asks[index] = Some(now + askers[index].pause);
                    }
                }
                _ => {}
            }
            Reader::Stays
        });
    }
}

/// What two chats saw in a minute.
#[derive(Debug)]
struct Seen {
    p50: f64,
    p99: f64,
    /// Tokens a second of the others.
    others: f64,
}

fn beside(others: &[Asker]) -> Seen {
    // The two do not ask in step with each other.
    let other_chat = Asker { pause: PAUSE + PAUSE / 5, ..CHAT };
    let mut world = World::new([&[CHAT, other_chat], others].concat());
    while world.clock.now() < Duration::from_secs(60) {
        world.step();
    }
    let mut first = world.first[..2].concat();
    first.sort_by(f64::total_cmp);
    let at = |share: f64| first[(share * first.len() as f64) as usize];
    let others = world.generated[2..].iter().sum::<usize>() as f64 / 60.0;
    Seen { p50: at(0.5), p99: at(0.99), others }
}

#[test]
fn small_chats_wait_at_most_twice_as_long_beside_attacks() {
    let alone = beside(&[]);
    let greedy = Asker { account: 2, pause: Duration::ZERO, ..CHAT };
    let many_answers = Asker { class: Class::Bulk, prompt: 15, answer: 100, n: 128, ..greedy };
    let new_sessions = Asker { class: Class::Default, prompt: 75, answer: 16, ..greedy };
    let long_prompts = Asker { class: Class::Bulk, prompt: 1500, answer: 16, ..greedy };
    // Tokens a second that the attackers keep.
    for (attackers, least) in
        [([many_answers; 4].as_slice(), 400.0), (&[new_sessions; 8], 140.0), (&[long_prompts; 4], 7.0)]
    {
        let seen = beside(attackers);
        assert!(seen.p50 <= 2.0 * alone.p50 && seen.p99 <= 3.0 * alone.p99, "{seen:?}, alone {alone:?}");
        assert!(seen.others >= least, "{seen:?}: the machine does little else");
    }
}

/// The median first token of the first of these in a minute.
fn median_first(askers: Vec<Asker>) -> f64 {
    let mut world = World::new(askers);
    while world.clock.now() < Duration::from_secs(60) {
        world.step();
    }
    let first = &mut world.first[0];
    first.sort_by(f64::total_cmp);
    first[first.len() / 2]
}

#[test]
fn a_prompt_worth_a_few_steps_of_the_streams_beside_it_does_not_let_them_finish_first() {
    let question = Asker { class: Class::Default, prompt: 300, pause: Duration::from_millis(500), ..CHAT };
    let alone = median_first(vec![question]);
    let streams = (2..10).map(|account| Asker { account, answer: 500, prompt: 30, ..question });
    let beside = median_first([question].into_iter().chain(streams).collect());
    // 190 ms alone, or three steps of 100 ms that have the streams' tokens in them.
    assert!(alone > 0.15 && beside < 0.31, "{alone} s alone, {beside} s beside eight streams");
}
