use proptest::prelude::*;

use super::*;

fn fixed(limit: usize) -> Window {
    Window::new(NonZeroUsize::new(limit))
}

/// First tokens of a full window, whose times are `time(window)` seconds, one every 10 ms.
fn run(window: &mut Window, rounds: u64, mut time: impl FnMut(usize) -> f64) {
    let begin = window.shrunk.unwrap_or(Duration::ZERO);
    for round in 1..=rounds {
        let sent = begin + Duration::from_millis(10 * round);
        let in_flight = window.limit();
        let now = sent + Duration::from_secs_f64(time(in_flight));
        window.first_token(FirstToken { sent, now, computed: 512, in_flight });
    }
}

/// A server that computes `room` requests together and lets more wait.
fn server(room: usize) -> impl Fn(usize) -> f64 {
    move |in_flight| {
        let busy = 1.0 + in_flight.min(room) as f64 / room as f64;
        let waits = 0.5 * in_flight.saturating_sub(room) as f64;
        0.02 * (busy + waits)
    }
}

#[test]
fn a_given_limit_stays_but_for_a_slow_return() {
    let mut window = fixed(5);
    run(&mut window, 50, |_| 1.0);
    window.busy(Duration::from_secs(9), Duration::from_secs(10));
    assert_eq!(window.limit(), 5);
    window.restart();
    let limits: Vec<_> = (0..6)
        .map(|_| {
            let limit = window.limit();
            run(&mut window, 1, |_| 1.0);
            limit
        })
        .collect();
    assert_eq!(limits, [1, 2, 3, 4, 5, 5]);
}

#[test]
fn it_finds_about_what_a_server_can_do_and_stays_there() {
    let mut window = Window::new(None);
    run(&mut window, 3000, server(64));
    let found = window.limit();
    assert!((64..=128).contains(&found), "{found}");
    run(&mut window, 3000, server(64));
    assert!(window.limit().abs_diff(found) < 32, "{found}, then {}", window.limit());
}

#[test]
fn it_does_not_grow_while_it_is_not_needed() {
    let mut window = Window::new(None);
    let seen =
        FirstToken { sent: Duration::ZERO, now: Duration::from_millis(20), computed: 100, in_flight: 3 };
    (0..100).for_each(|_| window.first_token(seen));
    assert_eq!(window.limit(), START as usize);
}

#[test]
fn a_server_that_became_slow_is_given_less_and_gets_more_again_when_it_recovers() {
    let mut window = Window::new(None);
    run(&mut window, 500, server(64));
    let before = window.limit();
    run(&mut window, 2000, |in_flight| 20.0 * server(64)(in_flight));
    let slow = window.limit();
    assert!(slow < before / 2, "{before}, then {slow}");
    run(&mut window, 3000, server(64));
    assert!(window.limit() > 2 * slow, "{slow}, then {}", window.limit());
}

#[test]
fn a_queue_at_the_upstream_shrinks_it_once_a_second_and_a_short_one_does_not() {
    let mut window = Window::new(None);
    run(&mut window, 200, |_| 0.02);
    let before = window.limit();
    window.probed(Some(64), Some(5), Duration::from_secs(100));
    assert_eq!(window.limit(), before);
    for millis in [0, 200, 900] {
        window.probed(Some(64), Some(6), Duration::from_millis(100_000 + millis));
    }
    assert_eq!(window.limit(), before * 8 / 10);
}

#[test]
fn an_upstream_that_says_that_nobody_waits_is_believed_more_than_times() {
    let mut window = Window::new(None);
    run(&mut window, 100, |_| 0.02);
    window.probed(Some(64), Some(0), Duration::from_secs(1));
    let before = window.limit();
    run(&mut window, 200, |_| 0.2);
    let grown = window.limit();
    assert!(grown > before, "{before}, then {grown}");
    window.probed(Some(64), None, Duration::from_secs(10));
    run(&mut window, 200, |_| 0.2);
    assert!(window.limit() < grown, "{grown}, then {}", window.limit());
}

#[test]
fn it_stops_growing_where_one_more_stream_brings_little() {
    let found = |per_stream: f64| {
        let mut window = Window::new(None);
        window.probed(Some(1), Some(0), Duration::ZERO);
        for round in 0..20_000 {
            let in_flight = window.limit();
            // Requests come one by one in the beginning, as they do.
            let streams = in_flight.min(1 + round / 32);
            let step = Duration::from_secs_f64(4.6e-3 + per_stream * streams as f64);
            window.tokens(64, 64 * step, Duration::ZERO);
            let sent = Duration::ZERO;
            window.first_token(FirstToken { sent, now: step, computed: 100, in_flight: streams });
        }
        window.limit()
    };
    let [gpu, cpu] = [6e-5, 1.4e-3].map(found);
    assert!((300..600).contains(&gpu) && (8..32).contains(&cpu), "{gpu}, {cpu}");
}

#[test]
fn many_busy_answers_at_once_shrink_it_once() {
    let mut window = Window::new(None);
    (0..100).for_each(|_| window.busy(Duration::from_secs(1), Duration::from_secs(2)));
    assert_eq!(window.limit(), 5);
    for second in 3..100 {
        window.busy(Duration::from_secs(second), Duration::from_secs(second));
    }
    assert_eq!(window.limit(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Times of a server with room for everything that scatter over more than a factor of ten.
    #[test]
    fn noise_does_not_make_it_collapse(seed in any::<u64>()) {
        let mut state = seed;
        let noise = move |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let unit = (state >> 11) as f64 / (1_u64 << 53) as f64;
            0.02 * (-(1.0 - unit).ln() + 0.1)
        };
        let mut window = Window::new(None);
        run(&mut window, 4000, noise);
        prop_assert!(window.limit() >= 64, "{}", window.limit());
    }
}
