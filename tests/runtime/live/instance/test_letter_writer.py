"""Dead letters on their way to the file."""

from __future__ import annotations

import asyncio
from pathlib import Path

from anabranch.runtime.live.instance.letter_writer import DeadLetterWriter
from anabranch.runtime.plan.ends import DeadLetter
from anabranch.runtime.storage.dead_letters import DeadLetterFile
from anabranch.runtime.storage.patience import Patience


async def test_a_letter_whose_tuple_could_come_again_is_not_written_yet(tmp_path: Path) -> None:
    path, recorded = tmp_path / "dead.jsonl", asyncio.Event()

    async def received() -> None:
        await recorded.wait()

    def fail(error: Exception) -> None:
        raise error

    writer = DeadLetterWriter(
        DeadLetterFile(path, pipeline="p", operator="op", instance="op.0"),
        None,
        Patience("op.0", lambda *_: None),
        received=received,
        written=lambda: None,
        fail=fail,
    )
    writer.bury([DeadLetter(tuple=1, step="op", reason="ValueError: 1", where="")])
    for _ in range(5):
        await asyncio.sleep(0)
    assert not path.exists()
    recorded.set()
    await writer.close()
    assert len(path.read_text().splitlines()) == 1
