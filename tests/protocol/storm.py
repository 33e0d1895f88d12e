"""A long random run of the fake network: the seed draws the graph, the founders and every act."""

from __future__ import annotations

import random

from tests.protocol.fake_network import (
    ACCIDENTS,
    DECISIONS,
    GRAPHS,
    KINDS,
    ROUTINE,
    Network,
)
from tests.protocol.replay import command

ACTS = 500
SPELL = 40
"""Acts after which other ways are slow."""
WEIGHTS = dict.fromkeys(ROUTINE, 10) | dict.fromkeys((*DECISIONS, *ACCIDENTS), 1)
WEIGHTS |= {"duplicate": 5, "leave": 4, "deliver": 40, "spawned": 20, "end": 0}
WHERE_KEYED = {"duplicate": 2, "leave": 2, "move": 15, "frozen": 40, "transfer": 30}
WHERE_KEYED |= {"deliver": 150, "read": 30, "process": 30, "ship": 40}


def storm(seed: int, *, graph: str = "", acts: int = ACTS, keyed: str | None = None) -> Network:
    """Much is decided while little has been delivered. At last the sources end, while others
    still scale; then everything settles.

    Some ways are slow for a while, so that messages overtake each other on different ones. A
    failure carries a note with the command that repeats it.
    """
    rng = random.Random(seed)
    graph = graph or rng.choice(sorted(GRAPHS))
    counts = tuple(rng.choice((1, 2, 4)) for _ in range(4))
    by_chance = "".join(o for o in "bcd" if rng.random() < 0.4)
    network = Network(graph, counts, rng.randint(1, 6), by_chance if keyed is None else keyed)
    weights = WEIGHTS | (WHERE_KEYED if network.keyed else {})
    try:
        for number in range(acts):
            if number == acts * 3 // 4:
                weights["end"] = 25
            (kind,) = rng.choices(KINDS, [weights[kind] for kind in KINDS])
            possible = [a for a in network.acts(kind) if not _slow(seed, number // SPELL, a)]
            if possible:
                network.act(rng.choice(possible))
        network.settle()
    except BaseException as error:
        error.add_note(f"to repeat it: {command(network)}")
        raise
    return network


def _slow(seed: int, spell: int, act: str) -> bool:
    """Whether nothing is delivered this way during this spell."""
    kind, *words = act.split()
    return kind == "deliver" and random.Random(f"{seed} {spell} {words[0]}").random() < 0.3
