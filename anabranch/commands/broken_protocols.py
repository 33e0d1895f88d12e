"""What only a clone of the repository has: protocols that are wrong on purpose."""

from __future__ import annotations

from importlib.util import find_spec

from anabranch.commands.failing import WrongUsage


def need_broken_protocols(option: str) -> None:
    """Raise `WrongUsage` where they are not; what is installed works without them."""
    if find_spec("anabranch.runtime.broken_protocols") is None:
        raise WrongUsage(
            f"{option} needs protocols that are broken on purpose, which are in the repository and "
            "not in an installed package; use it in a clone, where scripts/setup has made .venv"
        )
