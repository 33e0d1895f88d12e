"""Threads that a pipeline's file begins: which line, and whether the file may run."""

from __future__ import annotations

import _thread
import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.loading import LoadError, load_pipeline
from anabranch.runtime.live.process.origin import LoadError as ReadAgainError
from anabranch.runtime.live.process.origin import Origin, load_preload, load_request
from tests.anabranch.files import GOOD, clean_imports, write
from tests.runtime.processes import PATIENCE_S

ENOUGH = threading.Event()
"""The threads of these tests end when it is set."""


def wait() -> None:
    """What a thread without an object is begun for here."""
    ENOUGH.wait()


THREAD = (
    f"from {__name__} import ENOUGH; "
    "threading.Thread(target=ENOUGH.wait, daemon=True, name='fresh').start()"
)


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    before = set(threading.enumerate())
    ENOUGH.clear()
    with clean_imports():
        yield
    ENOUGH.set()
    gc.collect()  # a pool ends its threads when it is gone
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def startup(line: str) -> str:
    return f"    import threading\n    {line}\n{GOOD}"


def test_a_file_that_begins_a_thread_is_refused_with_the_line(tmp_path: Path) -> None:
    path = write(tmp_path, startup(THREAD))
    with pytest.raises(LoadError, match=r"headlines.py:2 begins the thread 'fresh'.*__init__"):
        load_pipeline(str(path))


def test_a_pool_that_was_used_is_refused(tmp_path: Path) -> None:
    pool = "from concurrent.futures import ThreadPoolExecutor as P; p = P(1); p.submit(len, '')"
    with pytest.raises(LoadError, match=r"headlines\.py:2 begins the thread"):
        load_pipeline(str(write(tmp_path, startup(pool))))


def test_a_timer_is_refused(tmp_path: Path) -> None:
    timer = f"from {__name__} import ENOUGH; t = threading.Timer(0, ENOUGH.wait); t.start()"
    with pytest.raises(LoadError, match=r"headlines\.py:2 begins the thread"):
        load_pipeline(str(write(tmp_path, startup(timer))))


@pytest.mark.parametrize("name", ["start_new_thread", "start_new"])
def test_a_thread_without_an_object_is_refused_with_the_line(tmp_path: Path, name: str) -> None:
    plain = f"import _thread; from {__name__} import wait; _thread.{name}(wait, ())"
    with pytest.raises(LoadError, match=r"headlines\.py:2 begins a thread for wait while"):
        load_pipeline(str(write(tmp_path, startup(plain))))
    assert not hasattr(_thread.start_new_thread, "func")


def test_a_thread_without_an_object_that_ends_is_fine(tmp_path: Path) -> None:
    plain = "import _thread; _thread.start_new_thread(len, ('',))"
    assert load_pipeline(str(write(tmp_path, startup(plain)))).name == "pipeline"


def test_a_thread_that_another_thread_begins_is_refused(tmp_path: Path) -> None:
    text = f"from {__name__} import ENOUGH\n\n\ndef go_on():\n    ENOUGH.wait()\n"
    write(tmp_path, text, "my_work.py")
    nested = "import my_work as w; t = threading.Thread(target=threading.Thread(target=w.go_on)"
    path = write(tmp_path, startup(f"{nested}.start); t.start(); t.join()"))
    with pytest.raises(LoadError, match=r"my_work\.py:5 runs in a thread that begins while"):
        load_pipeline(str(path))


def test_the_line_is_that_of_the_users_module_that_begins_it(tmp_path: Path) -> None:
    write(tmp_path, f"import threading\n\n\ndef begin():\n    {THREAD}\n", "my_metrics.py")
    path = write(tmp_path, startup("import my_metrics; my_metrics.begin()"))
    with pytest.raises(LoadError, match=r"my_metrics\.py:5 begins"):
        load_pipeline(str(path))


def test_a_thread_that_ends_is_fine(tmp_path: Path) -> None:
    short = "t = threading.Thread(target=len, args=('',)); t.start()"
    assert load_pipeline(str(write(tmp_path, startup(short)))).name == "pipeline"


def test_a_library_that_begins_one_by_itself_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    library = write(tmp_path / "lib", f"import threading\n{THREAD}\n", "a_library.py")
    monkeypatch.setattr(
        "anabranch.runtime.pipeline.begun_threads.LIBRARIES", (str(library.parent),)
    )
    monkeypatch.syspath_prepend(str(library.parent))
    assert load_pipeline(str(write(tmp_path, startup("import a_library")))).name == "pipeline"
    assert "headlines.py:2 begins the thread 'fresh' by importing a library" in caplog.text


def test_a_file_that_is_read_again_is_refused_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.runtime.live.process.origin._loading", False)
    pipeline = load_pipeline(str(write(tmp_path, GOOD))).pipeline
    path = write(tmp_path, startup(THREAD), "again.py")
    request = load_request(pipeline, Origin("", str(path), "pipeline"), "os:getpid")
    with pytest.raises(ReadAgainError, match=r"again\.py:2 begins the thread"):
        load_preload(request)


def test_noting_leaves_threads_as_they_were() -> None:
    assert threading.Thread.start.__module__ == "threading"
