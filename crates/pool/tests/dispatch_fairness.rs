//! One client with 200 requests at a time beside one that asks now and then, on simulated servers.
//!
//! The first token of the second must come about as soon as if the first had only its fair half of the pool.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use proptest::prelude::*;
use ropeway_engine::{Class, ClientId};
use ropeway_pool::dispatch::{Ask, Capacity, Dispatcher, Ended, Probe, Settings, Ticket, UpstreamId};
use ropeway_testkit::rng::Rng;
use ropeway_testkit::simulate::hardware::Hardware;
use ropeway_testkit::simulate::server::{Job, Said, Server, ServerModel};

/// Questions of the client that asks now and then, one after another: so many that luck moves their mean by a few percent only.
const QUESTIONS: usize = 200;

/// Who a request is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    Greedy,
    Modest,
}

/// A pool, and two clients in front of it.
struct Pool {
    dispatcher: Dispatcher,
    servers: Vec<Server>,
    requests: Vec<Open>,
    by_ticket: HashMap<Ticket, usize>,
    now: Duration,
    rng: Rng,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    client: Client,
    ticket: Ticket,
    came: Duration,
    answer: usize,
}

/// What the next event is.
enum Next {
    Server(usize),
    Question,
    Probe,
}

impl Pool {
    fn new(servers: usize, concurrency: Option<NonZeroUsize>, seed: u64) -> Self {
        let hardware = Hardware::find("h200-8b").unwrap();
        let model = ServerModel::new(&hardware, 128);
        let mut dispatcher = Dispatcher::new(&Settings::default());
        for _ in 0..servers {
            dispatcher.add(Capacity { concurrency, ..Capacity::default() });
        }
        Self {
            dispatcher,
            servers: (0..servers).map(|_| Server::new(model)).collect(),
            requests: Vec::new(),
            by_ticket: HashMap::new(),
            now: Duration::ZERO,
            rng: Rng::new(seed),
        }
    }

    fn ask(&mut self, client: Client) {
        let account = client as u64;
        let ask = Ask {
            client: ClientId::account(account),
            class: Class::Default,
            session: None,
            prefix: [].into(),
            prompt_tokens: 500,
            answer_tokens: 250,
            queue_timeout: None,
        };
        let ticket = self.dispatcher.enqueue(ask, self.now).unwrap();
        let answer = self.rng.between(100, 400);
        self.by_ticket.insert(ticket, self.requests.len());
        self.requests.push(Open { client, ticket, came: self.now, answer });
    }

    fn dispatch(&mut self) {
        while let Some(assignment) = self.dispatcher.next(self.now) {
            let id = self.by_ticket[&assignment.ticket];
            let job = Job { id: id as u64, prompt: 500, answer: self.requests[id].answer, blocks: [].into() };
            self.servers[assignment.upstream.index()].accept(job, self.now);
        }
    }

    fn probe(&mut self, upstreams: &[UpstreamId]) {
        for (server, upstream) in self.servers.iter().zip(upstreams) {
            let up = Probe::Up { running: Some(server.running()), waiting: Some(server.waiting()) };
            self.dispatcher.probed(*upstream, up, self.now);
        }
    }

    fn next(&self, question: Duration, probe: Duration) -> (Duration, Next) {
        let servers = self.servers.iter().enumerate();
        let steps = servers.filter_map(|(id, server)| Some((server.until()?, Next::Server(id))));
        let others = [(question, Next::Question), (probe, Next::Probe)];
        steps.chain(others).min_by_key(|(at, _)| *at).unwrap()
    }
}

/// How it went for the modest client.
struct Outcome {
    /// Mean seconds to its first token.
    first_token: f64,
    /// Requests that the pool would have taken at the end, all servers together.
    places: usize,
}

/// The modest client asks, while the greedy one has so many requests open at any time.
fn ask_beside(mut pool: Pool, greedy: usize) -> Outcome {
    let upstreams: Vec<_> = pool.dispatcher.statuses().iter().map(|status| status.upstream).collect();
    let (mut question, mut probe) = (Duration::from_secs(20), Duration::from_secs(1));
    let (mut sum, mut asked) = (Duration::ZERO, 0);
    (0..greedy).for_each(|_| pool.ask(Client::Greedy));
    pool.dispatch();
    let mut said = Vec::new();
    loop {
        let (at, next) = pool.next(question, probe);
        pool.now = at;
        match next {
            Next::Question => {
                pool.ask(Client::Modest);
                asked += 1;
                question = Duration::MAX;
            }
            Next::Probe => {
                pool.probe(&upstreams);
                probe += Duration::from_secs(1);
            }
            Next::Server(id) => pool.servers[id].advance(&mut said),
        }
        for said in std::mem::take(&mut said) {
            match said {
                Said::FirstToken { id, .. } => {
                    let open = pool.requests[id as usize];
                    pool.dispatcher.first_token(open.ticket, pool.now);
                    if open.client == Client::Modest {
                        sum += pool.now.saturating_sub(open.came);
                    }
                }
                Said::Done { id } => {
                    let open = pool.requests[id as usize];
                    pool.dispatcher.tokens(open.ticket, open.answer, pool.now);
                    pool.dispatcher.ended(open.ticket, Ended::Done, pool.now);
                    match open.client {
                        Client::Greedy => pool.ask(Client::Greedy),
                        Client::Modest if asked == QUESTIONS => {
                            let places = pool.dispatcher.statuses().iter().map(|status| status.limit).sum();
                            return Outcome { first_token: sum.as_secs_f64() / QUESTIONS as f64, places };
                        }
                        Client::Modest => {
                            question = pool.now + Duration::from_millis(pool.rng.between(1, 900) as u64);
                        }
                    }
                }
            }
        }
        pool.dispatch();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn two_hundred_requests_do_not_raise_another_clients_first_token_above_one_and_a_half_of_its_share(
        (servers, concurrency) in prop_oneof![
            (1_usize..4, (16_usize..100).prop_map(NonZeroUsize::new)),
            (1_usize..4, Just(None)),
        ],
        seed in any::<u64>(),
    ) {
        let flooded = ask_beside(Pool::new(servers, concurrency, seed), 200);
        let shared = ask_beside(Pool::new(servers, concurrency, seed), (flooded.places / 2).min(200));
        let (flooded, places, shared) = (flooded.first_token, flooded.places, shared.first_token);
        prop_assert!(flooded <= 1.5 * shared, "{flooded} s instead of {shared} s in a pool of {places} places");
    }
}
