"""Hosts in the comparison of policies: who opens them, who pays for them, who is refused."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.runtime.policies.controller import Controller
from anabranch.runtime.policies.elysium.controller import Elysium
from anabranch.runtime.policies.fixed import Fixed
from anabranch.runtime.policies.hierarchical.controller import Hierarchy
from anabranch.workloads.policies_compared import arena
from anabranch.workloads.policies_compared.arena import TICK_S, run
from anabranch.workloads.policies_compared.contestants import KNOWN, Contestant, contestants
from anabranch.workloads.policies_compared.controlled import ArenaControl
from anabranch.workloads.policies_compared.hosting import BOOT_S, SLOTS, ArenaHosts
from anabranch.workloads.policies_compared.scenes import Scene

UP = Scene("up", np.array([4.0] * 10 + [10.0] * 30), 1.0)


def test_without_a_plan_a_newcomer_waits_for_its_host_and_the_last_to_end_closes_it() -> None:
    hosts = ArenaHosts(3, BOOT_S)
    assert len({host.name for host in hosts.begin(SLOTS)}) == 1
    found = hosts.place(5.0, 2)
    assert [host.ready_s for host in found] == [5.0 + BOOT_S] * 2
    assert hosts.paid == 2
    hosts.end(found[0])
    assert hosts.paid == 2
    hosts.end(found[1])
    assert hosts.paid == 1


def test_there_are_never_more_hosts_or_instances_on_one_than_there_may_be() -> None:
    hosts = ArenaHosts(2, BOOT_S)
    assert len(hosts.place(0.0, 99)) == 2 * SLOTS
    assert [host.used for host in hosts.hosts] == [SLOTS] * 2


def test_with_a_plan_a_newcomer_without_a_slot_is_refused_until_a_host_has_booted() -> None:
    hosts = ArenaHosts(3, BOOT_S)
    hosts.begin(SLOTS)
    hosts.planned = True
    assert hosts.place(1.0, 1) == []
    hosts.want(2, 1.0)
    assert hosts.place(1.0 + BOOT_S / 2, 1) == []
    assert len(hosts.place(1.0 + BOOT_S, 1)) == 1


def test_a_host_closes_when_its_instances_have_relocated_and_never_before() -> None:
    hosts = ArenaHosts(3, BOOT_S)
    first = hosts.begin(SLOTS)[0]
    hosts.planned = True
    hosts.want(2, 0.0)
    (host,) = hosts.place(BOOT_S, 1)
    hosts.want(1, 9.0)
    assert host.drains
    assert hosts.refuge(host, 9.0) is None  # the other one is full
    assert hosts.paid == 2
    hosts.end(first)
    assert hosts.refuge(host, 9.0) is first
    hosts.end(host)
    assert hosts.hosts == [first]


def test_all_pay_for_hosts_and_at_least_what_their_instances_take() -> None:
    for one in (Contestant("fixed", Fixed(), start=9), Contestant(KNOWN, Fixed(), knows=True)):
        course = run(UP, one, 0)
        assert (course.hosts * SLOTS >= course.paid).all()
    assert run(UP, Contestant("fixed", Fixed(), start=9), 0).hosts.tolist() == [3.0] * 80


@pytest.mark.parametrize(
    "policy",
    [
        Elysium(every_s=3),
        Hierarchy("threshold", "simple", every_s=1, idle=1),
    ],
)
def test_controllers_follow_the_load_with_instances_and_hosts(policy: Controller[object]) -> None:
    course = run(UP, Contestant("one", policy, start=4), 0)
    assert course.instances[-1] >= 9
    assert (course.hosts * SLOTS >= course.paid).all()
    assert course.hosts[-1] >= 3 > course.hosts[0]
    again = run(UP, Contestant("one", policy, start=4), 0)
    assert np.array_equal(course.ends, again.ends)


def test_idle_hosts_are_paid() -> None:
    flat = Scene("flat", np.full(20, 3.0), 1.0)
    spare, none = (
        run(
            flat, Contestant("one", Hierarchy("threshold", "simple", every_s=1, idle=n), start=4), 0
        )
        for n in (2, 0)
    )
    assert spare.hosts[-1] == none.hosts[-1] + 2


def test_what_has_learnt_before_begins_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[object] = []
    control = ArenaControl

    def noted(*given: object) -> object:
        begun.append(given[-1])
        return control(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(arena, "ArenaControl", noted)
    monkeypatch.setattr(arena, "training", lambda: UP)
    one = Contestant("one", Elysium(every_s=3), trained=True)
    run(UP, one, 0)
    assert begun[0] is None
    assert "used work x" in str(begun[1])
    arena._learnt.cache_clear()


def test_all_published_systems_are_compared() -> None:
    sources = {one.policy.source for one in contestants()}
    for name in ("Belkhiria", "De Matteis", "Wladdimiro", "Lombardi", "Russo Russo"):
        assert any(source.startswith(name) for source in sources), name


def test_the_last_tick_is_a_whole_course() -> None:
    assert len(run(UP, Contestant("fixed", Fixed()), 0).hosts) == round(40 / TICK_S)
