"""A pool opens and closes hosts by pure rules: caps, deadlines, and none that is in use closes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.hosts.pool import (
    ClosePoolHost,
    DrainPoolHost,
    HostPool,
    OpenHost,
    PoolAct,
    PooledRun,
    PoolPhase,
    PoolRules,
    PoolSight,
    why_in_use,
)

RULES = PoolRules("pool-", hosts_max=3, boot_s=60.0)


def sight(now_s: float, wanted: int | None, **more: object) -> PoolSight:
    """`home` is the other host."""
    named = {
        name: frozenset(value) if isinstance(value, set) else value for name, value in more.items()
    }
    return PoolSight(now_s, wanted, 1, **named)  # type: ignore[arg-type]


def opened(*names: str) -> HostPool:
    """A pool with these hosts, which are there."""
    _, pool = HostPool(RULES).step(sight(0.0, 1 + len(names)))
    _, pool = pool.step(sight(1.0, 1 + len(names), live={*names}))
    assert {name: host.phase for name, host in pool.hosts.items()} == dict.fromkeys(
        names, PoolPhase.OPEN
    )
    return pool


def test_as_many_hosts_open_as_are_missing() -> None:
    acts, pool = HostPool(RULES).step(sight(0.0, 3))
    assert acts == [OpenHost("pool-1"), OpenHost("pool-2")]
    assert pool.step(sight(1.0, 3)) == ([], pool)


def test_no_more_open_than_the_pool_may_have_and_the_reason_is_kept() -> None:
    acts, pool = HostPool(RULES).step(sight(0.0, 9))
    assert len(acts) == 3
    assert pool.refused == "the pool has at most 3 hosts"


def test_while_nothing_is_planned_hosts_stay() -> None:
    pool = opened("pool-1")
    assert pool.step(sight(2.0, None, live={"pool-1"}, instances={"pool-1": 0}))[0] == []


def test_a_host_drains_is_emptied_and_closes() -> None:
    there = {"live": {"pool-1"}, "instances": {"pool-1": 2}}
    acts, pool = opened("pool-1").step(sight(2.0, 1, **there))
    assert acts == [DrainPoolHost("pool-1", drained=True)]
    acts, pool = pool.step(sight(4.0, 1, drained={"pool-1"}, **there))
    assert acts == []
    acts, pool = pool.step(
        sight(5.0, 1, live={"pool-1"}, drained={"pool-1"}, instances={"pool-1": 0})
    )
    assert acts == [ClosePoolHost("pool-1")]
    assert pool.leaving == {"pool-1"}
    assert pool.closed("pool-1", "", 6.0).hosts == {}


def test_a_host_that_could_not_close_goes_on_draining() -> None:
    empty = {"live": {"pool-1"}, "drained": {"pool-1"}, "instances": {"pool-1": 0}}
    acts, pool = opened("pool-1").step(sight(2.0, 1, **empty))
    assert acts == [ClosePoolHost("pool-1")]
    pool = pool.closed("pool-1", "an instance is there", 4.0)
    assert pool.hosts["pool-1"].phase is PoolPhase.DRAINING


def test_of_which_nothing_is_known_none_closes() -> None:
    pool = opened("pool-1")
    for now_s in (2.0, 3.0, 4.0):
        acts, pool = pool.step(sight(now_s, 1, live={"pool-1"}, drained={"pool-1"}))
        assert acts == []


def test_a_draining_host_that_is_needed_takes_instances_again() -> None:
    _, pool = opened("pool-1").step(sight(2.0, 1, live={"pool-1"}, instances={"pool-1": 2}))
    _, pool = pool.step(sight(3.0, 2, live={"pool-1"}, drained={"pool-1"}))
    acts, pool = pool.step(sight(4.0, 2, live={"pool-1"}, drained={"pool-1"}))
    assert acts == [DrainPoolHost("pool-1", drained=False)]
    assert pool.leaving == frozenset()


def test_the_host_with_the_fewest_instances_goes_then_the_youngest() -> None:
    live = {"pool-1", "pool-2", "pool-3"}
    few = {"pool-1": 1, "pool-2": 3, "pool-3": 3}
    _, pool = opened(*sorted(live)).step(sight(2.0, 3, live=live, instances=few))
    assert pool.leaving == {"pool-1"}
    alike = dict.fromkeys(live, 1)
    _, pool = opened(*sorted(live)).step(sight(2.0, 3, live=live, instances=alike))
    assert pool.leaving == {"pool-3"}


def test_hosts_that_drain_count_for_the_cap() -> None:
    live, busy = {"pool-1", "pool-2", "pool-3"}, {"pool-1": 1, "pool-2": 1, "pool-3": 1}
    pool = opened(*sorted(live))
    _, pool = pool.step(sight(2.0, 1, live=live, instances=busy))
    assert pool.leaving == live
    acts, pool = pool.step(sight(3.0, 4, live=live - {"pool-3"}, instances=busy))
    assert [act for act in acts if isinstance(act, OpenHost)] == []
    assert len(pool.hosts) == 3


def test_a_host_that_is_late_is_opened_again_later_and_later() -> None:
    _, pool = HostPool(RULES).step(sight(0.0, 2))
    acts, pool = pool.step(sight(60.0, 2))
    assert (acts, pool.refused) == ([], "pool-1: it is not there 60 s after it was opened")
    assert pool.step(sight(64.9, 2))[0] == []
    acts, pool = pool.step(sight(65.0, 2))
    assert acts == [OpenHost("pool-1")]
    _, pool = pool.step(sight(125.0, 2))
    assert pool.step(sight(134.9, 2))[0] == []
    assert pool.step(sight(135.0, 2))[0] == [OpenHost("pool-1")]
    _, pool = pool.step(sight(136.0, 2, live={"pool-1"}))
    assert (pool.hosts["pool-1"].phase, pool.refused) == (PoolPhase.OPEN, "")


def test_a_host_that_was_opened_in_vain_is_given_up_when_it_is_not_wanted() -> None:
    _, pool = HostPool(RULES).step(sight(0.0, 2))
    pool = pool.failed("pool-1", "no quota", 1.0)
    assert pool.refused == "pool-1: no quota"
    assert pool.step(sight(2.0, 1))[0] == [ClosePoolHost("pool-1")]


def test_a_host_that_is_gone_is_opened_again_and_never_closed_unseen() -> None:
    pool = opened("pool-1")
    acts, pool = pool.step(sight(61.0, 1))
    assert acts == [OpenHost("pool-1")]
    for now_s in range(70, 500, 10):
        acts, pool = pool.step(sight(float(now_s), 1))
        assert not [act for act in acts if isinstance(act, ClosePoolHost)]


def test_a_host_whose_files_are_needed_is_opened_and_stays() -> None:
    acts, pool = HostPool(RULES).step(sight(0.0, 1, needed={"pool-2"}))
    assert acts == [OpenHost("pool-2")]
    _, pool = pool.step(sight(1.0, 1, needed={"pool-2"}, live={"pool-2"}))
    _, pool = pool.step(sight(2.0, 1, needed={"pool-2"}, live={"pool-2"}))
    assert pool.hosts["pool-2"].phase is PoolPhase.OPEN


STEPS = st.lists(
    st.tuples(
        st.none() | st.integers(1, 6),
        st.sets(st.sampled_from(["pool-1", "pool-2", "pool-3"])),
        st.dictionaries(st.sampled_from(["pool-1", "pool-2", "pool-3"]), st.integers(0, 2)),
        st.sampled_from(["", "open", "close"]),
    ),
    max_size=40,
)


@given(STEPS)
def test_whatever_happens_only_empty_drained_hosts_close_and_the_cap_holds(
    steps: list[tuple[int | None, set[str], dict[str, int], str]],
) -> None:
    pool, drained, joined = HostPool(RULES), set[str](), set[str]()
    for at, (wanted, live, instances, fails) in enumerate(steps):
        now_s = 20.0 * at
        joined |= live & pool.hosts.keys()
        seen = sight(now_s, wanted, live=live, drained={*drained}, instances=instances)
        acts, pool = pool.step(seen)
        assert len(pool.hosts) <= 3
        for act in acts:
            pool = _carried_out(pool, act, fails, now_s, drained)
            if isinstance(act, ClosePoolHost) and act.name in joined:
                assert act.name in drained
                assert instances[act.name] == 0
                joined.discard(act.name)


def _carried_out(
    pool: HostPool, act: PoolAct, fails: str, now_s: float, drained: set[str]
) -> HostPool:
    match act:
        case OpenHost(name):
            return pool.failed(name, "no", now_s) if fails == "open" else pool
        case DrainPoolHost(name, on):
            (drained.add if on else drained.discard)(name)
            return pool
        case ClosePoolHost(name):
            return pool.closed(name, "no" if fails == "close" else "", now_s)


@pytest.mark.parametrize("wanted", [1, 2, 4])
def test_it_comes_to_rest(wanted: int) -> None:
    pool, live, drained = HostPool(RULES), set[str](), set[str]()
    for now_s in range(20):
        instances = dict.fromkeys(live, 0)
        acts, pool = pool.step(
            sight(float(now_s), wanted, live={*live}, drained={*drained}, instances=instances)
        )
        for act in acts:
            pool = _carried_out(pool, act, "", float(now_s), drained)
            live |= {act.name} if isinstance(act, OpenHost) else set()
            live -= {act.name} if isinstance(act, ClosePoolHost) else set()
    assert (acts, len(live)) == ([], wanted - 1)


def test_while_a_run_does_not_answer_nothing_closes() -> None:
    pool = opened("pool-1")
    runs = [PooledRun("a", planned=1), PooledRun("b", answers=False)]
    seen = pool.sight(runs, 2.0, 1, {"pool-1"}, {"pool-1"})
    assert (seen.wanted, seen.instances) == (None, {})
    assert pool.step(seen)[0] == [DrainPoolHost("pool-1", drained=False)]


def test_each_run_counts_its_hosts_for_itself_and_without_runs_none_is_needed() -> None:
    pool = opened("pool-1")
    runs = [PooledRun("a", planned=1), PooledRun("b", planned=2), PooledRun("c")]
    assert pool.sight(runs, 2.0, 1, (), ()).wanted == 3
    assert pool.sight([PooledRun("c")], 2.0, 1, (), ()).wanted is None
    assert pool.sight([], 2.0, 1, (), ()).wanted == 0


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (PooledRun("a", answers=False), "a does not say where its instances are"),
        (PooledRun("a", instances={"p": 1}, drained=frozenset({"p"})), "1 of a is there"),
        (PooledRun("a"), "a does not know yet that it is drained"),
        (PooledRun("a", drained=frozenset({"p"}), instances={"q": 3}), ""),
    ],
)
def test_a_host_is_in_use_unless_each_run_says_that_it_is_not(run: PooledRun, why: str) -> None:
    free = PooledRun("free", drained=frozenset({"p"}))
    assert why_in_use([free, run], "p", is_known=True) == why
