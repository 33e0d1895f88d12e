"""Which hosts keep copies of a journal."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.runtime.hosts.holders import holders_for
from anabranch.runtime.hosts.placement import HostRoom


def host(name: str, rack: str = "", near: Mapping[str, float] | None = None) -> HostRoom:
    labels = {"failure": rack} if rack else {}
    return HostRoom(name, 1.0, 100.0, labels=labels, latency_s=near or {})


def test_the_nearest_other_host_is_the_first() -> None:
    hosts = [host("w"), host("far", near={"w": 0.1}), host("near", near={"w": 0.01})]
    assert holders_for(hosts, "w", 1) == ["near"]
    assert holders_for(hosts, "w", 2) == ["near", "far"]


def test_hosts_that_fail_together_come_last() -> None:
    hosts = [
        host("w", "rack-1"),
        host("beside", "rack-1", {"w": 0.001}),
        host("far", "rack-2", {"w": 0.1}),
        host("behind", "rack-2", {"w": 0.2}),
        host("alone", "", {"w": 0.3}),
    ]
    assert holders_for(hosts, "w", 4) == ["far", "alone", "beside", "behind"]
    assert holders_for(hosts, "w", 1, have=["behind"]) == ["alone"]


def test_where_there_are_too_few_all_are_taken_and_never_the_writers_own() -> None:
    assert holders_for([host("w"), host("a")], "w", 3) == ["a"]
    assert holders_for([host("w")], "w", 1) == []
    assert holders_for([host("w"), host("a")], "w", 1, have=["a"]) == []
