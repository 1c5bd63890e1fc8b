//! Everyone who was admitted gets on, within a stated time, on machines that are short of memory, slow, or not what the
//! engine believes them to be. `ropeway_testkit::liveness` states the bounds; a failing scenario is printed in its
//! smallest form, with the command that replays it.

use ropeway_testkit::liveness::workloads::{self, Senders};
use ropeway_testkit::liveness::{Scenario, rules};
use ropeway_testkit::trial::Trial;

fn hold(
    test: &'static str,
    seeds: u64,
    scenario: impl Fn(u64) -> Scenario,
    rule: impl Fn(&Scenario) -> Result<(), String>,
) {
    Trial { file: "liveness", test, seeds }.hold(scenario, rule);
}

#[test]
fn every_request_finishes_within_a_function_of_the_work_before_it() {
    let test = "every_request_finishes_within_a_function_of_the_work_before_it";
    hold(test, 40, workloads::mixture, rules::everyone_finishes);
}

#[test]
fn no_request_is_preempted_more_often_than_the_limit() {
    let test = "no_request_is_preempted_more_often_than_the_limit";
    hold(test, 40, workloads::mixture, rules::preemptions_are_bounded);
}

#[test]
fn a_long_prompt_among_short_ones_of_its_client_takes_at_most_three_times_as_long() {
    let test = "a_long_prompt_among_short_ones_of_its_client_takes_at_most_three_times_as_long";
    hold(test, 8, |seed| workloads::long_among_short(seed, Senders::One), rules::long_one_keeps_a_third);
}

#[test]
fn a_long_prompt_among_short_ones_of_many_clients_takes_at_most_three_times_as_long() {
    let test = "a_long_prompt_among_short_ones_of_many_clients_takes_at_most_three_times_as_long";
    hold(test, 8, |seed| workloads::long_among_short(seed, Senders::Many), rules::long_one_keeps_a_third);
}

#[test]
fn short_prompts_beside_a_long_one_of_their_client_have_a_token_within_two_steps() {
    let test = "short_prompts_beside_a_long_one_of_their_client_have_a_token_within_two_steps";
    hold(
        test,
        8,
        |seed| workloads::long_among_short(seed, Senders::One),
        rules::short_ones_wait_for_two_steps,
    );
}

#[test]
fn short_prompts_of_many_clients_beside_a_long_one_have_a_token_within_two_steps() {
    let test = "short_prompts_of_many_clients_beside_a_long_one_have_a_token_within_two_steps";
    hold(
        test,
        8,
        |seed| workloads::long_among_short(seed, Senders::Many),
        rules::short_ones_wait_for_two_steps,
    );
}

#[test]
fn bulk_prompts_do_not_shift_the_first_tokens_of_interactive_clients() {
    let test = "bulk_prompts_do_not_shift_the_first_tokens_of_interactive_clients";
    hold(test, 9, workloads::bulk_beside_conversations, rules::bulk_delays_no_percentile);
}

#[test]
fn bulk_prompts_beside_interactive_clients_finish() {
    let test = "bulk_prompts_beside_interactive_clients_finish";
    hold(test, 9, workloads::bulk_beside_conversations, rules::everyone_finishes);
}

#[test]
fn no_interactive_request_is_delayed_by_a_bulk_prompt() {
    let test = "no_interactive_request_is_delayed_by_a_bulk_prompt";
    hold(test, 8, workloads::bulk_beside_arrivals, rules::bulk_delays_no_one);
}

#[test]
fn bulk_requests_in_every_row_delay_an_interactive_request_by_one_step() {
    let test = "bulk_requests_in_every_row_delay_an_interactive_request_by_one_step";
    hold(test, 4, workloads::bulk_in_every_row, rules::bulk_delays_by_one_step);
}

#[test]
fn bulk_requests_that_gave_up_their_rows_finish() {
    let test = "bulk_requests_that_gave_up_their_rows_finish";
    hold(test, 4, workloads::bulk_in_every_row, rules::everyone_finishes);
}

#[test]
fn more_answers_than_a_step_has_tokens_are_served_in_parts() {
    let test = "more_answers_than_a_step_has_tokens_are_served_in_parts";
    hold(test, 4, workloads::more_answers_than_tokens, rules::everyone_finishes);
}

#[test]
fn long_prompts_that_do_not_fit_together_waste_little() {
    let test = "long_prompts_that_do_not_fit_together_waste_little";
    hold(test, 10, workloads::longs_at_once, rules::nothing_is_computed_in_vain);
}

#[test]
fn a_prompt_alone_on_a_slow_machine_keeps_the_speed_of_full_steps() {
    let test = "a_prompt_alone_on_a_slow_machine_keeps_the_speed_of_full_steps";
    hold(test, 6, workloads::prompts_alone, rules::prompts_keep_their_speed);
}

#[test]
fn a_prompt_beside_streams_keeps_a_third_of_the_time_at_any_step_cost() {
    let test = "a_prompt_beside_streams_keeps_a_third_of_the_time_at_any_step_cost";
    hold(test, 12, workloads::prompt_beside_streams, rules::a_prompt_keeps_a_third);
}

#[test]
fn gaps_between_tokens_stay_within_the_target_once_costs_are_learnt() {
    let test = "gaps_between_tokens_stay_within_the_target_once_costs_are_learnt";
    hold(test, 10, workloads::streams_beside_prompts, rules::gaps_stay_within_the_target);
}

#[test]
fn recomputed_tokens_are_not_charged_to_the_client() {
    let test = "recomputed_tokens_are_not_charged_to_the_client";
    hold(test, 4, workloads::backlogs_under_preemption, |scenario| {
        rules::accounts_receive_the_same(scenario, 1.25)
    });
}

#[test]
fn an_account_gains_nothing_from_a_new_session_per_request() {
    let test = "an_account_gains_nothing_from_a_new_session_per_request";
    hold(test, 3, workloads::sessions, |scenario| rules::accounts_receive_the_same(scenario, 1.5));
}

#[test]
fn an_account_that_leaves_for_a_moment_keeps_its_debt() {
    let test = "an_account_that_leaves_for_a_moment_keeps_its_debt";
    hold(test, 3, workloads::one_after_another, |scenario| rules::accounts_receive_the_same(scenario, 1.5));
}
