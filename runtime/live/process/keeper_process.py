"""A process that keeps copies of journals whose writers are on other hosts, from its assignment to
its end. It takes no decision; another one in its place goes on with the same folder."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import uvloop

from anabranch.runtime.live.copies.keeper import CopyKeeper
from anabranch.runtime.live.link import messages as msg
from anabranch.runtime.live.link.last_words import detail_of, reason_of
from anabranch.runtime.live.link.link import Link
from anabranch.runtime.live.process.listening import take_broker
from anabranch.runtime.live.process.orphans import ORPHAN_EXIT_CODE
from anabranch.runtime.live.process.processes import OwnProcess
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.ports import clock
from anabranch.runtime.values.kinds import Cause
from anabranch.runtime.values.texts import original

TICK_S = 1.0
"""How often it shows the agent that it lives."""


def run_keeper(link_socket: socket.socket, assign: dict[str, Any], _pipeline: Pipeline) -> NoReturn:
    """Keep copies until the agent ends it, or is gone."""
    order = msgspec.convert(assign, msg.AssignKeeper)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(keep(link_socket, order, OwnProcess())))


async def keep(link_socket: socket.socket, order: msg.AssignKeeper, process: OwnProcess) -> int:
    """Returns the exit code: it ends by itself only if it cannot go on, and reports why."""
    link = await Link.attach(link_socket, lambda body: None)
    try:
        take_broker()
        if order.tls:
            _secure(Path(original(order.tls)))
        keeper = CopyKeeper(Path(original(order.folder)), order.token, boot=process.boot)
        link.send(msg.Ready(address=await keeper.serve(order.listen)))
    except Exception as error:
        again = Cause.SYSTEM if isinstance(error, OSError) else None
        link.send(msg.Failed(reason=reason_of(error), detail=detail_of(error), again=again))
        await link.finish()
        return 1
    alive = asyncio.get_running_loop().create_task(
        _show_that_it_lives(link, keeper), name="alive", context=clock.periodic()
    )
    await asyncio.wait([link.closed])
    alive.cancel()
    process.exit_now(ORPHAN_EXIT_CODE)


async def _show_that_it_lives(link: Link, keeper: CopyKeeper) -> None:
    while True:
        keeper.silence.look()
        link.send(msg.Waits())
        await asyncio.sleep(TICK_S)


def _secure(folder: Path) -> None:
    from anabranch.runtime.live.channel.secured import SecuredTransport
    from anabranch.runtime.ports.sockets import take, transport

    take(SecuredTransport(transport(), folder))
