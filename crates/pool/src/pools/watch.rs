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
type Joined = BTreeMap<String, (Arc<Lane>, UpstreamId)>;

/// Looks after upstream `index`.
pub async fn watch(pools: Arc<Pools>, index: usize) {
    let upstream = pools.known[index].upstream.clone();
    let mut joined = Joined::new();
    pools.note_awaited();
    loop {
        match upstream.describe().await {
            Ok(description) => {
                pools.take(&upstream, &description, &mut joined).await;
                let Description { kind, version, .. } = description;
                pools.tell(index, Contact::Up { kind, version });
                pools.known[index].was_reached.store(true, Ordering::Relaxed);
                pools.note_awaited();
                let why = attend(&upstream, &joined).await;
                pools.tell(index, Contact::Down { why });
            }
            Err(why) => pools.tell(index, Contact::Down { why }),
        }
        tokio::time::sleep(KEEN).await;
    }
}

/// Probes an upstream until it does not answer; why not.
async fn attend(upstream: &Upstream, joined: &Joined) -> UpstreamError {
    loop {
        if let Err(why) = upstream.healthy().await {
            for (lane, id) in joined.values() {
                lane.probed(*id, Probe::Down, Some(why.to_string()));
            }
            return why;
        }
        let load = upstream
            .reported_load()
            .await
            .map_or(UP, |load| Probe::Up { running: Some(load.running), waiting: Some(load.waiting) });
        for (lane, id) in joined.values() {
            lane.probed(*id, load, None);
        }
        tokio::time::sleep(CALM).await;
    }
}

impl Pools {
    fn note_awaited(&self) {
        let never = self.known.iter().filter(|known| !known.was_reached.load(Ordering::Relaxed));
        self.host.awaits(never.map(|known| known.upstream.name().to_owned()).collect());
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
        let wanted = &upstream.settings().models;
        let offered =
            description.models.iter().filter(|model| wanted.is_empty() || wanted.contains(&model.id));
        let offered: Vec<_> = offered.collect();
        for missing in wanted.iter().filter(|name| !offered.iter().any(|model| model.id == **name)) {
            tracing::warn!(target: "pool", upstream = upstream.name(), model = missing, "the upstream does not have this model");
        }
        let offered: BTreeMap<_, _> =
            offered.into_iter().map(|model| (served_name(&model.id), model)).collect();
        let gone: Vec<_> = joined.keys().filter(|name| !offered.contains_key(*name)).cloned().collect();
        for name in gone {
            self.part(&name, joined);
        }
        for (name, model) in offered {
            if let Some((lane, id)) = joined.get(&name) {
                lane.probed(*id, UP, None);
            } else if let Some(lane) = self.lane_for(upstream, &name, description.kind, model).await {
                let id = lane.join(upstream.clone(), model.clone());
                joined.insert(name, (lane, id));
            }
        }
    }

    fn part(&self, name: &str, joined: &mut Joined) {
        let Some((lane, id)) = joined.remove(name) else { return };
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
        let _one_at_a_time = self.introductions.lock().await;
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
fn served_name(id: &str) -> String {
    let path = Path::new(id);
    let is_file = path.extension().is_some_and(|extension| extension == "gguf");
    let stem = path.file_stem().and_then(|stem| stem.to_str()).filter(|_| is_file);
    stem.unwrap_or(id).to_owned()
}

/// Whether an upstream can share a model's work with those that had it first.
fn fits(upstream: &Upstream, kind: Kind, model: &OfferedModel, speech: Speech) -> bool {
    let fits = speech != Speech::Tokens || kind.speaks_tokens();
    if !fits {
        tracing::warn!(
            target: "pool", upstream = upstream.name(), model = model.id, kind = kind.name(),
            "left out: other upstreams of this model speak tokens, and this one does not"
        );
    }
    fits
}
