//! What the parts of the dispatcher do together, one story each.

use std::num::NonZeroUsize;
use std::time::Duration;

use ropeway_engine::{Class, ClientId};
use ropeway_pool::dispatch::{
    Ask, Assignment, Capacity, Dispatcher, Ended, Probe, Settings, Spent, Ticket, UpstreamId,
};

const NOW: Duration = Duration::from_secs(100);

fn at(millis: u64) -> Duration {
    NOW + Duration::from_millis(millis)
}

fn ask(account: u64) -> Ask {
    Ask {
        client: ClientId::account(account),
        class: Class::Default,
        session: None,
        prefix: [].into(),
        prompt_tokens: 100,
        answer_tokens: 50,
        queue_timeout: None,
    }
}

fn pool(upstreams: usize, concurrency: usize) -> (Dispatcher, Vec<UpstreamId>) {
    let mut dispatcher = Dispatcher::new(&Settings::default());
    let capacity = Capacity { concurrency: NonZeroUsize::new(concurrency), ..Capacity::default() };
    let ids = (0..upstreams).map(|_| dispatcher.add(capacity)).collect();
    (dispatcher, ids)
}

/// Asks once for each of these accounts.
fn enqueue(dispatcher: &mut Dispatcher, accounts: impl IntoIterator<Item = u64>) -> Vec<Ticket> {
    accounts.into_iter().map(|account| dispatcher.enqueue(ask(account), NOW).unwrap()).collect()
}

fn send_all(dispatcher: &mut Dispatcher, now: Duration) -> Vec<Assignment> {
    std::iter::from_fn(|| dispatcher.next(now)).collect()
}

#[test]
fn all_streams_of_a_killed_upstream_go_on_at_the_other_and_it_comes_back_slowly() {
    let (mut dispatcher, ids) = pool(2, 100);
    enqueue(&mut dispatcher, 0..50);
    let sent = send_all(&mut dispatcher, NOW);
    assert_eq!(sent.len(), 50);
    for assignment in &sent {
        dispatcher.tokens(assignment.ticket, 10, at(50));
    }
    let lost: Vec<_> = sent.iter().filter(|assignment| assignment.upstream == ids[0]).collect();
    assert_eq!(lost.len(), 25);
    for assignment in &lost {
        assert_eq!(dispatcher.requeue(assignment.ticket, Ended::Failed, at(100)), Ok(()));
    }
    let again = send_all(&mut dispatcher, at(100));
    assert!(again.len() == 25 && again.iter().all(|assignment| assignment.upstream == ids[1]));
    let status = dispatcher.status(ids[0]).unwrap();
    assert!(!status.is_up && status.totals.moved == 25 && status.totals.errors == 25);
    assert_eq!(dispatcher.wake_at(), Some(at(1100)));

    enqueue(&mut dispatcher, 100..110);
    assert!(send_all(&mut dispatcher, at(1099)).iter().all(|assignment| assignment.upstream == ids[1]));
    enqueue(&mut dispatcher, 200..210);
    let back: Vec<_> =
        send_all(&mut dispatcher, at(1100)).into_iter().filter(|sent| sent.upstream == ids[0]).collect();
    assert_eq!(back.len(), 1, "it starts with one request");
    dispatcher.first_token(back[0].ticket, at(1200));
    assert_eq!(dispatcher.status(ids[0]).unwrap().limit, 2);
}

#[test]
fn a_stream_that_was_broken_off_goes_on_beyond_a_limit_that_was_found_but_not_beyond_one_that_was_given() {
    for (concurrency, goes_on) in [(None, true), (NonZeroUsize::new(8), false)] {
        let mut dispatcher = Dispatcher::new(&Settings::default());
        let ids = [(); 2].map(|()| dispatcher.add(Capacity { concurrency, ..Capacity::default() }));
        enqueue(&mut dispatcher, 0..16);
        let sent = send_all(&mut dispatcher, NOW);
        assert_eq!(sent.len(), 16, "both are full");
        let lost = sent.iter().find(|assignment| assignment.upstream == ids[0]).unwrap().ticket;
        dispatcher.tokens(lost, 1, at(1));
        dispatcher.probed(ids[0], Probe::Down, at(2));
        dispatcher.requeue(lost, Ended::Failed, at(2)).unwrap();
        let again = send_all(&mut dispatcher, at(2));
        assert_eq!(again.iter().any(|assignment| assignment.ticket == lost), goes_on, "{concurrency:?}");
    }
}

#[test]
fn when_all_are_down_requests_wait_for_the_first_that_comes_back() {
    let (mut dispatcher, ids) = pool(3, 4);
    for id in &ids {
        dispatcher.probed(*id, Probe::Down, NOW);
    }
    enqueue(&mut dispatcher, 0..2);
    assert_eq!(dispatcher.next(at(60_000)), None);
    dispatcher.probed(ids[2], Probe::Up { running: None, waiting: None }, at(60_000));
    assert_eq!(dispatcher.next(at(60_000)).map(|sent| sent.upstream), Some(ids[2]));
}

#[test]
fn a_request_that_fails_everywhere_is_over_and_a_ticket_that_ended_stays_so() {
    let (mut dispatcher, _) = pool(8, 4);
    let [ticket] = enqueue(&mut dispatcher, [1])[..] else { unreachable!() };
    let mut upstreams = Vec::new();
    let spent = loop {
        upstreams.push(dispatcher.next(NOW).unwrap().upstream);
        if let Err(spent) = dispatcher.requeue(ticket, Ended::Failed, NOW) {
            break spent;
        }
    };
    assert_eq!((spent, upstreams.len()), (Spent::Attempts(4), 4));
    upstreams.sort_unstable();
    upstreams.dedup();
    assert_eq!(upstreams.len(), 4, "every attempt was at another upstream");
    assert_eq!(dispatcher.requeue(ticket, Ended::Failed, NOW), Err(Spent::Over));
    assert!(dispatcher.is_at_rest());
}

#[test]
fn a_busy_upstream_gets_its_requests_back_later_without_any_budget() {
    let (mut dispatcher, _) = pool(1, 4);
    let [ticket] = enqueue(&mut dispatcher, [1])[..] else { unreachable!() };
    let mut now = NOW;
    for _ in 0..50 {
        assert_eq!(dispatcher.next(now).map(|sent| sent.ticket), Some(ticket));
        let busy = Ended::Busy { retry_after: Some(Duration::from_secs(1)) };
        assert_eq!(dispatcher.requeue(ticket, busy, now), Ok(()));
        assert_eq!(dispatcher.next(now), None);
        now = dispatcher.wake_at().unwrap();
    }
    assert_eq!(dispatcher.statuses()[0].totals.errors, 0);
}

#[test]
fn a_queue_timeout_ends_a_request_that_waits_and_not_one_that_runs() {
    let (mut dispatcher, _) = pool(1, 1);
    let hurried = |account| Ask { queue_timeout: Some(Duration::from_secs(2)), ..ask(account) };
    let first = dispatcher.enqueue(hurried(1), NOW).unwrap();
    let second = dispatcher.enqueue(hurried(2), NOW).unwrap();
    assert_eq!(send_all(&mut dispatcher, NOW).len(), 1);
    assert_eq!(dispatcher.wake_at(), Some(at(2000)));
    assert!(dispatcher.expired(at(1999)).is_empty());
    assert_eq!(dispatcher.expired(at(2000)), [second]);
    dispatcher.ended(first, Ended::Done, at(9000));
    assert!(dispatcher.is_at_rest());
}

#[test]
fn the_queue_is_bounded_and_says_when_to_come_back() {
    let settings = Settings { most_waiting: 10, ..Settings::default() };
    let mut dispatcher = Dispatcher::new(&settings);
    enqueue(&mut dispatcher, 0..10);
    let full = dispatcher.enqueue(ask(11), NOW).unwrap_err();
    assert_eq!((full.waiting, full.retry_after), (10, Duration::from_secs(1)));
}

#[test]
fn a_removed_upstream_gets_nothing_more_and_is_gone_after_its_last_request() {
    let (mut dispatcher, ids) = pool(2, 4);
    enqueue(&mut dispatcher, 0..2);
    let sent = send_all(&mut dispatcher, NOW);
    dispatcher.remove(ids[0]);
    enqueue(&mut dispatcher, 10..13);
    assert!(send_all(&mut dispatcher, NOW).iter().all(|sent| sent.upstream == ids[1]));
    let last = sent.iter().find(|sent| sent.upstream == ids[0]).unwrap();
    assert!(dispatcher.status(ids[0]).is_some());
    dispatcher.ended(last.ticket, Ended::Done, NOW);
    assert!(dispatcher.status(ids[0]).is_none());
}
