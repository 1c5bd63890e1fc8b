//! What is tried on a pool.

use std::time::Duration;

use indicatif::ProgressBar;
use ropeway_engine::cost::CostModel;
use ropeway_pool::dispatch::Routing;

use super::crowd::{Crowd, CrowdPlan, Demand};
use super::outcome::PoolOutcome;
use super::plan::{Deaths, PoolPlan};
use super::world::World;

/// Share of the pool's capacity that is asked for, unless told.
const USUAL_LOAD: f64 = 0.7;

/// The same when there is too much, times the given load if that is more than 1.
const OVERLOAD: f64 = 1.5;

/// Share of users who belong to a few accounts, where there are such.
const HEAVY: f64 = 0.5;

/// Mean times between two deaths of an upstream that are tried; none besides.
const DEATHS: [u64; 2] = [600, 60];

/// How long a dead upstream takes to start again.
const DEAD: Duration = Duration::from_secs(20);

/// Something to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// Every way to choose upstreams, on the same users.
    Routing,
    /// Upstreams that die and come back.
    Failures,
    /// Half again more than the pool can do: everyone with an account of their own, and half of it from a few accounts.
    Overload,
}

/// Who comes, and how many.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The same seed gives the same users.
    pub seed: u64,
    /// How many come.
    pub users: usize,
    /// Share of the pool's capacity that they ask for.
    pub share: Option<f64>,
}

/// One run, and what it came to.
#[derive(Clone, Debug)]
pub struct Run {
    /// What differs from the other runs of its scenario.
    pub label: String,
    /// How many upstreams there were.
    pub servers: usize,
    /// Share of the pool's capacity that was asked for.
    pub load: f64,
    /// Which scenario it belongs to; `None` for a trace.
    pub scenario: Option<Scenario>,
    /// What it came to.
    pub outcome: PoolOutcome,
}

impl Scenario {
    /// All of them.
    pub const ALL: [Scenario; 3] = [Scenario::Routing, Scenario::Failures, Scenario::Overload];

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Scenario::Routing => "routing",
            Scenario::Failures => "failures",
            Scenario::Overload => "overload",
        }
    }

    /// Tries it.
    pub fn run(self, plan: &PoolPlan, load: &Load, routings: &[Routing], bar: &ProgressBar) -> Vec<Run> {
        let usual = load.share.unwrap_or(USUAL_LOAD);
        let trial = |plan: PoolPlan, label: String, share: f64, heavy: f64| {
            let outcome = try_users(&plan, load, share, heavy, bar, &label);
            Run { label, servers: plan.servers, load: share, scenario: Some(self), outcome }
        };
        match self {
            Scenario::Routing => {
                let with = |routing: &Routing| {
                    let mut plan = *plan;
                    plan.settings.routing = *routing;
                    trial(plan, routing.name().to_owned(), usual, 0.0)
                };
                routings.iter().map(with).collect()
            }
            Scenario::Failures => {
                let deaths = std::iter::once(None).chain(DEATHS.map(Some));
                let with = |seconds: Option<u64>| {
                    let every = seconds.map(Duration::from_secs);
                    let deaths = every.map(|every| Deaths { every, lasts: DEAD });
                    let label = seconds.map_or("never".to_owned(), |seconds| format!("{seconds} s"));
                    trial(PoolPlan { deaths, seed: load.seed, ..*plan }, label, usual, 0.0)
                };
                deaths.map(with).collect()
            }
            Scenario::Overload => {
                let too_much = load.share.unwrap_or(1.0).max(1.0) * OVERLOAD;
                let with = |(label, heavy): (&str, f64)| trial(*plan, label.to_owned(), too_much, heavy);
                [("own accounts", 0.0), ("8 accounts", HEAVY)].map(with).into()
            }
        }
    }
}

fn try_users(
    plan: &PoolPlan,
    load: &Load,
    share: f64,
    heavy: f64,
    bar: &ProgressBar,
    label: &str,
) -> PoolOutcome {
    let mut crowd = CrowdPlan { seed: load.seed, users: load.users, rate: 1.0, heavy };
    let demand = Demand::of(&crowd, &CostModel::known(plan.model.cost));
    crowd.rate = share * plan.servers as f64 / demand.seconds;
    super::begin(bar, (load.users as f64 * demand.requests) as usize, label.to_owned());
    World::new(plan, &mut Crowd::new(crowd)).run(|came| bar.set_position(came))
}
