"""At least one way to break each rule of `docs/protocol.md` 2.3, 2.8, 2.9, 5 and 6."""

from anabranch.runtime.broken_protocols.variants import (
    adopting,
    finishing,
    flowing,
    joining,
    keeping,
    leaving,
    moving,
    relocating,
    restarting,
)
from anabranch.runtime.broken_protocols.variants.variant import Variant

__all__ = ["VARIANTS", "Variant"]

_FILES = (
    joining,
    leaving,
    keeping,
    flowing,
    finishing,
    relocating,
    adopting,
    moving,
    restarting,
)
VARIANTS: tuple[Variant, ...] = tuple(v for file in _FILES for v in file.VARIANTS)
