"""A world has nothing on the real disk."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.runtime.ports.disk import DISK
from anabranch.runtime.world.drawing import APART, drawn
from anabranch.runtime.world.trial import WorldVerdict, judged


@pytest.mark.parametrize("seed", [26, 34])
def test_no_call_of_a_world_reaches_the_real_disk(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an agent has others do for it, too, such as to leave the marks of ended instances."""

    def refuse(*asked: Any, **_settings: Any) -> Any:
        reached.append(asked)
        raise PermissionError

    reached: list[Any] = []
    for name in ("open", "read", "status", "names", "make_folder", "rename", "remove", "hold"):
        monkeypatch.setattr(type(DISK), name, refuse)
    assert judged(drawn(seed, APART)).verdict is WorldVerdict.VALID
    assert reached == []
