//! All models, each with a number of preemptions that keeps it short.
#![forbid(unsafe_code)]

use kumi_models::models;

macro_rules! models {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                models::$name();
            }
        )*
    };
}

models! {
    records_pass_in_order_through_a_full_ring
    the_end_of_a_ring_is_skipped
    main_and_handler_exclude_each_other
    a_request_is_served
    a_request_is_served_while_main_comes_and_goes
    rings_are_served_from_now_on
    the_end_of_a_long_wait_is_noticed
    the_end_of_a_long_wait_is_noticed_behind_another_operation
    threads_of_a_program_pass_the_lock_on
    a_thread_that_does_not_drive_is_told_the_news
    both_ways_round
    a_mark_that_was_left
    two_senders_wake_a_sleeper
    room_wakes_the_producer
    records_of_two_senders
    a_full_queue_wakes_its_senders
    the_ports_thread_wakes
    words_of_a_wait_are_of_one_moment
    whoever_is_idle_has_described_its_wait
    a_sample_never_shows_idle_from_before_what_it_shows_delivered
    a_job_that_keeps_its_turn_is_never_missed
}
