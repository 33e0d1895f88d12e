"""Where the published protocol fails, and where it holds."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.runtime.broken_protocols.published import CHARITABLE, PaperReading, Published
from anabranch.runtime.explorer.scope import Scope
from anabranch.runtime.explorer.scopes import scopes_of


@dataclass(frozen=True, slots=True)
class Counterexample:
    """A fault of the published protocol: `docs/protocol.md` 1.3. `steps`: of the shortest story."""

    name: str
    scope: Scope
    steps: int
    code: str
    reading: PaperReading = CHARITABLE
    strict: bool = False
    wanted: str = ""
    """Words of the fault, since another fault in the same scope has as short a story."""

    def machine(self) -> Published:
        return Published(self.reading, strict=self.strict)

    def is_it(self, fault: str) -> bool:
        return fault.startswith(f"{self.code}:") and self.wanted in fault


_LITERAL = PaperReading(by_operator=False)
_UNGUARDED = PaperReading(serial=False)

PUBLISHED = tuple(
    Counterexample(name, Scope.parse(scope), steps, code, *more)
    for name, scope, steps, code, *more in (
        ("PF1", "1,1 joins=1 tuples=1", 4, "S1", PaperReading(buffers=False)),
        ("PF2", "1,2,2 leaves=2 tuples=1", 10, "S1"),
        ("PF3", "1,2 joins=1 leaves=2", 14, "L1"),
        ("PF3b", "1,1 joins=2 leaves=2", 16, "L1"),
        ("PF3c", "1,1,2 joins=1 leaves=2", 18, "L1"),
        ("PF3d", "1,2,1 joins=1 leaves=2 tuples=1", 16, "S1"),
        ("PF4", "1,1 joins=2", 10, "S4", _LITERAL),
        ("PF5", "1,2 joins=1 leaves=1 tuples=1", 14, "S1", _LITERAL),
        ("PF6", "1,1 joins=2", 7, "L1", _UNGUARDED),
        ("PF6b", "1,1 joins=2 tuples=1", 9, "L2", _UNGUARDED),
        ("PF7", "1,2 joins=1 leaves=1", 7, "L1", _UNGUARDED, False, "deletion acks"),
        ("PF8", "1,2 joins=1 leaves=1", 7, "S3", _UNGUARDED, True),
        ("PF9", "1,2,1 joins=1 leaves=1 tuples=1", 9, "S1", _UNGUARDED),
    )
)

PUBLISHED_HOLDS = scopes_of(
    # In the charitable reading joins alone are safe, and so is one deletion among them.
    "1,1,1 joins=3",
    "1,2,1 joins=2 tuples=1",
    "1,1,1 joins=2 leaves=1",
    "1,1,1,1 joins=2 leaves=1",
    "1,3,1 leaves=2 tuples=1",
    "1,1,1 joins=1 leaves=2 tuples=1",
)
