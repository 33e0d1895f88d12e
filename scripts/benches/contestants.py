"""Programs that are measured: each runs in a process of its own and prints one line of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parent.parent
TIMEOUT_S = 900.0


class ContestantFailed(RuntimeError):
    """It ended with an error, or printed no figures. The message holds its last words."""


def compete(module: str, *arguments: object, folder: Path) -> dict[str, Any]:
    """Run `python -m benches.<module>` in `folder`; its figures. Raises `ContestantFailed`."""
    command = [sys.executable, "-m", f"benches.{module}", *map(str, arguments)]
    path = os.pathsep.join(filter(None, [str(SCRIPTS), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    last = done.stdout.rstrip().rpartition("\n")[2]
    if done.returncode or not last.startswith("{"):
        words = (done.stderr or done.stdout).strip()[-2000:]
        raise ContestantFailed(f"{' '.join(command[2:])} (exit {done.returncode}): {words}")
    figures: dict[str, Any] = json.loads(last)
    return figures
