"""What an instance has opened before it begins."""

from __future__ import annotations

import errno
from functools import partial
from types import SimpleNamespace
from typing import Any

from anabranch.runtime.live.instance import beginning
from anabranch.runtime.plan.ends import DeadLetter, ExactWriter
from anabranch.runtime.storage.patience import Patience
from tests.runtime.virtual_time import in_virtual_time


class Refusing(ExactWriter):
    """The first of them cannot be asked what it has put."""

    made: list[Refusing]

    def __init__(self) -> None:
        self.is_open = True
        self.made.append(self)

    def stage(self, tuples: list[Any]) -> tuple[bytes, list[DeadLetter]]:
        raise NotImplementedError

    async def put(self, number: int, data: bytes) -> None:
        raise NotImplementedError

    def last_put(self) -> int:
        if len(self.made) == 1:
            raise OSError(errno.EIO, "Input/output error")
        return 7

    async def close(self) -> None:
        self.is_open = False


@in_virtual_time
async def test_a_writer_that_cannot_be_asked_yet_is_closed_before_another_one_is_opened() -> None:
    Refusing.made = []
    profile: Any = SimpleNamespace(
        operator=SimpleNamespace(sink=SimpleNamespace(open=lambda _context: Refusing())),
        context=None,
    )
    open_writer = partial(beginning._open_writer, profile, is_resumed=True)
    writer, last_put = await Patience("out.0", lambda *_: None).outlast(open_writer)
    assert (Refusing.made[1:], last_put) == ([writer], 7)
    assert [each.is_open for each in Refusing.made] == [False, True]
