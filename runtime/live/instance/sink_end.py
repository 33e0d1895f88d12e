"""The writer of a sink, what it has taken, and whether that is safe.

With a journal, results are recorded before they are put at the target, under a number by which the
target recognises them. A target that cannot do that gets them first, and they are recorded then:
after a death it may get the last ones twice.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anabranch.runtime.live.commit.output_buffer import OutputBuffer
from anabranch.runtime.plan.ends import DeadLetter, ExactWriter
from anabranch.runtime.ports import clock
from anabranch.runtime.values.kinds import EventKind

if TYPE_CHECKING:
    from anabranch.runtime.live.commit.recovery import Past
    from anabranch.runtime.live.instance.ports import Ports

now = clock.monotonic

RESULTS = "results"


class SinkEnd:
    def __init__(self, ports: Ports) -> None:
        profile, commits = ports.profile, ports.commits
        sink, writer = profile.operator.sink, ports.beginning.writer
        assert sink is not None
        assert writer is not None
        self.committed = True
        self._exact = profile.exact
        self._loses = profile.duties.loses
        self._commits = commits
        self._path = ports.path
        self._patience = ports.patience
        self._agent_client = ports.agent_client
        self._sink = sink
        self._writer = writer
        self._last_put = ports.beginning.last_put
        self._buffer: OutputBuffer | None = None
        if profile.exact and commits is not None and isinstance(writer, ExactWriter):
            self._buffer = OutputBuffer(RESULTS, commits, writer.put, ports.patience)

    @property
    def number(self) -> int:
        return self._buffer.number if self._buffer is not None else 0

    def restore(self, number: int, past: Past) -> None:
        if self._buffer is not None:
            self._buffer.restore(number, past.lasting.get(RESULTS, {}), self._last_put)
            self.committed = not self._buffer.waiting
            return
        if self._exact and not self._sink.exact:
            self._agent_client.note(EventKind.MAY_REPEAT, "the last results before the death")

    @property
    def is_exact(self) -> bool:
        return self._buffer is not None

    def stage(self, tuples: list[Any], born: float) -> int:
        """Let results belong to the present commit; how many of them are refused. Exact sinks."""
        assert self._buffer is not None
        assert isinstance(self._writer, ExactWriter)
        self.committed = False
        data, refused = self._writer.stage(tuples)
        return self._staged(data, tuples, refused, born)

    def _staged(
        self, data: bytes, tuples: list[Any], refused: list[DeadLetter], born: float
    ) -> int:
        assert self._buffer is not None
        self._buffer.add(data)
        self._account(tuples, refused, born)
        return len(refused)

    @property
    def gather(self) -> tuple[int, float] | None:
        """How many tuples to write at once, or after how many seconds those that there are."""
        return self._writer.gather if isinstance(self._writer, ExactWriter) else None

    async def take(self, tuples: list[Any], born: float, taken: Callable[[int], None]) -> None:
        """Write tuples; `taken` gets how many of them are refused, in the commit to which that
        belongs, and the results with it."""
        if self._buffer is None:
            taken((await self.write(tuples, born))[0])
            return
        if self.gather is None:
            taken(self.stage(tuples, born))
        else:  # so many that others would have to wait
            assert isinstance(self._writer, ExactWriter)
            self.committed = False
            data, refused = await asyncio.to_thread(self._writer.stage, tuples)
            taken(self._staged(data, tuples, refused, born))
        await self.put()

    def probe(self, one: Any) -> None:
        """Do with a tuple what could end the process, and nothing else."""
        assert isinstance(self._writer, ExactWriter)
        self._writer.stage([one])

    async def put(self) -> float:
        """Put at the target what is staged; how long that took, in seconds."""
        began = now()
        if self._buffer is not None:
            await self._buffer.all_done()
        return now() - began

    async def write(self, tuples: list[Any], born: float) -> tuple[int, float]:
        """Write tuples; how many were refused, and how many seconds it took. Other sinks."""
        began = now()
        self.committed = False
        if self._loses and self._commits is not None:
            await self._commits.committed()  # that it has come in: it may not come again
        if isinstance(self._writer, ExactWriter):
            data, refused = self._writer.stage(tuples)
            put = functools.partial(self._writer.put_next, data)
            await self._patience.outlast(put)
        else:
            refused = await self._writer.write(tuples)
        self._account(tuples, refused, born)
        return len(refused), now() - began

    def _account(self, tuples: list[Any], refused: list[DeadLetter], born: float) -> None:
        counts = self._path.counts
        counts.tuples_out += len(tuples) - len(refused)
        counts.note_latency(1000 * (now() - born), len(tuples))
        if refused:
            self._path.bury(refused)

    async def commit(self) -> None:
        await self.put()
        await self._writer.flush()
        self.committed = True

    async def close(self) -> None:
        await self._writer.close()
