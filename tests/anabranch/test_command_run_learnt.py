"""`anabranch run --learnt` and `--keep-learnt`: exit codes and what is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.anabranch.agents import called
from tests.anabranch.files import write

PIPELINE = """
    import anabranch as ab

    pipeline = ab.Pipeline("short")
    numbers = pipeline.source("numbers", ab.items(range(20)))
    scale = ab.Scale(max_instances=2)
    numbers.map("work", abs, scale=scale).sink("out", ab.jsonl("out.jsonl"))
"""
ELYSIUM = ("run", "short.py", "--controller", "elysium")


def test_a_run_leaves_a_file_that_another_run_begins_with(tmp_path: Path) -> None:
    write(tmp_path, PIPELINE, "short.py")
    kept = called(*ELYSIUM, "--keep-learnt", "a.learnt", cwd=tmp_path)
    assert kept.returncode == 0, kept.stderr
    (only,) = json.loads((tmp_path / "a.learnt").read_text())["controllers"]
    assert only["controller"] == "elysium"
    again = called(*ELYSIUM, "--learnt", "a.learnt", "--json", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["ended"] == "completed"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((*ELYSIUM, "--learnt", "none"), "--learnt none: No such file or directory"),
        ((*ELYSIUM, "--learnt", "short.py"), "--learnt short.py: damaged or changed"),
        ((*ELYSIUM, "--keep-learnt", "short.py"), "--keep-learnt short.py: would overwrite"),
        ((*ELYSIUM[:2], "--keep-learnt", "b"), "--keep-learnt b: no operator has a controller"),
        (
            (*ELYSIUM, "--learnt", "b", "--state", "s", "--resume"),
            "--learnt and --resume exclude each other",
        ),
        ((*ELYSIUM, "--learnt", "b", "--on", "spark"), "--learnt is about instances that are"),
    ],
)
def test_wrong_usage_is_told(words: tuple[str, ...], says: str, tmp_path: Path) -> None:
    write(tmp_path, PIPELINE, "short.py")
    before = (tmp_path / "short.py").read_bytes()
    refused = called(*words, cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert says in refused.stderr
    assert (tmp_path / "short.py").read_bytes() == before
    assert not (tmp_path / "out.jsonl").exists()
