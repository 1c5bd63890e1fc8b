//! Rows 6 and 7: what one key's holder can take from another, or learn about them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Client, new_text, read};
use crate::home::{client, server_with_keys};
use crate::names::{ALICE, MALLORY};
use crate::{attacks, my_turn};

/// How long both ask for as much as they can get.
const CONTEST: Duration = Duration::from_secs(10);

/// Requests of the attacker at once, and of the honest client.
const ATTACKING: usize = 24;
const HONEST: usize = 8;

/// The least share of the honest client, in percent, that a short contest must show; the long form measures it.
const LEAST_SHARE: usize = 35;

#[test]
fn new_session_names_gain_nothing() {
    let _turn = my_turn();
    let Some(server) = server_with_keys(&[]) else { return };
    let contest = contest(client(&server), CONTEST);
    let share = contest.honest_share();
    println!("row 6: {contest:?}, the honest client keeps {share} %");
    assert!(share >= LEAST_SHARE, "{contest:?}");
}

/// Requests that each side finished.
#[derive(Debug)]
pub struct Contest {
    pub honest: usize,
    pub attacker: usize,
}

impl Contest {
    /// In percent.
    pub fn honest_share(&self) -> usize {
        self.honest * 100 / (self.honest + self.attacker).max(1)
    }
}

/// Both sides send the same work; the attacker more at once, and each time under another session's name.
pub fn contest(client: Client, lasting: Duration) -> Contest {
    let (honest, attacker, over) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let alice = || {
        let body = json!({"prompt": new_text(50), "max_tokens": 2, "ignore_eos": true});
        client.with_key(ALICE).post("/v1/completions", &body).status
    };
    let mallory = || read(attacks::new_session(&client.with_key(MALLORY))).status;
    let repeat = |ask: &dyn Fn() -> u16, finished: &AtomicUsize| {
        while !over.load(Ordering::Relaxed) {
            // What ends after the contest counts for nobody.
            let counts = ask() == 200 && !over.load(Ordering::Relaxed);
            finished.fetch_add(usize::from(counts), Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        (0..ATTACKING).for_each(|_| drop(scope.spawn(|| repeat(&mallory, &attacker))));
        (0..HONEST).for_each(|_| drop(scope.spawn(|| repeat(&alice, &honest))));
        wait(lasting);
        over.store(true, Ordering::Relaxed);
    });
    Contest { honest: honest.into_inner(), attacker: attacker.into_inner() }
}

fn wait(lasting: Duration) {
    let end = Instant::now() + lasting;
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Tokens of the prompt that were computed before.
fn cached(client: &Client, prompt: &str, more: &Value) -> u64 {
    let mut body = json!({"prompt": prompt, "max_tokens": 1});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let answer = client.post("/v1/completions", &body);
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
}

#[test]
fn prompts_of_another_key_are_never_seen_in_the_cache() {
    let _turn = my_turn();
    let Some(server) = server_with_keys(&[]) else { return };
    let (alice, mallory) = (client(&server).with_key(ALICE), client(&server).with_key(MALLORY));
    let (secret, plain) = (new_text(100), json!({}));
    assert_eq!(cached(&alice, &secret, &plain), 0);
    assert_eq!(cached(&mallory, &secret, &plain), 0, "another key's prompt shows");
    assert!(cached(&alice, &secret, &plain) > 0, "one's own prompt is found again");
    for guess in [json!({"cache_salt": "alice"}), json!({"user": "alice"})] {
        let seen = cached(&mallory, &format!("{secret} and"), &guess);
        let own = cached(&mallory, &secret, &plain);
        assert!(seen <= own, "{guess} shows {seen} tokens");
    }
}

#[test]
fn a_cache_salt_keeps_prompts_apart() {
    let _turn = my_turn();
    let Some(server) = server_with_keys(&[]) else { return };
    let (alice, secret) = (client(&server).with_key(ALICE), new_text(100));
    let salted = |salt: &str| json!({"cache_salt": salt});
    assert_eq!(cached(&alice, &secret, &salted("one")), 0);
    assert_eq!(cached(&alice, &secret, &salted("two")), 0, "another salt's prompt shows");
    assert_eq!(cached(&alice, &secret, &json!({})), 0, "a salted prompt shows without its salt");
    assert!(cached(&alice, &secret, &salted("one")) > 0, "the same salt finds it again");
}
