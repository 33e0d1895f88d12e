"""Which hosts keep a copy of a journal: a pure function.

Not the host of the writer. Of the others first those that do not fail together with it, nor with
another one that has a copy: hosts with the same label `failure` do, such as those of one rack; a
host without it fails by itself. Then the nearest to the writer; then the one with the most room;
then by name.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from anabranch.runtime.hosts.placement import HostRoom, latency_s

FAILURE = "failure"
"""The label of hosts that fail together."""


def holders_for(
    hosts: Sequence[HostRoom], writer: str, wanted: int, have: Collection[str] = ()
) -> list[str]:
    """So many more hosts, or as many as there are, the best first. `have`: those with a copy
    already. `hosts`: all that may have one, and the writer's."""
    by_name = {host.name: host for host in hosts}
    used = {_group(by_name[name]) for name in (writer, *have) if name in by_name}
    left = [host for host in hosts if host.name != writer and host.name not in have]
    found: list[str] = []
    while left and len(found) < wanted:
        best = min(
            left,
            key=lambda host: (
                _group(host) in used,
                latency_s(host, by_name, writer),
                -host.memory_mb,
                host.name,
            ),
        )
        left.remove(best)
        used.add(_group(best))
        found.append(best.name)
    return found


def _group(host: HostRoom) -> tuple[str, str]:
    label = host.labels.get(FAILURE)
    return (FAILURE, label) if label else ("host", host.name)
