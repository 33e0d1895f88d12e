"""Puts a stopwatch into the instances of a run, to see what their time is spent on.

The parts are replaced before the run begins; its processes are forks and have them too.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from anabranch.protocol.core import Core
from anabranch.runtime.live.channel.connection import Connection
from anabranch.runtime.live.instance import pumps
from anabranch.runtime.live.instance.instance import Instance
from anabranch.runtime.live.instance.outbox import Outbox
from anabranch.runtime.processing.payload import Encoder
from anabranch.runtime.processing.steps import Chain
from anabranch.runtime.sources.file_reader import FileReader
from benches.stopwatch import Stopwatch

ASYNC_PARTS: list[tuple[Any, str, str]] = [
    (FileReader, "read", "read"),
    (Chain, "apply", "functions"),
]
PARTS: list[tuple[Any, str, str]] = [
    (pumps, "decode_batch", "decode"),
    (Encoder, "encode_batches", "encode"),
    (Core, "handle", "core"),
    (Outbox, "hold", "outbox"),
    (Outbox, "send", "outbox"),
    (Connection, "data_received", "frames in"),
    (Connection, "buffer_updated", "frames in"),
    (Connection, "write", "frames out"),
]


def watch_stages(mark: str) -> None:
    """Let every instance print, at its end, `mark` and its seconds by stage."""
    watch = Stopwatch()
    for owner, name, stage in ASYNC_PARTS:
        setattr(owner, name, watch.timed_async(stage, getattr(owner, name)))
    for owner, name, stage in PARTS:
        if name in vars(owner):  # a protocol receives in one of two ways
            setattr(owner, name, watch.timed(stage, getattr(owner, name)))
    live = Instance.run

    async def watched(instance: Instance) -> str:
        await instance.lifetime.began.wait()
        watch.begin()
        reason = await live(instance)
        print(mark + json.dumps(watch.seconds()), file=sys.stderr, flush=True)
        return reason

    setattr(Instance, "run", watched)  # noqa: B010 - types forbid the plain way
