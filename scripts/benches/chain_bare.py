"""The chain without a runtime: five processes, uvloop, MessagePack, Unix sockets, batches of 64.

No sessions, credits, counts or views, and nobody may join or leave: what the hardware and the
libraries give to a program written for this one purpose. `python -m scripts.benches.chain_bare
FILE` prints {"lines": read, "results": counted, "seconds": first line read to last result}.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import uvloop

from scripts.benches.chain_functions import long_enough, upper, with_length

BATCH = 64
HIGH_WATER_BYTES = 256 * 1024


class Receiver(asyncio.Protocol):
    """Cuts frames and hands each batch on; stops reading while the next hop is full."""

    def __init__(self, take: Callable[[list[Any]], None], ended: asyncio.Event) -> None:
        self.take, self.ended, self.rest = take, ended, b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        data = self.rest + data
        at = 0
        while len(data) - at >= 4:
            (length,) = struct.unpack_from(">I", data, at)
            if len(data) - at - 4 < length:
                break
            self.take(msgpack.unpackb(data[at + 4 : at + 4 + length]))
            at += 4 + length
        self.rest = data[at:]

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()


class Sender(asyncio.Protocol):
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

    def send(self, batch: list[Any]) -> None:
        body = msgpack.packb(batch)
        self.transport.write(struct.pack(">I", len(body)) + body)


async def connect(path: Path) -> Sender:
    while True:
        try:
            _, sender = await asyncio.get_running_loop().create_unix_connection(Sender, str(path))
        except OSError:
            await asyncio.sleep(0.01)
        else:
            return sender


async def source(file: str, to: Path) -> None:
    sender = await connect(to)
    with open(file, encoding="utf-8") as lines:
        while block := lines.readlines(65536):
            for at in range(0, len(block), BATCH):
                sender.send([line.rstrip("\n") for line in block[at : at + BATCH]])
            await sender.room.wait()
            await asyncio.sleep(0)
    sender.transport.close()
    await asyncio.sleep(0.1)


async def hop(here: Path, to: Path, work: Callable[[list[Any]], list[Any]]) -> None:
    sender = await connect(to)
    ended = asyncio.Event()
    receiver = Receiver(lambda batch: sender.send(work(batch)), ended)

    def made() -> Receiver:
        return receiver

    server = await asyncio.get_running_loop().create_unix_server(made, str(here))
    while not hasattr(receiver, "transport"):
        await asyncio.sleep(0.001)
    sender.upstream = receiver.transport
    await ended.wait()
    sender.transport.close()
    await asyncio.sleep(0.1)
    server.close()


async def sink(here: Path, said: Any) -> None:
    ended, count = asyncio.Event(), 0

    def take(batch: list[Any]) -> None:
        nonlocal count
        count += len(batch)

    server = await asyncio.get_running_loop().create_unix_server(
        lambda: Receiver(take, ended), str(here)
    )
    await ended.wait()
    said.put((count, time.monotonic()))
    server.close()


def main(file: str) -> None:
    works: list[Callable[[list[Any]], list[Any]]] = [
        lambda batch: [upper(x) for x in batch],
        lambda batch: [x for x in batch if long_enough(x)],
        lambda batch: [with_length(x) for x in batch],
    ]
    context = multiprocessing.get_context("fork")
    said = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / str(i) for i in range(len(works) + 1)]
        mains = [lambda: sink(paths[-1], said)]
        for i, work in enumerate(works):
            mains.append(lambda i=i, work=work: hop(paths[i], paths[i + 1], work))  # type: ignore[misc]
        processes = [context.Process(target=lambda m=m: uvloop.run(m())) for m in mains]  # type: ignore[misc]
        for process in processes:
            process.start()
        while not all(path.exists() for path in paths):
            time.sleep(0.01)
        began = time.monotonic()
        reader = context.Process(target=lambda: uvloop.run(source(file, paths[0])))
        reader.start()
        count, ended = said.get()
        for process in (reader, *processes):
            process.join()
    print(json.dumps({"results": count, "seconds": ended - began}))


if __name__ == "__main__":
    main(sys.argv[1])
