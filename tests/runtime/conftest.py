"""What several tests of the runtime need around them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.runtime import fake_instance
from tests.runtime.following_parents import MODULE


@pytest.fixture
def usual_behaviour() -> Iterator[None]:
    """What a test taught the fake instances is forgotten after it."""
    yield
    fake_instance.BEFORE_READY.clear()
    fake_instance.BEHAVIOUR.clear()


@pytest.fixture
def module(tmp_path: Path) -> Iterator[ModuleType]:
    """Of the user's, with the pipeline `here`."""
    (tmp_path / "users_module.py").write_text(MODULE)
    sys.path.insert(0, str(tmp_path))
    import users_module  # type: ignore[import-not-found]

    yield users_module
    sys.path.remove(str(tmp_path))
    del sys.modules["users_module"]
