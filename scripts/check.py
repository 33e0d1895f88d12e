#!/usr/bin/env python3
"""What CI runs: format, lint, types and tests, each named and timed.

    scripts/check.py                       all stages; goes on after a failure
    scripts/check.py format lint --fix     only these, mending what can be mended
    scripts/check.py tests -- -k leave     what follows `--` goes to pytest

All tests run in several processes at a time; those chosen by arguments run in one, unless `-n` is
among the arguments.

The direction of imports is one of the tests (tests/test_architecture.py). Exit code 1 if a stage
failed. The tests come last, so that the output of a good run ends with pytest's closing line.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TREE = ROOT / ".build" / "types"
PYTHON = ROOT / ".venv" / "bin" / "python"
STAGES = ("format", "lint", "types", "tests")
INTERRUPTED = 130
PROCESSES_MAX = 6
"""Of tests. Where only a part of many cores is granted, more would be in each other's way; and
each takes some 300 MB, and seconds to find all tests."""


def main() -> int:
    # Started by hand with another Python, it goes on with the one that has the tools.
    if PYTHON.exists() and not Path(sys.prefix).samefile(PYTHON.parent.parent):
        os.execv(PYTHON, [str(PYTHON), *sys.argv])
    # Each process that a test starts would compile all modules anew, for half a second.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    own, pytest_options = split_at_dashes(sys.argv[1:])
    args = parse(own)
    stages: dict[str, Callable[[], bool]] = {
        "format": lambda: run("ruff", "format", *([] if args.fix else ["--check"]), "."),
        "lint": lambda: run("ruff", "check", *(["--fix"] if args.fix else []), "."),
        "types": types,
        "tests": lambda: tests(pytest_options),
    }
    try:
        failed = [name for name in args.stages or STAGES if not timed(name, stages[name])]
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        return INTERRUPTED
    if failed:
        print(f"failed: {', '.join(failed)}", flush=True)
    return 1 if failed else 0


def split_at_dashes(arguments: list[str]) -> tuple[list[str], list[str]]:
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stages", nargs="*", metavar="stage", help=", ".join(STAGES))
    parser.add_argument("--fix", action="store_true", help="format, and mend what ruff can mend")
    args = parser.parse_args(arguments)
    if unknown := [name for name in args.stages if name not in STAGES]:
        parser.error(f"no stage {', '.join(unknown)}; stages: {', '.join(STAGES)}")
    return args


def timed(name: str, stage: Callable[[], bool]) -> bool:
    print(f"== {name}", flush=True)
    started = time.monotonic()
    good = stage()
    if name != "tests" or not good:  # pytest's closing line tells its own time
        print(f"== {name} {'ok' if good else 'FAILED'} in {time.monotonic() - started:.1f} s")
    return good


def tests(options: Sequence[str]) -> bool:
    """What fails beside other tests runs once more alone, since on a busy machine a test may have
    waited too short; both lists of failures are printed."""
    if options:
        return run("pytest", "--durations=10", *options)
    if run("pytest", "--durations=10", *in_parallel()):
        return True
    print("== tests that failed beside others, once more and alone", flush=True)
    return run("pytest", "--last-failed", "--last-failed-no-failures=none")


def in_parallel() -> list[str]:
    """For pytest-xdist. One process more than there are cores: tests wait a tenth of their time."""
    limited = hasattr(os, "sched_getaffinity")  # to some cores of the machine
    cores = len(os.sched_getaffinity(0)) if limited else os.cpu_count() or 1
    return ["-n", str(min(cores + 1, PROCESSES_MAX))]


def run(tool: str, *arguments: str) -> bool:
    """Ctrl-C reaches the tool, too, which needs a while to end what it has started."""
    with subprocess.Popen([sys.executable, "-m", tool, *arguments], cwd=ROOT) as process:
        try:
            return process.wait() == 0
        except KeyboardInterrupt:
            process.wait()
            raise


def types() -> bool:
    """mypy over packages, tests and scripts, under their import names in a tree of links."""
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders: dict[str, str] = setuptools["package-dir"]
    modules: list[str] = setuptools.get("py-modules", [])
    link_tree(folders, modules)
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
    command += ["--cache-dir", str(ROOT / ".build" / "mypy")]
    # Scripts import each other by bare names, as they do when one of them is started.
    scripts = ROOT / "scripts"
    packages = ["anabranch", "tests", *(p.parent.name for p in scripts.glob("*/__init__.py"))]
    for package in packages:
        command += ["-p", package]
    for module in [*modules, *sorted(path.stem for path in scripts.glob("*.py"))]:
        command += ["-m", module]
    environ = os.environ | {"MYPYPATH": f"{TREE}:{TREE / 'scripts'}"}
    done = subprocess.run(command, cwd=TREE, env=environ, stdout=subprocess.PIPE, text=True)
    output = done.stdout
    for package, folder in folders.items():
        # Say where a file really is: protocol/ids.py, not anabranch/protocol/ids.py.
        linked = package.replace(".", "/")
        output = re.sub(f"^{linked}/", f"{folder}/", output, flags=re.MULTILINE)
    print(output, end="", flush=True)
    return done.returncode == 0


def link_tree(folders: dict[str, str], modules: list[str]) -> None:
    links = {f"{module}.py": ROOT / f"{module}.py" for module in modules}
    links |= {folder: ROOT / folder for folder in ("tests", "scripts")}
    face = (path for path in (ROOT / "anabranch").iterdir() if path.name != "__pycache__")
    links |= {f"anabranch/{path.name}": path for path in face}
    links |= {
        package.replace(".", "/"): ROOT / folder
        for package, folder in folders.items()
        if "." in package
    }
    shutil.rmtree(TREE, ignore_errors=True)
    (TREE / "anabranch").mkdir(parents=True)
    for name, target in links.items():
        (TREE / name).symlink_to(target)


if __name__ == "__main__":
    sys.exit(main())
