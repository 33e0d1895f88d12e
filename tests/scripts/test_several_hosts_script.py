"""One pipeline on three hosts as network namespaces, and the judge of its results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hosts.pipeline import KEYS, wrong_keys

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "several_hosts.py"


def lines(read: int) -> list[str]:
    counts: dict[str, int] = {}
    found = []
    for n in range(read):
        key = f"K{n % KEYS}"
        counts[key] = counts.get(key, 0) + 1
        found.append(json.dumps([key, counts[key]]))
    return found


def test_the_judge_sees_what_is_lost_doubled_or_out_of_order() -> None:
    good = lines(5 * KEYS)
    first, last = (f"K{n}" for n in (0, KEYS - 1))
    assert wrong_keys(good, 5 * KEYS) == {}
    assert wrong_keys(good[1:], 5 * KEYS) == {first: "1 of 5 lost, 0 twice"}
    assert wrong_keys([*good, good[-1]], 5 * KEYS) == {last: "0 of 5 lost, 1 twice"}
    turned = [good[KEYS], *good[1:KEYS], good[0], *good[KEYS + 1 :]]
    assert wrong_keys(turned, 5 * KEYS) == {first: "0 of 5 lost, 0 twice, not in order"}
    assert wrong_keys([*good, json.dumps(["other", 1])], 5 * KEYS).keys() == {"other"}


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("options", [[], ["--lose"]], ids=["come back", "lost for good"])
def test_hosts_are_cut_off_drained_switched_off_and_lost_and_nothing_else_is(
    options: list[str],
) -> None:
    command = [sys.executable, str(SCRIPT), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all is right" in done.stdout
