//! Every admitted request makes progress, within stated bounds, on machines that are short of memory, slow, or whose costs
//! differ from the engine's estimate. `ropeway_testkit::liveness` states the bounds. A failing scenario is printed in its
//! smallest form, with the command that replays it.

use ropeway_testkit::liveness::workloads::{self, Senders};
use ropeway_testkit::liveness::{Scenario, rules};
use ropeway_testkit::trial::Trial;

/// A rule that must hold in the scenarios of so many seeds.
macro_rules! rule {
    ($test:ident, $seeds:literal, $scenario:expr, $rule:expr) => {
        #[test]
        fn $test() {
            let trial = Trial { file: "liveness", test: stringify!($test), seeds: $seeds };
            trial.hold($scenario, $rule);
        }
    };
}

fn among_shorts_of_its_client(seed: u64) -> Scenario {
    workloads::long_among_short(seed, Senders::One)
}

fn among_shorts_of_many_clients(seed: u64) -> Scenario {
    workloads::long_among_short(seed, Senders::Many)
}

fn accounts_receive_about_the_same(scenario: &Scenario) -> Result<(), String> {
    rules::accounts_receive_the_same(scenario, 1.5)
}

fn accounts_receive_the_same(scenario: &Scenario) -> Result<(), String> {
    rules::accounts_receive_the_same(scenario, 1.25)
}

rule!(
    every_request_finishes_within_a_function_of_the_work_before_it,
    120,
    workloads::mixture,
    rules::everyone_finishes
);
rule!(
    no_request_is_preempted_more_often_than_the_limit,
    120,
    workloads::mixture,
    rules::preemptions_are_bounded
);
rule!(
    a_long_prompt_among_short_ones_of_its_client_takes_at_most_three_times_as_long,
    16,
    among_shorts_of_its_client,
    rules::long_one_keeps_a_third
);
rule!(
    a_long_prompt_among_short_ones_of_many_clients_takes_at_most_three_times_as_long,
    16,
    among_shorts_of_many_clients,
    rules::long_one_keeps_a_third
);
rule!(
    short_prompts_beside_a_long_one_of_their_client_have_a_token_within_two_steps,
    16,
    among_shorts_of_its_client,
    rules::short_ones_wait_for_two_steps
);
rule!(
    short_prompts_of_many_clients_beside_a_long_one_have_a_token_within_two_steps,
    16,
    among_shorts_of_many_clients,
    rules::short_ones_wait_for_two_steps
);
rule!(
    bulk_prompts_do_not_shift_the_first_tokens_of_interactive_clients,
    12,
    workloads::bulk_beside_conversations,
    rules::bulk_delays_no_percentile
);
rule!(
    bulk_prompts_beside_interactive_clients_finish,
    12,
    workloads::bulk_beside_conversations,
    rules::everyone_finishes
);
rule!(
    no_interactive_request_is_delayed_by_a_bulk_prompt,
    16,
    workloads::bulk_beside_arrivals,
    rules::bulk_delays_no_one
);
rule!(
    bulk_requests_in_every_row_delay_an_interactive_request_by_one_step,
    8,
    workloads::bulk_in_every_row,
    rules::bulk_delays_by_one_step
);
rule!(
    bulk_requests_that_gave_up_their_rows_finish,
    8,
    workloads::bulk_in_every_row,
    rules::everyone_finishes
);
rule!(
    more_answers_than_a_step_has_tokens_are_served_in_parts,
    8,
    workloads::more_answers_than_tokens,
    rules::everyone_finishes
);
rule!(
    long_prompts_that_do_not_fit_together_waste_little,
    20,
    workloads::longs_at_once,
    rules::little_is_recomputed
);
rule!(
    a_prompt_alone_on_a_slow_machine_keeps_the_speed_of_full_steps,
    12,
    workloads::prompts_alone,
    rules::prompts_keep_their_speed
);
rule!(
    a_prompt_beside_streams_keeps_a_quarter_of_the_time_at_any_step_cost,
    24,
    workloads::prompt_beside_streams,
    rules::a_prompt_keeps_a_quarter
);
rule!(
    gaps_between_tokens_stay_within_the_target_once_costs_are_learnt,
    20,
    workloads::streams_beside_prompts,
    rules::gaps_stay_within_the_target
);
rule!(
    recomputed_tokens_are_not_charged_to_the_client,
    8,
    workloads::backlogs_under_preemption,
    accounts_receive_the_same
);
rule!(
    an_account_gains_nothing_from_a_new_session_per_request,
    6,
    workloads::sessions,
    accounts_receive_about_the_same
);
rule!(
    an_account_that_leaves_for_a_moment_keeps_its_debt,
    6,
    workloads::one_after_another,
    accounts_receive_about_the_same
);
