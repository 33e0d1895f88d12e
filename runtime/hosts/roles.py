"""The identity of another end by its certificate, and what it may do.

A certificate names its owner in CN and each role in an OU of its subject, where the TLS of Python
shows them without another package.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

VIEW, SUBMIT, OPERATE, AGENT = "view", "submit", "operate", "agent"
ROLES = (VIEW, SUBMIT, OPERATE, AGENT)
COVERS = {
    VIEW: {VIEW},
    SUBMIT: {SUBMIT, VIEW},
    OPERATE: {OPERATE, SUBMIT, VIEW},
    AGENT: {AGENT},
}
"""What a role allows. That of an agent is to take part in the gossip, and to have instances of its
pipelines on other hosts."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a stream, proved by its certificate."""

    name: str
    roles: frozenset[str]

    def may(self, role: str) -> bool:
        return any(role in COVERS.get(mine, ()) for mine in self.roles)


def peer_of(subject: Iterable[Iterable[tuple[str, Any]]]) -> Peer | None:
    """Of the subject of a certificate that was verified; None if it names none or two."""
    fields = [field for part in subject for field in part]
    names = [str(value) for key, value in fields if key == "commonName"]
    roles = frozenset(str(value) for key, value in fields if key == "organizationalUnitName")
    return Peer(names[0], roles) if len(names) == 1 else None
