//! All upstreams of a server: what each offers, whether it is up, and the lanes of the models they have.
//!
//! ```text
//! watch (a task per upstream)   describe ─> its models join their lanes ─> probe, probe, ... ─> down ─> describe again
//! ```
//! Who serves the models learns of a new one by [`Host::introduce`]. Must never: end because an upstream can't be reached; it may
//! start later than this server.

mod watch;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch as channel;

pub use self::watch::served_name;

use crate::dispatch::{Settings, UpstreamStatus};
use crate::error::UpstreamError;
use crate::lane::{Lane, Member};
use crate::settings::{Kind, UpstreamSettings};
use crate::upstream::{OfferedModel, Upstream};

/// How a model is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speech {
    /// Prompts and answers are token ids; its tokenizer is here.
    Tokens,
    /// Conversations and answers are text.
    Text,
    /// It embeds or ranks.
    Vectors,
}

impl Speech {
    /// What a person calls it.
    pub fn name(self) -> &'static str {
        match self {
            Speech::Tokens => "tokens",
            Speech::Text => "text",
            Speech::Vectors => "vectors",
        }
    }
}

/// A model that an upstream was the first to offer.
#[derive(Clone, Debug)]
pub struct Found {
    /// The upstream.
    pub upstream: Upstream,
    /// What it is.
    pub kind: Kind,
    /// The model.
    pub model: OfferedModel,
    /// Its queue and upstreams.
    pub lane: Arc<Lane>,
}

/// Who serves what the upstreams have.
pub trait Host: Send + Sync + 'static {
    /// Serves a model that was found; how, or why not. May block: a tokenizer may have to be fetched.
    fn introduce(&self, found: &Found) -> Result<Speech, String>;

    /// No upstream has the model any more.
    fn withdraw(&self, name: &str);

    /// So many upstreams were never reached, and nobody knows their models. Told whenever that changes.
    fn awaits(&self, upstreams: usize);
}

/// What is known about an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contact {
    /// It was not reached yet.
    Trying,
    /// It answered lately.
    Up {
        /// What it is.
        kind: Kind,
        /// Its version, if it says.
        version: Option<String>,
    },
    /// It did not answer lately.
    Down {
        /// Why.
        why: UpstreamError,
    },
}

/// A model of a server's upstreams.
#[derive(Clone, Debug)]
struct Served {
    lane: Arc<Lane>,
    speech: Speech,
}

/// An upstream, and what is known about it.
#[derive(Debug)]
struct Known {
    upstream: Upstream,
    contact: channel::Sender<Contact>,
    /// Whether it ever answered: its models are known then.
    was_reached: AtomicBool,
}

/// All upstreams of a server.
pub struct Pools {
    known: Vec<Known>,
    served: Mutex<BTreeMap<String, Served>>,
    /// Models are introduced one after another: two upstreams may offer the same one at the same time.
    introductions: tokio::sync::Mutex<()>,
    host: Arc<dyn Host>,
    dispatch: Settings,
}

/// A member of a lane, for operators.
#[derive(Clone, Debug)]
pub struct MemberReport {
    /// The model, as clients call it.
    pub model: Arc<str>,
    /// How it is served.
    pub speech: Speech,
    /// The upstream.
    pub member: Arc<Member>,
    /// How it does.
    pub status: UpstreamStatus,
}

/// A lane, for operators.
#[derive(Clone, Debug)]
pub struct LaneReport {
    /// The model, as clients call it.
    pub model: Arc<str>,
    /// Requests that wait.
    pub waiting: usize,
    /// What was last said about an upstream that failed, if none is up.
    pub outage: Option<String>,
}

/// An upstream, for operators.
#[derive(Clone, Debug)]
pub struct UpstreamReport {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub url: String,
    /// Whether it answers.
    pub contact: Contact,
}

impl Pools {
    /// Begins to look after upstreams. Must be called within a runtime.
    pub fn start(
        upstreams: Vec<UpstreamSettings>,
        dispatch: Settings,
        host: Arc<dyn Host>,
    ) -> Result<Arc<Self>, UpstreamError> {
        let known = upstreams.into_iter().map(|settings| {
            let upstream = Upstream::new(settings)?;
            Ok(Known {
                upstream,
                contact: channel::Sender::new(Contact::Trying),
                was_reached: AtomicBool::new(false),
            })
        });
        let pools = Arc::new(Self {
            known: known.collect::<Result<_, UpstreamError>>()?,
            served: Mutex::default(),
            introductions: tokio::sync::Mutex::default(),
            host,
            dispatch,
        });
        for index in 0..pools.known.len() {
            tokio::spawn(watch::watch(Arc::clone(&pools), index));
        }
        Ok(pools)
    }

    fn served(&self) -> MutexGuard<'_, BTreeMap<String, Served>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until every upstream was asked once, whether it answered or not.
    pub async fn first_contact(&self) {
        for known in &self.known {
            let mut contact = known.contact.subscribe();
            // The sender lives as long as this.
            let _ = contact.wait_for(|contact| *contact != Contact::Trying).await;
        }
    }

    /// Waits until this upstream answers.
    pub async fn reached(&self, name: &str) {
        let Some(known) = self.known.iter().find(|known| known.upstream.name() == name) else {
            return std::future::pending().await;
        };
        let mut contact = known.contact.subscribe();
        let _ = contact.wait_for(|contact| matches!(contact, Contact::Up { .. })).await;
    }

    /// Each upstream and whether it answers.
    pub fn upstreams(&self) -> Vec<UpstreamReport> {
        let report = |known: &Known| UpstreamReport {
            name: known.upstream.name().to_owned(),
            url: known.upstream.settings().url.to_string(),
            contact: known.contact.borrow().clone(),
        };
        self.known.iter().map(report).collect()
    }

    /// Whether upstreams compute this model.
    pub fn serves(&self, model: &str) -> bool {
        self.served().contains_key(model)
    }

    /// Each model's queue.
    pub fn lanes(&self) -> Vec<LaneReport> {
        let report = |served: &Served| LaneReport {
            model: Arc::clone(served.lane.model()),
            waiting: served.lane.load().queued,
            outage: served.lane.outage(),
        };
        self.served().values().map(report).collect()
    }

    /// Each model at each upstream, and how it does there.
    pub fn members(&self) -> Vec<MemberReport> {
        let served: Vec<_> = self.served().values().cloned().collect();
        let of_lane = |Served { lane, speech }: Served| {
            let statuses = lane.statuses().into_iter();
            let model = Arc::clone(lane.model());
            statuses.map(move |(member, status)| MemberReport {
                model: Arc::clone(&model),
                speech,
                member,
                status,
            })
        };
        served.into_iter().flat_map(of_lane).collect()
    }
}
