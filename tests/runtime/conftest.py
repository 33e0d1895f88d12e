"""What several tests of the runtime need around them."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from anabranch.runtime.live.agent import deaths
from tests.runtime import fake_instance
from tests.runtime.following_parents import MODULE


@pytest.fixture
def usual_behaviour() -> Iterator[None]:
    """What a test taught the fake instances is forgotten after it."""
    yield
    fake_instance.BEFORE_READY.clear()
    fake_instance.BEHAVIOUR.clear()


@pytest.fixture
def deaths_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a busy machine takes from one to the next."""
    monkeypatch.setattr(deaths, "RESUMES_WINDOW_S", math.inf)
    monkeypatch.setattr(deaths, "IDLE_LIFETIME_S", math.inf)


@pytest.fixture
def module(tmp_path: Path) -> Iterator[ModuleType]:
    """Of the user's, with the pipeline `here`."""
    (tmp_path / "users_module.py").write_text(MODULE)
    sys.path.insert(0, str(tmp_path))
    import users_module  # type: ignore[import-not-found]

    yield users_module
    sys.path.remove(str(tmp_path))
    del sys.modules["users_module"]
