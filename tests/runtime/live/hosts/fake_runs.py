"""A host with pipelines, and a small program in the place of `anabranch run`."""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from anabranch.runtime.hosts.bundle import Bundle, BundleFile, encoded, version_of
from anabranch.runtime.hosts.pipelines import PipelineStatus
from anabranch.runtime.live.hosts import pipeline_folder
from anabranch.runtime.live.hosts.agent_log import AgentLog
from anabranch.runtime.live.hosts.pipeline_folder import PipelineFolder
from anabranch.runtime.live.hosts.pipelines import Pipelines
from tests.runtime.processes import PATIENCE_S, ROOT

FAKE_RUN = f"""
import sys, threading
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from anabranch.runtime.live.hosts.attendance import STOP, Attendance

attendance = Attendance(int(sys.argv[-1]), 130)
told, heard = threading.Event(), []
code = Path(sys.argv[1]).read_text()
state = Path(sys.argv[sys.argv.index("--state") + 1])
report = Path(sys.argv[sys.argv.index("--report") + 1])
print("begins", "resumed" if (state / "run.json").exists() else "new", flush=True)
if "wrong" in code:
    print("anabranch: a.py holds no pipeline")
    sys.exit(2)
if "fails" in code and ("runs" not in code or (state / "run.json").exists()):
    print("a: failed after 0.2 s\\n  operator 'x': no disk\\nthe run is kept in ../state")
    sys.exit(1)
state.mkdir(exist_ok=True)
(state / "run.json").write_text("{{}}")
work = {{"name": "work", "instances": 1, "coming": 0, "pinned": None, "hindered": ""}}
figures = {{"phase": "running", "seconds": 1.0, "read": 7, "delivered": 7, "dead_letters": 0}}

def scale(operator, n):
    if operator != "work":
        return f"there is no operator {{operator!r}}"
    if "stuck" in code:
        work.update(pinned=n, coming=1, hindered="no room")
    else:
        work.update(pinned=n, instances=n or 1)
    return ""

attendance.attend(
    lambda: figures | {{"operators": [work]}},
    lambda what: (heard.append(what), told.set()),
    scale,
)
if "short" not in code:
    told.wait()
if STOP in heard:
    sys.exit(130)
(state / "run.json").unlink()
report.write_text('''{{"seconds": 2.0, "ended": "completed", "ended_by": "", "resumed": 0,
  "failure": null, "ledger": {{"tuples_in": 9, "tuples_out": 9, "dead_letters": 0, "lost": 0,
  "duplicated": 0}}}}''')
"""


@asynccontextmanager
async def host(tmp_path: Path) -> AsyncIterator[Pipelines]:
    """An agent's pipelines, from its start to its end."""
    fake = tmp_path / "fake_run.py"
    fake.write_text(FAKE_RUN)
    log = AgentLog("press", as_json=False, out=io.StringIO())
    there = Pipelines(tmp_path / "pipelines", "press", [sys.executable, str(fake)], 0, log)
    there.resume()
    try:
        yield there
    finally:
        await there.close()


def bundle(code: str = "", name: str = "a") -> tuple[bytes, str]:
    data = encoded(Bundle(name, "a.py", "", [], [BundleFile("a.py", code.encode())]))
    return data, version_of(data)


def printed(there: Pipelines) -> str:
    """The log of the agent."""
    out = there.log.out
    assert isinstance(out, io.StringIO)
    return out.getvalue()


def kept(tmp_path: Path) -> PipelineFolder:
    """The only one."""
    (path,) = pipeline_folder.folders_in(tmp_path / "pipelines")
    return pipeline_folder.folder_at(path)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110 - of a process
            await asyncio.sleep(0.01)


async def only(there: Pipelines) -> PipelineStatus:
    (status,) = await there.statuses("")
    return status
