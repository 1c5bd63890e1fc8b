//! A seeded day in the life of an engine: what machine it runs on, who comes when, who leaves early, what breaks.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use ropeway_engine::cost::CostModel;
use ropeway_engine::{Class, ClientId, Pace, PolicyKind, Request, Settings};
use ropeway_executor::{Limits, SamplingParams, Seed, StepSizes};

use crate::disk::DiskNature;
use crate::mock::Fault;
use crate::rng::Rng;
use crate::shrink::Shrink;

/// Large enough that an answer hardly ever holds a poisoned token by chance.
const VOCAB: usize = 50_000;

/// Tokens that make things go wrong, one per kind of fault.
const POISON: [u32; 3] = [49_997, 49_998, 49_999];

/// When a reader goes away although its answer is not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// Before the engine has even seen the request.
    AtOnce,
    /// So long after submission, wherever the request is then.
    After(Duration),
    /// As soon as a part of its prompt is computed.
    OnPrefill,
    /// After so many tokens.
    AfterTokens(usize),
    /// As soon as a part of the prompt is computed, it wants no more of this one sequence.
    Drop(u32),
}

/// One request to come.
#[derive(Clone, Debug)]
pub struct Intent {
    /// When it is submitted.
    pub at: Duration,
    /// What is asked.
    pub request: Request,
    /// When its reader loses patience, if it does.
    pub leave: Option<Leave>,
}

/// A machine, its settings, its faults and its visitors.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What the executor can hold.
    pub limits: Limits,
    /// How the engine is set up.
    pub settings: Settings,
    /// What steps really cost; the engine has to find out.
    pub truth: CostModel,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// How often drafted tokens are wrong, if there is a drafter.
    pub drafts: Option<f64>,
    /// What kind of disk is below its memory, if there is one.
    pub disk: Option<DiskNature>,
    /// Requests, in the order of their submission.
    pub intents: Vec<Intent>,
}

impl Scenario {
    /// The scenario of a seed: always the same one.
    pub fn seeded(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let limits = machine(&mut rng);
        let settings = Settings {
            policy: rng.pick(&PolicyKind::ALL),
            pace: Pace::new(Duration::from_millis(rng.between(10, 200) as u64)),
            queue: rng.pick(&[4, 1024]),
            ..Settings::default()
        };
        let slowness = rng.pick(&[0.1, 1.0, 3.0]);
        let cost = [0.005, 0.0007, 0.0003, 3e-7, 1e-6].map(|seconds| seconds * slowness);
        let truth = CostModel::known(cost).with_sizes(limits.sizes);
        let trouble = rng.pick(&[Trouble::None, Trouble::Poison, Trouble::Hiccup, Trouble::Outage]);
        let faults = faults(&mut rng, trouble);
        let intents = visitors(&mut rng, &limits, trouble);
        let drafts = rng.pick(&[None, None, Some(0.1), Some(0.7)]);
        let disk = disk(&mut rng, &limits);
        Self { limits, settings, truth, faults, drafts, disk, intents }
    }

    /// Whether a text with these tokens in it is meant to fail.
    pub fn is_poison(&self, token: u32) -> bool {
        POISON.contains(&token)
    }
}

impl Shrink for Scenario {
    /// The requests, and after them the faults.
    fn parts(&self) -> usize {
        self.intents.len() + self.faults.len()
    }

    fn without(&self, parts: Range<usize>) -> Self {
        let kept = |index: usize| !parts.contains(&index);
        let intents = self.intents.iter().enumerate().filter(|(index, _)| kept(*index));
        let faults = self.faults.iter().enumerate().filter(|(index, _)| kept(self.intents.len() + index));
        Self {
            intents: intents.map(|(_, intent)| intent.clone()).collect(),
            faults: faults.map(|(_, fault)| *fault).collect(),
            ..self.clone()
        }
    }

    fn simplified(&self, part: usize) -> Option<Self> {
        let mut simpler = self.clone();
        let Intent { request, leave, .. } = simpler.intents.get_mut(part)?;
        let plain = Request {
            params: request.params.clone(),
            client: request.client,
            class: request.class,
            ..Request::greedy(request.prompt.clone(), request.max_tokens.unwrap_or(1))
        };
        let differs = leave.is_some() || options(request) != options(&plain);
        (*request, *leave) = (plain, None);
        differs.then_some(simpler)
    }

    fn shortened(&self, part: usize) -> Option<Self> {
        let mut smaller = self.clone();
        let Intent { request, .. } = smaller.intents.get_mut(part)?;
        let most = request.max_tokens.map(|most| most.div_ceil(2));
        let shorter = request.prompt.len() > 1 || most < request.max_tokens || request.n > 1;
        request.prompt.truncate(request.prompt.len().div_ceil(2));
        (request.max_tokens, request.n) = (most, request.n.div_ceil(2));
        shorter.then_some(smaller)
    }
}

/// What a request asks for beside its prompt and length, in words.
fn options(request: &Request) -> String {
    let Request { ends, score_prompt, n, salt, deadline, queue_timeout, .. } = request;
    let options = [
        (*n > 1).then(|| format!(", n {n}")),
        (!ends.is_empty()).then(|| format!(", {} end tokens", ends.len())),
        score_prompt.map(|_| ", scored".into()),
        (!salt.is_empty()).then(|| format!(", salt {salt:?}")),
        deadline.map(|time| format!(", deadline {time:?}")),
        queue_timeout.map(|time| format!(", queue timeout {time:?}")),
    ];
    options.into_iter().flatten().collect()
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limits, settings, truth, faults, drafts, disk, intents } = self;
        writeln!(f, "{limits:?}")?;
        writeln!(f, "{} policy, {:?}, queue {}", settings.policy.name(), settings.pace, settings.queue)?;
        writeln!(f, "costs per step, token, row, pair and read: {:?}", truth.coefficients())?;
        writeln!(f, "share of drafts that are wrong: {drafts:?}")?;
        writeln!(f, "disk: {disk:?}")?;
        for (index, intent) in intents.iter().enumerate() {
            writeln!(f, "{index:>4}  {intent}")?;
        }
        for (index, fault) in faults.iter().enumerate() {
            writeln!(f, "{:>4}  {fault:?}", intents.len() + index)?;
        }
        Ok(())
    }
}

impl fmt::Display for Intent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, request, leave } = self;
        let Request { prompt, max_tokens, class, client, .. } = request;
        write!(f, "at {:.3} s  {} {}/{}", at.as_secs_f64(), class.name(), client.account, client.session)?;
        let most = max_tokens.map_or("any number of".into(), |most| format!("at most {most}"));
        write!(f, ": prompt {}, {most} tokens{}", prompt.len(), options(request))?;
        if let Some(poison) = prompt.iter().find(|token| POISON.contains(token)) {
            write!(f, ", token {poison} in its prompt")?;
        }
        leave.map_or(Ok(()), |leave| write!(f, ", leaves {leave:?}"))
    }
}

/// Small machines, so that rows, tokens and blocks all run short.
fn machine(rng: &mut Rng) -> Limits {
    let block_tokens = rng.pick(&[1, 4, 16]);
    let kv_tokens = rng.pick(&[96, 256, 1024]);
    Limits {
        block_tokens,
        blocks: kv_tokens / block_tokens,
        context: rng.pick(&[80, 400]),
        step_tokens: rng.pick(&[4, 16, 64, 256]),
        step_rows: rng.pick(&[2, 8, 32]),
        ahead: rng.pick(&[0, 1]),
        sizes: rng.pick(&[
            StepSizes::Multiples(1),
            StepSizes::Multiples(6),
            StepSizes::Listed(&[4, 8, 16, 32, 64]),
        ]),
        vocab: VOCAB,
        reach: rng.pick(&[None, None, Some(7), Some(50)]),
        ..Limits::EXAMPLE
    }
}

/// No disk, a good one, a bad one.
fn disk(rng: &mut Rng, limits: &Limits) -> Option<DiskNature> {
    let reliable = DiskNature {
        block_bytes: limits.block_tokens * size_of::<u64>(),
        latency: Duration::from_micros(rng.between(10, 20_000) as u64),
        each: Duration::from_micros(rng.between(1, 500) as u64),
        ..DiskNature::RELIABLE
    };
    let bad = DiskNature {
        room: rng.pick(&[8, 64, 1 << 20]),
        refuses: 0.2,
        lies: 0.1,
        hangs: rng.pick(&[0.0, 0.1]),
        forgets: 0.2,
        seed: rng.bits(),
        ..reliable
    };
    rng.pick(&[None, Some(reliable), Some(bad)])
}

/// What kind of trouble there is. A hiccup comes alone, for then nobody may fail: the step is computed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    None,
    Poison,
    Hiccup,
    Outage,
}

fn faults(rng: &mut Rng, trouble: Trouble) -> Vec<Fault> {
    let mut faults = vec![Fault::Row(POISON[0]), Fault::Step(POISON[1]), Fault::Panic(POISON[2])];
    match trouble {
        Trouble::None | Trouble::Poison => {}
        // An answer may hold a poisoned token by chance, and a hiccup while that step is repeated ends its sequence.
        Trouble::Hiccup => faults = vec![Fault::Hiccup(rng.below(100) as u64)],
        Trouble::Outage => {
            // The engine tries three times to restart the device, and then gives up.
            let (first, restarts) = (rng.between(5, 100) as u64, rng.pick(&[0, 2]));
            faults.push(Fault::Outage { first, restarts });
        }
    }
    faults
}

fn visitors(rng: &mut Rng, limits: &Limits, trouble: Trouble) -> Vec<Intent> {
    let count = rng.between(1, 40);
    let rate = rng.pick(&[2.0, 20.0, 500.0]);
    let poisoned = if trouble == Trouble::Poison { 0.15 } else { 0.0 };
    let impatient = rng.pick(&[0.0, 0.3]);
    let typical = rng.pick(&[15.0, 80.0]);
    let heads: Vec<Vec<u32>> = (0..3).map(|_| text(rng, 40)).collect();
    let mut at = Duration::ZERO;
    let mut intents = Vec::new();
    for _ in 0..count {
        at += if rng.chance(0.3) { Duration::ZERO } else { rng.gap(rate) };
        let mut request = request(rng, limits, &heads, typical);
        if rng.chance(poisoned) {
            let place = rng.below(request.prompt.len());
            request.prompt[place] = rng.pick(&POISON);
        }
        let leave = rng.chance(impatient).then(|| leave(rng));
        intents.push(Intent { at, request, leave });
    }
    intents
}

fn request(rng: &mut Rng, limits: &Limits, heads: &[Vec<u32>], typical: f64) -> Request {
    let room = limits.context.min(limits.blocks * limits.block_tokens);
    let mut prompt = if rng.chance(0.4) { rng.pick(heads) } else { Vec::new() };
    let own = rng.length(typical, 1.0) as usize + 1;
    prompt.extend(text(rng, own));
    // Now and then one that can't be served at all.
    prompt.truncate(if rng.chance(0.02) { room } else { room - 1 });
    let millis = |rng: &mut Rng| Some(Duration::from_millis(rng.between(0, 2000) as u64));
    Request {
        params: SamplingParams { seed: Seed(rng.bits()), ..SamplingParams::default() },
        max_tokens: if rng.chance(0.05) { None } else { Some(rng.length(8.0, 0.8) as usize + 1) },
        // With such a small alphabet of ends, about every third answer meets one.
        ends: if rng.chance(0.3) { (0..2000).collect() } else { Vec::new() },
        score_prompt: rng.chance(0.1).then_some(0),
        n: if rng.chance(0.2) { rng.between(2, 4) } else { 1 },
        client: ClientId { account: rng.below(3) as u64, session: rng.below(2) as u64 },
        class: rng.pick(&Class::ALL),
        salt: rng.pick(&[vec![], vec![], b"tenant".to_vec()]),
        deadline: if rng.chance(0.1) { millis(rng) } else { None },
        queue_timeout: if rng.chance(0.1) { millis(rng) } else { None },
        ..Request::greedy(prompt, 0)
    }
}

fn leave(rng: &mut Rng) -> Leave {
    match rng.below(5) {
        0 => Leave::AtOnce,
        1 => Leave::After(Duration::from_millis(rng.below(500) as u64)),
        2 => Leave::OnPrefill,
        3 => Leave::Drop(rng.below(3) as u32),
        _ => Leave::AfterTokens(rng.between(1, 8)),
    }
}

fn text(rng: &mut Rng, len: usize) -> Vec<u32> {
    (0..len).map(|_| rng.below(VOCAB - POISON.len()) as u32).collect()
}
