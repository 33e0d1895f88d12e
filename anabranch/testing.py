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

What an operator makes of a tuple goes through all operators behind it before the next is looked
at, in the order in which the pipeline was written. On the way from operator to operator tuples
are encoded as in a run, so what cannot travel is found here too. Event time goes forward after
each tuple that moves it. A run with several instances per operator mixes streams otherwise: what
holds there, and here, is the order of the tuples of one key from one sender.

Nothing goes wrong in that, and nothing scales: `storm` runs the same pipeline while processes die
and instances join, leave and move keys. `scaled` lets its policies decide under a load.

Processing time stands still but for `advance` and where a function waits (`asyncio.sleep`, the
pauses of a `Retry`).
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NoReturn, TypeVar

from anabranch.runtime.keyed.groups import plain_key
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.values.checks import PipelineError
from anabranch.testing_flow import Flow, Node
from anabranch.testing_scaling import scaled
from anabranch.virtual_time import VirtualLoop

__all__ = ["Harness", "Outcome", "by_key", "crash", "harness", "run", "scaled", "storm"]

T = TypeVar("T")


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
        return self.sinks[_known("sink", sink, self.sinks)]

    def watermark(self, operator: str) -> float:
        return self.watermarks[_known("operator", operator, self.watermarks)]


def run(
    pipeline: Pipeline,
    inputs: Mapping[str, Iterable[Any]],
    *,
    instances: Mapping[str, int] | None = None,
    start: float = 0.0,
) -> Outcome:
    """Run a pipeline on given tuples, source name -> tuples, to its end.

    The sources send one after the other, in the order given; all end at the end. `instances`:
    of keyed operators (default 1). `start`: the processing time, in seconds since 1970, at which
    all happens. Raises `PipelineError` for a pipeline that cannot run and for unknown names.
    """
    with Harness(pipeline, instances, start) as h:
        for source, tuples in inputs.items():
            h.send(source, *tuples)
        watermarks = h.watermarks()
        h.close()
        return Outcome(h.flow.delivered, dict(h.flow.late), dict(h.flow.dead), watermarks)


def harness(
    pipeline: Pipeline,
    *,
    instances: Mapping[str, int] | None = None,
    start: float = 0.0,
) -> Harness:
    """A pipeline that is run step by step; see `run` for the arguments."""
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
    Watermarks are not told. The same seed gives the same storm (for the same `PYTHONHASHSEED`, if
    functions depend on the order of sets). With `seed=None` nothing goes wrong but what functions
    do: see `crash`.

    `instances`: of operators, at the beginning. `start`: processing time at the beginning, in
    seconds since 1970; a storm lasts a few seconds of it. Raises `PipelineError` for a pipeline
    that cannot run and for unknown names, and `ab.RunFailed` where a run would fail.
    """
    from anabranch.testing_storm import stormy_run

    pipeline.validate()
    _refuse_running_loop()
    sources = [str(name) for name, o in pipeline.operators.items() if o.source is not None]
    given = {_known("source", name, sources): tuples for name, tuples in inputs.items()}
    sent = {name: given.get(name, ()) for name in sources}
    world, tested, happened = stormy_run(pipeline, sent, instances or {}, seed=seed, start=start)
    late, dead = tested.late_and_dead(world.written)
    return Outcome(tested.results(world.written), late, dead, {}, happened)


def crash() -> NoReturn:
    """End the process of the instance whose function calls this, as a library does that crashes.

        def pay(order):
            if order == "b" and not died:  # a list of the test's: it outlives the process
                died.append(order)
                ab.testing.crash()
            return book(order)

    So an instance dies at a tuple of the test's choice. Only in a `storm`, also one with
    `seed=None`; raises `RuntimeError` elsewhere.
    """
    from anabranch.runtime.world import processes

    try:
        processes.crash()
    except LookupError:
        raise RuntimeError(
            "ab.testing.crash() was called outside of ab.testing.storm: there is no process that "
            "could end"
        ) from None


def by_key(results: Iterable[Any]) -> dict[Any, list[Any]]:
    """Results whose first field is their key, sorted by it: what does not depend on how the
    operators' instances interleave."""
    found: dict[Any, list[Any]] = {}
    for result in results:
        found.setdefault(result[0], []).append(result)
    return found


class Harness:
    """A pipeline that lives in this process. Used with `with`, or closed by `close`."""

    def __init__(
        self, pipeline: Pipeline, instances: Mapping[str, int] | None, start: float
    ) -> None:
        pipeline.validate()
        _refuse_running_loop()
        self._loop = VirtualLoop()
        self._taken: dict[str, int] = {}
        try:
            self.flow = Flow(pipeline, instances or {}, self._loop, start)
        except BaseException:
            self._loop.close()
            raise
        self._closed = False

    # -- what comes in ---------------------------------------------------------------------

    def send(self, source: str, *tuples: Any) -> None:
        """Let a source send tuples; returns when all that follows from them has happened."""
        self._do(self.flow.send(self._source(source), list(tuples)))

    def end(self, source: str) -> None:
        """This source has come to its end; event time does not wait for it any more."""
        self._do(self.flow.end(self._source(source)))

    def advance(self, seconds: float) -> None:
        """Let processing time pass: timers go off, silent devices are no longer waited for."""
        if seconds < 0:
            raise ValueError(f"time does not go back: expected seconds >= 0, got {seconds}")
        self._do(self.flow.advance(seconds))

    def close(self) -> None:
        """End all sources, and with them the stream: what waits for more is made of what there
        is. Results stay readable. Raises what closing the operators' objects raises."""
        if self._closed:
            return
        try:
            self._do(self.flow.close())
        finally:
            self._give_up()

    def __enter__(self) -> Harness:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # After an error of the test the end of the stream would only hide it behind another.
        if error is None:
            self.close()
        else:
            self._give_up()

    def _give_up(self) -> None:
        self._closed = True
        self._loop.close()

    # -- what comes out --------------------------------------------------------------------

    def results(self, sink: str) -> list[Any]:
        """All tuples that have reached a sink."""
        return list(self.flow.delivered[_known("sink", sink, self.flow.delivered)])

    def news(self, sink: str) -> list[Any]:
        """Those that have reached a sink since this was last asked."""
        results = self.results(sink)
        before = self._taken.get(sink, 0)
        self._taken[sink] = len(results)
        return results[before:]

    @property
    def late(self) -> dict[str, list[Any]]:
        """Late tuples so far, by operator."""
        return dict(self.flow.late)

    @property
    def dead(self) -> dict[str, list[DeadLetter]]:
        """Dead letters so far, by operator, without late tuples."""
        return dict(self.flow.dead)

    def watermark(self, operator: str) -> float:
        """How far event time has come: what the operator has told its successors; for a sink,
        what it has been told. -inf before anything was said, +inf at the end of the stream."""
        watermarks = self.watermarks()
        return watermarks[_known("operator", operator, watermarks)]

    def watermarks(self) -> dict[str, float]:
        return {name: node.watermark for name, node in self.flow.nodes.items()}

    @property
    def now(self) -> float:
        """Processing time, in seconds since 1970."""
        return self.flow.wall()

    # -- keys ------------------------------------------------------------------------------

    def group(self, key: Any) -> int:
        """The key group of a key, in this pipeline."""
        return self.flow.group_of[plain_key(key)]

    def owner(self, operator: str, key: Any) -> int:
        """The number of the instance that has a key."""
        return self._keyed(operator).owner_of[self.group(key)]

    def state(self, operator: str, key: Any) -> Any:
        """The state of a key; raises `KeyError` for a key without any."""
        keyed = self._keyed(operator)
        return keyed.instances[self.owner(operator, key)].keyed.states()[plain_key(key)]

    def move(self, operator: str, groups: Iterable[int], *, to: int) -> None:
        """Give key groups, with the state of their keys, to another instance, as scaling does.

        State and timers are pickled on the way; raises what pickle raises.
        """
        with self.moving(operator, groups, to=to):
            pass

    @contextmanager
    def moving(self, operator: str, groups: Iterable[int], *, to: int) -> Iterator[None]:
        """The same in two steps: inside `with` the groups are at rest. Tuples for them wait, and
        are processed at the new owner."""
        keyed = self._keyed(operator)
        if to not in range(len(keyed.instances)):
            raise PipelineError(
                f"operator {operator!r} has no instance {to}: expected 0 to "
                f"{len(keyed.instances) - 1}; give instances={{{operator!r}: {to + 1}}} for more"
            )
        chosen = frozenset(groups)
        if unknown := chosen - set(range(len(keyed.owner_of))):
            raise PipelineError(
                f"no such key group: {min(unknown)}; expected 0 to {len(keyed.owner_of) - 1}"
            )
        moved = keyed.freeze(chosen, to)
        yield
        self._do(self.flow.move(keyed, moved, to))

    def _keyed(self, operator: str) -> Node:
        name = _known("keyed operator", operator, self.flow.keyed)
        return self.flow.keyed[name]

    def _source(self, source: str) -> str:
        return _known("source", source, self.flow.sources)

    def _do(self, what: Coroutine[Any, Any, T]) -> T:
        if self._closed:
            what.close()
            raise RuntimeError("the harness is closed; make another one")
        return self._loop.run_until_complete(what)


def _known(kind: str, name: str, names: Iterable[str]) -> str:
    known = list(names)
    if name in known:
        return name
    near = difflib.get_close_matches(str(name), known, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known) or 'none'}"
    raise PipelineError(f"the pipeline has no {kind} {name!r}; {hint}")


def _refuse_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        "a pipeline is tested on an event loop of its own: call this from a plain function, "
        "not from an `async def`"
    )
