use std::collections::HashMap;
use std::io::{self, BufReader, Read};

use super::endless::Endless;
use super::*;
use crate::rng::Rng;

/// Some requests of a conversation trace (`kvcache-ai/Mooncake`, Apache-2.0).
const MOONCAKE: &str = include_str!("../../tests/traces/mooncake_excerpt.jsonl");

/// The first requests of `azure_conv_2023.csv` (`AzurePublicDataset`, CC BY 4.0).
const AZURE: &str = include_str!("../../tests/traces/azure_head.csv");

fn read(text: &str) -> Result<Trace, TraceError> {
    Trace::read("a.trace", text.as_bytes(), None)
}

fn line(at: u64, tokens: usize, ids: &[u64]) -> String {
    format!(
        "{{\"timestamp\": {at}, \"input_length\": {tokens}, \"output_length\": 3, \"hash_ids\": {ids:?}}}\n"
    )
}

#[test]
fn both_formats_are_known_by_their_first_line() {
    let trace = read(AZURE).unwrap();
    let first: Vec<_> = trace.requests().take(2).collect();
    assert_eq!((first[0].prompt_tokens, first[0].answer_tokens, first[0].at), (374, 44, Duration::ZERO));
    assert_eq!(first[1].at, Duration::from_micros(4_314_579));
    let trace = read(MOONCAKE).unwrap();
    let first = trace.requests().next().unwrap();
    assert_eq!((first.prompt_tokens, first.answer_tokens, first.ids.len()), (6758, 500, 14));
    assert!(trace.requests().map(|request| request.at).is_sorted());
}

#[test]
fn only_as_many_requests_are_read_as_asked_for() {
    let trace = Trace::read("a", format!("{}nonsense", line(5, 1, &[1])).as_bytes(), Some(1)).unwrap();
    assert_eq!((trace.len(), trace.duration()), (1, Duration::ZERO));
}

#[test]
fn a_bad_line_is_named_with_what_is_wrong() {
    let azure = |line: &str| format!("{}\n2023-11-16 18:15:46.68,374,44\n\n{line}\n", azure::HEADING);
    for (text, place, what) in [
        ("id,time\n1,2\n".to_owned(), 1, "a trace begins with TIMESTAMP,"),
        (azure("2023-11-16 18:15:47,1"), 4, "2 fields instead of three"),
        (azure("yesterday,1,2"), 4, "\"yesterday\" is no time"),
        (azure("2023-11-16 18:15:47,many,2"), 4, "\"many\" is no number of tokens"),
        (azure("2023-11-16 18:15:47,0,2"), 4, "the prompt has 0 tokens"),
        (azure("2023-11-16 18:15:47,5,20000000"), 4, "the answer has 20000000 tokens"),
        (azure("2023-11-16 18:15:46.67,1,2"), 4, "sort the file by time"),
        (line(0, 1, &[1]) + "{\"timestamp\": 1}", 2, "missing field `input_length`"),
        (line(0, 1, &[1]) + "{\"timestamp\": -1}", 2, "invalid value"),
        (line(0, 513, &[1]), 1, "1 hash_ids for a prompt of 513 tokens; one per 512 tokens makes 2"),
        (line(9, 1, &[1]) + &line(8, 1, &[1]), 2, "sort the file by time"),
        (line(0, 1, &[1]) + &" ".repeat(1 << 21), 2, "longer than 1 MiB"),
    ] {
        let told = read(&text).unwrap_err().to_string();
        assert!(told.starts_with(&format!("a.trace, line {place}: ")) && told.contains(what), "{told}");
    }
    let told = Trace::read("b", &b"{\xff\n"[..], None).unwrap_err().to_string();
    assert_eq!(told, "b, line 1: it is no text in UTF-8");
    assert_eq!(read("").unwrap_err().to_string(), "a.trace holds no requests");
    assert_eq!(read(&format!("{}\n", azure::HEADING)).unwrap_err().to_string(), "a.trace holds no requests");
}

#[test]
fn a_source_that_fails_is_told_from_a_bad_line() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("unplugged"))
        }
    }
    let told = Trace::read("c", BufReader::new(Broken), None).unwrap_err();
    assert_eq!(told.to_string(), "could not read c: unplugged");
}

#[test]
fn prompts_are_equal_exactly_as_far_as_their_ids() {
    let trace = read(MOONCAKE).unwrap();
    let requests: Vec<_> = trace.requests().collect();
    for (first, second) in requests.iter().zip(&requests[1..]) {
        let (a, b) = (first.prompt(), second.prompt());
        let equal = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
        let ids = first.ids.iter().zip(second.ids).take_while(|(a, b)| a == b).count();
        assert_eq!(equal, (ids * BLOCK).min(a.len()).min(b.len()));
        assert_eq!(a.len(), first.prompt_tokens);
    }
}

#[test]
fn prompts_without_ids_have_nothing_in_common() {
    let trace = read(AZURE).unwrap();
    let mut owners = HashMap::new();
    for request in trace.requests() {
        for part in request.parts() {
            assert_eq!(owners.insert(part.content, request.number), None);
        }
    }
    let counted = Endless::count(&trace);
    assert_eq!((counted.repeated, counted.findable), (0, 0));
}

#[test]
fn an_endless_cache_finds_what_came_before_and_an_engine_whole_blocks_of_it() {
    let trace = read(
        &[
            line(0, 1030, &[1, 2, 3]),
            // The last block is there, but not whole.
            line(1, 1030, &[1, 2, 3]),
            // The last token is always computed, also where it ends a block.
            line(2, 1024, &[1, 2]),
            line(3, 1100, &[9, 2, 3]),
        ]
        .concat(),
    );
    let counted = Endless::count(&trace.unwrap());
    assert_eq!(counted, Endless { blocks: 11, repeated: 7, findable: 3 });
}

#[test]
fn what_does_not_fit_is_cut_and_what_is_left_stays_equal() {
    let text = line(0, 2000, &[1, 2, 3, 4]) + &line(0, 600, &[1, 2]);
    let (whole, mut cut) = (read(&text).unwrap(), read(&text).unwrap());
    assert_eq!(cut.fit(700), 1);
    let prompts = |trace: &Trace| trace.requests().map(|request| request.prompt()).collect::<Vec<_>>();
    let (before, after) = (prompts(&whole), prompts(&cut));
    assert_eq!((after[0].len(), after[1].len()), (697, 600));
    assert!(before[0].starts_with(&after[0]) && before[1] == after[1]);
    assert_eq!(Endless::count(&cut).blocks, 4);
    assert_eq!(cut.fit(5), 2);
    assert!(cut.requests().all(|request| (request.prompt_tokens, request.answer_tokens) == (3, 2)));
    assert_eq!(cut.fit(1), 2, "there is always a token to continue");
    assert!(cut.requests().all(|request| request.prompt_tokens == 1 && request.answer_tokens == 1));
}

#[test]
fn no_bytes_make_it_panic() {
    let mut rng = Rng::new(11);
    for _ in 0..2000 {
        let mut bytes = if rng.chance(0.5) { AZURE } else { MOONCAKE }.as_bytes()[..400].to_vec();
        for _ in 0..rng.between(1, 6) {
            let place = rng.below(bytes.len());
            bytes[place] = rng.bits() as u8;
        }
        if let Ok(trace) = Trace::read("d", &bytes[..], None) {
            assert!(trace.requests().all(|request| request.prompt_tokens > 0));
        }
    }
}
