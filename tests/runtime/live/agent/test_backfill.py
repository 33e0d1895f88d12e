"""A backfill and the run that goes on behind it are one run over the whole input."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.spans import Spanned, counted, run

pytest.importorskip("pyarrow")


@pytest.mark.parametrize("seed", range(4))
def test_a_backfill_up_to_any_time_and_a_run_from_there_on_give_what_one_run_gives(
    seed: int, tmp_path: Path
) -> None:
    """The run reads the same files from their beginning, or others that have older tuples, too."""
    case = Spanned(tmp_path, seed)
    case.write()
    name = ("all", "live")[seed % 2]
    history = run(case.pipeline("all"), backfill=case.bounds, state=tmp_path / "state")
    assert counted(history) == case.left_out("all", live=False)
    live = run(case.pipeline(name), begin_from=tmp_path / "state" / "savepoint")
    assert counted(live) == case.left_out(name, live=True)
    case.check()
