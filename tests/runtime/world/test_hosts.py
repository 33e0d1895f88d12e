"""Many hosts in a world: they find each other, and agree again after whatever has happened."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from anabranch.runtime.hosts.effects import Changed, Joined, NameTaken
from anabranch.runtime.hosts.host import HostState
from anabranch.runtime.world.hosts import WorldHosts

WINDOW_S = 30.0
BYTES_PER_S_MAX = 1_000
KNOWN_DEAD_S = 30.0
"""All know of a death by then: one period until somebody probes, its trial, the suspicion, and the
time for the news."""
AGREE_S = 60.0
SEED = ["h0:7433", "h1:7433"]


def started(world: WorldHosts, count: int) -> list[str]:
    names = [f"h{n}" for n in range(count)]
    for name in names:
        world.start(name, SEED)
    world.settle(lambda: world.agree(names), AGREE_S)
    return names


def rates(world: WorldHosts, seconds: float) -> Counter[str]:
    """Bytes per second that each host sends."""
    before = Counter(world.network.sent)
    world.run(seconds)
    spent = world.network.sent - before
    return Counter({name: round(count / seconds) for name, count in spent.items()})


def test_all_hear_that_a_host_is_drained_and_no_longer() -> None:
    def known() -> set[tuple[str, bool]]:
        return {
            (row.host.name, row.host.drained)
            for each in world.up
            if each.gossip is not None
            for row in each.gossip.membership.table
        }

    with WorldHosts(3).going_on() as world:
        names = started(world, 10)
        for drained in (True, False):
            world.drain("h4", drained=drained)
            wanted = {(name, drained and name == "h4") for name in names}
            world.settle(lambda wanted=wanted: known() == wanted, WINDOW_S)  # type: ignore[misc]
            assert world.agree(names)


@pytest.mark.slow
def test_a_hundred_hosts_agree_after_deaths_restarts_and_a_cut_and_say_little() -> None:
    with WorldHosts(1).going_on() as world:
        names = [f"h{n}" for n in range(100)]
        for name in names:
            world.start(name, SEED)
        for _ in range(2):
            assert max(rates(world, WINDOW_S).values()) < BYTES_PER_S_MAX
        assert world.agree(names)
        assert max(rates(world, 10.0).values()) < BYTES_PER_S_MAX / 4
        killed = ["h2", "h17", "h60"]
        for name in killed:
            world.kill(name)
        rest = [name for name in names if name not in killed]
        world.run(KNOWN_DEAD_S)
        assert world.agree(rest)
        world.start("h17", SEED)
        rest.append("h17")
        world.cut(rest[:30])
        for _ in range(2):
            assert max(rates(world, WINDOW_S).values()) < BYTES_PER_S_MAX
        assert world.hosts["h1"].live == {*rest[:30]}
        assert world.hosts["h99"].live == {*rest[30:]}
        world.heal()
        for _ in range(2):
            assert max(rates(world, WINDOW_S).values()) < BYTES_PER_S_MAX
        assert world.agree(rest)


@pytest.mark.slow
def test_hosts_with_certificates_keep_their_connections_and_say_little() -> None:
    """Also while they get to know each other, but for the seeds, which all others dial."""
    with WorldHosts(11, tls=True).going_on() as world:
        names = [f"h{n}" for n in range(30)]
        for name in names:
            world.start(name, SEED)
        for _ in range(8):
            spent = rates(world, WINDOW_S)
            assert max(spent[name] for name in names[2:]) < BYTES_PER_S_MAX
        assert world.agree(names)
        before = {name: dialled(world, name) for name in names}
        assert max(rates(world, 60.0).values()) < BYTES_PER_S_MAX / 3
        assert {name: dialled(world, name) for name in names} == before
        world.kill("h7")
        world.run(KNOWN_DEAD_S)
        assert world.agree([name for name in names if name != "h7"])
        world.start("h7", SEED)
        world.settle(lambda: world.agree(names), AGREE_S)


def dialled(world: WorldHosts, name: str) -> int:
    gossip = world.hosts[name].gossip
    assert gossip is not None
    assert gossip.lines is not None
    return gossip.lines.dialled


@pytest.mark.parametrize(("seed", "tls"), [(seed, seed % 2 == 1) for seed in range(8)])
def test_after_everything_heals_all_agree_on_the_live_hosts(seed: int, tls: bool) -> None:
    """Deaths, restarts, cuts, hosts that stand still, and hosts that leave, drawn from the seed."""
    rng = random.Random(seed)
    with WorldHosts(seed, tls=tls).going_on() as world:
        names = started(world, rng.randint(3, 14))
        for _ in range(rng.randint(4, 12)):
            trouble(world, names, rng)
            world.run(rng.uniform(0.0, 20.0))
        world.heal()
        for name in names[:2]:  # the seeds
            if not world.hosts[name].is_up:
                world.start(name, SEED)
        world.run(AGREE_S + KNOWN_DEAD_S)
        up = {host.name for host in world.up}
        assert {host.name: host.live for host in world.up} == dict.fromkeys(up, up)
        members = [host.gossip.membership for host in world.up if host.gossip is not None]
        assert not any(one.false_names or one.false_rows for one in members)


def trouble(world: WorldHosts, names: list[str], rng: random.Random) -> None:
    name = rng.choice(names)
    host = world.hosts[name]
    match rng.choice(["die", "die", "cut", "cut", "heal", "stand still", "leave"]):
        case _ if not host.is_up:
            world.start(name, SEED)
        case "die":
            world.kill(name)
        case "cut":
            world.cut(rng.sample(names, rng.randint(1, len(names) - 1)))
        case "heal":
            world.heal()
        case "leave":
            world.leave(name)
            world.run(4.0)
            world.kill(name)
        case "stand still":
            assert host.loop is not None
            host.loop.rest(rng.uniform(1.0, 40.0))


def test_a_quiet_network_takes_no_host_for_dead() -> None:
    with WorldHosts(3).going_on() as world:
        started(world, 12)
        world.run(300.0)
        told = [what for host in world.up for _, what in host.told]
        assert {w.state for w in told if isinstance(w, Changed)} == {HostState.ALIVE}


def test_a_host_that_stood_still_accuses_no_other_host_and_comes_back() -> None:
    with WorldHosts(4).going_on() as world:
        names = started(world, 8)
        still = world.hosts["h5"]
        assert still.loop is not None
        still.loop.rest(60.0)
        world.run(KNOWN_DEAD_S)
        assert "h5" not in world.hosts["h0"].live
        world.run(60.0)
        assert world.agree(names)
        accused = [w for _, w in still.told if isinstance(w, Changed) and w.state]
        assert accused == []


def test_a_host_that_leaves_is_known_to_have_left_without_suspicion() -> None:
    with WorldHosts(5).going_on() as world:
        names = started(world, 10)
        world.leave("h4")
        world.run(3.0)
        world.kill("h4")
        world.run(10.0)
        assert world.agree([name for name in names if name != "h4"])
        states = {w.state for h in world.up for _, w in h.told if isinstance(w, Changed)}
        assert states == {HostState.ALIVE, HostState.LEFT}
        world.start("h4", SEED)
        world.settle(lambda: world.agree(names), AGREE_S)


def test_a_host_cut_off_alone_finds_the_others_again_without_a_seed() -> None:
    """They try each other, since both remember where the others were."""
    with WorldHosts(6).going_on() as world:
        names = [f"h{n}" for n in range(6)]
        for name in names:
            world.start(name, ["h0:7433"])
        world.settle(lambda: world.agree(names), AGREE_S)
        world.kill("h0")
        world.cut(["h3"])
        world.run(60.0)
        assert world.hosts["h3"].live == {"h3"}
        world.heal()
        world.settle(lambda: world.agree(names[1:]), AGREE_S)


def test_a_newcomer_with_the_name_of_a_live_host_is_refused_and_changes_nothing() -> None:
    with WorldHosts(7).going_on() as world:
        names = started(world, 5)
        twin = world.start("twin", SEED, name="h3")
        world.run(30.0)
        assert twin.gossip is not None
        assert twin.gossip.membership.refused
        refusals = [w for _, w in twin.told if isinstance(w, NameTaken)]
        assert refusals == [NameTaken("h3:7433")]
        world.leave("twin")
        world.run(3.0)
        world.kill("twin")
        world.run(3.0)
        assert world.agree(names)
        assert world.hosts["h3"].incarnation == 1


def test_of_two_hosts_that_took_one_name_apart_one_keeps_it_until_it_dies() -> None:
    with WorldHosts(8).going_on() as world:
        names = started(world, 4)
        world.cut(["h0", "h2", "one"])
        for name, seed in (("one", "h0:7433"), ("two", "h1:7433")):
            world.start(name, [seed], name="twin")
        world.run(60.0)
        assert world.hosts["h0"].live == {"h0", "h2", "twin"}
        assert world.hosts["h1"].live == {"h1", "h3", "twin"}
        world.heal()
        world.run(AGREE_S)
        refused = {
            name: h.gossip.membership.refused
            for name in ("one", "two")
            if (h := world.hosts[name]).gossip is not None
        }
        assert sorted(refused.values()) == [False, True]
        (kept,) = (name for name, is_refused in refused.items() if not is_refused)
        for name in names:
            gossip = world.hosts[name].gossip
            assert gossip is not None
            row = gossip.membership.table.get("twin")
            assert row is not None
            assert row.host.address == f"{kept}:7433"
        (other,) = {"one", "two"} - {kept}
        world.kill(kept)
        world.run(AGREE_S + KNOWN_DEAD_S)
        assert isinstance(world.hosts[other].told[-1][1], Joined | Changed)
        assert world.agree([*names, "twin"])


def test_a_host_whose_data_folder_was_lost_takes_its_name_back_once_its_former_self_is_dead() -> (
    None
):
    with WorldHosts(9).going_on() as world:
        names = started(world, 5)
        world.run(5.0)
        world.kill("h3")
        del world.hosts["h3"]
        reborn = world.start("h3", SEED, key=b"another!")
        world.run(3.0)
        assert NameTaken("h3:7433") in [what for _, what in reborn.told]
        world.settle(lambda: world.agree(names), AGREE_S)
