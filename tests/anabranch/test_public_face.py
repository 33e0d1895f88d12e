"""What `import anabranch as ab` gives, and what it does not cost."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import anabranch as ab
from anabranch.runtime.values.checks import PipelineError
from tests.runtime.processes import PATIENCE_S

ROOT = Path(ab.__file__).parent.parent


def modules_after(*arguments: str) -> set[str]:
    """Which modules a fresh interpreter has imported in the end."""
    code = (
        "import sys, runpy, atexit\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        f"sys.argv = {['anabranch', *arguments[1:]]!r}\n"
        f"{arguments[0]}"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    return set(done.stderr.split())


def test_everything_promised_is_there() -> None:
    for name in ab.__all__:
        assert getattr(ab, name) is not None
    assert set(dir(ab)) == set(ab.__all__)


def test_a_wrong_name_is_an_attribute_error_that_python_can_suggest_for() -> None:
    with pytest.raises(AttributeError, match="no attribute 'fils'") as caught:
        _ = ab.fils  # type: ignore[attr-defined]
    assert caught.value.name == "fils"
    assert caught.value.obj is ab


def test_the_version_is_that_of_the_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert ab.__version__ == project["version"]


def test_the_command_line_tells_its_version_without_heavy_imports() -> None:
    loaded = modules_after("from anabranch.cli import main; main()", "--version")
    assert "click" in loaded
    heavy = {"rich", "numpy", "uvloop", "asyncio", "msgpack", "msgspec", "pyspark", "pyarrow"}
    assert loaded & heavy == set()


def test_importing_the_public_face_imports_neither_drivers_nor_ends() -> None:
    loaded = modules_after("import anabranch")
    ours = {name for name in loaded if name.startswith("anabranch")}
    assert not any(".live" in name or ".sources" in name for name in ours)
    assert loaded & {"asyncio", "click", "rich", "numpy"} == set()


def test_steps_are_made_for_fusing() -> None:
    made = [ab.map(str.upper), ab.flat_map(str.split, "words"), ab.filter(len, batch=True)]
    assert [(s.kind, s.name, s.batch) for s in made] == [
        ("map", "upper", False),
        ("flat_map", "words", False),
        ("filter", "len", True),
    ]


def test_a_step_of_something_that_is_no_function_is_refused() -> None:
    with pytest.raises(PipelineError, match="expected a function, got 'upper'"):
        ab.map("upper")  # type: ignore[arg-type]


def test_only_a_pipeline_is_run() -> None:
    stream = ab.Pipeline("p").source("numbers", ab.items([1]))
    with pytest.raises(PipelineError, match=r"expected an ab\.Pipeline to run, got Stream\("):
        ab.run(stream)  # type: ignore[arg-type]


def test_spark_is_imported_when_it_is_used() -> None:
    assert isinstance(ab.spark, ModuleType)
    assert "anabranch.spark_bridge" not in modules_after("import anabranch; anabranch.spark")


def test_a_missing_extra_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_spark(name: str) -> ModuleType:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark.sql")

    monkeypatch.setattr("anabranch.spark.import_module", no_spark)
    with pytest.raises(PipelineError, match=r"pip install 'anabranch\[spark\]'"):
        _ = ab.spark.feed


def test_another_missing_module_is_not_blamed_on_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(name: str) -> ModuleType:
        raise ModuleNotFoundError("No module named 'anabranch.typo'", name="anabranch.typo")

    monkeypatch.setattr("anabranch.spark.import_module", broken)
    with pytest.raises(ModuleNotFoundError, match="typo"):
        _ = ab.spark.feed
