"""What worlds of every kind draw; and a world that is drawn, with more that happens in it."""

from __future__ import annotations

import random
from dataclasses import replace

from anabranch.protocol.limits import DEFAULT_LIMITS
from anabranch.runtime.hosts.placement import HostRoom
from anabranch.runtime.world.drawn_losses import copies_and_losses
from anabranch.runtime.world.drawn_trial import SOUND, AgentDisk, Saving, Trial
from anabranch.runtime.world.graphs import counted_twice
from anabranch.runtime.world.load import InputLoad
from anabranch.runtime.world.scenes import GraphScene
from anabranch.runtime.world.stream import Conditions
from anabranch.runtime.world.troubles import Troubles
from anabranch.runtime.world.world import End, HostDrain, Pinning

AGENT_DISK_SHARE = 0.5
"""Of those: the disk fails the agent, too."""
HOST_LOSSES_EACH_MAX = 3
"""Of one instance: what it waited for may be far away for long, and too many deaths in a row give a
run up."""
PINS_SHARE = 0.2
"""Of the worlds with operators that scale: a user sets how many instances some of them have."""
SAVING_S = 1.0
"""About what it takes until a run that stops has left its savepoint, and the next one has begun."""
PREY_EACH_MAX = 3
"""Of one instance where one operator is the prey: after more of them in a row a tuple may count as
their reason."""
EARLY_SHARE = 0.05
"""Of halts and hangs: they may come before the run has begun, which gives it up."""
HANGS_EACH_MAX = 2
"""Of one instance: with more, a run would be given up too often."""


def drawn_conditions(rng: random.Random) -> Conditions:
    return Conditions(
        latency_s=rng.choice((20e-6, 200e-6, 0.005)),
        jitter_s=rng.choice((50e-6, 0.001, 0.02)),
        stalls=rng.choice((0.0, 0.0, 0.02)),
        cuts=rng.choice((0.0, 0.3)),
        wire_bytes=rng.choice((2_000, 128_000)),
    )


def drawn_troubles(rng: random.Random, until_s: float, *, rough: bool) -> Troubles:
    """Those that no process dies of; not `rough`: none."""
    return Troubles(
        until_s=until_s,
        cuts=rng.choice((0.0, 5.0, 20.0)) if rough else 0.0,
        half_open_s=rng.choice((0.0, 0.3)),
        hang_ups=rng.choice((0.0, 5.0)) if rough else 0.0,
        clogs=rng.choice((0.0, 5.0)) if rough else 0.0,
        deafs=rng.choice((0.0, 3.0)) if rough else 0.0,
        stops=rng.choice((0.0, 3.0)) if rough else 0.0,
        slows=rng.choice((0.0, 3.0)) if rough else 0.0,
    )


def drawn_ends(rng: random.Random, until_s: float, *, power: bool) -> tuple[tuple[End, ...], float]:
    """One to three of all processes at once, and how long a sync of the disk takes, which matters
    where `power` is lost."""
    count = rng.choice((1, 2, 3))
    times = sorted(rng.uniform(0.0, until_s) for _ in range(count))
    sync_s = rng.choice((0.0, 0.0005, 0.005)) if power else 0.0
    return tuple(End(at_s, power) for at_s in times), sync_s


def spread(trial: Trial) -> Trial:
    """The same, but instances are on several hosts, which are drained until one is left, or fewer.
    All processes of one die at once, if hosts die."""
    rng = random.Random(f"{trial.seed} drains")
    names = [f"host-{number}" for number in range(rng.choice((2, 3, 5)))]
    rooms = [HostRoom(name, 4.0, rng.choice((1_500.0, 8_000.0))) for name in names]
    drained = rng.sample(names, rng.randrange(len(names)))
    return replace(
        trial,
        hosts=tuple(rooms),
        drains=tuple(HostDrain(rng.uniform(0.0, trial.until_s), name) for name in drained),
        troubles=replace(trial.troubles, hosts=len(names)),
    )


def apart(trial: Trial) -> Trial:
    """The same on several hosts, which have files of their own, are cut off, and lose all their
    processes. At the end of all processes those of the other hosts may live on."""
    rng = random.Random(f"{trial.seed} cuts of hosts")
    trial = replace(spread(trial), apart=True)
    home = trial.hosts[0].name  # where ends are that have to be somewhere
    drains = tuple(drain for drain in trial.drains if drain.host != home)
    calm = trial.rest_at_s is not None  # what is cut off is not at rest for long
    troubles = replace(
        trial.troubles,
        host_cuts=0.0 if calm else rng.choice((0.0, 2.0, 6.0)),
        cut_off_s=rng.choice((0.3, 3.0, 15.0)),
    )
    if troubles.kill and not calm:
        losses, away_s = rng.choice((0.0, 2.0, 6.0)), rng.choice((0.1, 2.0, 10.0))
        most = min(troubles.kills_each_max, HOST_LOSSES_EACH_MAX)
        troubles = replace(troubles, host_losses=losses, away_s=away_s, kills_each_max=most)
    ends = tuple(
        end if end.power or rng.random() < 0.3 else end._replace(gap_s=rng.choice((0.0, 0.5, 3.0)))
        for end in trial.ends
    )
    trial = replace(trial, drains=drains, troubles=troubles, ends=() if calm else ends)
    copies, lost = copies_and_losses(trial.seed, [h.name for h in trial.hosts], trial.until_s)
    if not (copies and troubles.kill) or calm:
        return trial
    ends = tuple(end._replace(power=False) for end in trial.ends)
    return replace(trial, copies=copies, losses=lost, ends=ends)


def before_a_new_owner(seed: int, size: str, *, deadly: bool) -> Trial:
    """Once, an instance of an operator by key gives key groups to a newcomer. The slow one that
    follows has a long queue of what the old owner has sent, and dies when the new owner, of which
    it had nothing, may have begun to send. Nothing else has where it was."""
    rng = random.Random(f"{seed} new owner")
    count, span_s = rng.choice((100, 200)), rng.choice((0.2, 0.4))
    load = InputLoad(count=count, span_s=span_s, bursts=((0.0, count),))
    trial = Trial(
        seed=seed,
        size=size,
        scene=GraphScene(counted_twice(rng), load, decides=False),
        load=load,
        decisions=(f"{rng.uniform(0.2, 0.6) * span_s:.4f} c duplicate",),
        conditions=replace(drawn_conditions(rng), jitter_s=0.02),
        limits=replace(DEFAULT_LIMITS, batch_tuples_max=rng.choice((1, 3)), linger_s=0.0),
    )
    troubles = Troubles(until_s=trial.until_s, clogs=10.0)  # repeats come late from some
    if deadly:
        kills = rng.choice((6.0, 12.0))
        troubles = replace(troubles, kills=kills, aimed=1.0, prey="d", kills_each_max=PREY_EACH_MAX)
    return replace(trial, troubles=troubles)


def pinned(trial: Trial) -> Trial:
    """The same, but in some worlds a user sets how many instances operators have, one to four
    times, and takes some of it back."""
    rng = random.Random(f"{trial.seed} pins")
    if not trial.scene.scaled or trial.troubles.prey or rng.random() >= PINS_SHARE:
        return trial  # where an operator is the prey, moves or leaves of another are what is tried
    times = sorted(rng.uniform(0.0, trial.until_s) for _ in range(rng.choice((1, 1, 2, 4))))
    pins = [Pinning(t, rng.choice(trial.scene.scaled), rng.choice((None, 1, 2, 3))) for t in times]
    return replace(trial, pins=tuple(pins))


def may_save(trial: Trial) -> bool:
    """Whether a run can stop with a savepoint: one that keeps what it has processed."""
    scene = trial.scene
    return trial.delivery != "at-most-once" and not (scene.crashes or scene.served)


def saving(trial: Trial) -> Trial:
    """The same, but the run stops with a savepoint, and another one begins from it, with other
    numbers of instances. Troubles go on meanwhile, and there."""
    rng = random.Random(f"{trial.seed} savepoint")
    at_s = rng.uniform(0.0, 1.2 * trial.load.span_s)
    changed = rng.sample(trial.scene.scaled, rng.randint(0, len(trial.scene.scaled)))
    least = tuple((name, rng.choice((1, 2, 3))) for name in changed)
    scene = trial.scene
    if isinstance(scene, GraphScene):  # of its sources, some cannot be read from a position
        graph = replace(scene.graph, supply="bursts")
        scene = GraphScene(graph, trial.load, decides=scene.decides)
    troubles = replace(trial.troubles, until_s=trial.troubles.until_s + SAVING_S)
    ends = [end._replace(at_s=at_s + rng.uniform(0.0, SAVING_S)) for end in trial.ends]
    return replace(
        trial,
        scene=scene,
        saving=Saving(at_s, least),
        troubles=troubles,
        ends=tuple(sorted(ends)),
        rest_at_s=None if trial.hangs else trial.rest_at_s,  # a run may take long to its end
    )


def ending(trial: Trial) -> Trial:
    """The same, but all processes end at once, one to three times; half of the trials lose their
    power then."""
    rng = random.Random(f"{trial.seed} ends")
    ends, sync_s = drawn_ends(rng, trial.until_s, power=rng.random() < 0.5)
    of_agent = random.Random(f"{trial.seed} disk of the agent")
    agent_disk = SOUND
    if of_agent.random() < AGENT_DISK_SHARE:
        agent_disk = AgentDisk(
            full=of_agent.choice((0.0, 0.02, 0.3)),
            unreadable=of_agent.choice((0.0, 0.02, 0.1)),
            unsyncable=of_agent.choice((0.0, 0.02)),
            killed=of_agent.choice((0.0, 0.005, 0.02)),
            aimed=of_agent.choice((0.0, 0.1, 0.4)),
        )
    return replace(trial, ends=ends, sync_s=sync_s, agent_disk=agent_disk)


def hanging(trial: Trial) -> Trial:
    """The same, but processes are stopped for good, wait for ever, or compute for long."""
    rng = random.Random(f"{trial.seed} hanging")
    troubles = replace(
        trial.troubles,
        halts=rng.choice((0.0, 1.0, 4.0)),
        hangs=rng.choice((0.0, 1.0, 4.0)),
        spins=rng.choice((0.0, 1.0, 4.0)),
        parent_stops=rng.choice((0.0, 0.0, 2.0)),
        service_hangs=rng.choice((2.0, 6.0)) if trial.scene.served else 0.0,
        early=EARLY_SHARE,
        kills_each_max=HANGS_EACH_MAX,
    )
    return replace(trial, troubles=troubles)
