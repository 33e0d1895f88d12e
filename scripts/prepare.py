"""Makes `.venv` ready: the environment, this clone with its extras, and a Java runtime.

Started by `scripts/setup` with any Python >= 3.11, so it uses the standard library only. Each
step leaves a stamp with the key of what it depended on, so the next start reads two small files
and is done. Two starts at the same time wait for each other.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
UNFINISHED = VENV / ".anabranch-unfinished"
EXTRAS = "spark,plot,dev"
NO_JAVA = 3
"""Exit code of `anabranch.spark_bridge.local.java` when there is no Java for Spark."""


class SetupFailed(Exception):
    """The set-up cannot go on. The message says why and what to do."""


def main() -> int:
    try:
        if not ready():
            with one_at_a_time(ROOT / ".build" / "setup.lock"):
                step("install", install_key, install)
                step("java", java_key, provide_java)
    except SetupFailed as failure:
        say(f"set-up failed: {failure}")
        return 1
    except KeyboardInterrupt:
        say("set-up interrupted; the next start begins it again")
        return 130
    return 0


def ready() -> bool:
    return done("install", install_key()) and done("java", java_key())


def step(name: str, key: Callable[[], str], work: Callable[[], None]) -> None:
    """Do `work` unless it was done under the same key; a failure leaves no stamp."""
    if done(name, key()):
        return
    stamp(name).unlink(missing_ok=True)
    work()
    # Asked again, since `work` may have made what the key is computed from.
    stamp(name).write_text(key())


def done(name: str, key: str) -> bool:
    # An upgrade of Python can take away what .venv/bin/python points at.
    return os.access(PYTHON, os.X_OK) and stamp(name).is_file() and stamp(name).read_text() == key


def stamp(name: str) -> Path:
    return VENV / f".anabranch-{name}"


def install_key() -> str:
    """Changes with what is to be installed, the interpreter, and the place of the clone."""
    config = VENV / "pyvenv.cfg"
    parts = [
        (ROOT / "pyproject.toml").read_bytes(),
        Path(__file__).read_bytes(),
        config.read_bytes() if config.is_file() else b"",
        bytes(ROOT),
    ]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def java_key() -> str:
    found = f"{os.environ.get('JAVA_HOME')}:{shutil.which('java')}"
    return hashlib.sha256(f"{install_key()}:{found}".encode()).hexdigest()


@contextmanager
def one_at_a_time(lock: Path) -> Iterator[None]:
    """Hold the lock of this clone. The system drops it with the process, however that ends."""
    lock.parent.mkdir(exist_ok=True)
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another start is setting up this clone: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def install() -> None:
    if UNFINISHED.exists() or not usable():
        make_venv()
    say("installing Anabranch with PySpark and the tools for tests (once; about 1 GB, minutes)")
    UNFINISHED.touch()
    pip("install", "--editable", f".[{EXTRAS}]")
    UNFINISHED.unlink()


def usable() -> bool:
    """Whether there is an environment made for this place, new enough and with pip."""
    check = "import pip, sys; sys.exit(sys.version_info < (3, 11))"
    if not os.access(PYTHON, os.X_OK):
        return False
    if subprocess.run([PYTHON, "-c", check], stderr=subprocess.DEVNULL).returncode:
        return False
    # A clone that was moved keeps scripts that point to its old place.
    config = (VENV / "pyvenv.cfg").read_text().splitlines()
    made_by = [line for line in config if line.startswith("command = ")]
    return all(line.endswith(f" {VENV}") for line in made_by)


def make_venv() -> None:
    base = getattr(sys, "_base_executable", sys.executable)
    say(f"making {VENV.relative_to(ROOT)} with Python {sys.version.split()[0]} ({base})")
    command = [base, "-m", "venv", "--clear"]
    if subprocess.run([*command, str(VENV)], capture_output=True).returncode == 0:
        return
    # Debian keeps pip for new environments in a package of its own, python3-venv.
    bare = subprocess.run([*command, "--without-pip", str(VENV)], capture_output=True, text=True)
    if bare.returncode:
        raise SetupFailed(f"`{base} -m venv` does not work:\n{bare.stdout}{bare.stderr}")
    UNFINISHED.touch()
    say("this Python has no pip for new environments (on Debian: python3-venv): fetching pip")
    if subprocess.run([str(PYTHON), str(ROOT / "scripts" / "fetch_pip.py")]).returncode:
        raise SetupFailed(
            "pip could not be fetched. On Debian or Ubuntu: sudo apt install python3-venv; "
            "else name another Python: PYTHON=/path/to/python3"
        )


def provide_java() -> None:
    """See whether Spark finds a Java runtime; if not, get one from PyPI."""
    probe = subprocess.run(
        [str(PYTHON), "-m", "anabranch.spark_bridge.local.java"], capture_output=True, text=True
    )
    if probe.returncode == 0:
        return
    if probe.returncode != NO_JAVA:
        raise SetupFailed(f"looking for Java failed:\n{probe.stderr}")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted: list[str] = project["project"]["optional-dependencies"]["java"]
    say(f"no Java 17 or newer here: installing one from PyPI into .venv ({', '.join(wanted)})")
    try:
        pip("install", *wanted)
    except SetupFailed as failure:
        # Everything but Spark works without it, and Spark will say what is missing.
        say(f"warning: {failure}\nwarning: parts that need Spark will not run")


def pip(*arguments: str) -> None:
    # On a terminal pip shows its progress; elsewhere only errors.
    quiet = [] if sys.stderr.isatty() else ["-qq"]
    command = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", *quiet, *arguments]
    environ = os.environ | {"PIP_USER": "0"}
    if subprocess.run(command, cwd=ROOT, env=environ, stdout=sys.stderr).returncode:
        raise SetupFailed(
            f"`pip {' '.join(arguments)}` did not succeed; pip says why above. If the network "
            "was at fault, start again: finished downloads are kept."
        )


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
