"""Where new instances are placed: never against a constraint, always in the same order."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.hosts.placement import HostRoom, Wish, place
from anabranch.runtime.plan.place import Location, near, on
from anabranch.runtime.values.checks import PipelineError

REGIONS = ("plant-1", "plant-2", "")
NAMES = tuple("abcdefg")
labels = st.dictionaries(st.sampled_from(("camera", "rack")), st.sampled_from(("north", "south")))
latencies = st.dictionaries(st.sampled_from(NAMES), st.sampled_from((0.001, 0.002, 0.05)))
rooms = st.builds(
    HostRoom,
    st.sampled_from(NAMES),
    st.sampled_from((0.0, 1.0, 4.0)),
    st.sampled_from((0.0, 100.0, 8000.0)),
    st.sampled_from(REGIONS),
    labels,
    latencies,
)
hosts = st.lists(rooms, max_size=7, unique_by=lambda host: host.name)
places = st.builds(
    Location,
    st.none() | st.sampled_from(REGIONS[:2]),
    labels.map(lambda found: tuple(sorted(found.items()))),
    st.sampled_from(((), ("camera",), ("camera", "split"))),
)
names = st.lists(st.sampled_from(NAMES), max_size=3)
wishes = st.builds(
    Wish,
    st.just("detect"),
    places,
    st.sampled_from((0.0, 0.5, 2.0)),
    st.sampled_from((0.0, 60.0)),
    st.sampled_from(("", *NAMES)),
    names,
    st.dictionaries(st.sampled_from(("camera", "split")), names),
    st.dictionaries(st.sampled_from(NAMES), st.just("it is drained")),
)


@given(hosts, wishes)
def test_no_host_is_chosen_without_room_or_against_a_constraint(
    hosts: list[HostRoom], wish: Wish
) -> None:
    by_name = {host.name: host for host in hosts}
    found = place(hosts, wish)
    for choice in found.choices:
        host = by_name[choice.host]
        assert host.cores >= wish.cores
        assert host.memory_mb >= wish.memory_mb
        assert wish.place.region in (None, host.region)
        assert set(wish.place.labels) <= set(host.labels.items())
        assert host.name not in wish.not_on
        assert choice.reason


@given(hosts, wishes)
def test_every_host_is_a_choice_or_is_refused_for_a_reason(
    hosts: list[HostRoom], wish: Wish
) -> None:
    chosen = [choice.host for choice in place(hosts, wish).choices]
    assert len(set(chosen)) == len(chosen)
    for host in hosts:
        alone = place([host], wish)
        assert bool(alone.choices) is (host.name in chosen)
        assert bool(alone.refusal) is not bool(alone.choices)
        assert alone.choices or f"{host.name}: " in alone.refusal


@given(hosts, wishes, st.randoms(use_true_random=False))
def test_the_order_in_which_hosts_are_told_does_not_matter(
    hosts: list[HostRoom], wish: Wish, chance: random.Random
) -> None:
    mixed = list(hosts)
    chance.shuffle(mixed)
    assert place(mixed, wish) == place(hosts, wish)


@given(hosts, wishes)
def test_a_host_that_is_refused_changes_nothing_among_the_others(
    hosts: list[HostRoom], wish: Wish
) -> None:
    """The order is total: of two hosts the same one is always first."""
    here = replace(wish, neighbours=(), creator="", instances={})
    chosen = [choice.host for choice in place(hosts, here).choices]
    for name in chosen:
        rest = [host for host in hosts if host.name != name]
        assert [c.host for c in place(rest, here).choices] == [n for n in chosen if n != name]


@given(st.floats(0.0001, 0.1), st.floats(0.0001, 0.1))
def test_of_two_equal_hosts_the_nearer_one_is_first(one_s: float, other_s: float) -> None:
    creator = HostRoom("creator", 0.0, 0.0)
    one = HostRoom("one", 4.0, 100.0, latency_s={"creator": one_s})
    other = HostRoom("other", 4.0, 100.0, latency_s={"creator": other_s})
    wish = Wish("detect", cores=1.0, creator="creator")
    chosen = [choice.host for choice in place([creator, one, other], wish).choices]
    assert chosen == (["other", "one"] if other_s < one_s else ["one", "other"])


CAMERA = HostRoom("camera-host", 0.0, 0.0, latency_s={"b": 0.001, "c": 0.005})
A = HostRoom("a", 8.0, 8000.0)
B = HostRoom("b", 1.0, 100.0, "plant-2", {"camera": "north"})
C = HostRoom("c", 2.0, 200.0, "plant-2")


@pytest.mark.parametrize(
    ("wish", "order"),
    [
        (Wish("f", cores=0.5), ["a", "c", "b"]),
        (Wish("f", cores=0.5, creator="c"), ["c", "a", "b"]),
        (Wish("f", cores=0.5, creator="camera-host"), ["b", "c", "a"]),
        (Wish("f", cores=0.5, neighbours=("camera-host",)), ["b", "c", "a"]),
        (Wish("f", cores=0.5, creator="c", not_on={"c": "full"}), ["a", "b"]),
        (Wish("f", on(region="plant-2"), cores=0.5), ["c", "b"]),
        (Wish("f", on(labels={"camera": "north"})), ["b"]),
        (
            Wish("f", near("camera"), 0.5, creator="a", instances={"camera": ["camera-host"]}),
            ["b", "c", "a"],
        ),
        (
            Wish("f", near("camera"), 0.5, instances={"camera": ["a", "camera-host"]}),
            ["a", "b", "c"],
        ),
    ],
)
def test_preferences(wish: Wish, order: list[str]) -> None:
    assert [choice.host for choice in place([A, B, C, CAMERA], wish).choices] == order


def test_a_choice_says_why() -> None:
    wish = Wish("f", near("camera"), 0.5, creator="a", instances={"camera": ["camera-host"]})
    first, second, third = place([A, B, C, CAMERA], wish).choices
    assert first.reason == (
        "1 ms from 'camera', at an unknown distance from its creator, 1 cores and 100 MB are free"
    )
    assert third.reason == (
        "at an unknown distance from 'camera', the host of its creator, "
        "8 cores and 8000 MB are free"
    )
    assert second.reason.startswith("5 ms from 'camera'")


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        (Wish("f", on(region="plant-3")), "b: its region is 'plant-2', not 'plant-3'"),
        (
            Wish("f", on(labels={"camra": "n"})),
            "b: it has no label 'camra'; did you mean 'camera'?",
        ),
        (Wish("f", on(labels={"camera": "s"})), "b: its label 'camera' is 'north', not 's'"),
        (Wish("f", cores=2.0), "b: 1 cores are free, 2 are needed"),
        (Wish("f", memory_mb=200.0), "b: 100 MB are free, 200 are needed"),
        (Wish("f", not_on={"b": "it is drained"}), "b: it is drained"),
    ],
)
def test_a_refusal_says_why(wish: Wish, why: str) -> None:
    assert place([B], wish).refusal == f"no host for 'f': {why}"


def test_without_hosts_nothing_is_chosen() -> None:
    assert place([], Wish("f")).refusal == "no host for 'f': no host is live"


def test_places_are_joined() -> None:
    both = on(region="plant-2") & near("camera") & on(labels={"rack": "7"}) & near("camera")
    assert both == Location("plant-2", (("rack", "7"),), ("camera",))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: on(), "expected a region or labels"),
        (lambda: on(region=3), "region must be the name of a region, got 3"),  # type: ignore[arg-type]
        (lambda: on(labels=["camera"]), "labels must be like"),  # type: ignore[arg-type]
        (lambda: on(labels={"camera": 1}), "a label is a text"),  # type: ignore[dict-item]
        (lambda: near(""), "expected the name of an operator, got ''"),
        (lambda: on(region="a") & on(region="b"), "no host is in two regions, 'a' and 'b'"),
        (lambda: on(labels={"k": "1"}) & on(labels={"k": "2"}), "two values of the label 'k'"),
    ],
)
def test_a_place_that_cannot_be_is_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(PipelineError, match=message):
        make()
