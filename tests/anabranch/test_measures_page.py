"""docs/measures.md names what there is."""

from __future__ import annotations

import re
from pathlib import Path

from anabranch.policies import Reading
from anabranch.runtime.measuring.slot_sums import SlotSums
from anabranch.runtime.reporting.report import HostReport, OperatorReport, Report, Samples
from anabranch.runtime.reporting.snapshot import OperatorSnapshot, RunSnapshot

PAGE = Path(__file__).parents[2] / "docs" / "measures.md"
NAME = re.compile(r"`([a-z_0-9.]+)`")


def rows() -> list[list[str]]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    table = [line for line in lines if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def known(*kinds: type) -> set[str]:
    return {name for kind in kinds for name in dir(kind)}


def test_every_measure_has_a_unit_a_definition_and_a_name_in_a_reading() -> None:
    assert rows()
    for measure, unit, definition, reading, *_ in rows():
        assert unit, measure
        assert definition, measure
        assert NAME.findall(reading), measure


def test_all_names_are_those_of_the_values() -> None:
    of_reading = known(Reading) | {f"own.sums.{name}" for name in known(SlotSums)}
    of_snapshot = known(OperatorSnapshot, RunSnapshot)
    of_report = known(OperatorReport, HostReport, Report) | {
        f"samples.{name}" for name in known(Samples)
    }
    for _, _, _, reading, snapshot, report in rows():
        for cell, names in ((reading, of_reading), (snapshot, of_snapshot), (report, of_report)):
            assert set(NAME.findall(cell)) <= names, cell
