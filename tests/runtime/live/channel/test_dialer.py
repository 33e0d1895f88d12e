"""How a channel reaches a peer whose host does not answer."""

from __future__ import annotations

import asyncio
import errno
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.protocol.limits import Limits
from anabranch.runtime.live.channel import dialer
from tests.runtime.virtual_time import in_virtual_time


class Unreachable:
    """A transport. `error`: None if nothing ever comes back."""

    def __init__(self, error: OSError | None) -> None:
        self.error = error
        self.dialled_s: list[float] = []

    async def dial(self, address: str, made: object) -> None:
        self.dialled_s.append(asyncio.get_running_loop().time())
        if self.error is None:
            await asyncio.get_running_loop().create_future()
        raise self.error or AssertionError


def dialling(
    monkeypatch: pytest.MonkeyPatch, transport: Unreachable, *, ended: bool
) -> tuple[Any, asyncio.Task[None]]:
    channel: Any = SimpleNamespace(peer="work.1", ended=False)
    closed = []
    neighbours: Any = SimpleNamespace(
        has_ended=lambda peer: ended, close_channel=lambda one: closed.append(one)
    )
    book: Any = {"work.1": "tcp:10.0.0.9:4711"}
    no_id: Any = "split.0"
    never: Any = None
    monkeypatch.setattr(dialer, "transport", lambda: transport)
    made = dialer.Dialer(no_id, limits=Limits(), book=book, made=never, neighbours=neighbours)
    task = asyncio.create_task(made.keep_connected(channel))
    return closed, task


@in_virtual_time
async def test_a_host_that_does_not_answer_is_dialled_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    transport = Unreachable(None)
    closed, task = dialling(monkeypatch, transport, ended=False)
    await asyncio.sleep(100.0)
    task.cancel()
    assert 6 <= len(transport.dialled_s) <= 10
    assert closed == []


@in_virtual_time
@pytest.mark.parametrize("error", [None, OSError(errno.EHOSTUNREACH, "no route to host")])
async def test_one_that_has_ended_is_not_waited_for_though_its_host_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, error: OSError | None
) -> None:
    closed, task = dialling(monkeypatch, Unreachable(error), ended=True)
    await asyncio.wait_for(task, 11.0)
    assert len(closed) == 1


@in_virtual_time
async def test_a_firewall_that_forbids_it_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    transport = Unreachable(PermissionError(errno.EACCES, "permission denied"))
    _, task = dialling(monkeypatch, transport, ended=False)
    await asyncio.sleep(20.0)
    assert len(transport.dialled_s) > 3
    assert not task.done()
    task.cancel()


@in_virtual_time
async def test_one_that_has_moved_is_not_waited_for_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    transport = Unreachable(None)
    made: list[dialer.Dialer] = []
    init = dialer.Dialer.__init__

    def noted(self: dialer.Dialer, *args: Any, **others: Any) -> None:
        init(self, *args, **others)
        made.append(self)

    monkeypatch.setattr(dialer.Dialer, "__init__", noted)
    _, task = dialling(monkeypatch, transport, ended=False)
    await asyncio.sleep(1.0)
    peer: Any = "work.1"
    made[0].try_now(peer)
    await asyncio.sleep(1.0)
    task.cancel()
    assert len(transport.dialled_s) == 2
