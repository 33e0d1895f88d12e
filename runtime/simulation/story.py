"""The exchange of a simulated world, written down row by row while it happens."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from anabranch.protocol.effects import Effect, Terminate, Veto
from anabranch.protocol.events import BatchReady, BatchReceived, Event
from anabranch.protocol.states import State
from anabranch.protocol.table import TABLE
from anabranch.runtime.reporting.wording import condition, tell, tell_sent
from anabranch.runtime.simulation.instance import Instance
from anabranch.runtime.simulation.scene import Scene
from anabranch.runtime.simulation.trial import Outcome, Trial
from anabranch.runtime.simulation.world import Table


@dataclass(frozen=True, slots=True)
class Row:
    """One event at one instance, or something that happened to the world (`actor` is empty).

    `cause`: the event, at the sender, that a message came from, as `O0.1#7`; `name`: of this one.
    """

    at_s: float
    actor: str
    text: str
    sends: tuple[str, ...]
    before: str
    after: str
    name: str
    cause: str
    data: bool

    def __str__(self) -> str:
        if not self.actor:
            return f"{self.at_s:10.5f}  ** {self.text}"
        state = self.after if self.before == self.after else f"{self.before}->{self.after}"
        sent = "".join(f"; {s}" for s in self.sends)
        return f"{self.at_s:10.5f}  {self.actor} {self.text}{sent}  [{state}]"


class Story:
    """`rows` in the order in which they happened; the clock is that of the trial's world."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.trial: Trial | None = None

    def watch(
        self, me: Instance, event: Event, before: State, done: tuple[Effect, ...], cause: str
    ) -> None:
        data = isinstance(event, BatchReceived | BatchReady)
        ends = [f"ends ({e.reason})" for e in done if isinstance(e, Terminate)]
        vetoes = [f"may not: {e.reason}" for e in done if isinstance(e, Veto)]
        self.rows.append(
            Row(
                at_s=me.clock.now,
                actor=str(me.me),
                text=tell(event),
                sends=(*tell_sent(done), *ends, *vetoes),
                before=condition(before),
                after=condition(me.core.state),
                name="" if data else me.core.last_event,
                cause=cause,
                data=data,
            )
        )

    def remark(self, text: str) -> None:
        assert self.trial is not None
        now_s = self.trial.world.clock.now
        self.rows.append(Row(now_s, "", text, (), "", "", "", "", False))

    @property
    def digest(self) -> str:
        """Equal for equal stories, in every process."""
        whole = "\n".join(map(str, self.rows)).encode()
        return hashlib.blake2b(whole, digest_size=8).hexdigest()


def told(scene: Scene, *, table: Table = TABLE) -> tuple[Outcome, Story]:
    """Let a scene happen, and write it down."""
    story = Story()
    story.trial = Trial(scene, table=table, watch=story.watch, remark=story.remark)
    return story.trial.run(), story
