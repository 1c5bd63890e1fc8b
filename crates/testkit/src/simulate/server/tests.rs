use super::super::hardware::Hardware;
use super::*;
use crate::rng::Rng;

const MODEL: ServerModel = ServerModel {
    cost: [1e-3, 1e-5, 1e-5, 1e-9, 1e-8],
    step_tokens: 512,
    rows: 8,
    block_tokens: 16,
    blocks: 200,
};

fn job(id: u64, prompt: usize, answer: usize) -> Job {
    Job { id, prompt, answer, blocks: (0..prompt as u64 / 16).map(|block| 1000 * id + block).collect() }
}

/// What happened when, and to whom.
#[derive(Debug, Default, PartialEq)]
struct Heard(Vec<(Duration, Said)>);

impl Heard {
    fn done(&self, id: u64) -> Option<f64> {
        let done = self.0.iter().find(|(_, said)| *said == Said::Done { id });
        done.map(|(at, _)| at.as_secs_f64())
    }

    fn first(&self, id: u64) -> Option<(f64, usize)> {
        self.0.iter().find_map(|(at, said)| match said {
            Said::FirstToken { id: other, cached } if *other == id => Some((at.as_secs_f64(), *cached)),
            _ => None,
        })
    }
}

/// Runs jobs that come at these times to their end.
fn run(server: &mut Server, jobs: Vec<(Duration, Job)>) -> Heard {
    let (mut heard, mut jobs) = (Heard::default(), jobs.into_iter().peekable());
    loop {
        let next = jobs.peek().map(|(at, _)| *at);
        match (server.until(), next) {
            (Some(until), next) if next.is_none_or(|next| until <= next) => {
                let mut said = Vec::new();
                server.advance(&mut said);
                heard.0.extend(said.into_iter().map(|said| (until, said)));
            }
            (_, Some(_)) => jobs.next().into_iter().for_each(|(at, job)| server.accept(job, at)),
            _ => return heard,
        }
    }
}

#[test]
fn a_request_alone_takes_its_prompt_and_a_step_per_token() {
    let heard = run(&mut Server::new(MODEL), vec![(Duration::ZERO, job(1, 100, 50))]);
    let [step, token, row, pair, read] = MODEL.cost;
    let prefill = step + 100.0 * token + row + 5050.0 * pair + 100.0 * read;
    let decode: f64 = (0..49).map(|i| step + token + row + (pair + read) * f64::from(101 + i)).sum();
    assert!((heard.first(1).unwrap().0 - prefill).abs() < 1e-8);
    assert!((heard.done(1).unwrap() - prefill - decode).abs() < 1e-7);
}

#[test]
fn a_newcomer_waits_for_the_step_under_way_and_no_longer() {
    let at = Duration::from_micros(10_500);
    let heard = run(&mut Server::new(MODEL), vec![(Duration::ZERO, job(1, 10, 500)), (at, job(2, 10, 5))]);
    let (first, _) = heard.first(2).unwrap();
    let step = 1.2e-3;
    assert!((0.0105 + step..0.0105 + 2.5 * step).contains(&first), "{first}");
    assert!(heard.done(1) > heard.done(2));
}

#[test]
fn a_prompt_that_was_computed_is_found_again_up_to_its_last_token() {
    let twice = |id| Job { id, ..job(1, 64, 4) };
    let heard =
        run(&mut Server::new(MODEL), vec![(Duration::ZERO, twice(1)), (Duration::from_secs(1), twice(2))]);
    assert_eq!([heard.first(1).unwrap().1, heard.first(2).unwrap().1], [0, 48]);
}

#[test]
fn requests_beyond_rows_and_memory_wait_and_all_are_answered() {
    let mut server = Server::new(MODEL);
    for id in 0..20 {
        server.accept(job(id, 300, 20), Duration::ZERO);
    }
    // 20 blocks each: ten would fit into memory, eight into a step. Nothing but the first is seen before the first step ends.
    assert_eq!((server.running(), server.waiting()), (1, 19));
    server.advance(&mut Vec::new());
    assert_eq!((server.running(), server.waiting()), (8, 12));
    let heard = run(&mut server, Vec::new());
    assert!((1..20).all(|id| heard.done(id).is_some()));
    assert_eq!((server.running(), server.waiting(), server.reserved, server.private), (0, 0, 0, 0));
    assert_eq!(server.positions, 0);
}

#[test]
fn progress_counts_tokens_and_a_crash_forgets_everything() {
    let mut server = Server::new(MODEL);
    server.accept(job(1, 16, 1000), Duration::ZERO);
    server.advance(&mut Vec::new());
    server.accept(job(2, 16, 10), Duration::from_millis(500));
    let tokens = server.progress(Duration::from_millis(500)).next().unwrap().tokens;
    assert!((350..500).contains(&tokens), "{tokens}");
    let lost = server.crash(Duration::from_millis(500));
    assert_eq!(lost, [Progress { id: 1, tokens }, Progress { id: 2, tokens: 0 }]);
    assert_eq!((server.running(), server.until()), (0, None));
    let heard = run(&mut server, vec![(Duration::from_secs(1), job(1, 16, 2))]);
    assert_eq!(heard.first(1).unwrap().1, 0);
}

#[test]
fn output_is_as_fast_as_the_machine_is_known_to_be() {
    let hardware = Hardware::find("h200-8b").unwrap();
    let mut server = Server::new(ServerModel::new(&hardware, 128));
    let jobs = (0..256).map(|id| (Duration::ZERO, Job { blocks: [].into(), ..job(id, 128, 256) })).collect();
    let heard = run(&mut server, jobs);
    let last = heard.0.last().unwrap().0.as_secs_f64();
    let speed = 256.0 * 256.0 / last;
    assert!((speed / 17_989.0 - 1.0).abs() < 0.15, "{speed}");
}

#[test]
fn every_job_ends_once_whatever_comes_when() {
    for seed in 0..50 {
        let mut rng = Rng::new(seed);
        let mut at = Duration::ZERO;
        let jobs: Vec<_> = (0..200)
            .map(|id| {
                at += rng.gap(100.0);
                (at, Job { id, ..job(rng.below(5) as u64, rng.between(1, 900), rng.between(1, 60)) })
            })
            .collect();
        let mut server = Server::new(MODEL);
        let heard = run(&mut server, jobs);
        for id in 0..200 {
            let times = |wanted: Said| heard.0.iter().filter(|(_, said)| *said == wanted).count();
            assert_eq!(times(Said::Done { id }), 1, "seed {seed}");
            assert!(heard.first(id).unwrap().0 <= heard.done(id).unwrap());
        }
        assert_eq!((server.reserved, server.private, server.positions), (0, 0, 0));
    }
}
