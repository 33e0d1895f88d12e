"""Lines from one instance to another over TCP, whose journals have copies: `python -m
benches.copied_ours FILE [copied]`.

`copied`: in another process, as those of another host, over loopback; nothing leaves an instance
before that has it. Prints {"results", "seconds", "cpu_s", "balanced", "copied"}, where `copied` is
how many bytes the other process has; what it has used is in `cpu_s`.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import socket
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec
import uvloop

import anabranch as ab
from anabranch.runtime.live.copies.keeper import CopyKeeper
from anabranch.runtime.live.link.messages import Assign
from anabranch.runtime.live.process import instance_process
from anabranch.runtime.live.process.processes import OwnProcess
from benches.chain_ours import cpu_s

ORDER, HOST = 1, "other"


def keep(ours: Connection) -> None:
    """Sends its address, gets the token of the run with the first instance, sends what it has, and
    how much processor time it has used meanwhile."""

    folder = Path("copies").absolute()

    async def kept() -> None:
        keeper = CopyKeeper(folder, b"", boot="1")
        ours.send(await keeper.serve("tcp:127.0.0.1:0"))
        keeper.token = await asyncio.to_thread(token_of_run)
        began_cpu_s = time.process_time()
        await asyncio.to_thread(ours.recv)
        ours.send((keeper.status()["bytes"], time.process_time() - began_cpu_s))

    uvloop.run(kept())


def token_of_run() -> bytes:
    """Once an instance has left it here."""
    path = Path("token")
    while not path.exists():
        time.sleep(0.01)
    return path.read_bytes()


def with_copies(address: str) -> None:
    """For all instances of runs in this process, which are forks of it."""
    folder, live = Path().absolute(), instance_process.live

    async def copied(link: socket.socket, task: Assign, pipeline: Any, process: OwnProcess) -> int:
        own = folder / f"token.{os.getpid()}"
        own.write_bytes(task.token)
        own.rename(folder / "token")
        there: dict[str, Any] = {"copies": [(HOST, address)], "complete": [HOST], "order": ORDER}
        return await live(link, msgspec.structs.replace(task, **there), pipeline, process)

    setattr(instance_process, "live", copied)  # noqa: B010 - types forbid the plain way


def measured(file: str) -> dict[str, Any]:
    pipeline = ab.Pipeline("copied", dead_letters="copied.dead.jsonl")
    pipeline.source("lines", ab.files(file)).sink("out", ab.discard())
    began_cpu_s = cpu_s()
    run = ab.start(pipeline, scaling=False, warm=0, transport="tcp", state=Path("state"))
    began_s = run.snapshot().seconds
    report = run.wait()
    ended_s = max(e.t for e in report.events if e.operator == "out" and e.kind == "ended")
    return {
        "results": report.ledger.tuples_out,
        "seconds": ended_s - began_s,
        "cpu_s": cpu_s() - began_cpu_s,
        "balanced": report.ok,
    }


def main(file: str, where: str = "") -> None:
    folder = Path(where or "plain")
    folder.mkdir()
    os.chdir(folder)
    figures: dict[str, Any] = {"copied": 0}
    if where:
        forks = multiprocessing.get_context("spawn")
        ours, theirs = forks.Pipe()
        process = forks.Process(target=keep, args=(theirs,))
        process.start()
        with_copies(ours.recv())
        figures |= measured(file)
        ours.send(None)
        figures["copied"], keeper_cpu_s = ours.recv()
        figures["cpu_s"] += keeper_cpu_s
        process.join()
    else:
        figures |= measured(file)
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
