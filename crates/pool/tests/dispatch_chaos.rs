//! The dispatcher under everything at once: requests of all kinds, failures, clients that leave, probes, upstreams that come and
//! go, in any order. Nothing is lost, nothing is served twice, no upstream gets more than its limit, and in the end every
//! counter is at zero.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::time::Duration;

use proptest::prelude::*;
use ropeway_engine::{Class, ClientId};
use ropeway_pool::dispatch::{
    Ask, Assignment, Capacity, Dispatcher, Ended, Probe, Routing, Settings, Ticket, UpstreamId,
};

/// Requests that may wait.
const MOST_WAITING: usize = 24;

/// One thing that happens. Numbers choose among what there is, modulo how many there are.
#[derive(Clone, Debug)]
enum Happening {
    Ask { account: u64, class: usize, prompt: u64, timeout: Option<u64> },
    Token { which: usize, tokens: usize },
    End { which: usize, ended: Ended },
    Again { which: usize, why: Ended },
    Withdraw { which: usize },
    Probe { upstream: usize, is_up: bool, waiting: usize },
    Wait { millis: u64 },
    Add { concurrency: usize },
    Remove { upstream: usize },
}

fn ended() -> impl Strategy<Value = Ended> {
    prop_oneof![
        Just(Ended::Done),
        Just(Ended::Failed),
        Just(Ended::Refused),
        Just(Ended::Cancelled),
        prop::option::of(0_u64..3)
            .prop_map(|seconds| Ended::Busy { retry_after: seconds.map(Duration::from_secs) }),
    ]
}

fn happening() -> impl Strategy<Value = Happening> {
    let which = 0_usize..1000;
    prop_oneof![
        8 => (0_u64..5, 0_usize..3, 0_u64..6, prop::option::of(0_u64..5000))
            .prop_map(|(account, class, prompt, timeout)| Happening::Ask { account, class, prompt, timeout }),
        6 => (which.clone(), 0_usize..30).prop_map(|(which, tokens)| Happening::Token { which, tokens }),
        4 => (which.clone(), ended()).prop_map(|(which, ended)| Happening::End { which, ended }),
        4 => (which.clone(), ended()).prop_map(|(which, why)| Happening::Again { which, why }),
        1 => which.clone().prop_map(|which| Happening::Withdraw { which }),
        2 => (which.clone(), any::<bool>(), 0_usize..20)
            .prop_map(|(upstream, is_up, waiting)| Happening::Probe { upstream, is_up, waiting }),
        4 => (0_u64..2000).prop_map(|millis| Happening::Wait { millis }),
        1 => (0_usize..4).prop_map(|concurrency| Happening::Add { concurrency }),
        1 => which.prop_map(|upstream| Happening::Remove { upstream }),
    ]
}

/// The dispatcher, and what its caller knows.
struct World {
    dispatcher: Dispatcher,
    now: Duration,
    upstreams: Vec<UpstreamId>,
    waiting: BTreeSet<Ticket>,
    running: BTreeMap<Ticket, UpstreamId>,
    accounts: BTreeMap<Ticket, u64>,
    /// Tickets that failed somewhere, and where.
    failed_at: BTreeMap<Ticket, UpstreamId>,
}

impl World {
    fn new(routing: Routing) -> Self {
        let settings = Settings {
            routing,
            most_waiting: MOST_WAITING,
            prefix_blocks: 8,
            sessions: 3,
            ..Settings::default()
        };
        Self {
            dispatcher: Dispatcher::new(&settings),
            now: Duration::ZERO,
            upstreams: Vec::new(),
            waiting: BTreeSet::new(),
            running: BTreeMap::new(),
            accounts: BTreeMap::new(),
            failed_at: BTreeMap::new(),
        }
    }

    fn any(&self, which: usize) -> Option<Ticket> {
        let all: Vec<_> = self.waiting.iter().chain(self.running.keys()).copied().collect();
        (!all.is_empty()).then(|| all[which % all.len()])
    }

    fn running(&self, which: usize) -> Option<Ticket> {
        self.running.keys().nth(which % self.running.len().max(1)).copied()
    }

    fn upstream(&self, which: usize) -> Option<UpstreamId> {
        self.upstreams.get(which % self.upstreams.len().max(1)).copied()
    }

    fn happen(&mut self, happening: &Happening) {
        match happening {
            Happening::Ask { account, class, prompt, timeout } => {
                self.ask(*account, *class, *prompt, *timeout);
            }
            Happening::Token { which, tokens } => {
                if let Some(ticket) = self.any(*which) {
                    self.dispatcher.tokens(ticket, *tokens, self.now);
                }
            }
            Happening::End { which, ended } => {
                if let Some(ticket) = self.any(*which) {
                    self.dispatcher.ended(ticket, *ended, self.now);
                    self.over(ticket);
                    self.dispatcher.ended(ticket, *ended, self.now);
                }
            }
            Happening::Again { which, why } => self.again(*which, *why),
            Happening::Withdraw { which } => {
                if let Some(ticket) = self.any(*which) {
                    self.dispatcher.withdraw(ticket, self.now);
                    self.over(ticket);
                }
            }
            Happening::Probe { upstream, is_up, waiting } => {
                let up = Probe::Up { running: Some(*waiting), waiting: Some(*waiting) };
                let probe = if *is_up { up } else { Probe::Down };
                if let Some(id) = self.upstream(*upstream) {
                    self.dispatcher.probed(id, probe, self.now);
                }
            }
            Happening::Wait { millis } => self.now += Duration::from_millis(*millis),
            Happening::Add { concurrency } => self.add(*concurrency),
            Happening::Remove { upstream } => {
                if let Some(id) = self.upstream(*upstream) {
                    self.dispatcher.remove(id);
                    self.upstreams.retain(|other| *other != id);
                }
            }
        }
    }

    fn add(&mut self, concurrency: usize) {
        let capacity = Capacity { concurrency: NonZeroUsize::new(concurrency), ..Capacity::default() };
        self.upstreams.push(self.dispatcher.add(capacity));
    }

    fn ask(&mut self, account: u64, class: usize, prompt: u64, timeout: Option<u64>) {
        let ask = Ask {
            client: ClientId { account, session: prompt % 2 },
            class: Class::ALL[class],
            session: (prompt > 3).then_some(prompt),
            prefix: (0..prompt).map(|block| 10 * account + block).collect(),
            prompt_tokens: 1 + 100 * prompt as usize,
            answer_tokens: 20,
            queue_timeout: timeout.map(Duration::from_millis),
        };
        match self.dispatcher.enqueue(ask, self.now) {
            Ok(ticket) => {
                assert!(self.waiting.insert(ticket), "{ticket} was handed out twice");
                self.accounts.insert(ticket, account);
            }
            Err(full) => assert!(full.waiting > 0),
        }
    }

    fn again(&mut self, which: usize, why: Ended) {
        let Some(ticket) = self.running(which) else { return };
        let Some(upstream) = self.running.get(&ticket).copied() else { return };
        match self.dispatcher.requeue(ticket, why, self.now) {
            Ok(()) => {
                self.running.remove(&ticket);
                self.waiting.insert(ticket);
                self.failed_at.insert(ticket, upstream);
            }
            Err(_) => self.over(ticket),
        }
    }

    fn over(&mut self, ticket: Ticket) {
        self.waiting.remove(&ticket);
        self.running.remove(&ticket);
    }

    /// What a caller does after everything: hear who expired, and send whoever may be sent.
    fn settle(&mut self) {
        for ticket in self.dispatcher.expired(self.now) {
            assert!(self.waiting.remove(&ticket), "{ticket} expired but did not wait");
        }
        while let Some(assignment) = self.dispatcher.next(self.now) {
            self.check_assignment(assignment);
        }
        assert_eq!(self.dispatcher.waiting(), self.waiting.len());
        assert_eq!(self.dispatcher.running(), self.running.len());
        self.check_statuses();
    }

    fn check_assignment(&mut self, Assignment { ticket, upstream, .. }: Assignment) {
        assert!(self.waiting.remove(&ticket), "{ticket} was sent but did not wait");
        assert!(self.upstreams.contains(&upstream), "{ticket} went to one that was removed");
        let status = self.dispatcher.status(upstream).unwrap();
        // A stream that was broken off elsewhere may go on beyond the limit.
        let most = if self.failed_at.contains_key(&ticket) { 4 * status.limit } else { status.limit };
        assert!(status.is_up && status.in_flight <= most, "{ticket}: {status:?}");
        let others = self.dispatcher.statuses().into_iter().filter(|other| other.upstream != upstream);
        let other_is_up = others.filter(|other| other.is_up).count() > 0;
        let avoided = self.failed_at.get(&ticket) == Some(&upstream);
        assert!(!(avoided && other_is_up), "{ticket} went where it failed, and another is up");
        self.running.insert(ticket, upstream);
    }

    fn check_statuses(&self) {
        let (mut has_room, mut free) = (false, 0);
        for status in self.dispatcher.statuses() {
            let running = self.running.values().filter(|upstream| **upstream == status.upstream).count();
            assert_eq!(status.in_flight, running);
            assert!(status.limit >= 1);
            assert!(running > 0 || status.outstanding_tokens == 0, "{status:?}");
            if status.is_up {
                has_room |= status.in_flight < status.limit;
                free += status.limit as isize - status.in_flight as isize;
            }
        }
        let fresh = self.waiting.iter().filter(|ticket| !self.failed_at.contains_key(ticket));
        let mut may_start = fresh.filter(|ticket| (self.has_now(self.accounts[ticket]) as isize) < 2 * free);
        assert!(!has_room || may_start.next().is_none(), "somebody waits although there is room");
    }

    /// Requests that an account has at upstreams.
    fn has_now(&self, account: u64) -> usize {
        self.running.keys().filter(|ticket| self.accounts[ticket] == account).count()
    }

    /// Everything is answered in the end, if any upstream is up.
    fn drain(&mut self) {
        if self.upstreams.is_empty() {
            self.add(0);
        }
        let up = Probe::Up { running: Some(0), waiting: Some(0) };
        for round in 0.. {
            assert!(round < 10_000, "{} still wait", self.waiting.len());
            self.upstreams.iter().for_each(|id| self.dispatcher.probed(*id, up, self.now));
            self.settle();
            if self.waiting.is_empty() && self.running.is_empty() {
                break;
            }
            for ticket in self.running.keys().copied().collect::<Vec<_>>() {
                self.dispatcher.tokens(ticket, 3, self.now);
                self.dispatcher.ended(ticket, Ended::Done, self.now);
                self.over(ticket);
            }
            let wake = self.dispatcher.wake_at().unwrap_or_default();
            self.now = wake.max(self.now + Duration::from_millis(1));
        }
        assert_eq!((self.dispatcher.waiting(), self.dispatcher.running()), (0, 0));
        assert!(self.dispatcher.is_at_rest());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_or_served_twice_and_everything_is_answered_if_any_upstream_is_up(
        routing in prop::sample::select(&Routing::ALL[..]),
        upstreams in prop::collection::vec(0_usize..4, 0..4),
        happenings in prop::collection::vec(happening(), 1..250),
    ) {
        let mut world = World::new(routing);
        for concurrency in upstreams {
            world.add(concurrency);
        }
        for happening in &happenings {
            world.happen(happening);
            world.settle();
        }
        world.drain();
    }
}
