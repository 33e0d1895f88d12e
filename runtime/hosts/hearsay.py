"""What a host whose name is proved by a certificate may state of other hosts."""

from __future__ import annotations

import msgspec

from anabranch.runtime.hosts.frames import Answer, AnyFrame, Probe, Rows
from anabranch.runtime.hosts.host import HostInfo, HostStatement
from anabranch.runtime.hosts.table import HostRow, Table

FAR, LEAP_MAX, OWN_LEAP_MAX = 2**48, 2**16, 2**40
"""Of incarnations with certificates: no host reaches `FAR` by itself. Beyond it, and what is known,
another host may lift the incarnation of a third one by `LEAP_MAX`. A host objects to what is stated
of it up to `OWN_LEAP_MAX` beyond: so much more that it can always object, and so little that many
years of false statements do not use up the numbers."""


def sayable(frame: AnyFrame, peer: str, table: Table, me: HostInfo) -> tuple[AnyFrame, int]:
    """The frame without what `peer` may not state, and how much of it that was."""
    refused = 0
    opinion = frame.opinion if isinstance(frame, Probe | Answer) else None
    if opinion is not None and not _may_object(opinion.incarnation, me):
        refused += 1
        frame = msgspec.structs.replace(frame, opinion=None)
    if not isinstance(frame, Rows | Answer):
        return frame, refused
    said = frame.rows if isinstance(frame, Rows) else frame.some
    rows = [row for row in said if may_say(peer, row, table.get(row.host.name), me)]
    if len(rows) == len(said):
        return frame, refused
    refused += len(said) - len(rows)
    if isinstance(frame, Rows):
        return Rows(rows, frame.wanted), refused
    return msgspec.structs.replace(frame, some=rows), refused


def may_say(peer: str, said: HostStatement, known: HostRow | None, me: HostInfo) -> bool:
    """Whether a host whose name is proved may state this row. Of itself it may state anything. Of
    others it may repeat what they have stated, and suspect them; what would leave them no
    incarnation to object with, or give their name to another key while they live, it may not."""
    host = said.host
    if host.name == peer:
        return True
    if host.name == me.name:
        return host.key == me.key and _may_object(host.incarnation, me)
    if known is None:
        return host.incarnation <= FAR + LEAP_MAX
    if host.key != known.host.key and known.state.is_live:
        return False
    return host.incarnation <= max(known.host.incarnation, FAR) + LEAP_MAX


def _may_object(incarnation: int, me: HostInfo) -> bool:
    return incarnation <= max(me.incarnation, FAR) + OWN_LEAP_MAX
