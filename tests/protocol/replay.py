"""Play a run again: `python -m tests.protocol.replay 'chain; 1,2,1; 4; b' 'read a.0 3' ...`"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

from tests.protocol.fake_network import Network


def network_of(options: str) -> Network:
    graph, counts, window, keyed = options.split("; ")
    return Network(graph, tuple(int(n) for n in counts.split(",")), int(window), keyed)


def command(network: Network) -> str:
    """The one command that repeats what has happened in this network."""
    words = [network.options, *network.history]
    return f"python -m tests.protocol.replay {shlex.join(words)}"


def replay(options: str, acts: Sequence[str], *, settle: bool = True) -> Network:
    network = network_of(options)
    for text in acts:
        network.act(text)
    if settle:
        network.settle()
    return network


if __name__ == "__main__":
    subject = network_of(sys.argv[1])
    for act in sys.argv[2:]:
        print(act)
        subject.act(act)
    print("then everything settles")
    subject.settle()
    print("nothing is lost, nothing doubled, everybody has ended")
