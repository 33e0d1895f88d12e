"""A gateway as its own process, to be killed: STATE_DIR BOARD_FILE.

The board is a file of JSON lines, so that it outlives the gateway as the agent's would.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from anabranch.runtime.plan.ends import Split
from anabranch.spark_bridge.gateway import Gateway
from tests.spark_bridge.support import TOKEN


async def main(state: Path, board: Path) -> None:
    async def publish(stream: str, splits: list[Split]) -> None:
        with board.open("a") as file:
            file.write("".join(json.dumps(split) + "\n" for split in splits))

    gateway = Gateway(collects={"out": "n long"})
    await gateway.start("127.0.0.1", 0, state, publish, TOKEN)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
