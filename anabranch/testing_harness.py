"""A pipeline that a test runs step by step: the code of a real run in one process, which goes on
only as far as the test says (`runtime.world.stepped`)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any
from weakref import finalize

from anabranch.protocol.limits import DEFAULT_LIMITS
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.pipeline.options import Options
from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.values.checks import PipelineError, check_number
from anabranch.runtime.world.load import FOLDER
from anabranch.runtime.world.stepped import SteppedWorld
from anabranch.testing_ends import Fed, Feed, tested, unheard
from anabranch.testing_instances import InstancesUnderTest, known


class Harness(InstancesUnderTest):
    """A pipeline that lives in this process. Used with `with`, or closed by `close`."""

    def __init__(
        self, pipeline: Pipeline, instances: Mapping[str, int] | None, start: float
    ) -> None:
        pipeline.validate()
        timed = any(o.timing is not None for o in pipeline.operators.values())
        sources = [str(name) for name, o in pipeline.operators.items() if o.source is not None]
        self._feeds = {name: Feed(one_by_one=timed) for name in sources}
        fed = {name: Fed(feed) for name, feed in self._feeds.items()}
        self._tested = tested(pipeline, fed, instances or {}, FOLDER, may_join=True)
        self._start = start
        self._taken: dict[str, int] = {}
        limits = replace(
            DEFAULT_LIMITS,
            batch_tuples_max=1 if timed else DEFAULT_LIMITS.batch_tuples_max,
            linger_s=0.0,
            watermark_period_s=0.0,
        )
        options = Options(scaling=False, warm=0, limits=limits, on_output=unheard)
        super().__init__(pipeline, SteppedWorld(self._tested.pipeline, options, start))
        self._left_open = finalize(self, _leave, self._world)
        try:
            self._do(self._world.begin)
        except BaseException:
            self._give_up()
            raise

    # -- what comes in ---------------------------------------------------------------------

    def send(self, source: str, *tuples: Any) -> None:
        """Let a source send tuples; returns when all that follows from them has happened."""
        self._refuse_closed()
        feed = self._feed(source)
        if feed.ended:
            raise PipelineError(f"source {source!r} has ended and sends nothing more")
        feed.send(tuples)
        self._do(self._world.settle)

    def end(self, source: str) -> None:
        """This source has come to its end; event time does not wait for it any more."""
        self._refuse_closed()
        self._feed(source).end()
        self._do(self._world.settle)

    def advance(self, seconds: float) -> None:
        """Let processing time pass: timers go off, silent devices are no longer waited for."""
        self._refuse_closed()
        check_number("advance: seconds", seconds)
        if seconds < 0:
            raise ValueError(f"time does not go back: expected seconds >= 0, got {seconds}")
        self._do(lambda: self._world.pass_(seconds))

    def close(self) -> None:
        """End all sources, and with them the stream: what waits for more is made of what there
        is. Results stay readable. Raises `ab.RunFailed` if the run fails in the end."""
        if self._closed:
            return
        for feed in self._feeds.values():
            feed.end()
        try:
            self._do(self._world.finish)
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
        self._left_open.detach()
        self._world.give_up()

    # -- what comes out --------------------------------------------------------------------

    def results(self, sink: str) -> list[Any]:
        """All tuples that have reached a sink."""
        known("sink", sink, self._tested.sinks)
        return self._tested.results(sink, self._world.written)

    def all_results(self) -> dict[str, list[Any]]:
        return {sink: self.results(sink) for sink in self._tested.sinks}

    def news(self, sink: str) -> list[Any]:
        """Those that have reached a sink since this was last asked."""
        results = self.results(sink)
        before = self._taken.get(sink, 0)
        self._taken[sink] = len(results)
        return results[before:]

    @property
    def late(self) -> dict[str, list[Any]]:
        """Late tuples so far, by operator."""
        return self._tested.late_and_dead(self._world.written)[0]

    @property
    def dead(self) -> dict[str, list[DeadLetter]]:
        """Dead letters so far, by operator, without late tuples."""
        return self._tested.late_and_dead(self._world.written)[1]

    def watermark(self, operator: str) -> float:
        """How far event time has come: the watermark that the operator has sent to its successors;
        for a sink, the one that it has received. -inf at first, +inf at the end of the stream."""
        known("operator", operator, self._pipeline.operators)
        return self.watermarks()[operator]

    def watermarks(self) -> dict[str, float]:
        found = dict.fromkeys(map(str, self._pipeline.operators), math.inf)
        if not self._closed:
            for instance in self._world.instances():
                name = str(instance.me.operator)
                if name in found:
                    found[name] = min(found[name], instance.path.watermarks.stated)
        return found

    @property
    def now(self) -> float:
        """Processing time, in seconds since 1970."""
        return self._start + self._world.clock.passed_s

    def _feed(self, source: str) -> Feed:
        return self._feeds[known("source", source, self._feeds)]


def _leave(world: SteppedWorld) -> None:
    """What becomes of a harness that is not used any more and was not closed."""
    world.give_up()
    warnings.warn(
        "a pipeline under test was not closed, so its stream has not ended: "
        "use `with ab.testing.harness(...) as h:`, or call h.close()",
        ResourceWarning,
        stacklevel=2,
    )
