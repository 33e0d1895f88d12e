"""An instance's line to the agent of its host: asks for children and splits, reports what happens.

The agent is no part of the protocol. It makes processes, keeps the board of the sources, and
receives what comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from anabranch.runtime.live.link.link import Link
from anabranch.runtime.live.link.messages import (
    Claim,
    Close,
    CopyHolders,
    Decide,
    EndInput,
    EventNote,
    HasMoved,
    LeaveAnswer,
    Order,
    Pin,
    Release,
    Spawn,
    Spawned,
    SplitAnswer,
    Splits,
)
from anabranch.runtime.plan.ends import Split
from anabranch.runtime.ports import clock
from anabranch.runtime.values.kinds import EventKind

NOTES_PER_S = 200
"""Of more notes in a second only these are sent: a storm must not drown the link."""

_decode = msgspec.msgpack.Decoder(
    Spawned
    | LeaveAnswer
    | SplitAnswer
    | Splits
    | Decide
    | Order
    | Pin
    | EndInput
    | HasMoved
    | CopyHolders
    | Close
).decode


class AgentClient:
    def __init__(self) -> None:
        self.on_spawned: Callable[[Spawned], None] = _nobody
        self.on_leave_answer: Callable[[LeaveAnswer], None] = _nobody
        self.on_decide: Callable[[Decide], None] = _nobody
        self.on_order: Callable[[Order], None] = _nobody
        self.on_pin: Callable[[Pin], None] = _nobody
        self.on_end_input: Callable[[], None] = _nobody
        self.on_holders: Callable[[CopyHolders], None] = _nobody
        self.on_moved: Callable[[HasMoved], None] = _nobody
        self.claim_number = 0
        """Of the split that was given last."""
        self._link: Link | None = None
        self._request = 0
        self._claim: asyncio.Future[SplitAnswer] | None = None
        self._news = asyncio.Event()
        self._early: list[bytes] | None = []
        """What the agent sent before the instance was there."""
        self._second = 0
        self._notes = 0

    def attach(self, link: Link) -> None:
        self._link = link

    def begin(self) -> None:
        """The instance exists, and handles messages of the agent."""
        early, self._early = self._early or [], None
        for body in early:
            self.receive(body)

    def send(self, message: Any) -> None:
        assert self._link is not None
        self._link.send(message)

    def hear_end(self, kind: str, detail: str) -> None:
        """What a source or sink gives for the report, by the value of its kind, or a name of its
        own."""
        event = EventKind(kind)
        self.note(event, detail, label=kind if event is EventKind.NOTE else "")

    def note(self, event: EventKind, detail: str = "", *, label: str = "") -> None:
        """Something for the report; bounded per second."""
        t = clock.monotonic()
        if int(t) != self._second:
            self._second, self._notes = int(t), 0
        self._notes += 1
        if self._notes > NOTES_PER_S:
            return
        self.send(EventNote(t=t, event=event, detail=detail, label=label))

    def ask_for_children(
        self, n: int, heritage: dict[str, float], *, relocates: bool, host: str
    ) -> None:
        self._request += 1
        number = self._request
        self.send(Spawn(request=number, n=n, heritage=heritage, relocates=relocates, host=host))

    async def claim(self) -> Split | None:
        """The next split to read; None when the input has ended.

        If cancelled, a split that is under way goes back to the board.
        """
        while True:
            self._news.clear()
            claim: asyncio.Future[SplitAnswer] = asyncio.get_running_loop().create_future()
            self._claim = claim
            self.send(Claim())
            try:
                answer = await claim
            except asyncio.CancelledError:
                if claim.done() and not claim.cancelled() and claim.result().split is not None:
                    # It came in the same moment.
                    self.release(claim.result().split, 0.0, claim.result().number)
                raise
            if answer.split is not None or answer.ended:
                self.claim_number = answer.number
                return answer.split
            await self._news.wait()

    def release(self, remainder: Split | None, progress: float, number: int) -> None:
        """`number`: of the claim that this ends."""
        self.send(Release(remainder=remainder, progress=progress, number=number))

    def receive(self, body: bytes) -> None:
        """One frame of the link."""
        message = _decode(body)
        if self._early is not None and not isinstance(message, CopyHolders):
            self._early.append(body)  # to begin may take a holder that there is only now
            return
        match message:
            case SplitAnswer() as answer:
                self._answered(answer)
            case Splits():
                self._news.set()
            case Spawned() as spawned:
                self.on_spawned(spawned)
            case LeaveAnswer() as answer:
                self.on_leave_answer(answer)
            case Decide() as decision:
                self.on_decide(decision)
            case Order() as order:
                self.on_order(order)
            case Pin() as pin:
                self.on_pin(pin)
            case EndInput():
                self.on_end_input()
            case HasMoved() as moved:
                self.on_moved(moved)
            case CopyHolders() as holders:
                self.on_holders(holders)
            case Close():
                pass  # for services

    def _answered(self, answer: SplitAnswer) -> None:
        if self._claim is not None and not self._claim.done():
            self._claim.set_result(answer)
        elif answer.split is not None:
            # No reader waits for it any more.
            self.release(answer.split, 0.0, answer.number)


def _nobody(*_: Any) -> None:
    raise AssertionError("the agent spoke before the instance was there")
