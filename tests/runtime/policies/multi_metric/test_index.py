"""Which test shows which number of the specification of multi-metric scaling."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE, TESTS = Path(__file__).parent, Path(__file__).parents[3]
MODEL = TESTS / "workloads" / "wladdimiro2021"
FIGURES, POLICY, PROPERTIES = (
    HERE / f"test_{name}.py" for name in ("figures", "policy", "properties")
)
CONCERTED = HERE.parent / "test_concerted.py"
SHOWN = {
    "answer 1": (FIGURES, "test_answer_1_three_figures_make_one"),
    "answer 2": (FIGURES, "test_answer_2_at_the_thresholds_it_is_stable"),
    "answer 3": (MODEL / "test_model.py", "test_answer_3_a_backlog_that_stands_for_ever"),
    "answer 4": (MODEL / "test_model.py", "test_answer_4_a_demand_that_never_rests"),
    "answer 5": (FIGURES, "test_answer_5_samples_far_from_their_mean_are_dropped"),
    "answer 6": (
        CONCERTED,
        "test_mm_answer_6_all_that_waits_at_the_source_is_in_the_end_b_s",
    ),
    "answer 7": (MODEL / "test_model.py", "test_answer_7_three_readings_of_degradation"),
    "answer 7, MM-X12": (
        MODEL / "test_properties.py",
        "test_answer_7_x12_points_of_replicas_are_not_shares_of_savings",
    ),
    "answer 7, MM-C6": (FIGURES, "test_c6_thresholds_of_single_metrics"),
    "MM-C1": (FIGURES, "test_c1_without_a_backlog_nothing_is_overloaded"),
    "MM-C2": (PROPERTIES, "test_c2_without_queue_and_slowdown_two_thirds_of_the_time_are_stable"),
    "MM-C3": (
        MODEL / "test_properties.py",
        "test_c3_a_steady_demand_rests_at_its_ceiling_or_never",
    ),
    "MM-C4": (PROPERTIES, "test_c4_a_backlog_of_two_and_a_quarter_windows_may_stand_for_ever"),
    "MM-C5": (
        MODEL / "test_properties.py",
        "test_c5_a_ramp_above_one_instance_per_window_outruns_it",
    ),
    "MM8": (POLICY, "test_it_acts_when_a_state_has_held_for_two_windows"),
    "MM9": (PROPERTIES, "test_mm9_the_table_is_the_default"),
    "MM10": (
        MODEL / "test_properties.py",
        "test_mm10_active_replicas_share_evenly_and_others_drain",
    ),
    "MM12": (MODEL / "test_model.py", "test_the_figures_of_table_iii"),
    "MM13": (HERE / "test_arrears.py", "test_mm13_published_weights_grow_behind_backpressure"),
    "MM-X1": (FIGURES, "test_the_letter_knows_nothing_stable"),
    "MM-X2": (FIGURES, "test_the_letter_never_grows_while_tuples_take_no_longer"),
    "MM-X4": (
        FIGURES,
        "test_nothing_processed_is_no_utilisation_and_a_full_queue_if_anything_waits",
    ),
    "MM-X5": (FIGURES, "test_work_is_the_mean_over_tuples_not_over_instances"),
    "MM-X11": (
        MODEL / "test_model.py",
        "test_the_static_contestants_are_sized_as_the_paper_has_them",
    ),
    "U, Q, E in 0 to 1; delta and q": (
        FIGURES,
        "test_figures_are_shares_and_more_waiting_never_lowers_them",
    ),
    "delta and e at equal mu": (
        PROPERTIES,
        "test_longer_work_at_as_many_tuples_never_lowers_delta",
    ),
    "units": (FIGURES, "test_units_do_not_matter"),
    "q up to 1.5 mu": (
        PROPERTIES,
        "test_a_backlog_below_one_and_a_half_windows_is_never_an_overload",
    ),
    "second window, bounds, gate": (
        FIGURES,
        "test_changes_stay_within_bounds_and_wait_for_a_second_window",
    ),
    "active + idle = p": (
        MODEL / "test_properties.py",
        "test_mm_property_active_and_idle_replicas_are_the_pool_and_change_one_by_one",
    ),
    "due = delivered + waiting + under way": (
        MODEL / "test_model.py",
        "test_every_tuple_is_delivered_waits_or_is_on_its_way",
    ),
    "T3 <= T2": (
        MODEL / "test_properties.py",
        "test_mm_property_what_comes_later_counts_less_in_t3_than_in_t2",
    ),
    "ticks": (PROPERTIES, "test_windows_do_not_depend_on_how_often_an_instance_looks"),
    "sum of W": (
        CONCERTED,
        "test_mm_property_all_that_waits_in_a_chain_is_counted_by_its_bottleneck",
    ),
    "shares": (PROPERTIES, "test_shares_of_all_ranks_add_up_to_what_is_missing"),
    "MM-D1": (
        HERE.parent / "test_concert.py",
        "test_without_ranks_siblings_draw_with_the_same_expectation",
    ),
    "MM-D2 = (a) on even loads": (
        HERE / "test_central.py",
        "test_on_even_loads_it_plans_what_instances_say_by_themselves",
    ),
    "MM-D3": (
        HERE / "test_summed.py",
        "test_d3_on_uneven_loads_each_sibling_says_what_the_planner_plans",
    ),
    "same seed": (PROPERTIES, "test_the_same_seed_gives_the_same_decisions"),
    "the trap": (
        HERE / "test_arrears.py",
        "test_mm_property_without_arrears_it_stays_at_one_instance_for_ever",
    ),
}


@pytest.mark.parametrize("number", SHOWN)
def test_every_number_has_its_test(number: str) -> None:
    file, name = SHOWN[number]
    assert f"def {name}(" in file.read_text(encoding="utf-8")
