use super::*;

const AROUND: Surroundings = Surroundings { pace: 1000.0, seniors_first: true, mean_len: 300.0 };

fn candidate(number: u64, remaining: usize, waited: f64) -> Candidate {
    Candidate {
        slot: Slot { index: number as u32, life: 0 },
        class: Class::Default,
        number,
        waited: Duration::from_secs_f64(waited),
        remaining,
        len: remaining,
        excess: 0.0,
    }
}

/// The numbers of the candidates in the order they would go.
fn order(kind: PolicyKind, candidates: &[Candidate]) -> Vec<u64> {
    let policy = kind.policy();
    let score =
        |c: &Candidate| Place { rank: 0, score: policy.score(c, &AROUND), number: c.number, slot: c.slot };
    let mut places: Vec<_> = candidates.iter().map(score).collect();
    places.sort();
    places.iter().map(|place| place.number).collect()
}

#[test]
fn each_policy_has_its_own_order() {
    let three = [candidate(0, 7600, 0.1), candidate(1, 320, 0.1), candidate(2, 85, 0.1)];
    assert_eq!(order(PolicyKind::Fair, &three), [2, 1, 0]);
    assert_eq!(order(PolicyKind::Shortest, &three), [2, 1, 0]);
    assert_eq!(order(PolicyKind::Fifo, &three), [0, 1, 2]);
    assert_eq!(order(PolicyKind::Balance, &three), [1, 2, 0]);
}

#[test]
fn under_fair_a_long_prompt_goes_first_once_it_waited_twice_its_own_time() {
    let newcomer = candidate(1, 85, 0.0);
    assert_eq!(order(PolicyKind::Fair, &[candidate(0, 7600, 10.0), newcomer]), [1, 0]);
    assert_eq!(order(PolicyKind::Fair, &[candidate(0, 7600, 15.2), newcomer]), [0, 1]);
    assert_eq!(order(PolicyKind::Shortest, &[candidate(0, 7600, 1e6), newcomer]), [1, 0]);
}

#[test]
fn under_fair_a_client_that_got_more_goes_behind_however_long_it_waited() {
    let greedy = Candidate { excess: 500.0, ..candidate(0, 100, 1000.0) };
    assert_eq!(order(PolicyKind::Fair, &[greedy, candidate(1, 400, 0.0)]), [1, 0]);
}

#[test]
fn a_class_comes_before_the_less_urgent_ones_until_one_of_them_is_overdue() {
    let mut turns = Turns::default();
    let ranked = |turns: &Turns, now| {
        let mut classes = Class::ALL;
        classes.sort_by_key(|class| turns.rank(*class, Duration::from_secs(now)));
        classes
    };
    assert_eq!(ranked(&turns, 1), [Class::Interactive, Class::Default, Class::Bulk]);
    turns.took(Class::Interactive, Duration::from_secs(4));
    turns.took(Class::Default, Duration::from_secs(4));
    assert_eq!(ranked(&turns, 5), [Class::Bulk, Class::Interactive, Class::Default]);
    turns.took(Class::Bulk, Duration::from_secs(5));
    assert_eq!(ranked(&turns, 5), [Class::Interactive, Class::Default, Class::Bulk]);
}

#[test]
fn policies_are_found_by_name() {
    for kind in PolicyKind::ALL {
        assert_eq!(kind.name().parse(), Ok(kind));
    }
    assert!("lottery".parse::<PolicyKind>().unwrap_err().to_string().contains("fair, fifo"));
}
