//! Who is next, and which upstream gets it.
//!
//! ```text
//! enqueue ─> waiting: class, account, session ─ next ─> running at an upstream ─ ended ─> gone
//!              ^  (withdraw, expired: gone)                   |
//!              '────────────── requeue: it failed ────────────'
//! ```
//! A [`Dispatcher`] decides and counts; the caller acts. It has no clock, no I/O and no randomness: every call says what time it
//! is, and the same calls give the same decisions, on real servers and in `ropeway simulate --pool`. No operation looks
//! at all upstreams or at all requests, apart from [`Dispatcher::statuses`] and a stream that was broken off while all are full. Memory is bounded by the settings and by the
//! requests in flight. It must never hand out a ticket twice without a [`requeue`](Dispatcher::requeue) between, nor give an
//! upstream more requests than its limit, but for streams that were broken off elsewhere.
//!
//! # Layout
//! - [`types`]: what goes in and out.
//! - `request`: one of them; `queue`: who waits; `line`: the order within a class; `ledger`: what clients received; `share`: how
//!   much of the upstreams an account may have.
//! - `roster`, `upstream`: upstreams in order, and one of them; `window`, `trend`: how many requests it may have; `health`: whether it is
//!   given any.
//! - `route`: which of them; `prefixes`, `lru`: who holds what. `budget`, `avoided`: how often something is tried again, and
//!   where not.

mod avoided;
mod budget;
mod health;
mod ledger;
mod line;
mod lru;
mod ordered;
mod prefixes;
mod queue;
mod request;
mod roster;
mod route;
mod share;
mod trend;
pub mod types;
mod upstream;
mod window;

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use ropeway_engine::ClientId;
use ropeway_engine::queue::Queue as Places;

use budget::Budget;
use ledger::Clients;
use queue::{Rules, Waiter, WaitingQueue};
use request::{Request, Run, Stage};
use roster::Roster;
use route::{Route, Router};
use share::Shares;
use upstream::Upstream;

pub use ropeway_engine::queue::QueueFull;
pub use types::{
    Ask, Assignment, BLOCK_TOKENS, Capacity, Ended, Probe, Routing, Settings, Spent, Ticket, Totals,
    UpstreamId, UpstreamStatus,
};

/// Broken-off streams that are looked at for one that can go on somewhere.
const LOOKED_AT: usize = 16;

/// The queue in front of a pool of upstreams that serve the same model.
#[derive(Debug)]
pub struct Dispatcher {
    most_waiting: usize,
    requests: HashMap<Ticket, Request>,
    next_ticket: u64,
    /// Attempts so far.
    sent: u64,
    places: Places,
    queue: WaitingQueue,
    clients: Clients,
    shares: Shares,
    roster: Roster,
    router: Router,
    budget: Budget,
    /// Streams that were broken off and wait, the oldest first: their readers see them stand still.
    broken_off: BTreeSet<Ticket>,
}

impl Dispatcher {
    /// A dispatcher without upstreams: requests wait until one is added.
    pub fn new(settings: &Settings) -> Self {
        Self {
            most_waiting: settings.most_waiting,
            requests: HashMap::new(),
            next_ticket: 0,
            sent: 0,
            places: Places::default(),
            queue: WaitingQueue::default(),
            clients: Clients::default(),
            shares: Shares::default(),
            roster: Roster::default(),
            router: Router::new(settings),
            budget: Budget::default(),
            broken_off: BTreeSet::new(),
        }
    }

    /// One more upstream, which counts as up until a probe or its failures say otherwise.
    pub fn add(&mut self, capacity: Capacity) -> UpstreamId {
        self.roster.add(capacity)
    }

    /// An upstream gets no more requests. Those that it has end or are requeued as usual.
    pub fn remove(&mut self, upstream: UpstreamId) {
        self.roster.change(upstream, Upstream::leave);
    }

    /// A request comes, unless there are too many of it.
    pub fn enqueue(&mut self, ask: Ask, now: Duration) -> Result<Ticket, QueueFull> {
        self.places.enter(ask.client.account, 1, self.most_waiting, now)?;
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.budget.earn();
        self.clients.arrive(ask.client);
        let request = Request::new(ask, ticket, now);
        if let Some(waiter) = request.waiter() {
            self.queue.push(waiter, &self.clients, now);
        }
        self.requests.insert(ticket, request);
        Ok(ticket)
    }

    /// Whose turn it is, and where it goes. To be called until there is nothing, after every other call and at
    /// [`wake_at`](Self::wake_at).
    pub fn next(&mut self, now: Duration) -> Option<Assignment> {
        self.roster.advance(now);
        self.next_in_turn(now).or_else(|| self.next_broken_off(now))
    }

    fn next_in_turn(&mut self, now: Duration) -> Option<Assignment> {
        if !self.roster.has_room() {
            return None;
        }
        let ticket = self.queue.next(self, now)?;
        let request = self.requests.get(&ticket)?;
        let route = self.router.choose(&request.ask, &request.avoided, &self.roster)?;
        self.assign(ticket, route, now)
    }

    /// A stream that was broken off goes on at once, beyond the limit that was found for an upstream, as far as that bears it.
    fn next_broken_off(&mut self, now: Duration) -> Option<Assignment> {
        let (ticket, route) = self.broken_off.iter().take(LOOKED_AT).find_map(|ticket| {
            let request = self.requests.get(ticket)?;
            let upstream = self.roster.bearing_one_more(&request.avoided)?;
            Some((*ticket, self.router.to(&request.ask, upstream, &self.roster)?))
        })?;
        self.assign(ticket, route, now)
    }

    fn assign(&mut self, ticket: Ticket, route: Route, now: Duration) -> Option<Assignment> {
        let waiter = self.requests.get(&ticket)?.waiter()?;
        self.leave_queue(waiter, now);
        self.queue.took_turn(waiter.class, now);
        self.send(waiter, route, now);
        Some(Assignment { ticket, upstream: route.upstream, cached_tokens: route.cached_tokens })
    }

    fn leave_queue(&mut self, waiter: Waiter, now: Duration) {
        self.queue.remove(waiter);
        self.broken_off.remove(&waiter.ticket);
        if !waiter.has_failed {
            self.places.leave(waiter.client.account, 1, now);
        }
    }

    fn send(&mut self, waiter: Waiter, route: Route, now: Duration) {
        let Some(request) = self.requests.get_mut(&waiter.ticket) else { return };
        let sending = request.sending(route.cached_tokens);
        request.stage = Stage::Running(Run::new(route.upstream, sending, now));
        self.shares.start(waiter.client.account, now);
        self.sent += 1;
        self.roster.change(route.upstream, |upstream| upstream.sent(sending, self.sent));
        if let Some(upstream) = self.roster.get(route.upstream) {
            self.router.remember(&request.ask, upstream.holder());
        }
        if !waiter.has_failed {
            let cost = ledger::cost(sending.computed(), request.ask.answer_tokens);
            self.charge(waiter.client, cost);
        }
    }

    fn charge(&mut self, client: ClientId, tokens: f64) {
        self.clients.charge(client, tokens);
        self.queue.restand(client, &self.clients);
    }

    /// The first token of an answer came.
    pub fn first_token(&mut self, ticket: Ticket, now: Duration) {
        let Some(run) = self.requests.get_mut(&ticket).and_then(Request::run) else { return };
        let Some(computed) = run.first_token(now) else { return };
        let Run { upstream, sent, .. } = *run;
        self.roster.change(upstream, |upstream| upstream.first_token(sent, computed, now));
    }

    /// So many more tokens of an answer came, the first one included.
    pub fn tokens(&mut self, ticket: Ticket, tokens: usize, now: Duration) {
        if tokens == 0 {
            return;
        }
        self.first_token(ticket, now);
        let Some(request) = self.requests.get_mut(&ticket) else { return };
        let Some(run) = request.run() else { return };
        let (upstream, came) = (run.upstream, run.tokens(tokens, now));
        request.progressed(tokens);
        self.roster.change(upstream, |upstream| upstream.tokens(came, now));
    }

    /// A request is over. Tickets that ended before are ignored.
    pub fn ended(&mut self, ticket: Ticket, ended: Ended, now: Duration) {
        let Some(mut request) = self.requests.remove(&ticket) else { return };
        let client = request.ask.client;
        if let Some(waiter) = request.waiter() {
            self.leave_queue(waiter, now);
        }
        if let Some(run) = request.run() {
            let (upstream, attempt) = (run.upstream, run.attempt(ended));
            self.shares.end(client.account);
            self.roster.change(upstream, |upstream| upstream.ended(attempt, now));
        }
        if request.was_sent() {
            let correction = ledger::correction(request.generated, request.ask.answer_tokens);
            self.charge(client, correction);
            self.places.ended(1, now);
        }
        self.clients.depart(client, now);
    }

    /// The client left; the request is over, wherever it was.
    pub fn withdraw(&mut self, ticket: Ticket, now: Duration) {
        self.ended(ticket, Ended::Cancelled, now);
    }

    /// An attempt failed and is to be made again: before all others of its class, and at another upstream if there is one. If
    /// the budget does not allow it, the request is over.
    ///
    /// An upstream that was too busy costs nothing of the budget: the request waits, as it would have from the beginning.
    pub fn requeue(&mut self, ticket: Ticket, why: Ended, now: Duration) -> Result<(), Spent> {
        let Some(request) = self.requests.get_mut(&ticket) else { return Err(Spent::Over) };
        let Some(run) = request.run().copied() else { return Ok(()) };
        let is_busy = matches!(why, Ended::Busy { .. });
        if !is_busy && let Err(spent) = self.budget.spend(&mut request.tries, now) {
            self.ended(ticket, why, now);
            return Err(spent);
        }
        let waiter = request.wait_again(ticket, run.upstream, now);
        if request.generated > 0 {
            self.broken_off.insert(ticket);
        }
        self.shares.end(waiter.client.account);
        self.roster.change(run.upstream, |upstream| {
            upstream.lost_request(run.has_tokens());
            upstream.ended(run.attempt(why), now);
        });
        self.queue.push(waiter, &self.clients, now);
        Ok(())
    }

    /// What looking after an upstream found.
    pub fn probed(&mut self, upstream: UpstreamId, probe: Probe, now: Duration) {
        self.roster.change(upstream, |upstream| upstream.probed(probe, now));
    }

    /// Requests whose time in the queue is over; they are gone.
    pub fn expired(&mut self, now: Duration) -> Vec<Ticket> {
        let mut expired = Vec::new();
        while let Some(ticket) = self.queue.overdue(now) {
            self.ended(ticket, Ended::Cancelled, now);
            expired.push(ticket);
        }
        expired
    }

    /// When [`next`](Self::next) or [`expired`](Self::expired) may have something without any other call.
    pub fn wake_at(&self) -> Option<Duration> {
        self.roster.next_return().into_iter().chain(self.queue.next_deadline()).min()
    }

    /// All upstreams, in the order in which they were added.
    pub fn statuses(&self) -> Vec<UpstreamStatus> {
        self.roster.statuses().collect()
    }

    /// One upstream, if it was not removed.
    pub fn status(&self, upstream: UpstreamId) -> Option<UpstreamStatus> {
        self.roster.get(upstream).map(Upstream::status)
    }

    /// Requests in the queue, those that were sent before and failed included.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Requests at upstreams.
    pub fn running(&self) -> usize {
        self.requests.len() - self.queue.len()
    }

    /// Whether nobody is here and every counter of those who were is back at zero.
    pub fn is_at_rest(&self) -> bool {
        let idle = |status: UpstreamStatus| status.in_flight == 0 && status.outstanding_tokens == 0;
        self.requests.is_empty()
            && self.queue.len() == 0
            && self.broken_off.is_empty()
            && self.places.taken() == 0
            && self.clients.is_empty()
            && self.shares.is_empty()
            && self.roster.statuses().all(idle)
    }

    /// Time until a place in the queue should be free if none is now.
    pub fn queue_wait(&self, now: Duration) -> Duration {
        self.places.wait(now)
    }
}

impl Rules for Dispatcher {
    fn may_go(&self, ticket: Ticket) -> bool {
        self.requests.get(&ticket).is_some_and(|request| !self.roster.should_wait(&request.avoided))
    }

    fn may_start(&self, account: u64, now: Duration) -> bool {
        self.shares.may_start(account, self.roster.room(), now)
    }
}
