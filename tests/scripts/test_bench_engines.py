"""`scripts/bench.py engines`: who is compared with whom, and over what. Nothing is started here."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from benches import engines
from benches.keyed_functions import WORDS_PER_LINE
from benches.result import Result, Settings

LINES = 80
SECONDS = {"chain_ours": 2.0, "keyed_ours": 3.0, "pipeline": 8.0, "sql": 4.0}


def measured(folder: Path, monkeypatch: pytest.MonkeyPatch, lost: str = "") -> Result:
    """With engines that count as they should, but for `lost`, in seconds that are given."""

    def compete(module: str, path: Path, *arguments: str, folder: Path) -> dict[str, Any]:
        lines = path.read_text().splitlines()
        words = sum(len(line.split()) for line in lines)
        is_chain = "chain" in (module.partition("_")[0], *arguments)
        results = sum(len(line) > 20 for line in lines) if is_chain else words
        engine = arguments[1] if module == "spark_ours" else module
        seconds = SECONDS[engine]
        return {"results": results - (engine == lost), "seconds": seconds, "balanced": True}

    monkeypatch.setattr(engines, "compete", compete)
    return engines.measure(Settings(folder, lambda text: None, runs=2, lines=LINES))


def test_each_engine_has_the_same_input_and_ratios_are_made_within_a_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = measured(tmp_path, monkeypatch)
    assert result.faults == []
    rows = {row.name: row for row in result.rows}
    words = LINES // engines.LINES_SHARE * WORDS_PER_LINE
    assert rows["chain: processes"].values == [LINES / 2] * 2
    assert rows["words counted by key: on Spark"].values == [words / 8] * 2
    ratio = rows["chain: on Spark/processes"]
    assert (ratio.values, ratio.target, ratio.met) == ([0.25] * 2, ">= 0.6", False)
    keyed = rows["words counted by key: on Spark/processes"]
    assert (keyed.values, keyed.met) == ([3 / 8] * 2, True)
    assert rows["chain: Spark's SQL/processes"].values == [0.5] * 2


@pytest.mark.parametrize("engine", ["pipeline", "sql", "keyed_ours"])
def test_an_engine_that_loses_a_result_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    faults = measured(tmp_path, monkeypatch, lost=engine).faults
    shapes = Counter(fault.split(",")[0] for fault in faults)
    assert shapes["words counted by key"] == 2
    assert shapes["chain"] == (0 if engine == "keyed_ours" else 2)
