//! Who gets the next lease.
//!
//! An [`Arbiter`] knows no thread and no time but what it is told: the same requests at the same times give the same
//! order. Tenants that wait are ranked by
//!
//! ```text
//! 1. overdue   whoever waited PATIENCE times as long as its lease is expected to take (within OVERDUE), the longest wait
//!              first: a less urgent tenant beside busy urgent ones gets about 1 / (1 + PATIENCE) of the time
//! 2. class     the most urgent
//! 3. start     the smallest virtual start time (start-time fair queueing): equal shares of time, not of leases
//! ```
//! A tenant that computes step after step is not waiting in the moment after a lease, while it plans its next step. If
//! others were let in at that moment, each would get one lease in turn, and a model with steps of 2 ms would get a tenth
//! of the time beside one with steps of 20 ms. So a tenant that would rank before all that wait is given a moment to ask
//! again ([`MOST_GAP`]); that moment is charged to it.

use std::time::Duration;

use ropeway_executor::Class;

/// How many times its own length a lease may be delayed by more urgent ones.
const PATIENCE: u32 = 4;

/// Bounds of the delay after which a tenant is overdue: below, classes would mean nothing between very short leases;
/// above, nobody may be held up for longer, however long its lease.
const OVERDUE: std::ops::RangeInclusive<Duration> = Duration::from_millis(20)..=Duration::from_secs(1);

/// Longest time that the machine is kept free for a tenant that has just used it. Planning a step takes some hundred
/// microseconds, but on a busy machine its thread may have to wait for a core first; the time is charged to the tenant.
pub const MOST_GAP: Duration = Duration::from_millis(10);

/// What is assumed of a tenant's time between two leases before it was measured.
const FIRST_GAP: Duration = Duration::from_micros(200);

/// A user of the machine, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantId(usize);

/// What [`Arbiter::advance`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// This tenant has the lease from now on.
    Granted(TenantId),
    /// The machine is kept free: advance again at this time, or after the next request.
    ReservedUntil(Duration),
    /// Someone has the lease, or nobody waits for it.
    Nothing,
}

/// What is known about a tenant.
#[derive(Clone, Copy, Debug)]
struct Account {
    /// Virtual time at which its latest lease ended.
    finish: Duration,
    /// When its latest lease ended.
    released: Duration,
    /// Typical length of its leases.
    length: Duration,
    /// Typical time from the end of a lease to the next request.
    gap: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    tenant: TenantId,
    class: Class,
    /// Expected length of the lease.
    budget: Duration,
    /// When it asked.
    since: Duration,
    /// Virtual start time.
    start: Duration,
}

impl Waiting {
    fn overdue(&self, now: Duration) -> bool {
        let bound = (self.budget * PATIENCE).clamp(*OVERDUE.start(), *OVERDUE.end());
        now.saturating_sub(self.since) >= bound
    }

    /// The smallest goes first.
    fn rank(&self, now: Duration) -> (Class, Duration, Duration) {
        if self.overdue(now) {
            (Class::Interactive, Duration::ZERO, self.since)
        } else {
            (self.class, self.start, self.since)
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Holder {
    tenant: TenantId,
    class: Class,
    budget: Duration,
    /// When it got the lease, or was last charged for it.
    from: Duration,
    /// Virtual time at that moment.
    start: Duration,
}

impl Holder {
    /// What it would ask for if it went on.
    fn again(&self, now: Duration) -> Waiting {
        let Self { tenant, class, budget, start, .. } = *self;
        Waiting { tenant, class, budget, since: now, start }
    }
}

/// The machine is kept free for a tenant.
#[derive(Clone, Copy, Debug)]
struct Reserved {
    /// The request that it is expected to make.
    expected: Waiting,
    until: Duration,
}

/// The queue in front of the machine.
#[derive(Debug, Default)]
pub struct Arbiter {
    /// By tenant; `None` once it left.
    accounts: Vec<Option<Account>>,
    waiting: Vec<Waiting>,
    holder: Option<Holder>,
    reserved: Option<Reserved>,
    /// Virtual start time of the latest lease. A tenant that was away starts from here: being idle earns nothing.
    virtual_now: Duration,
}

impl Arbiter {
    /// A new tenant.
    pub fn join(&mut self) -> TenantId {
        let account = Account {
            finish: self.virtual_now,
            released: Duration::ZERO,
            length: Duration::ZERO,
            gap: FIRST_GAP,
        };
        if let Some(free) = self.accounts.iter().position(Option::is_none) {
            self.accounts[free] = Some(account);
            return TenantId(free);
        }
        self.accounts.push(Some(account));
        TenantId(self.accounts.len() - 1)
    }

    /// The tenant will not ask again. It must neither hold a lease nor wait for one.
    pub fn leave(&mut self, tenant: TenantId) {
        self.accounts[tenant.0] = None;
        self.reserved = self.reserved.filter(|reserved| reserved.expected.tenant != tenant);
    }

    /// Asks for a lease of about `budget`. [`advance`](Self::advance) grants it.
    pub fn request(&mut self, tenant: TenantId, class: Class, budget: Duration, now: Duration) {
        let virtual_now = self.virtual_now;
        let kept_free = self.reserved.take_if(|reserved| reserved.expected.tenant == tenant).is_some();
        let account = self.account(tenant);
        let gap = now.saturating_sub(account.released);
        account.gap = blend(account.gap, gap.min(4 * MOST_GAP));
        if kept_free {
            account.finish += gap;
        }
        let (start, budget) = (account.finish.max(virtual_now), budget.max(account.length));
        self.waiting.push(Waiting { tenant, class, budget, since: now, start });
    }

    /// Grants the lease to whoever is first, if the machine is free.
    pub fn advance(&mut self, now: Duration) -> Advance {
        let Some(index) = self.first(now).filter(|_| self.holder.is_none()) else { return Advance::Nothing };
        let first = self.waiting[index];
        let still =
            |reserved: &Reserved| now < reserved.until && reserved.expected.rank(now) < first.rank(now);
        self.reserved = self.reserved.filter(still);
        if let Some(reserved) = self.reserved {
            return Advance::ReservedUntil(reserved.until);
        }
        self.waiting.swap_remove(index);
        let Waiting { tenant, class, budget, start, .. } = first;
        self.virtual_now = self.virtual_now.max(start);
        self.holder = Some(Holder { tenant, class, budget, from: now, start });
        Advance::Granted(tenant)
    }

    /// Whether the tenant has the lease.
    pub fn holds(&self, tenant: TenantId) -> bool {
        self.holder.is_some_and(|holder| holder.tenant == tenant)
    }

    /// The lease ends.
    pub fn release(&mut self, now: Duration) {
        let Some(holder) = self.charge(now) else { return };
        self.holder = None;
        let account = self.account(holder.tenant);
        account.released = now;
        let until = now + (2 * account.gap).min(MOST_GAP);
        if self.worth_waiting_for(&holder, now) {
            self.reserved = Some(Reserved { expected: holder.again(now), until });
        }
    }

    /// Ends the holder's lease, and asks for another one on its behalf, if someone who waits ranks before it; whether it
    /// did. Called between the parts of a long computation.
    pub fn yield_lease(&mut self, now: Duration) -> bool {
        let (Some(first), Some(holder)) = (self.first(now), self.charge(now)) else { return false };
        let again = holder.again(now);
        if again.rank(now) <= self.waiting[first].rank(now) {
            return false;
        }
        self.holder = None;
        self.account(holder.tenant).released = now;
        self.waiting.push(again);
        true
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Charges the holder for the time since the last charge, and returns what is known of it after that.
    fn charge(&mut self, now: Duration) -> Option<Holder> {
        let mut holder = self.holder?;
        let spent = now.saturating_sub(holder.from);
        holder.start += spent;
        holder.from = now;
        self.holder = Some(holder);
        let account = self.account(holder.tenant);
        account.finish = holder.start;
        account.length = if account.length.is_zero() { spent } else { blend(account.length, spent) };
        Some(holder)
    }

    /// Whether a holder that has just finished would go before all that wait if it asked again, and soon will.
    fn worth_waiting_for(&mut self, holder: &Holder, now: Duration) -> bool {
        let Some(first) = self.first(now).map(|index| self.waiting[index]) else { return false };
        let account = self.account(holder.tenant);
        // Behind by a whole lease: otherwise it would be someone else's turn after the next one anyway, and two tenants
        // of the same kind would wait for each other after every lease.
        let behind = account.finish + account.length <= first.start;
        let before = holder.class < first.class || (holder.class == first.class && behind);
        account.gap <= MOST_GAP && before && !first.overdue(now)
    }

    fn first(&self, now: Duration) -> Option<usize> {
        (0..self.waiting.len()).min_by_key(|&index| self.waiting[index].rank(now))
    }

    fn account(&mut self, tenant: TenantId) -> &mut Account {
        self.accounts[tenant.0].as_mut().expect("a tenant that has not left")
    }
}

/// A moving average over about four values.
fn blend(old: Duration, new: Duration) -> Duration {
    (old * 3 + new) / 4
}
