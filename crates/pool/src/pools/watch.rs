//! One upstream, looked after for as long as the server runs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Contact, Found, Pools, Served, Speech};
use crate::dispatch::{Probe, UpstreamId};
use crate::error::UpstreamError;
use crate::lane::Lane;
use crate::settings::Kind;
use crate::upstream::{Description, OfferedModel, Upstream};

/// Time between two probes of an upstream that answers.
const CALM: Duration = Duration::from_secs(2);

/// Time between two probes of an upstream that does not: it should not be missed for long once it is back.
const KEEN: Duration = Duration::from_millis(500);

/// It answers, and says nothing about its load.
const UP: Probe = Probe::Up { running: None, waiting: None };

/// The models of this upstream that joined their lanes.
type Joined = BTreeMap<String, Membership>;

/// A model of an upstream in its lane.
struct Membership {
    lane: Arc<Lane>,
    id: UpstreamId,
    /// As it was when it joined.
    model: OfferedModel,
}

/// Probes between two looks at the models of an upstream that answers: some load and unload them while they run.
const PROBES_BETWEEN_LOOKS: usize = 15;

/// Looks after upstream `index`.
pub async fn watch(pools: Arc<Pools>, index: usize) {
    let upstream = pools.known[index].upstream.clone();
    let mut joined = Joined::new();
    pools.note_awaited();
    loop {
        let why = pools.attend(index, &upstream, &mut joined).await;
        for Membership { lane, id, .. } in joined.values() {
            lane.probed(*id, Probe::Down, Some(why.to_string()));
        }
        upstream.forget_connections();
        pools.tell(index, Contact::Down { why });
        tokio::time::sleep(KEEN).await;
    }
}

/// What an upstream is and has, once it is ready: one that still loads its models lists none of them.
async fn describe(upstream: &Upstream) -> Result<Description, UpstreamError> {
    // How to ask whether it is ready depends on what it is.
    upstream.describe().await?;
    upstream.healthy().await?;
    upstream.describe().await
}

/// Waits for the next probe; how it went.
async fn probe(upstream: &Upstream, joined: &Joined) -> Result<(), UpstreamError> {
    tokio::time::sleep(CALM).await;
    upstream.healthy().await?;
    let load = upstream
        .reported_load()
        .await
        .map_or(UP, |load| Probe::Up { running: Some(load.running), waiting: Some(load.waiting) });
    for Membership { lane, id, .. } in joined.values() {
        lane.probed(*id, load, None);
    }
    Ok(())
}

impl Pools {
    /// Looks after an upstream until it does not answer; why not.
    async fn attend(
        self: &Arc<Self>,
        index: usize,
        upstream: &Upstream,
        joined: &mut Joined,
    ) -> UpstreamError {
        loop {
            let description = match describe(upstream).await {
                Ok(description) => description,
                Err(why) => return why,
            };
            self.take(upstream, &description, joined).await;
            let Description { kind, version, .. } = description;
            self.tell(index, Contact::Up { kind, version });
            self.known[index].was_reached.store(true, Ordering::Relaxed);
            self.note_awaited();
            for _ in 0..PROBES_BETWEEN_LOOKS {
                if let Err(why) = probe(upstream, joined).await {
                    return why;
                }
            }
        }
    }

    fn note_awaited(&self) {
        let never = self.known.iter().filter(|known| !known.was_reached.load(Ordering::Relaxed));
        self.host.awaits(never.count());
    }

    /// Notes whether an upstream answers, and tells the operator when that changes.
    fn tell(&self, index: usize, contact: Contact) {
        let known = &self.known[index];
        let upstream = known.upstream.name();
        if *known.contact.borrow() != contact {
            match &contact {
                Contact::Up { kind, version } => {
                    let version = version.as_deref();
                    tracing::info!(target: "pool", upstream, kind = kind.name(), version, "the upstream answers");
                }
                Contact::Down { why } => tracing::warn!(target: "pool", upstream, "{why}"),
                Contact::Trying => {}
            }
        }
        known.contact.send_replace(contact);
    }

    /// Brings the lanes up to date with what an upstream has now.
    async fn take(self: &Arc<Self>, upstream: &Upstream, description: &Description, joined: &mut Joined) {
        let offered: BTreeMap<_, _> =
            description.models.iter().map(|model| (served_name(&model.id), model)).collect();
        let is_known = |name: &String, joined: &Joined| {
            joined.get(name).is_some_and(|joined| offered.get(name) == Some(&&joined.model))
        };
        for (name, Membership { lane, id, .. }) in &*joined {
            if is_known(name, joined) {
                lane.probed(*id, UP, None);
            }
        }
        if joined.keys().all(|name| is_known(name, joined))
            && offered.keys().all(|name| joined.contains_key(name))
        {
            return;
        }
        // Models come and go one after another: two upstreams may offer the same one at the same time.
        let _one_at_a_time = self.introductions.lock().await;
        let gone: Vec<_> = joined.keys().filter(|name| !is_known(name, joined)).cloned().collect();
        for name in gone {
            self.part(&name, joined);
        }
        for (name, model) in offered {
            if !joined.contains_key(&name)
                && let Some(lane) = self.lane_for(upstream, &name, description.kind, model).await
            {
                let id = lane.join(upstream.clone(), model.clone());
                joined.insert(name, Membership { lane, id, model: model.clone() });
            }
        }
    }

    /// An upstream has a model no longer, or has another one of the same name.
    fn part(&self, name: &str, joined: &mut Joined) {
        let Some(Membership { lane, id, .. }) = joined.remove(name) else { return };
        lane.leave(id);
        if lane.members().is_empty() {
            self.served().remove(name);
            self.host.withdraw(name);
        }
    }

    /// The lane that an upstream's model joins; none if it can't be served.
    async fn lane_for(
        self: &Arc<Self>,
        upstream: &Upstream,
        name: &str,
        kind: Kind,
        model: &OfferedModel,
    ) -> Option<Arc<Lane>> {
        if let Some(Served { lane, speech }) = self.served().get(name).cloned() {
            return fits(upstream, kind, model, speech).then_some(lane);
        }
        let lane = Lane::start(name, &self.dispatch);
        let found = Found { upstream: upstream.clone(), kind, model: model.clone(), lane: Arc::clone(&lane) };
        let host = Arc::clone(&self.host);
        let introduced = tokio::task::spawn_blocking(move || host.introduce(&found)).await;
        match introduced.unwrap_or_else(|_| Err("serving it failed on a bug of Ropeway".into())) {
            Ok(speech) => {
                self.served().insert(name.to_owned(), Served { lane: Arc::clone(&lane), speech });
                Some(lane)
            }
            Err(why) => {
                tracing::warn!(target: "pool", upstream = upstream.name(), model = name, "not served: {why}");
                None
            }
        }
    }
}

/// What clients call a model: a file is called by its name without the folders that it lies in, as local ones are.
pub fn served_name(id: &str) -> String {
    let path = Path::new(id);
    let is_file = path.extension().is_some_and(|extension| extension == "gguf");
    let stem = path.file_stem().and_then(|stem| stem.to_str()).filter(|_| is_file);
    stem.unwrap_or(id).to_owned()
}

/// Whether an upstream can share a model's work with those that had it first.
fn fits(upstream: &Upstream, kind: Kind, model: &OfferedModel, speech: Speech) -> bool {
    let fits = match speech {
        Speech::Tokens => kind.speaks_tokens() && model.embeds != Some(true),
        Speech::Text => model.embeds != Some(true),
        Speech::Vectors => model.embeds != Some(false),
    };
    if !fits {
        tracing::warn!(
            target: "pool", upstream = upstream.name(), model = model.id, kind = kind.name(),
            "left out: other upstreams serve this model as {}, and this one can't", speech.name()
        );
    }
    fits
}
