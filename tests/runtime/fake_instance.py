"""An instance without a protocol: speaks to its agent as a real one does, and moves no tuples.

Forked processes inherit `BEHAVIOUR` as it was when the run began.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from anabranch.runtime.live.link import messages as msg
from anabranch.runtime.live.link.link import receive_blocking, send_blocking
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.ends import Reader, RunContext, Sink, Source, Split, Writer
from anabranch.runtime.plan.operator import Operator
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.reporting.status import FinalCount, Status, id_from_wire
from anabranch.runtime.values.kinds import EventKind
from tests.runtime.processes import PATIENCE_S

ENTRY = "tests.runtime.fake_instance:run_fake"
POLL_S = 0.01

BEHAVIOUR: dict[str, Callable[[Fake], None]] = {}
"""What instances of an operator do once they are ready, before their usual work."""

BEFORE_READY: dict[str, Callable[[Fake], None]] = {}

_decode = msgspec.msgpack.Decoder(msg.ToProcess).decode


class Fake:
    def __init__(self, link: socket.socket, assign: msg.Assign, pipeline: Pipeline) -> None:
        self.link = link
        self.assign = assign
        self.id = id_from_wire(assign.id)
        self.operator: Operator = pipeline.operators[self.id.operator]
        self.run_dir = Path(assign.run_dir)
        self.claimed: list[Split] = []
        self.joins = 0
        self.has_said_status = False
        self.input_has_ended = False

    def say(self, message: Any) -> None:
        send_blocking(self.link, message)

    def note(self, event: str, detail: str = "") -> None:
        kind = EventKind(event)
        label = event if kind is EventKind.NOTE else ""
        self.say(msg.EventNote(t=time.monotonic(), event=kind, detail=detail, label=label))

    def status(self, **values: Any) -> None:
        self.has_said_status = True
        self.say(Status(id=str(self.id), operator=self.id.operator, t=time.monotonic(), **values))

    def hear(self, timeout_s: float = PATIENCE_S) -> msg.ToProcess | None:
        """The next message; None after the timeout. Exits if the agent is gone."""
        if not select.select([self.link], [], [], timeout_s)[0]:
            return None
        body = receive_blocking(self.link)
        if body is None:
            os._exit(75)
        message: msg.ToProcess = _decode(body)
        self.input_has_ended |= isinstance(message, msg.EndInput)
        return message

    def expect(self, kind: type[Any]) -> Any:
        """The next message of that kind; others on the way are dropped."""
        while not isinstance(message := self.hear(), kind):
            assert message is not None
        return message

    def gone(self, **values: Any) -> NoReturn:
        final = FinalCount(id=str(self.id), operator=self.id.operator, joins=self.joins, **values)
        (self.run_dir / f"{self.id}.gone").touch()
        self.say(final)
        os._exit(0)

    def read_everything(self) -> None:
        """Claim splits until the input has ended; an unbounded one is told to."""
        assert self.operator.source is not None
        while True:
            self.say(msg.Claim())
            answer = self.expect(msg.SplitAnswer)
            if answer.split is not None:
                self.claimed.append(answer.split)
                if not self.operator.source.bounded and not self.input_has_ended:
                    self.expect(msg.EndInput)
                self.say(msg.Release(remainder=None, progress=1.0))
            elif answer.ended:
                return
            else:
                self.expect(msg.Splits)

    def wait_until_preds_are_gone(self) -> None:
        """Obeys scripted decisions meanwhile."""
        assert self.assign.bootstrap is not None
        waiting = {self.run_dir / f"{id_from_wire(p)}.gone" for p in self.assign.bootstrap.preds}
        while waiting:
            self.obey(self.hear(POLL_S))
            waiting = {path for path in waiting if not path.exists()}

    def obey(self, message: msg.ToProcess | None) -> None:
        match message:
            case msg.Decide(action="duplicate", n=n):
                self.say(msg.Spawn(request=1, n=n))
            case msg.Decide(action="leave"):
                self.gone(leaves=1)
            case msg.Spawned(children=children):
                self.joins += len(children)
                for child, _ in children:
                    (self.run_dir / f"{id_from_wire(child)}.start").touch()

    def wait_to_be_started(self) -> None:
        """A newcomer: its creator says START with a file."""
        while not (self.run_dir / f"{self.id}.start").exists():
            self.hear(POLL_S)
        self.note("started")

    def work(self) -> NoReturn:
        if self.assign.bootstrap is None:
            self.wait_to_be_started()
            while True:
                self.obey(self.hear(POLL_S))
                if list(self.run_dir.glob(f"{self.id.operator}.0.gone")):
                    self.gone()
        if not self.has_said_status:
            self.status()
        if self.operator.source is not None:
            self.read_everything()
        else:
            self.wait_until_preds_are_gone()
        self.gone(tuples_in=len(self.claimed), processed=len(self.claimed))


def run_fake(link: socket.socket, assign: dict[str, Any], pipeline: Pipeline) -> NoReturn:
    fake = Fake(link, msgspec.convert(assign, msg.Assign), pipeline)
    BEFORE_READY.get(fake.id.operator, nothing)(fake)
    fake.say(msg.Ready(address=f"unix:{fake.run_dir}/{os.getpid()}.s"))
    BEHAVIOUR.get(fake.id.operator, nothing)(fake)
    fake.work()
    sys.exit(1)


def nothing(_fake: Fake) -> None:
    return


class Numbers(Source):
    """`count` splits, one number each."""

    def __init__(self, count: int = 3) -> None:
        self.count = count

    def splits(self) -> Iterator[Split]:
        return ({"n": n} for n in range(self.count))

    def size(self) -> float | None:
        return float(self.count)

    def open(self, split: Split, context: RunContext) -> Reader:
        raise NotImplementedError


class Endless(Numbers):
    """One split, which is read until the input is told to end."""

    bounded = False

    def __init__(self) -> None:
        super().__init__(1)

    def size(self) -> float | None:
        return None


class Nowhere(Sink):
    def open(self, context: RunContext) -> Writer:
        raise NotImplementedError


def three_operators(source: Source | None = None, **scale: Any) -> Pipeline:
    """lines -> work -> out"""
    pipeline = Pipeline("fake")
    lines = pipeline.source("lines", source or Numbers())
    lines.map("work", str, scale=Scale(**scale)).sink("out", Nowhere())
    return pipeline
