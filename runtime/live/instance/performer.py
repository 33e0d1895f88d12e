"""What the core asks for is done here, and nothing decided."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import assert_never

from anabranch.protocol import effects
from anabranch.protocol.core import Core
from anabranch.protocol.effects import Effect
from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.protocol.messages import Message
from anabranch.protocol.rules.leave import is_leaving
from anabranch.runtime.live.instance.agent_client import AgentClient
from anabranch.runtime.live.instance.lifetime import Lifetime
from anabranch.runtime.live.instance.pumps import Pump
from anabranch.runtime.live.instance.tuple_path import TuplePath
from anabranch.runtime.values.kinds import EventKind


class Performer:
    """`heritage`: what each of so many newcomers gets; `concluded`: called when an operation
    is over."""

    def __init__(
        self,
        core: Core,
        lifetime: Lifetime,
        path: TuplePath,
        pump: Pump,
        agent_client: AgentClient,
        *,
        heritage: Callable[[int], dict[str, float]],
        concluded: Callable[[], None],
    ) -> None:
        self._core = core
        self._lifetime = lifetime
        self._path = path
        self._pump = pump
        self._agent_client = agent_client
        self._heritage = heritage
        self._concluded = concluded
        self._counted: Counter[OperatorName] = Counter()

    def perform(self, effect: Effect) -> None:
        note, path, pump = self._agent_client.note, self._path, self._pump
        match effect:
            case effects.SendMessage(to=to, message=message):
                self._send(to, message)
            case effects.ChangeView(succs=succs, preds=preds, routes=routes):
                path.change_view(succs, preds, routes)
                self._tell_counts(succs, preds)
            case effects.BeginProcessing():
                self._lifetime.began.set()
                note(EventKind.STARTED)
            case effects.AwaitDrained(stream_ends=stream_ends):
                if stream_ends:
                    pump.must_end()
                path.await_drained()
            case effects.StopIntake():
                pump.stop()
            case effects.SpawnInstances(n=n, host=host):
                relocates = is_leaving(self._core.state)
                heritage = self._heritage(n - relocates)
                self._agent_client.ask_for_children(n, heritage, relocates=relocates, host=host)
            case effects.ChangeRole(keeper=keeper):
                note(EventKind.KEEPER if keeper else EventKind.NO_KEEPER)
            case effects.Conclude(outcome=outcome, new=new):
                if outcome == "joined":
                    path.counts.joins += len(new)
                note(EventKind(outcome), " ".join(map(str, sorted(new))))
                self._concluded()
            case effects.Veto(reason=reason):
                note(EventKind.VETO, reason)
            case effects.Terminate(reason=reason):
                path.counts.leaves = int(reason == "left")
                note(EventKind(reason))
                self._lifetime.end(reason)
            case effects.AcceptBatch() | effects.SendBatch():
                pass  # performed where the payload is: `Reception`, `TuplePath`
            case effects.OwnGroups(groups=groups):
                pump.groups.own(groups)
            case effects.ResumeGroups(owned=owned, frozen=frozen):
                pump.groups.resume(owned, frozen)
            case effects.FreezeGroups(groups=groups, new_owner=new_owner):
                catch_up = path.watermarks.new_owner if new_owner is not None else -math.inf
                pump.groups.freeze(groups, catch_up)
            case effects.TransferGroups(to=to, groups=groups):
                pump.groups.transfer(to, groups)
            case effects.ExpectState(sender=sender):
                pump.groups.expected.expect(sender)
            case effects.StateComplete(sender=sender, groups=groups):
                pump.groups.expected.complete(sender, groups)
            case _:
                assert_never(effect)

    def _send(self, to: InstanceId, message: Message) -> None:
        neighbourhood = self._path.neighbourhood
        channel = neighbourhood.channel_to(to)
        how_far = self._path.watermarks.how_far
        channel.send_message(message, self._core.last_event, neighbourhood.book, how_far)

    def _tell_counts(self, succs: frozenset[InstanceId], preds: frozenset[InstanceId]) -> None:
        """Send neighbours how many of them there are."""
        channel_to = self._path.neighbourhood.channel_to
        for pred in sorted(preds):  # in the same order in every process
            channel_to(pred)
        counts = Counter(x.operator for x in succs | preds)
        for neighbour in sorted(succs | preds):
            if counts[neighbour.operator] != self._counted[neighbour.operator]:
                channel_to(neighbour).statements.later()
        self._counted = counts
