"""Finding the pipeline in a file, and errors that point at the user's line."""

from __future__ import annotations

import importlib
import os
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.loading import LoadError, load_pipeline
from anabranch.runtime.live.process import origin
from tests.anabranch.files import GOOD, clean_imports, write


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    with clean_imports():
        yield


def message(target: Path | str) -> str:
    with pytest.raises(LoadError) as caught:
        load_pipeline(str(target))
    return str(caught.value)


def test_the_only_pipeline_of_a_file_is_found(tmp_path: Path) -> None:
    loaded = load_pipeline(str(write(tmp_path, GOOD)))
    assert (loaded.pipeline.name, loaded.name) == ("headlines", "pipeline")
    assert list(loaded.pipeline.operators) == ["lines", "split", "out"]


def test_a_pipeline_with_two_names_is_one(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD + "\n    same = pipeline\n")
    assert load_pipeline(str(path)).name == "pipeline"
    assert load_pipeline(f"{path}:same").pipeline.name == "headlines"


def test_one_of_several_pipelines_is_chosen_by_name(tmp_path: Path) -> None:
    two = GOOD + GOOD.replace("pipeline =", "nightly =").replace("pipeline.", "nightly.")
    path = write(tmp_path, two.replace('Pipeline("headlines")', 'Pipeline("night")', 1))
    assert load_pipeline(f"{path}:nightly").name == "nightly"
    assert message(path) == (
        "headlines.py holds several pipelines; say which: "
        "headlines.py:pipeline, headlines.py:nightly"
    )
    assert "did you mean 'nightly'?" in message(f"{path}:nighly")
    assert "'lines' is a Stream, not a pipeline" in message(f"{path}:lines")
    assert "pipelines there: pipeline, nightly" in message(f"{path}:xyz")


def test_functions_of_the_file_can_be_pickled_and_its_neighbours_imported(tmp_path: Path) -> None:
    write(tmp_path, "def clean(text):\n    return text.strip()\n", "my_helpers.py")
    text = GOOD.replace("import anabranch as ab", "import anabranch as ab\n    import my_helpers")
    text += "\n    def shout(text):\n        return text.upper()\n"
    load_pipeline(str(write(tmp_path, text, "with_helpers.py")))
    shout = sys.modules["with_helpers"].shout
    assert pickle.loads(pickle.dumps(shout)) is shout


def test_a_file_is_read_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python would run what it has compiled of a file of the same size and second."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.syspath_prepend(tmp_path)
    path = write(tmp_path, GOOD)
    changed = os.stat(path).st_mtime_ns
    importlib.import_module("headlines")
    del sys.modules["headlines"]
    write(tmp_path, GOOD.replace('"headlines"', '"lines_too"'))
    os.utime(path, ns=(changed, changed))
    assert load_pipeline(str(path)).pipeline.name == "lines_too"
    del sys.modules["headlines"]
    assert origin.load_module("headlines", str(path)).pipeline.name == "lines_too"


def test_files_whose_name_is_no_identifier_work(tmp_path: Path) -> None:
    assert load_pipeline(str(write(tmp_path, GOOD, "my-lines.v2.py"))).name == "pipeline"
    assert load_pipeline(str(write(tmp_path, GOOD, "test.py"))).name == "pipeline"


@pytest.mark.parametrize("name", ["json.py", "gzip.py", "uvloop.py", "anabranch.py"])
def test_a_file_named_like_a_module_in_use_is_refused(tmp_path: Path, name: str) -> None:
    assert "rename the file" in message(write(tmp_path, GOOD, name))


def test_missing_files_get_a_suggestion(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    assert message(tmp_path / "headline.py").endswith(f"did you mean {tmp_path}/headlines.py?")
    assert message(tmp_path / "headlines").endswith(f"did you mean {tmp_path}/headlines.py?")
    write(tmp_path, GOOD, "bill.py")
    assert message(tmp_path / "nofile.py").endswith(f"no such file: {tmp_path}/nofile.py")
    assert message(tmp_path / "a.py").endswith(f"no such file: {tmp_path}/a.py")
    assert message("nowhere/at_all.py") == "no such file: nowhere/at_all.py"
    assert "is a folder" in message(tmp_path)
    (tmp_path / "notes.txt").write_text("hello")
    assert "expected a Python file" in message(tmp_path / "notes.txt")


def test_a_file_without_a_pipeline_says_what_is_missing(tmp_path: Path) -> None:
    assert 'pipeline = ab.Pipeline("headlines")' in message(write(tmp_path, "x = 1\n"))


def test_a_mistake_of_building_points_at_the_line(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.replace('"split"', '"lines"'))
    assert message(path) == (
        "headlines.py:5: operator 'lines' is defined twice; names are unique\n"
        '    words = lines.flat_map("lines", str.split, scale=ab.Scale(max_instances=8))'
    )


def test_an_argument_that_makes_no_sense_points_at_the_line(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.replace("max_instances=8", "low=0.9"))
    assert message(path).startswith("headlines.py:5: scale: expected 0 < low <= target")


def test_a_stream_that_leads_nowhere_points_at_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.replace('words.sink("out", ab.discard())', ""))
    text = message(path)
    assert text.startswith("headlines.py:5: operator 'split' of pipeline 'headlines' leads nowhere")
    assert text.splitlines()[1].strip().startswith('words = lines.flat_map("split"')


def test_a_pipeline_without_operators_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "import anabranch as ab\nempty = ab.Pipeline('empty')\n")
    assert message(path).startswith("headlines.py: pipeline 'empty' has no operators")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("lines.flat_mpa", "no attribute 'flat_mpa'; did you mean 'flat_map'? (AttributeError)"),
        ("lines.fold('n', 0, max)", "no attribute 'fold'; it works by key: .key_by(...).fold(...)"),
        ("lines.key_by(str).map('x', str)", "'map'; it works without keys, so it belongs before"),
        ("lines.to('x')", "no attribute 'to'; known: event_time, filter,"),
        ("ab.Skale", "did you mean 'Scale'?"),
        ("lines.map('x', str, scael=2)", "there is no option 'scael' here; did you mean 'scale'?"),
        (
            "lines.key_by(len).window(ab.tumbling(3), lateness=2)",
            "there is no option 'lateness' here; did you mean 'lateness_s'?",
        ),
        ("ab.Scale(colour=2)", "there is no option 'colour' here; known: target, high, low"),
        ("ab.stdout(fromat='text')", "did you mean 'format'?"),
        ("int(colour=2)", "(TypeError)"),
        ("undefined", "name 'undefined' is not defined (NameError)"),
        ("1 / 0", "division by zero (ZeroDivisionError)"),
        ("__import__('no_such_module')", "No module named 'no_such_module'"),
        ("ab.stdout(format='xml')", "format must be text or jsonl, got 'xml'"),
        ("exec('raise Exception')", "no message (Exception)"),
    ],
)
def test_any_other_error_points_at_the_line(tmp_path: Path, wrong: str, said: str) -> None:
    path = write(tmp_path, GOOD.replace('words.sink("out"', f'{wrong}\n    words.sink("out"'))
    text = message(path)
    assert text.startswith("headlines.py:6: ")
    assert said in text
    assert text.splitlines()[1] == f"    {wrong}"
    assert "Traceback" not in text
    assert "anabranch/" not in text


def test_syntax_errors_show_the_place(tmp_path: Path) -> None:
    text = message(write(tmp_path, GOOD.replace("str.split,", "str.split,,")))
    assert text.startswith("headlines.py:5: invalid syntax (SyntaxError)")
    line, caret = text.splitlines()[1:]
    assert line[caret.index("^")] == ","


def test_errors_in_an_own_module_show_both_places(tmp_path: Path) -> None:
    write(tmp_path, "def broken():\n    return {}['key']\n\nbroken()\n", "parts/broken.py")
    text = message(write(tmp_path, "import parts.broken\n"))
    assert text == (
        "parts/broken.py:2: 'key' (KeyError)\n    return {}['key']\n"
        "  used at headlines.py:1\n    import parts.broken"
    )


def test_errors_in_the_library_show_the_line_that_called_it(tmp_path: Path) -> None:
    text = message(write(tmp_path, "import json\njson.loads('{')\n"))
    assert text.startswith("headlines.py:2: Expecting property name")


def test_a_file_that_ends_python_is_reported(tmp_path: Path) -> None:
    text = message(write(tmp_path, "import sys\nsys.exit(3)\n"))
    assert text.startswith("headlines.py:2: the file ended Python while it was read")


def test_a_file_that_starts_its_own_run_is_reported(tmp_path: Path) -> None:
    text = message(write(tmp_path, GOOD + "\n    ab.run(pipeline)\n"))
    assert text.startswith("headlines.py:8: headlines.py starts its pipeline while")
    assert '__name__ == "__main__"' in text


def test_a_file_that_failed_can_be_mended_and_loaded_again(tmp_path: Path) -> None:
    path = write(tmp_path, "1 / 0\n")
    assert "ZeroDivisionError" in message(path)
    write(tmp_path, GOOD)
    assert load_pipeline(str(path)).name == "pipeline"


def test_encodings_are_honoured(tmp_path: Path) -> None:
    path = tmp_path / "headlines.py"
    path.write_bytes("# coding: latin-1\nname = 'é'\nundefined\n".encode("latin-1"))
    assert message(path).startswith("headlines.py:3: name 'undefined'")


def test_a_name_with_dots_makes_a_module_whose_values_can_travel(tmp_path: Path) -> None:
    text = GOOD + "\n    class Point:\n        pass\n"
    load_pipeline(str(write(tmp_path, text, "pipe.v2.py")))
    point = sys.modules["pipe_v2"].Point
    assert pickle.loads(pickle.dumps(point)) is point


def test_a_name_with_dots_is_refused_beside_its_namesake(tmp_path: Path) -> None:
    write(tmp_path, GOOD, "pipe_v2.py")
    assert "would have the name of pipe_v2.py" in message(write(tmp_path, GOOD, "pipe.v2.py"))
