"""What several tests of the runtime need around them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.runtime import fake_instance


@pytest.fixture
def usual_behaviour() -> Iterator[None]:
    """What a test taught the fake instances is forgotten after it."""
    yield
    fake_instance.BEFORE_READY.clear()
    fake_instance.BEHAVIOUR.clear()
