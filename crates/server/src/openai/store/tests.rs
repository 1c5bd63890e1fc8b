//! Against a plain list: what is kept, what is forgotten first, and that bytes are given back.

use proptest::prelude::*;
use serde_json::json;

use super::*;

const BOUNDS: Bounds = Bounds {
    tenant: Bound { objects: 4, bytes: 6000, background: 2 },
    all: Bound { objects: 6, bytes: 9000, background: 3 },
    age: 100,
};

fn tenant(number: u8) -> Tenant {
    Tenant::of_key(&[number; 32])
}

fn response(store: &Store, owner: Tenant, id: &str, text: &str, now: u64) {
    let input = store.admit(owner, &[json!({"id": format!("in_{id}"), "text": text})], now).unwrap();
    let output = vec![json!({"id": format!("out_{id}"), "text": text})];
    let body = json!({"id": id, "output": null});
    let new = NewResponse { id: id.into(), body, before: Items::new(), input, output, cancel: None };
    store.put(owner, new, now).unwrap();
}

fn running(id: &str) -> NewResponse {
    NewResponse {
        id: id.into(),
        body: json!({"id": id, "background": true}),
        before: Items::new(),
        input: Items::new(),
        output: Vec::new(),
        cancel: Some(Cancel::default()),
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put { tenant: u8, bytes: usize },
    Get { tenant: u8, id: usize },
    Delete { tenant: u8, id: usize },
    Wait { seconds: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3u8, 0..2000usize).prop_map(|(tenant, bytes)| Step::Put { tenant, bytes }),
        3 => (0..3u8, 0..20usize).prop_map(|(tenant, id)| Step::Get { tenant, id }),
        1 => (0..3u8, 0..20usize).prop_map(|(tenant, id)| Step::Delete { tenant, id }),
        1 => (0..80u64).prop_map(|seconds| Step::Wait { seconds }),
    ]
}

/// One thing that is kept, in a list that is ordered by last use.
struct Plain {
    tenant: u8,
    id: String,
    bytes: usize,
    used_at: u64,
}

/// The same as a list, oldest use first.
#[derive(Default)]
struct Model(Vec<Plain>);

impl Model {
    fn bytes(&self, tenant: Option<u8>) -> usize {
        self.of(tenant).map(|one| one.bytes).sum()
    }

    fn of(&self, tenant: Option<u8>) -> impl Iterator<Item = &Plain> {
        self.0.iter().filter(move |one| tenant.is_none_or(|tenant| one.tenant == tenant))
    }

    /// Room beside so many bytes that are in use.
    fn make_room(&mut self, tenant: u8, held: usize) {
        for (whose, bound) in [(Some(tenant), BOUNDS.tenant), (None, BOUNDS.all)] {
            while self.of(whose).count() > bound.objects || self.bytes(whose) + held > bound.bytes {
                let oldest = self.0.iter().position(|one| whose.is_none_or(|tenant| one.tenant == tenant));
                self.0.remove(oldest.expect("something is too much"));
            }
        }
    }

    fn take(&mut self, tenant: u8, id: &str) -> Option<Plain> {
        let at = self.0.iter().position(|one| one.tenant == tenant && one.id == id)?;
        Some(self.0.remove(at))
    }
}

fn item_bytes(id: &str, text: &str) -> usize {
    json!({"id": id, "text": text}).to_string().len() + id.len() + item::OVERHEAD
}

proptest! {
    #[test]
    fn what_is_kept_is_what_a_list_ordered_by_use_keeps(steps in prop::collection::vec(step(), 1..60)) {
        let (store, mut model) = (Store::new(BOUNDS), Model::default());
        let (mut now, mut next) = (1000, 0);
        for step in steps {
            match step {
                Step::Put { tenant: number, bytes } => {
                    let id = format!("r{next}");
                    next += 1;
                    let text = "x".repeat(bytes);
                    response(&store, tenant(number), &id, &text, now);
                    // The input makes room first, then the response around it.
                    let input = item_bytes(&format!("in_{id}"), &text);
                    model.make_room(number, input);
                    let body = json!({"id": id, "output": null}).to_string().len();
                    let entry = id.len() + body + 2 * size_of::<usize>() + item::OVERHEAD;
                    let bytes = input + item_bytes(&format!("out_{id}"), &text) + entry;
                    model.0.push(Plain { tenant: number, id, bytes, used_at: now });
                    model.make_room(number, 0);
                }
                Step::Get { tenant: number, id } => {
                    let id = format!("r{id}");
                    let found = store.response(tenant(number), &id, now).is_some();
                    let known = model.take(number, &id);
                    prop_assert_eq!(found, known.is_some());
                    model.0.extend(known.map(|one| Plain { used_at: now, ..one }));
                }
                Step::Delete { tenant: number, id } => {
                    let id = format!("r{id}");
                    let found = store.delete_response(tenant(number), &id, now).is_some();
                    prop_assert_eq!(found, model.take(number, &id).is_some());
                }
                Step::Wait { seconds } => {
                    now += seconds;
                    model.0.retain(|one| one.used_at + BOUNDS.age >= now);
                }
            }
            prop_assert_eq!(store.at(now).len(), model.0.len());
            prop_assert_eq!(store.all.get(), model.bytes(None), "every byte is somebody's");
        }
    }
}

#[test]
fn items_are_given_back_with_their_last_holder() {
    let (store, owner) = (Store::new(BOUNDS), tenant(1));
    response(&store, owner, "r1", "first", 1);
    let first = store.response(owner, "r1", 1).unwrap();
    let new = NewResponse { before: first.whole(), ..running("r2") };
    store.put(owner, NewResponse { cancel: None, ..new }, 1).unwrap();
    let both = store.all.get();
    drop(first);
    store.delete_response(owner, "r1", 1).unwrap();
    assert!(store.all.get() < both, "the response itself is gone");
    let second = store.response(owner, "r2", 1).unwrap();
    assert_eq!(second.whole()[1].value()["text"], "first", "what was said is still there");
    drop(second);
    store.delete_response(owner, "r2", 1).unwrap();
    assert_eq!(store.all.get(), 0);
    assert!(store.at(2).shelves.is_empty(), "nothing is left of the tenant");
}

#[test]
fn what_runs_is_bounded_stays_and_ends_once() {
    let (store, owner) = (Store::new(BOUNDS), tenant(1));
    store.put(owner, running("a"), 1).unwrap();
    store.put(owner, running("b"), 1).unwrap();
    assert_eq!(store.put(owner, running("c"), 1).unwrap_err().kind, Kind::RateLimited);
    store.put(tenant(2), running("d"), 1).unwrap();
    assert!(store.put(tenant(2), running("e"), 1).is_err(), "there are three in all");
    for number in 0..9 {
        response(&store, owner, &format!("r{number}"), "x", 1);
    }
    let status = |id: &str| store.response(owner, id, 500).map(|kept| kept.value()["status"].clone());
    assert_eq!(status("a"), Some("queued".into()), "however old, and however many came after it");
    store.begin(owner, "a", 500);
    assert_eq!(status("a"), Some("in_progress".into()));
    store.cancel(owner, "a", 500).unwrap();
    assert_eq!(status("a"), Some("cancelled".into()));
    assert!(!store.finish(owner, NewResponse { cancel: None, ..running("a") }, 500), "it was cancelled");
    assert!(store.finish(owner, NewResponse { cancel: None, ..running("b") }, 500));
    assert!(!store.finish(owner, NewResponse { cancel: None, ..running("gone") }, 500));
    store.put(owner, running("f"), 500).unwrap();
}

#[test]
fn an_input_larger_than_what_is_kept_is_refused_and_costs_nothing() {
    let (store, owner) = (Store::new(BOUNDS), tenant(1));
    let long = json!({"id": "i", "text": "x".repeat(BOUNDS.tenant.bytes)});
    assert_eq!(store.admit(owner, &[long], 1).unwrap_err().kind, Kind::TooLarge);
    let half = || json!({"id": "i", "text": "x".repeat(BOUNDS.tenant.bytes / 2)});
    let held = store.admit(owner, &[half()], 1).unwrap();
    assert_eq!(store.admit(owner, &[half()], 1).unwrap_err().kind, Kind::Overloaded, "one is still in use");
    drop(held);
    assert_eq!(store.all.get(), 0);
    store.admit(owner, &[half()], 1).unwrap();
}

#[test]
fn of_items_with_the_same_id_the_last_used_is_meant() {
    let (store, owner) = (Store::new(BOUNDS), tenant(1));
    for (id, text) in [("a", "first"), ("b", "second"), ("c", "third")] {
        let input = store.admit(owner, &[json!({"id": "same", "text": text})], 1).unwrap();
        store.put(owner, NewResponse { input, cancel: None, ..running(id) }, 1).unwrap();
    }
    let found =
        |store: &Store| store.items(owner, &HashSet::from(["same"]), 1)["same"].value()["text"].clone();
    assert_eq!(found(&store), "third");
    store.response(owner, "b", 1).unwrap();
    assert_eq!(found(&store), "second");
}

#[test]
fn items_are_found_by_their_owner_only() {
    let store = Store::new(BOUNDS);
    response(&store, tenant(1), "r", "x", 1);
    let ids = HashSet::from(["in_r", "out_r", "other"]);
    assert_eq!(store.items(tenant(1), &ids, 1).len(), 2);
    assert!(store.items(tenant(2), &ids, 1).is_empty());
    assert!(store.response(tenant(2), "r", 1).is_none());
    assert!(store.delete_response(tenant(2), "r", 1).is_none() && store.cancel(tenant(2), "r", 1).is_none());
}
