"""Tests of pipelines: in one process, in virtual time, always the same.

    def test_words_are_counted():
        outcome = ab.testing.run(pipeline, {"lines": ["a b", "a"]})
        assert outcome["out"] == [("a", 1), ("b", 1), ("a", 2)]

The tuples given stand in for the sources, and what reaches the sinks is kept: no file is touched.
Step by step, with time that passes when the test says so, and keys that change their owner:

    with ab.testing.harness(pipeline, instances={"count": 2}) as h:
        h.send("lines", "a b")
        h.move("count", [h.group("a")], to=1)
        h.send("lines", "a")
        h.advance(10.0)
        assert h.results("out") == [("a", 1), ("b", 1), ("a", 2)]

The code of a real run is what runs, agent and instances in one process (`runtime.world.stepped`),
over a network without latency. Each step is over when all that follows from it has happened. Event
time goes forward behind each tuple that moves it. The same test gives the same results in the same
order. With several branches or instances a run mixes them otherwise: what holds there, and here, is
the order of the tuples of one key from one sender.

Operators have as many instances as the test says: their policies do not decide. Instances join,
leave and die when the test says so. In a `storm` that happens by chance, and much goes wrong with
it. `scaled` lets policies decide under a load.

Processing time stands still but for `advance` and where a function waits (`asyncio.sleep`, the
pauses of a `Retry`; in threads, as long as they really take).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.values.checks import PipelineError
from anabranch.runtime.values.foreign import shown
from anabranch.testing_harness import Harness
from anabranch.testing_instances import known
from anabranch.testing_scaling import scaled

__all__ = ["Harness", "Outcome", "by_key", "crash", "harness", "run", "scaled", "storm"]


@dataclass(frozen=True)
class Outcome:
    """What came of a run. `outcome["out"]`: the tuples that reached the sink `out`, in order.

    `late`: late tuples by operator, whatever it does with them. `dead`: dead letters by operator,
    other than late ones. Neither has operators without any.
    """

    sinks: Mapping[str, list[Any]]
    late: Mapping[str, list[Any]]
    dead: Mapping[str, list[DeadLetter]]
    watermarks: Mapping[str, float]
    """How far event time had come at the end of the input, before the stream ended."""
    happened: Mapping[str, int] = field(default_factory=dict)
    """In a storm: how often what, such as `deaths` of processes, `joins`, `leaves`, `moves`."""

    def __getitem__(self, sink: str) -> list[Any]:
        return self.sinks[known("sink", sink, self.sinks)]

    def watermark(self, operator: str) -> float:
        return self.watermarks[known("operator", operator, self.watermarks)]


def run(
    pipeline: Pipeline,
    inputs: Mapping[str, Iterable[Any]],
    *,
    instances: Mapping[str, int] | None = None,
    start: float = 0.0,
) -> Outcome:
    """Run a pipeline on given tuples, source name -> tuples, to its end.

    The sources send one after the other, in the order given; all end at the end. `instances`:
    of operators (default 1). `start`: the processing time, in seconds since 1970, at which all
    happens. Raises `PipelineError` for a pipeline that cannot run and for unknown names, and
    `ab.RunFailed` where a run would fail.
    """
    with harness(pipeline, instances=instances, start=start) as h:
        _check_inputs(pipeline, inputs)
        for source, tuples in inputs.items():
            h.send(source, *tuples)
        watermarks = h.watermarks()
        h.close()
        return Outcome(h.all_results(), h.late, h.dead, watermarks)


def harness(
    pipeline: Pipeline,
    *,
    instances: Mapping[str, int] | None = None,
    start: float = 0.0,
) -> Harness:
    """A pipeline that is run step by step; see `run` for the arguments."""
    _refuse_running_loop()
    return Harness(pipeline, instances, start)


def storm(
    pipeline: Pipeline,
    inputs: Mapping[str, Iterable[Any]],
    *,
    seed: int | None,
    instances: Mapping[str, int] | None = None,
    start: float = 0.0,
) -> Outcome:
    """Run a pipeline on given tuples to its end while much goes wrong, drawn from `seed`.

        @pytest.mark.parametrize("seed", range(50))
        def test_words_are_counted_in_any_weather(seed):
            outcome = ab.testing.storm(pipeline, {"lines": lines}, seed=seed)
            assert Counter(outcome["out"]) == expected(lines)

    The code of a real run is what runs, on virtual time: the agent, and instances that join, leave
    and move key groups where their operators may scale, whose processes die and whose connections
    break; the disk is full for a moment, all processes end at once, and with `durable="power"` the
    power is lost with them. The result must be what `delivery` promises. All sources send at the
    same time, each in its order; so results depend on the seed where their order depends on chance.
    The outcome has no watermarks. The same seed gives the same storm (for the same
    `PYTHONHASHSEED`, if functions depend on the order of sets). With `seed=None` nothing goes wrong
    but what functions do: see `crash`.

    `instances`: of operators, at the beginning. `start`: processing time at the beginning, in
    seconds since 1970; a storm lasts a few seconds of it. Raises `PipelineError` for a pipeline
    that cannot run and for unknown names, and `ab.RunFailed` where a run would fail.
    """
    from anabranch.testing_storm import stormy_run

    pipeline.validate()
    _refuse_running_loop()
    sent = {name: inputs.get(name, ()) for name in _check_inputs(pipeline, inputs)}
    world, tested, happened = stormy_run(pipeline, sent, instances or {}, seed=seed, start=start)
    late, dead = tested.late_and_dead(world.written)
    results = {sink: tested.results(sink, world.written) for sink in tested.sinks}
    return Outcome(results, late, dead, {}, happened)


def crash() -> NoReturn:
    """End the process of the instance whose function calls this, as a library does that crashes.

        def pay(order):
            if order == "b" and not died:  # a list of the test's: it outlives the process
                died.append(order)
                ab.testing.crash()
            return book(order)

    So an instance dies at a tuple of the test's choice. Raises `RuntimeError` where no pipeline is
    tested.
    """
    from anabranch.runtime.world import processes

    try:
        processes.crash()
    except LookupError:
        raise RuntimeError(
            "ab.testing.crash() was called outside of a run of ab.testing: there is no process "
            "that could end"
        ) from None


def by_key(results: Iterable[Any]) -> dict[Any, list[Any]]:
    """Results whose first field is their key, sorted by it: what does not depend on how the
    operators' instances interleave."""
    found: dict[Any, list[Any]] = {}
    for result in results:
        found.setdefault(result[0], []).append(result)
    return found


def _check_inputs(pipeline: Pipeline, inputs: Mapping[str, Iterable[Any]]) -> list[str]:
    """The names of the sources. Raises `PipelineError` unless these are tuples by source."""
    sources = [str(name) for name, o in pipeline.operators.items() if o.source is not None]
    if not isinstance(inputs, Mapping):
        raise PipelineError(
            "inputs: expected lists of tuples by the names of their sources, such as "
            f"{{{sources[0]!r}: [...]}}, got {shown(inputs)}"
        )
    for name, tuples in inputs.items():
        known("source", name, sources)
        if isinstance(tuples, str | bytes | Mapping) or not isinstance(tuples, Iterable):
            raise PipelineError(
                f"inputs: expected a list of tuples for source {name!r}, got {shown(tuples)}; "
                "if it is one tuple, put it in a list"
            )
    return sources


def _refuse_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        "a pipeline is tested on an event loop of its own: call this from a plain function, "
        "not from an `async def`"
    )
