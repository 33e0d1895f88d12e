"""The set-up of a clone: which Python is taken, what is done again and what is not."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.processes import PATIENCE_S
from tests.scripts import SCRIPTS, script

TOO_OLD = 'case $1 in -c) exit 1;; esac; echo "started $0 all the same"'
NEW_ENOUGH = 'case $1 in -c) exit 0;; esac; echo "${0##*/} starts ${2##*/}"'


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone that has nothing but `scripts/setup`, and the few tools it calls on PATH."""
    root = tmp_path / "my clone"
    (root / "scripts").mkdir(parents=True)
    (root / "bin").mkdir()
    shutil.copy(SCRIPTS / "setup", root / "scripts")
    for tool in ("dirname", "cat"):
        (root / "bin" / tool).symlink_to(shutil.which(tool) or "")
    return root


def put_python(clone: Path, name: str, body: str) -> Path:
    path = clone / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def start(clone: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", str(clone / "scripts" / "setup")],
        env={"PATH": str(clone / "bin"), **environ},
        capture_output=True,
        text=True,
    )


def test_without_any_python_the_message_says_how_to_get_one(clone: Path) -> None:
    done = start(clone)
    assert done.returncode == 2
    assert "needs Python 3.11 or newer" in done.stderr
    assert "apt install python3" in done.stderr


def test_an_old_python3_is_passed_over_for_a_newer_name(clone: Path) -> None:
    put_python(clone, "bin/python3", TOO_OLD)
    put_python(clone, "bin/python3.12", NEW_ENOUGH)
    assert start(clone).stdout == "python3.12 starts prepare.py\n"


def test_the_environment_that_is_there_is_asked_first(clone: Path) -> None:
    put_python(clone, "bin/python3", NEW_ENOUGH)
    put_python(clone, ".venv/bin/python", NEW_ENOUGH)
    assert start(clone).stdout == "python starts prepare.py\n"


def test_a_python_that_was_asked_for_and_is_too_old_is_not_replaced(clone: Path) -> None:
    put_python(clone, "bin/python3", NEW_ENOUGH)
    old = put_python(clone, "bin/mine", TOO_OLD)
    done = start(clone, PYTHON=str(old))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"PYTHON={old}" in done.stderr


@pytest.fixture
def prepare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`scripts/prepare.py` for a clone in `tmp_path`, with an environment in place."""
    module = script("prepare")
    root, venv = tmp_path.resolve(), tmp_path.resolve() / ".venv"
    put_python(root, ".venv/bin/python", "exit 0")
    (venv / "pyvenv.cfg").write_text(f"version = 3.11.7\ncommand = python3 -m venv {venv}\n")
    (root / "pyproject.toml").write_text("[project]\n")
    places = {"ROOT": root, "VENV": venv, "PYTHON": venv / "bin" / "python"}
    for name, value in places.items() | {("UNFINISHED", venv / ".anabranch-unfinished")}:
        monkeypatch.setattr(module, name, value)
    return module


def test_a_second_start_does_nothing(prepare: Any) -> None:
    calls: list[str] = []
    for _ in range(2):
        prepare.step("install", prepare.install_key, lambda: calls.append("install"))
        prepare.step("java", prepare.java_key, lambda: calls.append("java"))
    assert calls == ["install", "java"]
    assert prepare.ready()


def test_a_changed_pyproject_installs_again(prepare: Any) -> None:
    prepare.step("install", prepare.install_key, lambda: None)
    (prepare.ROOT / "pyproject.toml").write_text("[project]\nname = 'other'\n")
    assert not prepare.done("install", prepare.install_key())


def test_another_java_is_looked_at_without_installing_again(
    prepare: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare.step("install", prepare.install_key, lambda: None)
    prepare.step("java", prepare.java_key, lambda: None)
    monkeypatch.setenv("JAVA_HOME", "/another/java")
    assert prepare.done("install", prepare.install_key())
    assert not prepare.done("java", prepare.java_key())


def test_an_interpreter_that_was_upgraded_away_is_noticed(prepare: Any) -> None:
    prepare.step("install", prepare.install_key, lambda: None)
    prepare.PYTHON.unlink()
    prepare.PYTHON.symlink_to("/nowhere/python3.11")
    assert not prepare.done("install", prepare.install_key())
    assert not prepare.usable()


def test_a_step_that_failed_is_done_again(prepare: Any) -> None:
    def fail() -> None:
        raise prepare.SetupFailed("no network")

    prepare.step("install", prepare.install_key, lambda: None)
    (prepare.ROOT / "pyproject.toml").write_text("changed")
    with pytest.raises(prepare.SetupFailed):
        prepare.step("install", prepare.install_key, fail)
    assert not prepare.stamp("install").exists()


def test_an_installation_that_was_cut_short_begins_with_a_new_environment(
    prepare: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    monkeypatch.setattr(prepare, "make_venv", lambda: made.append("new"))
    monkeypatch.setattr(prepare, "pip", lambda *arguments: None)
    prepare.install()
    assert made == []
    prepare.UNFINISHED.touch()
    prepare.install()
    assert made == ["new"]
    assert not prepare.UNFINISHED.exists()


def test_the_environment_of_a_clone_that_was_moved_is_not_used(prepare: Any) -> None:
    assert prepare.usable()
    config = prepare.VENV / "pyvenv.cfg"
    config.write_text("command = python3 -m venv /where/it/was/.venv\n")
    assert not prepare.usable()


def test_two_starts_at_the_same_time_wait_for_each_other(
    prepare: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = threading.Event()
    monkeypatch.setattr(prepare, "say", lambda text: waits.set())
    order: list[str] = []

    def second() -> None:
        with prepare.one_at_a_time(prepare.ROOT / ".build" / "setup.lock"):
            order.append("second")

    thread = threading.Thread(target=second)
    with prepare.one_at_a_time(prepare.ROOT / ".build" / "setup.lock"):
        thread.start()
        assert waits.wait(timeout=PATIENCE_S)
        order.append("first")
    thread.join(timeout=PATIENCE_S)
    assert order == ["first", "second"]


def test_scripts_can_be_started() -> None:
    for name in ("setup", "test", "demo", "check.py"):
        assert os.access(SCRIPTS / name, os.X_OK), name
        assert (SCRIPTS / name).read_text().startswith("#!/"), name
