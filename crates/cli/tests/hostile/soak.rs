//! The long form: honest clients alone, then with every attack mixed in, then alone again.
//!
//! `ROPEWAY_HOSTILE=long` runs it, `ROPEWAY_HOSTILE_SECONDS` says how long the attacks last (default 480).

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::client::{Answer, Client, LONGEST_WAIT, new_text, read};
use crate::figures::{FirstTokens, Statuses, print_first_tokens};
use crate::home::{client, server_with_keys};
use crate::names::{ALICE, MALLORY, MEMORY_IN_FLIGHT, MEMORY_IN_FLIGHT_VALUE, NIGHTLY, OPERATOR};
use crate::support::server::Server;
use crate::{attacks, memory, my_turn, tenants};

/// Honest clients who chat at once.
const CHATS: usize = 3;

/// How long an attacker pauses between two attacks: all of them together keep the server busy all the time.
const PAUSE: Duration = Duration::from_millis(500);

/// A first token may take this many times as long under attack, and memory may stay this much higher after it.
const MOST_DELAY: f64 = 2.0;
const MOST_LEFT: f64 = 1.1;

/// The share of an honest tenant, in percent.
const LEAST_SHARE: usize = 45;

/// A phase with its clients: they ask until it is over.
struct Phase<'s> {
    client: Client,
    over: AtomicBool,
    first: &'s FirstTokens,
    statuses: &'s Statuses,
}

impl Phase<'_> {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn chats(&self) {
        let alice = self.client.with_key(ALICE);
        while !self.is_over() {
            match alice.first_token(&[("x-priority", "interactive")]) {
                Ok(took) => self.first.add(took),
                Err(answer) => self.statuses.add("chat", &answer),
            }
        }
    }

    /// Other honest work: structured answers, long prompts, counts of tokens, and the operator's look at the metrics.
    fn honest_mix(&self) {
        let alice = self.client.with_key(ALICE);
        let shape = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]});
        let asked: [(&str, Value); 3] = [
            ("/v1/completions", json!({"prompt": new_text(5), "max_tokens": 16, "guided_json": shape})),
            ("/v1/completions", json!({"prompt": new_text(400), "max_tokens": 16})),
            ("/tokenize", json!({"model": "m", "prompt": new_text(3000)})),
        ];
        while !self.is_over() {
            for (path, body) in &asked {
                self.statuses.add("honest", &alice.post(path, body));
            }
            self.statuses.add("metrics", &self.client.with_key(OPERATOR).get("/metrics"));
        }
    }

    /// Repeats an attack, reading what it is answered.
    fn attack(&self, who: &'static str, act: impl Fn() -> Answer) {
        while !self.is_over() {
            self.statuses.add(who, &act());
            std::thread::sleep(PAUSE);
        }
    }

    /// Repeats an attack whose client leaves after the pause.
    fn attack_and_leave(&self, act: impl Fn() -> Vec<TcpStream>) {
        while !self.is_over() {
            let streams = act();
            std::thread::sleep(PAUSE);
            drop(streams);
        }
    }
}

/// The chats, and the mix beside them.
fn honest_phase(phase: &Phase<'_>, lasting: Duration) {
    std::thread::scope(|scope| {
        (0..CHATS).for_each(|_| drop(scope.spawn(|| phase.chats())));
        scope.spawn(|| phase.honest_mix());
        std::thread::sleep(lasting);
        phase.over.store(true, Ordering::Relaxed);
    });
}

/// The same with all attacks.
fn attacked_phase(phase: &Phase<'_>, lasting: Duration) {
    let (mallory, nightly) = (phase.client.with_key(MALLORY), phase.client.with_key(NIGHTLY));
    let (zeros, tokens) = (attacks::many_zeros(), attacks::many_tokens());
    let grammars = attacks::endless_grammars();
    let compile_all =
        || -> Vec<TcpStream> { grammars.iter().map(|g| attacks::compile_without_end(&mallory, g)).collect() };
    std::thread::scope(|scope| {
        (0..CHATS).for_each(|_| drop(scope.spawn(|| phase.chats())));
        scope.spawn(|| phase.honest_mix());
        scope.spawn(|| phase.attack_and_leave(compile_all));
        for grammar in &grammars {
            scope.spawn(|| phase.attack("grammar", || read(attacks::compile_without_end(&mallory, grammar))));
        }
        for body in [&zeros, &tokens] {
            let post = || read(mallory.send("POST", "/v1/completions", &[], body));
            scope.spawn(move || phase.attack("body", post));
        }
        let tokenize = || {
            attacks::tokenize_and_leave(&mallory, 4);
            Vec::new()
        };
        scope.spawn(move || phase.attack_and_leave(tokenize));
        scope.spawn(move || phase.attack("rows", || read(attacks::many_rows(&nightly, 40))));
        (0..4).for_each(|_| {
            scope.spawn(move || phase.attack("sessions", || read(attacks::new_session(&mallory))));
        });
        let pull = || nightly.post("/api/pull", &json!({"model": "some/model"}));
        scope.spawn(move || phase.attack("pull", pull));
        std::thread::sleep(lasting);
        phase.over.store(true, Ordering::Relaxed);
    });
}

/// How long the attacks last, if the long form is wanted.
fn wanted() -> Option<Duration> {
    if std::env::var("ROPEWAY_HOSTILE").ok()? != "long" {
        return None;
    }
    let seconds = std::env::var("ROPEWAY_HOSTILE_SECONDS").ok().and_then(|text| text.parse().ok());
    Some(Duration::from_secs(seconds.unwrap_or(480)))
}

#[test]
fn soak() {
    let Some(lasting) = wanted() else { return println!("skipped: ROPEWAY_HOSTILE=long runs it") };
    let _turn = my_turn();
    let more = [MEMORY_IN_FLIGHT, MEMORY_IN_FLIGHT_VALUE, "--drain-timeout", "3"];
    let Some(mut server) = server_with_keys(&more) else { return };
    let report = Report::measure(&server, lasting);
    report.print();
    let ended = end(&mut server);
    report.judge();
    assert!(ended < Duration::from_secs(4), "ended {ended:?} after SIGTERM");
}

/// Everything that was measured.
struct Report {
    alone: FirstTokens,
    attacked: FirstTokens,
    statuses: Statuses,
    memory: memory::Memory,
    contest: tenants::Contest,
}

impl Report {
    fn measure(server: &Server, lasting: Duration) -> Report {
        let (alone, attacked, statuses) =
            (FirstTokens::default(), FirstTokens::default(), Statuses::default());
        let client = client(server);
        let phase = |first| Phase { client, over: AtomicBool::new(false), first, statuses: &statuses };
        let short = (lasting / 8).max(Duration::from_secs(5));
        honest_phase(&phase(&alone), short);
        let mut memory = memory::during(server, || attacked_phase(&phase(&attacked), lasting));
        settle(&client);
        let contest = tenants::contest(client, short);
        settle(&client);
        memory.after = memory::now(server);
        Report { alone, attacked, statuses, memory, contest }
    }

    fn delay(&self, share: f64) -> f64 {
        self.attacked.quantile(share) / self.alone.quantile(share)
    }

    fn print(&self) {
        print_first_tokens("alone", &self.alone);
        print_first_tokens("under attack", &self.attacked);
        println!("ratio           p50 {:.2}   p99 {:.2}", self.delay(0.5), self.delay(0.99));
        let memory = &self.memory;
        println!(
            "memory          {:.0} MB before   {:.0} MB peak   {:.0} MB after",
            memory.before, memory.peak, memory.after
        );
        println!(
            "contest         {:?}, the honest tenant keeps {} %",
            self.contest,
            self.contest.honest_share()
        );
        println!("answers by who asked, with their status:");
        self.statuses.print();
        println!("5xx other than 503, and no answer: {}", self.statuses.failures());
    }

    fn judge(&self) {
        assert_eq!(self.statuses.failures(), 0, "5xx other than 503");
        assert!(self.delay(0.5) <= MOST_DELAY, "first tokens took {:.2} times as long", self.delay(0.5));
        assert!(self.memory.after <= self.memory.before * MOST_LEFT, "{:?}", self.memory);
        assert!(self.contest.honest_share() >= LEAST_SHARE, "{:?}", self.contest);
    }
}

/// Waits until nothing is left of the attacks; what is left after a while shows in the memory and in the end.
fn settle(client: &Client) {
    let began = Instant::now();
    while !server_is_idle(client) && began.elapsed() < LONGEST_WAIT {
        std::thread::sleep(PAUSE);
    }
}

/// Nobody runs or waits.
fn server_is_idle(client: &Client) -> bool {
    let page = client.with_key(OPERATOR).get("/metrics").body;
    let busy = ["ropeway_num_requests_running{", "ropeway_num_requests_waiting{"];
    let lines = page.lines().filter(|line| busy.iter().any(|name| line.starts_with(name)));
    lines.map(|line| line.rsplit(' ').next().unwrap_or("1")).all(|count| count == "0")
}

/// Ends the server by a signal; how long that took.
fn end(server: &mut Server) -> Duration {
    let began = Instant::now();
    kill(Pid::from_raw(server.pid() as i32), Signal::SIGTERM).unwrap();
    let ended = server.ends_within(Duration::from_secs(30));
    println!("end             {ended:?} after SIGTERM");
    ended.unwrap_or_else(|| began.elapsed())
}
