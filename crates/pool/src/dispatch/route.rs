//! Which upstream gets a request, among those with room.
//!
//! ```text
//! Affinity:   1. who served the session          | unless  load > BOUND * mean + SLACK + saved
//!             2. who holds the longest beginning |     or  backlog > backlog of the least loaded + PATIENCE + saved
//!             3. the least load
//! ```
//! Load is outstanding tokens for an upstream's weight, the backlog those of them that are prompts and will be computed before a
//! newcomer's first token, `saved` what need not be computed there. So the owner of a popular prompt never becomes the
//! slowest of all, and nobody waits behind more tokens than another upstream would take to compute. Where nothing is known of a
//! prompt the load decides, and from then on its upstream is known. It decides and remembers, and never changes an upstream.

use super::avoided::Avoided;
use super::lru::Lru;
use super::prefixes::{Holder, Prefixes};
use super::roster::Roster;
use super::types::{Ask, Routing, Settings, UpstreamId};
use super::upstream::Upstream;

/// How much more than the mean an upstream may have to do and still be given what it holds.
const BOUND: f64 = 1.25;

/// Tokens by which it may have more in any case: on an idle pool one request more or less is no imbalance.
const SLACK: f64 = 2048.0;

/// Tokens of others' prompts that are always worth waiting for.
const PATIENCE: f64 = 256.0;

/// Blocks that are tried from the end of what is known, when those who hold it have too much to do.
const LOOK_BACK: usize = 64;

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Which upstream.
    pub upstream: UpstreamId,
    /// Tokens of the prompt that it should hold.
    pub cached_tokens: usize,
}

/// What is known of who holds what, and how that is used.
#[derive(Debug)]
pub struct Router {
    routing: Routing,
    block_tokens: usize,
    prefixes: Prefixes,
    sessions: Lru<Option<Holder>>,
    /// Steps of the round, or of the random numbers.
    steps: u64,
}

impl Router {
    /// A router that knows nothing yet.
    pub fn new(settings: &Settings) -> Self {
        Self {
            routing: settings.routing,
            block_tokens: settings.block_tokens,
            prefixes: Prefixes::new(settings.prefix_blocks),
            sessions: Lru::new(settings.sessions),
            steps: 0,
        }
    }

    /// Chooses among the upstreams with room; those where it failed only if there is no other, the latest last.
    pub fn choose(&mut self, ask: &Ask, avoided: &Avoided, roster: &Roster) -> Option<Route> {
        let known = &ask.prefix[..self.prefixes.known(&ask.prefix)];
        let choice = Choice { router: self, ask, known, avoided, roster };
        let upstream = match self.routing {
            Routing::Affinity => choice.by_affinity(),
            Routing::LeastTokens => choice.by_load(),
            Routing::Random => choice.first_from(random(self.steps, roster.ever())),
            Routing::RoundRobin => choice.first_from(self.steps as u32),
        }
        .or_else(|| avoided.iter().find(|id| roster.get(*id).is_some_and(Upstream::has_room)))?;
        self.steps = match self.routing {
            Routing::RoundRobin => u64::from(upstream.0) + 1,
            _ => self.steps + 1,
        };
        self.to(ask, upstream, roster)
    }

    /// The way to an upstream that is chosen already.
    pub fn to(&self, ask: &Ask, upstream: UpstreamId, roster: &Roster) -> Option<Route> {
        let known = &ask.prefix[..self.prefixes.known(&ask.prefix)];
        let holder = roster.get(upstream)?.holder();
        let cached_tokens = self.cached_tokens(known, holder, ask);
        Some(Route { upstream, cached_tokens })
    }

    /// Tokens of a prompt that an upstream should hold; it computes the last one in any case.
    fn cached_tokens(&self, known: &[u64], holder: Holder, ask: &Ask) -> usize {
        let held = self.prefixes.depth(known, holder) * self.block_tokens;
        held.min(ask.prompt_tokens.saturating_sub(1))
    }

    /// A request went to an upstream.
    pub fn remember(&mut self, ask: &Ask, holder: Holder) {
        self.prefixes.store(&ask.prefix, holder);
        if let Some(session) = ask.session {
            *self.sessions.touch(session) = Some(holder);
        }
    }
}

/// One choice.
struct Choice<'a> {
    router: &'a Router,
    ask: &'a Ask,
    /// Blocks of the prompt that anybody held.
    known: &'a [u64],
    avoided: &'a Avoided,
    roster: &'a Roster,
}

impl Choice<'_> {
    fn by_affinity(&self) -> Option<UpstreamId> {
        self.by_session().or_else(|| self.by_prefix()).or_else(|| self.by_load())
    }

    fn by_session(&self) -> Option<UpstreamId> {
        let holder = self.router.sessions.get(self.ask.session?).copied().flatten()?;
        let saved = if self.ask.prefix.is_empty() {
            // Nothing is known of the prompt but that it goes on where the session was.
            self.ask.prompt_tokens
        } else {
            self.tokens(self.router.prefixes.depth(self.known, holder))
        };
        self.within_bound(holder, saved).map(|_| holder.upstream)
    }

    fn by_prefix(&self) -> Option<UpstreamId> {
        let ends = (1..=self.known.len()).rev().take(LOOK_BACK);
        ends.into_iter().find_map(|blocks| {
            let holders = self.router.prefixes.holders(self.known[blocks - 1]);
            let saved = self.tokens(blocks);
            let loads =
                holders.filter_map(|holder| Some((self.within_bound(holder, saved)?, holder.upstream)));
            loads.min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, upstream)| upstream)
        })
    }

    fn tokens(&self, blocks: usize) -> usize {
        blocks * self.router.block_tokens
    }

    /// The load of a holder that would save so many tokens, if it may be given more.
    fn within_bound(&self, holder: Holder, saved: usize) -> Option<f64> {
        let upstream = self.roster.ready(holder).filter(|_| !self.avoids(holder.upstream))?;
        let saved = saved as f64 / upstream.weight();
        let least = self.by_load().and_then(|id| self.roster.get(id)).map_or(0.0, Upstream::backlog);
        let is_quick = upstream.backlog() <= least + PATIENCE + saved;
        let is_even = upstream.load() <= BOUND * self.roster.mean_load() + SLACK + saved;
        (is_quick && is_even).then(|| upstream.load())
    }

    fn by_load(&self) -> Option<UpstreamId> {
        self.roster.least_loaded().find(|upstream| !self.avoids(*upstream))
    }

    fn first_from(&self, number: u32) -> Option<UpstreamId> {
        self.roster.starting_at(number).find(|upstream| !self.avoids(*upstream))
    }

    fn avoids(&self, upstream: UpstreamId) -> bool {
        self.avoided.contains(upstream)
    }
}

/// A number below `end` that is another one with every step.
fn random(step: u64, end: usize) -> u32 {
    let mixed = (step ^ (step >> 31)).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    ((u128::from(mixed ^ (mixed >> 32)) * end as u128) >> 64) as u32
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use ropeway_engine::{Class, ClientId};

    use super::super::types::{Capacity, Probe};
    use super::super::upstream::Sending;
    use super::*;

    /// A pool that is routed over, and a count of what went where.
    struct Pool {
        router: Router,
        roster: Roster,
    }

    impl Pool {
        fn new(routing: Routing, upstreams: usize) -> Self {
            let mut roster = Roster::default();
            (0..upstreams).for_each(|_| _ = roster.add(Capacity::default()));
            Self { router: Router::new(&Settings { routing, ..Settings::default() }), roster }
        }

        /// Sends a prompt, which stays at its upstream; its number.
        fn send(&mut self, prefix: &[u64], session: Option<u64>) -> u32 {
            let ask = ask(prefix, session);
            let route = self.router.choose(&ask, &Avoided::default(), &self.roster).unwrap();
            let sending =
                Sending { prompt: ask.prompt_tokens, cached: route.cached_tokens, answer: ask.answer_tokens };
            self.roster.change(route.upstream, |upstream| {
                upstream.sent(sending, 0);
                upstream.first_token(Duration::ZERO, sending.computed(), Duration::ZERO);
            });
            self.router.remember(&ask, self.roster.get(route.upstream).unwrap().holder());
            route.upstream.0
        }
    }

    fn ask(prefix: &[u64], session: Option<u64>) -> Ask {
        Ask {
            client: ClientId::default(),
            class: Class::Default,
            session,
            prefix: Arc::from(prefix),
            prompt_tokens: 128 * prefix.len() + 1,
            answer_tokens: 100,
            queue_timeout: None,
        }
    }

    #[test]
    fn the_longest_known_beginning_decides_then_the_least_load() {
        let mut pool = Pool::new(Routing::Affinity, 3);
        assert_eq!([pool.send(&[1, 2, 3], None), pool.send(&[1, 9], None), pool.send(&[7], None)], [0, 0, 1]);
        assert_eq!([pool.send(&[7, 8], None), pool.send(&[1, 2, 3, 4], None)], [1, 0]);
        let known =
            pool.router.choose(&ask(&[1, 2, 3, 4, 5], None), &Avoided::default(), &pool.roster).unwrap();
        assert_eq!(known, Route { upstream: UpstreamId(0), cached_tokens: 4 * 128 });
        assert_eq!(pool.send(&[40], None), 2);
    }

    #[test]
    fn a_session_stays_where_it_was_even_if_its_prompt_is_new() {
        let mut pool = Pool::new(Routing::Affinity, 3);
        pool.send(&[1], None);
        let first = pool.send(&[2], Some(5));
        pool.send(&[3], None);
        assert_eq!(pool.send(&[4], Some(5)), first);
    }

    #[test]
    fn the_owner_of_a_popular_prompt_is_passed_over_when_it_has_too_much_to_do() {
        let mut pool = Pool::new(Routing::Affinity, 4);
        for number in 0..400 {
            pool.send(&[1, 2, 100 + number], None);
            let loads: Vec<_> =
                pool.roster.statuses().map(|status| status.outstanding_tokens as f64).collect();
            let most = loads.iter().copied().fold(0.0, f64::max);
            let one_more = 3.0 * 128.0 + 101.0;
            assert!(most <= BOUND * pool.roster.mean_load() + SLACK + 2.0 * 128.0 + one_more, "{loads:?}");
            if pool.roster.statuses().all(|status| status.in_flight == status.limit) {
                return;
            }
        }
    }

    #[test]
    fn what_an_upstream_held_is_forgotten_when_it_is_lost() {
        let mut pool = Pool::new(Routing::Affinity, 2);
        assert_eq!(pool.send(&[1, 2], Some(1)), 0);
        pool.roster.change(UpstreamId(0), |upstream| upstream.probed(Probe::Down, Duration::ZERO));
        let up = Probe::Up { running: None, waiting: None };
        pool.roster.change(UpstreamId(0), |upstream| upstream.probed(up, Duration::ZERO));
        let route = pool.router.choose(&ask(&[1, 2], Some(1)), &Avoided::default(), &pool.roster).unwrap();
        assert_eq!(route, Route { upstream: UpstreamId(1), cached_tokens: 0 });
    }

    #[test]
    fn round_robin_goes_around_and_random_reaches_everyone() {
        let mut pool = Pool::new(Routing::RoundRobin, 3);
        let sent: Vec<_> = (0..5).map(|_| pool.send(&[1], None)).collect();
        assert_eq!(sent, [0, 1, 2, 0, 1]);
        let mut pool = Pool::new(Routing::Random, 8);
        let mut reached: Vec<_> = (0..60).map(|_| pool.send(&[1], None)).collect();
        reached.sort_unstable();
        reached.dedup();
        assert_eq!(reached, (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn the_avoided_one_is_taken_only_if_there_is_no_other() {
        for routing in Routing::ALL {
            let mut pool = Pool::new(routing, 1);
            pool.send(&[1], None);
            let mut avoided = Avoided::default();
            avoided.add(UpstreamId(0));
            let again =
                |pool: &mut Pool| pool.router.choose(&ask(&[1], None), &avoided, &pool.roster).unwrap();
            assert_eq!(again(&mut pool).upstream, UpstreamId(0));
            pool.roster.add(Capacity::default());
            assert_eq!(again(&mut pool).upstream, UpstreamId(1));
        }
    }

    #[test]
    fn a_heavier_upstream_gets_its_share() {
        let mut pool = Pool::new(Routing::LeastTokens, 0);
        for weight in [1.0, 3.0] {
            pool.roster.add(Capacity { weight, concurrency: std::num::NonZeroUsize::new(100) });
        }
        (0..80).for_each(|_| _ = pool.send(&[], None));
        let shares: Vec<_> = pool.roster.statuses().map(|status| status.in_flight).collect();
        assert_eq!(shares, [20, 60]);
    }
}
