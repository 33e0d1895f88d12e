"""docs/backfill.md: its example runs as it says, and what cannot be a backfill is refused."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from anabranch.cli import main
from anabranch.commands.backfill import _span
from anabranch.commands.failing import WrongUsage
from tests.anabranch.files import clean_imports, write
from tests.anabranch.test_command_on_spark import command
from tests.anabranch.test_documents import examples

pytest.importorskip("pyarrow")


def call(day: str, who: str, cents: int) -> str:
    at = datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()
    return json.dumps({"at": at, "who": who, "cents": cents}) + "\n"


def test_the_example_counts_each_call_once(tmp_path: Path) -> None:
    (tmp_path / "bill.py").write_text(examples("docs/backfill.md")[0])
    for folder in ("archive", "calls"):
        (tmp_path / folder).mkdir()
    history = [call("2025-12-31T23:59:59", "a", 1), call("2026-01-01", "a", 2)]
    history += [call("2026-06-29T12:00", "a", 4), call("2026-06-29T13:00", "b", 8)]
    (tmp_path / "archive/1.jsonl").write_text("".join(history) + call("2026-06-30", "a", 16))
    live = [call("2026-06-29T14:00", "a", 32), call("2026-06-30", "a", 16)]
    (tmp_path / "calls/1.jsonl").write_text("".join(live) + call("2026-07-01", "b", 64))
    span = ("--from", "2026-01-01", "--to", "2026-06-30", "--state", "bill.history")
    done = command(tmp_path, "backfill", "bill.py", *span, "--input", "calls=archive/*.jsonl")
    assert done.returncode == 0, done.stderr
    assert "left out at read: 1 tuple before 2026-01-01 00:00:00 UTC\n" in done.stdout
    assert "left out at read: 1 tuple at 2026-06-30 00:00:00 UTC or later\n" in done.stdout
    assert "savepoint: bill.history/savepoint" in done.stdout
    report = ("--from", "bill.history/savepoint", "--report", "report.json")
    done = command(tmp_path, "run", "bill.py", *report)
    assert done.returncode == 0, done.stderr
    operators = {
        o["name"]: o for o in json.loads((tmp_path / "report.json").read_text())["operators"]
    }
    reason = "before 2026-06-30 00:00:00 UTC, up to where a backfill has counted"
    assert operators["read"]["left_out"] == {reason: 1}
    days = [*map(json.loads, (tmp_path / "days.jsonl").read_text().splitlines())]
    found = {
        (who, datetime.fromtimestamp(start, UTC).day): value for who, start, _, value, *_ in days
    }
    assert found == {("a", 1): 2, ("a", 29): 4, ("b", 29): 8, ("a", 30): 16, ("b", 1): 64}


REFUSED = """
    import anabranch as ab

    pipeline = ab.Pipeline("small")
    lines = pipeline.source("lines", {source})
    {timed}.key_by(len).fold("n", 0, lambda n, _: n + 1).sink("out", ab.discard())
"""
TIMED = 'lines.map("read", str).event_time(float)'


@pytest.mark.parametrize(
    ("source", "timed", "arguments", "told"),
    [
        ("ab.items(['1'])", TIMED, "--from 2026-02-01 --to 2026-01-31", "begin before it ends"),
        ("ab.items(['1'])", TIMED, "--from 2026-02-01 --to tomorrow", "'tomorrow' is no date"),
        ("ab.items(['1'])", TIMED, "--from . --to 2026-01-31", "here it is a date"),
        (
            "ab.items(['1'])",
            "lines",
            "--from 2026-01-01 --to 2026-01-31",
            "'n' gets tuples of sour",
        ),
        (
            "ab.generate(str, rate=1.0)",
            TIMED,
            "--from 2026-01-01 --to 2026-01-31",
            "source 'lines' has no end.*--input lines=PATH",
        ),
        (
            "ab.items(['1'])",
            TIMED,
            "--from 2026-01-01 --to 2026-01-31 --input read=x.txt",
            "--input read=x.txt: 'read' is no source; sources: lines",
        ),
        (
            "ab.items(['1'])",
            TIMED,
            "--from 2026-01-01 --to 2026-01-31 --input x.txt",
            "--input 'x.txt': expected SOURCE=PATH",
        ),
        (
            "ab.items(['1'])",
            TIMED,
            "--from 2026-01-01 --to 2026-01-31 --resume --on spark",
            "a backfill on Spark is one batch.* without --resume",
        ),
        (
            "ab.items(['1'])",
            TIMED,
            "--from 2026-01-01 --to 2026-01-31 --fresh --on spark",
            "a backfill on Spark is one batch.* without --fresh",
        ),
    ],
)
def test_what_cannot_be_a_backfill_is_refused_before_anything_starts(
    source: str, timed: str, arguments: str, told: str, tmp_path: Path
) -> None:
    path = write(tmp_path, REFUSED.format(source=source, timed=timed))
    state = tmp_path / "state"
    with clean_imports():
        words = ["backfill", str(path), *arguments.split(), "--state", str(state)]
        done = CliRunner().invoke(main, words)
    assert done.exit_code == 2, done.output
    assert re.search(told, done.output), done.output
    assert not state.exists()


def test_a_folder_may_be_called_as_a_date_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "2026-01-01").mkdir()
    (tmp_path / "savepoint").mkdir()
    monkeypatch.chdir(tmp_path)
    assert _span("2026-01-01", "2026-01-31").start == 1_767_225_600.0
    with pytest.raises(WrongUsage, match="`anabranch run` begins from a savepoint"):
        _span("savepoint", "2026-01-31")
    with pytest.raises(WrongUsage, match="'' is no date"):
        _span("", "2026-01-31")
