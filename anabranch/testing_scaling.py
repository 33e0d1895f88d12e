"""How the operators of a pipeline would scale, in virtual time: the same for the same seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from anabranch.runtime.pipeline.graph import Pipeline

if TYPE_CHECKING:
    from anabranch.runtime.world.forecast_values import Forecast


def scaled(
    pipeline: Pipeline,
    load: float | str | None = None,
    *,
    capacity: Mapping[str, float],
    selectivity: Mapping[str, float] | None = None,
    skew: Mapping[str, float] | None = None,
    seconds: float = 60.0,
    seed: int = 0,
) -> Forecast:
    """Let the policies of a pipeline decide under a load, as `anabranch simulate` does.

        found = ab.testing.scaled(pipeline, 350, capacity={"split": 100})
        assert found.courses["split"].instances[-1] == 5

    `load`: tuples per second of every source, or a curve such as "step:before=50,after=350,at_s=20"
    (None: the source's own rate). `capacity`: tuples per second of one instance that is always
    busy, by operator. `selectivity`: results per tuple (1 where not given). `skew`: how uneven the
    keys of operators by key are: the k-th most frequent of 10,000 comes 1 / k^skew times as often
    as the first (0 where not given). `seconds`: of virtual time. Raises `ValueError` where
    something is missing, `PipelineError` for a pipeline that cannot run, and what a policy of one's
    own raises.
    """
    from anabranch.forecasting import arrivals_of, costs_of, curves_of
    from anabranch.runtime.world.forecast import forecast

    pipeline.validate()
    if isinstance(load, Mapping):
        raise ValueError(f"expected a number or the text of a curve as load, got {load!r}")
    curves = curves_of(pipeline, [] if load is None else [str(load)])
    costs = costs_of(
        pipeline,
        report=None,
        capacities=capacity,
        selectivities=selectivity or {},
        skews=skew,
    )
    plain = {name: costed.cost for name, costed in costs.items()}
    return forecast(pipeline, plain, arrivals_of(curves, seconds), seed=seed, seconds=seconds)
