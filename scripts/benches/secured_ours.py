"""Lines from one instance to another over TCP: `python -m benches.secured_ours FILE [TLS
[BROKER]]`.

`TLS`: the folder of a certificate, with which all instances prove who they are, as those of a run
on several hosts do. `BROKER`: the URL of a broker, through which all goes then, as between hosts
that can only dial out. Prints {"results", "seconds", "cpu_s", "balanced"}, as `chain_ours` does.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import msgspec

import anabranch as ab
from anabranch.runtime.live.link.messages import Assign
from anabranch.runtime.live.process import instance_process
from anabranch.runtime.live.process.processes import OwnProcess
from anabranch.runtime.mqtt.hosts_broker import FILE, HostsBroker
from benches.chain_ours import cpu_s


def with_certificates(folder: str, listen: str = "") -> None:
    """For all instances of runs in this process, which are forks of it."""
    live = instance_process.live

    async def secured(link: socket.socket, task: Assign, pipeline: Any, process: OwnProcess) -> int:
        task = msgspec.structs.replace(task, tls=folder, host=listen or task.host)
        return await live(link, task, pipeline, process)

    setattr(instance_process, "live", secured)  # noqa: B010 - types forbid the plain way


def main(file: str, tls: str = "", broker: str = "") -> None:
    if broker:
        settings = Path(tls) / "broker.json"
        settings.write_bytes(msgspec.json.encode(HostsBroker(broker)))
        os.environ[FILE] = str(settings)
    if tls:
        with_certificates(tls, "mqtt:a" * bool(broker))
    pipeline = ab.Pipeline("secured", dead_letters="secured.dead.jsonl")
    pipeline.source("lines", ab.files(file)).sink("out", ab.discard())
    began_cpu_s = cpu_s()
    run = ab.start(pipeline, scaling=False, warm=0, transport="tcp")
    began_s = run.snapshot().seconds
    report = run.wait()
    ended_s = max(e.t for e in report.events if e.operator == "out" and e.kind == "ended")
    figures = {
        "results": report.ledger.tuples_out,
        "seconds": ended_s - began_s,
        "cpu_s": cpu_s() - began_cpu_s,
        "balanced": report.ok,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
