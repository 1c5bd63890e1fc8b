//! Who gets the machine, in simulated time.

use std::time::Duration;

use proptest::prelude::*;
use ropeway_executor::Class;
use ropeway_machine::arbiter::{Advance, Arbiter, TenantId};

/// A tenant that computes one lease after the other.
#[derive(Clone, Copy, Debug)]
struct Load {
    class: Class,
    /// Microseconds of a part; an engine's step has one, an embedding pass one per layer.
    part: u64,
    parts: u32,
    /// Microseconds from the end of a lease to the next request.
    gap: u64,
}

impl Load {
    fn steps(part: u64) -> Self {
        Self { class: Class::Default, part, parts: 1, gap: 100 }
    }

    fn of_class(self, class: Class) -> Self {
        Self { class, ..self }
    }

    /// Share of its time that it computes when it is alone.
    fn share_alone(&self) -> f64 {
        let computing = (self.part * u64::from(self.parts)) as f64;
        computing / (computing + self.gap as f64)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Doing {
    ThinkingUntil(Duration),
    Waiting { since: Duration },
    Computing { until: Duration, parts_left: u32 },
}

#[derive(Debug)]
struct Simulated {
    id: TenantId,
    load: Load,
    doing: Doing,
    computed: Duration,
    longest_wait: Duration,
}

/// Runs tenants against an arbiter for so long; nobody may compute beside the holder.
fn simulate(loads: &[Load], time: Duration) -> Vec<Simulated> {
    let mut arbiter = Arbiter::default();
    let mut tenants: Vec<Simulated> = loads
        .iter()
        .map(|&load| Simulated {
            id: arbiter.join(),
            load,
            doing: Doing::ThinkingUntil(Duration::ZERO),
            computed: Duration::ZERO,
            longest_wait: Duration::ZERO,
        })
        .collect();
    let mut now = Duration::ZERO;
    let mut reserved = None;
    while now < time {
        let times = tenants.iter().filter_map(|tenant| match tenant.doing {
            Doing::ThinkingUntil(at) | Doing::Computing { until: at, .. } => Some(at),
            Doing::Waiting { .. } => None,
        });
        now = times.chain(reserved).min().expect("somebody is going to do something").max(now);
        for tenant in &mut tenants {
            tenant.act(&mut arbiter, now);
        }
        reserved = None;
        match arbiter.advance(now) {
            Advance::Granted(id) => {
                let busy = tenants.iter().any(|tenant| matches!(tenant.doing, Doing::Computing { .. }));
                assert!(!busy, "two compute at once");
                let tenant = tenants.iter_mut().find(|tenant| tenant.id == id).expect("known");
                tenant.start(now);
            }
            Advance::ReservedUntil(until) => reserved = Some(until),
            Advance::Nothing => {}
        }
    }
    tenants
}

impl Simulated {
    fn act(&mut self, arbiter: &mut Arbiter, now: Duration) {
        match self.doing {
            Doing::ThinkingUntil(at) if at <= now => {
                arbiter.request(self.id, self.load.class, Duration::from_micros(self.load.part), now);
                self.doing = Doing::Waiting { since: now };
            }
            Doing::Computing { until, parts_left } if until <= now => {
                self.computed += Duration::from_micros(self.load.part);
                self.doing = if parts_left == 0 {
                    arbiter.release(now);
                    Doing::ThinkingUntil(now + Duration::from_micros(self.load.gap))
                } else if arbiter.yield_lease(now) {
                    Doing::Waiting { since: now }
                } else {
                    let until = now + Duration::from_micros(self.load.part);
                    Doing::Computing { until, parts_left: parts_left - 1 }
                };
            }
            _ => {}
        }
    }

    fn start(&mut self, now: Duration) {
        let Doing::Waiting { since } = self.doing else { panic!("a lease for one who did not ask") };
        self.longest_wait = self.longest_wait.max(now.saturating_sub(since));
        let until = now + Duration::from_micros(self.load.part);
        self.doing = Doing::Computing { until, parts_left: self.load.parts - 1 };
    }

    fn share(&self, time: Duration) -> f64 {
        self.computed.as_secs_f64() / time.as_secs_f64()
    }
}

const TEN_SECONDS: Duration = Duration::from_secs(10);

#[test]
fn two_models_keep_two_fifths_of_their_speed_however_different_their_steps() {
    for (short, long) in [(2_000, 2_100), (2_000, 20_000), (500, 100_000), (2_000, 300), (30_000, 31_000)] {
        let loads = [Load::steps(short), Load::steps(long)];
        for tenant in simulate(&loads, TEN_SECONDS) {
            let kept = tenant.share(TEN_SECONDS) / tenant.load.share_alone();
            assert!(kept >= 0.4, "{short} and {long}: {tenant:?} keeps {kept:.2}");
        }
    }
}

#[test]
fn an_embedding_pass_and_an_engine_share_the_machine_layer_by_layer() {
    let pass = Load { class: Class::Default, part: 8_000, parts: 12, gap: 300 };
    let tenants = simulate(&[pass, Load::steps(2_000)], TEN_SECONDS);
    for tenant in &tenants {
        let kept = tenant.share(TEN_SECONDS) / tenant.load.share_alone();
        assert!(kept >= 0.4, "{tenant:?} keeps {kept:.2}");
    }
    // A layer and the time it owes, not the pass.
    assert!(tenants[1].longest_wait <= Duration::from_millis(17), "{:?}", tenants[1]);
}

#[test]
fn urgent_work_goes_first_and_the_rest_still_gets_a_fifth() {
    let urgent = Load::steps(2_000).of_class(Class::Interactive);
    let bulk = Load::steps(10_000).of_class(Class::Bulk);
    let [first, second] = &simulate(&[urgent, bulk], TEN_SECONDS)[..] else { panic!("two tenants") };
    assert!(first.share(TEN_SECONDS) > 0.7, "{first:?}");
    assert!(second.share(TEN_SECONDS) > 0.17, "{second:?}");
    assert!(first.longest_wait <= Duration::from_millis(10), "{first:?}");
}

#[test]
fn an_urgent_newcomer_does_not_wait_for_a_reservation() {
    let (mut arbiter, ms) = (Arbiter::default(), Duration::from_millis);
    let [short, long, urgent] = [arbiter.join(), arbiter.join(), arbiter.join()];
    arbiter.request(long, Class::Default, ms(20), ms(0));
    assert_eq!(arbiter.advance(ms(0)), Advance::Granted(long));
    arbiter.request(short, Class::Default, ms(2), ms(1));
    arbiter.release(ms(20));
    assert_eq!(arbiter.advance(ms(20)), Advance::Granted(short));
    arbiter.request(long, Class::Default, ms(20), ms(21));
    arbiter.release(ms(22));
    assert!(matches!(arbiter.advance(ms(22)), Advance::ReservedUntil(_)), "the short one is owed more time");
    arbiter.request(urgent, Class::Interactive, ms(1), ms(22));
    assert_eq!(arbiter.advance(ms(22)), Advance::Granted(urgent));
}

#[test]
fn a_tenant_that_was_idle_has_not_saved_up_time() {
    let (mut arbiter, ms) = (Arbiter::default(), Duration::from_millis);
    let [busy, idle] = [arbiter.join(), arbiter.join()];
    for step in 0..100 {
        arbiter.request(busy, Class::Default, ms(10), ms(10 * step));
        assert_eq!(arbiter.advance(ms(10 * step)), Advance::Granted(busy));
        arbiter.release(ms(10 * step + 10));
    }
    arbiter.request(idle, Class::Default, ms(10), ms(1000));
    assert_eq!(arbiter.advance(ms(1000)), Advance::Granted(idle));
    arbiter.request(busy, Class::Default, ms(10), ms(1001));
    arbiter.release(ms(1010));
    arbiter.request(idle, Class::Default, ms(10), ms(1010));
    assert_eq!(arbiter.advance(ms(1010)), Advance::Granted(busy));
}

#[test]
fn a_reservation_ends_when_its_tenant_leaves_or_does_not_come() {
    let (mut arbiter, ms) = (Arbiter::default(), Duration::from_millis);
    let [gone, other] = [arbiter.join(), arbiter.join()];
    arbiter.request(gone, Class::Interactive, ms(1), ms(0));
    assert_eq!(arbiter.advance(ms(0)), Advance::Granted(gone));
    arbiter.request(other, Class::Bulk, ms(1), ms(0));
    arbiter.release(ms(1));
    let Advance::ReservedUntil(until) = arbiter.advance(ms(1)) else { panic!("kept free") };
    assert!(until <= ms(3));
    arbiter.leave(gone);
    assert_eq!(arbiter.advance(ms(1)), Advance::Granted(other));
}

fn class() -> impl Strategy<Value = Class> {
    prop::sample::select(Class::ALL.to_vec())
}

fn load() -> impl Strategy<Value = Load> {
    let part = prop::sample::select(vec![200, 2_000, 9_000, 60_000]);
    let gap = prop::sample::select(vec![20, 300, 5_000, 80_000]);
    (class(), part, 1..6u32, gap).prop_map(|(class, part, parts, gap)| Load { class, part, parts, gap })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whoever_asks_is_served_within_a_bound_whatever_the_others_do(loads in prop::collection::vec(load(), 1..7)) {
        let tenants = simulate(&loads, TEN_SECONDS);
        // Overdue after a second at most; by then at most one lease of every other tenant may be overdue as well, and
        // each of those may have come back once before it is this one's turn.
        let others: u64 = loads.iter().map(|load| load.part).sum();
        let bound = Duration::from_secs(1) + 2 * Duration::from_micros(others);
        for tenant in tenants {
            prop_assert!(tenant.longest_wait <= bound, "{:?}", tenant);
            prop_assert!(!tenant.computed.is_zero());
        }
    }
}
