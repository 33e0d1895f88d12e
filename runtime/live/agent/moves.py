"""Instances that listen elsewhere than they did, since they are on another host: all others are
told, those that begin later, too."""

from __future__ import annotations

from anabranch.runtime.live.agent.messenger import Messenger
from anabranch.runtime.live.agent.roster import Member, Roster
from anabranch.runtime.live.link.messages import HasMoved
from anabranch.runtime.reporting.status import id_to_wire


class Moves:
    def __init__(self, roster: Roster, messenger: Messenger) -> None:
        self._roster = roster
        self._messenger = messenger

    def known_to(self, member: Member) -> list[HasMoved]:
        """What a new incarnation of it needs before it reaches any other."""
        return [_moved(one) for one in self._roster.living() if one.moved and one is not member]

    def tell(self, member: Member) -> None:
        """It is written where it listens now."""
        for other in self._roster.living():
            if other is not member:
                self._messenger.send(other.id, _moved(member))


def _moved(member: Member) -> HasMoved:
    return HasMoved(id=id_to_wire(member.id), incarnation=member.moved, address=member.address)
