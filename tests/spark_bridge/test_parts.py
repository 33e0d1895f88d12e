"""The small parts: frames on the wire, admission, options, places, imports."""

from __future__ import annotations

import contextlib
import pickle
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.spark_bridge import messages as m
from anabranch.spark_bridge.admission import TASK_ROWS_GOOD, admit, plan
from anabranch.spark_bridge.client import Caller, GatewayLost, Link
from anabranch.spark_bridge.options import OptionError, Options
from anabranch.spark_bridge.places import Place, PlaceUnknown, state_dir, write_place
from anabranch.spark_bridge.wire import PREFIX, Refused, WireError, pack, request_of, sizes

# --- wire --------------------------------------------------------------------------------------


def test_a_request_arrives_as_it_was_sent() -> None:
    commit = m.Commit(stream="s", query="q", run="r", epoch=3, parts=[(0, "t"), (1, "u")])
    frame = pack(commit, 7)
    header, body = sizes(frame[: PREFIX.size])
    assert (body, request_of(frame[PREFIX.size :])) == (7, commit)
    assert header == len(frame) - PREFIX.size


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_a_wire_error(data: bytes) -> None:
    with contextlib.suppress(WireError):
        request_of(data)


@pytest.mark.parametrize(("header", "body"), [(0, 0), (2**21, 0), (10, 2**31)])
def test_sizes_beyond_the_limit_are_refused_before_anything_is_read(header: int, body: int) -> None:
    with pytest.raises(WireError):
        sizes(PREFIX.pack(header, body))


@pytest.mark.parametrize(
    "request_",
    [
        m.Finish(stream="../etc"),
        m.Fetch(stream="s", generation="g", part="../x", start=0, end=1),
        m.Fetch(stream="s", generation="g", part="p", start=-1, end=1),
        m.Oldest(stream="s", subscriber="x" * 201),
        m.Latest(stream="s", wait_ms=10**9),
    ],
)
def test_values_out_of_bounds_do_not_get_through(request_: m.Request) -> None:
    with pytest.raises(WireError):
        request_of(pack(request_)[PREFIX.size :])


def test_a_refusal_survives_pickling_between_sparks_processes() -> None:
    copy = pickle.loads(pickle.dumps(Refused("code", "reason")))
    assert (copy.code, str(copy)) == ("code", "reason")


# --- admission ---------------------------------------------------------------------------------


def test_a_bound_is_shared_fairly_over_the_parts() -> None:
    start = {"a": 0, "b": 10, "c": 5}
    assert admit(start, {"a": 100, "b": 12, "c": 105}, 30) == {"a": 14, "b": 12, "c": 19}
    assert admit({}, {"a": 5}, 30) == {"a": 5}
    assert admit({"gone": 7}, {}, 30) == {}


counts = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 50), max_size=6)


@given(counts, counts, st.integers(1, 100))
def test_admission_is_bounded_complete_and_fair(
    start: dict[str, int], more: dict[str, int], rows_max: int
) -> None:
    end = {p: start.get(p, 0) + n for p, n in more.items()}
    got = admit(start, end, rows_max)
    granted = {p: got[p] - start.get(p, 0) for p in end}
    assert sum(granted.values()) == min(rows_max, sum(more.values()))
    assert all(0 <= granted[p] <= more[p] for p in end)
    unsated = [granted[p] for p in end if granted[p] < more[p]]
    assert max(granted.values(), default=0) <= min(unsated, default=10**9) + 1


@given(counts, counts, st.integers(1, 5), st.integers(1, 20))
def test_a_plan_covers_every_row_once(
    start: dict[str, int], more: dict[str, int], tasks: int, rows_max: int
) -> None:
    end = {p: start.get(p, 0) + n for p, n in more.items()}
    planned = plan(start, end, tasks, rows_max)
    rows = [(r.part, n) for task in planned for r in task for n in range(r.start, r.end)]
    assert rows == [(p, n) for p in sorted(end) for n in range(start.get(p, 0), end[p])]
    assert all(sum(r.end - r.start for r in task) <= rows_max for task in planned)


def test_a_plan_makes_as_many_tasks_as_asked_for_and_none_for_little() -> None:
    assert len(plan({}, {"a": 40 * TASK_ROWS_GOOD}, 4, 10**9)) == 4
    assert len(plan({}, {f"p{n}": 10 for n in range(20)}, 4, 10**9)) == 1


# --- options and places ------------------------------------------------------------------------

MINIMAL = {"gateway": "127.0.0.1:7700", "token": "t", "stream": "lines"}


def test_options_are_read_whatever_their_case() -> None:
    options = Options.of({**MINIMAL, "MAXROWSPERTRIGGER": "5", "startingoffsets": "Latest"})
    assert options.place == Place(("127.0.0.1:7700",), "t")
    assert (options.rows_per_trigger, options.from_latest, options.rows) == (5, True, "auto")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"maxRowPerTrigger": "5"}, "did you mean 'maxRowsPerTrigger'"),
        ({"stream": ""}, "option stream"),
        ({"tasks": "many"}, "option tasks: expected a whole number from 1, got 'many'"),
        ({"rows": "dict"}, "expected auto or list"),
        ({"startingOffsets": "0"}, "expected earliest or latest"),
    ],
)
def test_a_wrong_option_is_named(changes: dict[str, str], expected: str) -> None:
    with pytest.raises(OptionError, match=expected):
        Options.of({**MINIMAL, **changes})


def test_sparks_own_options_do_not_disturb() -> None:
    Options.of({**MINIMAL, "checkpointLocation": "/tmp/x", "path": "y"})


def test_a_gateway_needs_a_token_and_a_port() -> None:
    with pytest.raises(OptionError, match="also needs option token"):
        Options.of({"gateway": "h:1", "stream": "s"})
    with pytest.raises(PlaceUnknown, match="give option run"):
        Options.of({"stream": "s"})
    with pytest.raises(PlaceUnknown, match="expected host:port"):
        Place.at("localhost", "t")


def test_a_run_tells_where_its_gateway_is_to_its_user_only(tmp_path: Path) -> None:
    state = state_dir(tmp_path)
    with pytest.raises(PlaceUnknown, match="is the pipeline running"):
        Place.of_run(tmp_path)
    state.mkdir()
    path = write_place(state, "127.0.0.1:1234", "secret")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for where in (tmp_path, state, path):
        place = Place.of_run(where)
        assert (place.addresses, place.token) == (("127.0.0.1:1234",), "secret")
    write_place(state, "127.0.0.1:4321", "secret")
    assert place.again().addresses == ("127.0.0.1:4321",)
    path.unlink()
    assert place.again() == place


def test_a_gateway_that_does_not_answer_is_named(tmp_path: Path) -> None:
    place = Place(("127.0.0.1:1", "127.0.0.1:2"), "t")
    with pytest.raises(GatewayLost, match=r"127.0.0.1:1: .*127.0.0.1:2: .*pipeline running"):
        Link(place)
    with pytest.raises(GatewayLost):
        Caller(place, 0).ask(m.Release())


def test_a_caller_is_pickled_without_its_connection() -> None:
    caller = Caller(Place(("h:1",), "t"), 5)
    copy = pickle.loads(pickle.dumps(caller))
    assert (copy.place, copy.patience_s, copy._link) == (caller.place, 5, None)


# --- imports -----------------------------------------------------------------------------------


def test_the_bridge_and_its_ends_import_neither_pyspark_nor_pyarrow() -> None:
    code = (
        "import sys, anabranch.spark_bridge as s\n"
        "s.feed('lines'), s.collect('out', 'text string'), s.session, s.finish, s.write, s.read\n"
        "heavy = {'pyspark', 'pyarrow', 'py4j', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert sorted(s.__all__) == dir(s)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_pyspark_finds_the_data_source_where_it_looks(tmp_path: Path) -> None:
    """PySpark imports every top-level module `pyspark_...` on the path, and takes this name."""
    pytest.importorskip("pyspark")
    module = Path(__file__).parents[2] / "pyspark_anabranch.py"
    (tmp_path / module.name).symlink_to(module)
    code = (
        "from pkgutil import iter_modules\n"
        "from importlib import import_module\n"
        "from pyspark.sql.datasource import DataSource\n"
        "found = [m.name for m in iter_modules() if m.name.startswith('pyspark_')]\n"
        "assert 'pyspark_anabranch' in found, found\n"
        "source = import_module('pyspark_anabranch').DefaultSource\n"
        "assert issubclass(source, DataSource) and source.name() == 'anabranch'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
