use std::collections::HashMap;
use std::sync::Mutex;

use ropeway_engine::tier::{Stored, Transfer};
use serde_json::json;

use super::super::agent::{MOST_CONVERSATION_BYTES, Pinned};
use super::super::id::AgentId;
use super::state::{MOST_AGENTS, MOST_NAMES_IN_ALL, MOST_SESSIONS, SESSION_TTL};
use super::*;
use crate::guard::clients::Owner;

const NOW: u64 = 1_000_000;

fn tenant(number: u8) -> Tenant {
    Tenant::of_account(Owner::Address([10, 0, 0, number].into()))
}

fn key(number: u8, id: &str) -> AgentKey {
    AgentKey { tenant: tenant(number), id: AgentId::chosen(id).unwrap() }
}

fn new(ttl: u64) -> NewAgent {
    NewAgent { name: None, model: "m:1b".into(), messages: Messages::default(), ttl }
}

fn registry() -> Registry {
    Registry::new(Vec::new(), 1000)
}

/// The names of a conversation whose blocks begin with these letters.
fn names(blocks: &str) -> Vec<BlockHash> {
    let mut parent = BlockHash::root(b"");
    let next = |letter: char| {
        parent = parent.then(&[&[letter as u32]]);
        parent
    };
    blocks.chars().map(next).collect()
}

fn lesson(blocks: &str) -> Lesson {
    let figures = Figures { requests: 1, cached_tokens: 3, ..Figures::default() };
    Lesson { model: "m:1b".into(), names: names(blocks), tokens: blocks.len(), figures }
}

/// Pins everything.
#[derive(Debug, Default)]
struct Pins(Mutex<HashMap<String, usize>>);

impl Tier for Pins {
    fn holds(&self, _: BlockHash) -> bool {
        false
    }

    fn store(&self, _: BlockHash, _: &mut dyn FnMut(&mut [u8])) -> Stored {
        Stored::Refused
    }

    fn fetch(&self, _: Vec<BlockHash>) -> Box<dyn Transfer> {
        unreachable!("nothing is stored")
    }

    fn forget(&self, _: BlockHash) {}

    fn pin(&self, pin: &str, hashes: &[BlockHash], _: std::time::SystemTime) -> usize {
        self.0.lock().unwrap().insert(pin.into(), hashes.len());
        hashes.len()
    }

    fn flush(&self, _: Duration) {}
}

#[test]
fn an_id_is_taken_once_per_tenant() {
    let agents = registry();
    agents.create(&key(1, "a"), new(60), NOW).unwrap();
    let error = agents.create(&key(1, "a"), new(60), NOW).unwrap_err();
    assert_eq!((error.kind, error.code), (Kind::Conflict, Some("agent_exists")));
    agents.create(&key(2, "a"), new(60), NOW).unwrap();
    assert_eq!(agents.of(tenant(1), NOW).len(), 1);
    agents.remove(&key(1, "a"), NOW).unwrap();
    assert_eq!(agents.get(&key(1, "a"), NOW).unwrap_err().kind, Kind::NotFound);
    assert!(agents.get(&key(2, "a"), NOW).is_ok());
}

#[test]
fn what_is_not_used_expires_and_use_puts_that_off() {
    let agents = registry();
    agents.create(&key(1, "a"), new(60), NOW).unwrap();
    agents.create(&key(1, "b"), new(60), NOW).unwrap();
    agents.learn(&key(1, "s"), lesson("x"), None, NOW);
    agents.learn(&key(1, "b"), lesson("x"), None, NOW + 30);
    let left = |now| agents.of(tenant(1), now).into_iter().map(|one| one.key.id.to_string());
    assert_eq!(left(NOW + 59).collect::<Vec<_>>(), ["b", "a", "s"]);
    assert_eq!(left(NOW + 60).collect::<Vec<_>>(), ["b", "s"]);
    assert_eq!(left(NOW + 90).collect::<Vec<_>>(), ["s"]);
    assert_eq!(left(NOW + SESSION_TTL).count(), 0);
}

#[test]
fn an_agent_that_answers_does_not_expire_and_has_one_turn_at_a_time() {
    let agents = registry();
    agents.create(&key(1, "a"), new(60), NOW).unwrap();
    agents.claim(&key(1, "a"), NOW).unwrap();
    let error = agents.claim(&key(1, "a"), NOW + 100).unwrap_err();
    assert_eq!((error.kind, error.code), (Kind::Conflict, Some("agent_busy")));
    agents.release(&key(1, "a"));
    assert_eq!(agents.claim(&key(1, "a"), NOW + 100).unwrap_err().kind, Kind::NotFound);
}

#[test]
fn a_session_becomes_an_agent_and_keeps_what_is_known_about_it() {
    let (agents, pins) = (registry(), Pins::default());
    agents.learn(&key(1, "s"), lesson("abc"), Some(PinBoard { tier: &pins, block_bytes: 100 }), NOW);
    assert!(agents.claim(&key(1, "s"), NOW).is_err(), "nobody holds a session's conversation");
    assert!(pins.0.lock().unwrap().is_empty(), "sessions pin nothing");
    let made = agents.create(&key(1, "s"), new(600), NOW + 5).unwrap();
    assert_eq!((made.about.names.len(), made.about.figures.requests), (3, 1));
    agents.pin(&key(1, "s"), PinBoard { tier: &pins, block_bytes: 100 });
    assert_eq!(agents.get(&key(1, "s"), NOW).unwrap().about.pinned, Pinned { blocks: 3, bytes: 300 });
}

#[test]
fn a_tenants_agents_share_what_it_may_pin_and_others_have_their_own() {
    let (agents, pins) = (registry(), Pins::default());
    let board = PinBoard { tier: &pins, block_bytes: 100 };
    let pinned = |key: &AgentKey| {
        agents.create(key, new(60), NOW).unwrap();
        agents.learn(key, lesson("abcdefg"), Some(board), NOW);
        agents.get(key, NOW).unwrap().about.pinned.blocks
    };
    assert_eq!([key(1, "a"), key(1, "b"), key(1, "c"), key(2, "a")].map(|key| pinned(&key)), [7, 3, 0, 7]);
    agents.remove(&key(1, "a"), NOW).unwrap();
    agents.learn(&key(1, "b"), lesson("abcdefg"), Some(board), NOW);
    assert_eq!(agents.get(&key(1, "b"), NOW).unwrap().about.pinned.blocks, 7);
}

#[test]
fn only_blocks_that_nobody_else_begins_with_are_sent_away() {
    let agents = registry();
    for (key, blocks) in [(key(1, "a"), "system-a"), (key(1, "b"), "system-b"), (key(2, "a"), "sys")] {
        agents.learn(&key, lesson(blocks), None, NOW);
    }
    let own = |key: &AgentKey| agents.own_names(&agents.get(key, NOW).unwrap());
    assert_eq!(own(&key(1, "a")), names("system-a")[7..]);
    assert_eq!(own(&key(2, "a")), []);
}

#[test]
fn there_is_an_end_to_agents_sessions_and_conversations() {
    let agents = registry();
    for number in 0..MOST_AGENTS {
        agents.create(&key(1, &number.to_string()), new(600), NOW).unwrap();
    }
    let error = agents.create(&key(1, "more"), new(600), NOW).unwrap_err();
    assert_eq!(error.code, Some("too_many_agents"));
    agents.create(&key(2, "other"), new(600), NOW).unwrap();
    for number in 0..=MOST_SESSIONS as u64 {
        agents.learn(&key(2, &format!("s{number}")), lesson("x"), None, NOW + number);
    }
    assert_eq!(agents.get(&key(2, "s0"), NOW + 200).unwrap_err().kind, Kind::NotFound, "the oldest left");
    assert_eq!(agents.of(tenant(2), NOW + 200).len(), MOST_SESSIONS + 1);
    let text = "x".repeat(MOST_CONVERSATION_BYTES - 100);
    let messages = Messages::preamble(vec![json!({ "role": "user", "content": text })]).unwrap();
    let created = (0..20).map(|number| {
        let new = NewAgent { messages: messages.clone(), ..new(600) };
        agents.create(&key(3, &number.to_string()), new, NOW)
    });
    let refused = created.filter_map(Result::err).map(|error| error.code);
    assert_eq!(refused.collect::<Vec<_>>(), [Some("too_many_messages"); 4]);
}

#[test]
fn names_have_room_as_long_as_sessions_can_make_some() {
    let agents = registry();
    let long: String = (0..MOST_NAMES as u32 + 5).filter_map(|n| char::from_u32(0x1_0000 + n)).collect();
    let taught = lesson(&long);
    let sessions = MOST_NAMES_IN_ALL / MOST_NAMES;
    for number in 0..=sessions as u64 {
        agents.learn(&key(1, &format!("s{number}")), taught.clone(), None, NOW + number);
    }
    let listed = agents.of(tenant(1), NOW + 100);
    assert_eq!(listed.len(), sessions, "the oldest made room");
    assert!(listed.iter().all(|one| one.about.names.len() == MOST_NAMES));
}
