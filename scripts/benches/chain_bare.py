"""The chain without a runtime: five processes, uvloop, MessagePack, Unix sockets, batches of 64.

No sessions, credits, counts or views, and no process may join or leave: what the hardware and the
libraries give to a program written for this one purpose. `python -m benches.chain_bare FILE`
prints {"results", "seconds", "cpu_s", "stages"}: seconds from the start of the reader, when all
others wait for it, to the last result; with `--stages`, what each process spent its time on.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import resource
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TextIO

import msgpack
import uvloop

from benches.chain_functions import long_enough, upper, with_length
from benches.stopwatch import Stopwatch

BATCH = 64
HIGH_WATER_BYTES = 256 * 1024
BLOCK_BYTES = 64 * 1024
PAUSE_S = 0.005

Batch = list[Any]
Work = Callable[[Batch], Batch]


class Receiver(asyncio.Protocol):
    """Cuts frames and hands each batch on."""

    def __init__(self, take: Callable[[Batch], None]) -> None:
        self._take = take
        self._rest = b""
        loop = asyncio.get_running_loop()
        self.transport: asyncio.Future[Any] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport.set_result(transport)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        at = 0
        while len(data) - at >= 4:
            (length,) = struct.unpack_from(">I", data, at)
            if len(data) - at - 4 < length:
                break
            self._take(msgpack.unpackb(data[at + 4 : at + 4 + length]))
            at += 4 + length
        self._rest = data[at:]

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set_result(None)


class Sender(asyncio.Protocol):
    """Sends batches. While the next hop is full, `upstream` is not read from."""

    def __init__(self) -> None:
        self.room = asyncio.Event()
        self.room.set()
        self.upstream: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)

    def pause_writing(self) -> None:
        self.room.clear()
        if self.upstream:
            self.upstream.pause_reading()

    def resume_writing(self) -> None:
        self.room.set()
        if self.upstream:
            self.upstream.resume_reading()

    def send(self, batch: Batch) -> None:
        body = msgpack.packb(batch)
        self.transport.write(struct.pack(">I", len(body)) + body)


async def connect(path: Path) -> Sender:
    while True:
        try:
            _, sender = await asyncio.get_running_loop().create_unix_connection(Sender, str(path))
        except OSError:  # the next process does not listen yet
            await asyncio.sleep(PAUSE_S)
        else:
            return sender


def next_lines(file: TextIO) -> Batch:
    return [line.rstrip("\n") for line in file.readlines(BLOCK_BYTES)]


async def source(file: str, to: Path, read: Callable[[TextIO], Batch]) -> None:
    sender = await connect(to)
    with open(file, encoding="utf-8") as lines:  # noqa: ASYNC230 - bare
        while block := read(lines):
            for at in range(0, len(block), BATCH):
                sender.send(block[at : at + BATCH])
            await sender.room.wait()
            await asyncio.sleep(0)
    await parted(sender)


async def hop(here: Path, to: Path, work: Work) -> None:
    sender = await connect(to)
    receiver = Receiver(lambda batch: sender.send(work(batch)))
    server = await asyncio.get_running_loop().create_unix_server(lambda: receiver, str(here))
    sender.upstream = await receiver.transport
    await receiver.ended
    server.close()
    await parted(sender)


async def parted(sender: Sender) -> None:
    """Everything is with the system."""
    while sender.transport.get_write_buffer_size():  # noqa: ASYNC110 - bare
        await asyncio.sleep(PAUSE_S)
    sender.transport.close()
    await asyncio.sleep(PAUSE_S)


async def sink(here: Path, said: Any) -> None:
    count = 0

    def take(batch: Batch) -> None:
        nonlocal count
        count += len(batch)

    receiver = Receiver(take)
    server = await asyncio.get_running_loop().create_unix_server(lambda: receiver, str(here))
    await receiver.ended
    said.put((count, time.monotonic()))
    server.close()


def works(watch: Stopwatch | None) -> list[Work]:
    """With a stopwatch: timed, and the codec as well."""
    plain: list[Work] = [
        lambda batch: [upper(x) for x in batch],
        lambda batch: [x for x in batch if long_enough(x)],
        lambda batch: [with_length(x) for x in batch],
    ]
    if watch is None:
        return plain
    msgpack.packb = watch.timed("encode", msgpack.packb)
    msgpack.unpackb = watch.timed("decode", msgpack.unpackb)
    return [watch.timed("functions", work) for work in plain]


def live(main: Coroutine[Any, Any, None], watch: Stopwatch | None, stages: Any) -> None:
    """One process."""
    if watch is not None:
        watch.begin()
    uvloop.run(main)
    if watch is not None:
        stages.put((multiprocessing.current_process().name, watch.seconds()))


def main(file: str, *options: str) -> None:
    watch = Stopwatch() if "--stages" in options else None
    context = multiprocessing.get_context("fork")
    said, stages = context.SimpleQueue(), context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        names = ("upper", "long", "length", "out")
        paths = {name: Path(folder) / name for name in names}
        mains = [
            (name, hop(paths[name], paths[after], work))
            for name, after, work in zip(names, names[1:], works(watch), strict=False)
        ]
        mains.append(("out", sink(paths["out"], said)))
        processes = [
            context.Process(name=name, target=live, args=(main, watch, stages))
            for name, main in mains
        ]
        for process in processes:
            process.start()
        while not all(path.exists() for path in paths.values()):
            time.sleep(PAUSE_S)
        began = time.monotonic()
        read = watch.timed("read", next_lines) if watch else next_lines
        reading = source(file, paths["upper"], read)
        reader = context.Process(name="lines", target=live, args=(reading, watch, stages))
        reader.start()
        count, ended = said.get()
        for process in (reader, *processes):
            process.join()
            if process.exitcode:
                sys.exit(f"process {process.name} ended with {process.exitcode}")
        spent = dict(stages.get() for _ in (reader, *processes)) if watch else {}
        for _, unused in (*mains, ("lines", reading)):
            unused.close()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = used.ru_utime + used.ru_stime
    figures = {"results": count, "seconds": ended - began, "cpu_s": cpu_s, "stages": spent}
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
