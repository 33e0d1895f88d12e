"""EL11, EL12: what is measured, and the profile that comes of it."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.runtime.policies.elysium.costs import instance_cost
from anabranch.runtime.policies.elysium.profiling import (
    Records,
    Sample,
    cross_validated,
    error_of,
    held_out,
    learnt_cores,
    learnt_profile,
    operator_records,
    recent,
)
from anabranch.runtime.values.checks import PipelineError


def sample(at_s: float, rate: float) -> Sample:
    """S, one instance, 0.1 ms; B, two instances, 0.4 ms, gets two results per tuple."""
    each = 0.0001 * rate, 0.0004 * rate
    return Sample(
        at_s,
        {"S": [rate], "B": [rate, rate]},
        {"S": [each[0]], "B": [each[1], each[1]]},
        {("S", "B"): 2 * rate},
        [(each[0] + each[1], 0.11 + 2.11 * (each[0] + each[1])), (each[1], 0.11 + 2.11 * each[1]),
         (0.0, 0.0)],
    )  # fmt: skip


def test_a_profile_is_what_the_samples_say() -> None:
    found = learnt_profile([sample(10 * at, 100 * at) for at in range(1, 11)], 4)
    assert [(s.above, s.below, s.selectivity) for s in found.streams] == [("S", "B", 2.0)]
    assert found.cores["S"](1000) == pytest.approx(0.1)
    assert found.cores["B"](1000) == pytest.approx(0.4)
    assert (found.host.base, found.host.times, found.host.cores) == pytest.approx((0.11, 2.11, 4))


def test_a_window_is_the_last_minute_since_the_last_change() -> None:
    some = [sample(10.0 * at, 1) for at in range(1, 11)]
    assert [one.at_s for one in recent(some, 90)] == [40, 50, 60, 70, 80, 90]
    assert [one.at_s for one in recent(some, 90, since_s=70)] == [80, 90]
    assert recent(some, 90, since_s=90) == []


def test_records_are_of_each_instance() -> None:
    assert operator_records([sample(10, 100)], "B") == [(100, 0.04), (100, 0.04)]


def test_seven_of_ten_records_teach_and_the_others_judge() -> None:
    learn, judge = held_out([(float(at), 0.0) for at in range(100)])
    assert (len(learn), len(judge)) == (70, 30)
    assert sorted(learn + judge) == [(float(at), 0.0) for at in range(100)]
    assert max(judge) > (90, 0.0)
    assert min(judge) < (10, 0.0)


@pytest.mark.parametrize("model", ["line", "network"])
def test_both_models_err_by_less_than_three_percent_on_what_they_have_not_seen(model: str) -> None:
    rng = np.random.default_rng(1)
    records: Records = [
        (float(rate), float(0.03 + 0.0005 * rate + rng.normal(0, 0.01)))
        for rate in rng.uniform(0, 1200, 100)
    ]
    learn, judge = held_out(records)
    cores_of = learnt_cores(learn, model, np.random.default_rng(2))  # type: ignore[arg-type]
    assert error_of(cores_of, judge) < 0.03


def test_cross_validation_judges_each_record_by_the_others() -> None:
    """Of ten records one is off: a part with it errs by it, the others by what it teaches them."""
    records: Records = [(float(at), 0.0) for at in range(9)] + [(4.0, 1.0)]
    found = cross_validated(records, lambda some: instance_cost(some).cores)
    assert found == pytest.approx((1 + 9 * 1 / 9) / 10, abs=0.02)
    with pytest.raises(PipelineError, match="2 to 3 folds"):
        cross_validated(records[:3], lambda some: instance_cost(some).cores)


def test_no_samples_are_refused() -> None:
    with pytest.raises(PipelineError, match="at least one sample"):
        learnt_profile([], 4)
    with pytest.raises(PipelineError, match="at least one record"):
        error_of(lambda rate: rate, [])
