"""Break the source of protocol/ in many small ways, one at a time, in a copy; which
mutants survive?

    python scripts/mutants.py [--files rules/leave.py ...] [--limit N] [--jobs 2]

Each mutant changes one comparison, condition, set operation, effect or check. It is killed if the
tests of the protocol fail, or else those of the explorer. A survivor is either equivalent (an
`assert` repeats the check, an order does not matter) or a gap in the tests; read it and say which.
The shipped source is not touched. `anabranch verify --mutants` breaks the rules by their meaning;
this breaks them by their letter.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILES = (
    "rules/context.py",
    "rules/data.py",
    "rules/finish.py",
    "rules/join.py",
    "rules/keeper.py",
    "rules/leave.py",
    "rules/move.py",
    "rules/restart.py",
    "states.py",
    "ownership.py",
    "table.py",
    "core.py",
    "handshake.py",
    "copies.py",
    "replay_order.py",
    "session.py",
    "credit.py",
    "invariants.py",
)
TESTS = (
    ["tests/protocol", "--deselect", "tests/protocol/test_machines.py"],
    ["tests/runtime/explorer/test_explorer_scopes.py"],
    ["tests/protocol/test_machines.py", "tests/runtime/explorer/test_explorer_cuts.py"],
    ["tests/runtime/explorer/test_explorer_copies.py"],
)
"""Quickest first; the first that fails has killed the mutant."""
TIMEOUT_S = 300

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip


Place = tuple[int, str, "Change | Become"]
"""A line, how it is broken, and what breaks it."""


@dataclass(frozen=True)
class Mutant:
    file: str
    line: int
    what: str
    source: str


def mutants_of(file: str) -> Iterator[Mutant]:
    """Every mutant of one file."""
    source = (ROOT / "protocol" / file).read_text(encoding="utf-8")
    for number in range(sum(1 for _ in _places(ast.parse(source)))):
        tree = ast.parse(source)
        line, what, change = list(_places(tree))[number]
        change()
        yield Mutant(file, line, what, ast.unparse(ast.fix_missing_locations(tree)))


def _places(tree: ast.AST) -> Iterator[Place]:
    """Where something can be broken, and how; in an order that depends on the source alone."""
    skip = _typing_only(tree)
    for node in ast.walk(tree):
        if node in skip:
            continue
        for name, value in ast.iter_fields(node):
            operators = value if isinstance(value, list) else [value]
            for index, operator in enumerate(operators):
                swap = SWAPS.get(type(operator))
                if swap is not None:
                    what = f"{type(operator).__name__} becomes {swap.__name__}"
                    yield getattr(node, "lineno", 0), what, Change(node, name, index, swap())
        if isinstance(node, ast.If | ast.IfExp):
            for truth in (True, False):
                change = Change(node, "test", 0, ast.Constant(truth))
                yield node.lineno, f"the condition is always {truth}", change
        if isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load):
            for index, element in enumerate(node.elts):
                if isinstance(element, ast.Call | ast.Starred):
                    what = f"{ast.unparse(element)[:50]} is left out"
                    yield node.lineno, what, Change(node, "elts", index, None)
        yield from _smaller_places(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, bool):
            other = not node.value
            yield node.lineno, f"{node.value} becomes {other}", Change(node, "value", 0, other)
        body = getattr(node, "body", None)
        for index, statement in enumerate(body if isinstance(body, list) else []):
            if _is_check(statement):
                what = f"{ast.unparse(statement)[:60]} is not checked"
                yield statement.lineno, what, Change(node, "body", index, ast.Pass())


def _smaller_places(node: ast.AST) -> Iterator[Place]:
    """What is left out or changes places: one side of a set operation, one of several types, a
    field of a new state, a negation, the order of two effects."""
    if isinstance(node, ast.BinOp) and type(node.op) in (ast.BitOr, ast.Sub, ast.BitAnd):
        sides = [node.left] if isinstance(node.op, ast.Sub) else [node.left, node.right]
        for side in sides:
            yield node.lineno, f"{_told(node)} is only {_told(side)}", Become(node, side)
    if isinstance(node, ast.Call):
        yield from _smaller_calls(node)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.lineno, f"{_told(node)} without the not", Become(node, node.operand)
    if isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load):
        for index in range(len(node.elts) - 1):
            swapped = [*node.elts]
            swapped[index : index + 2] = reversed(swapped[index : index + 2])
            if all(isinstance(e, ast.Call | ast.Starred | ast.Name) for e in swapped):
                new = ast.Tuple(swapped, ast.Load())
                yield node.lineno, f"{_told(swapped[index])} comes first", Become(node, new)


def _smaller_calls(node: ast.Call) -> Iterator[Place]:
    name = ast.unparse(node.func)
    if name == "isinstance":
        kinds = node.args[1]
        *parts, last = _alternatives(kinds)
        for one in [*parts, last] if parts else []:
            rest = " | ".join(ast.unparse(p) for p in [*parts, last] if p is not one)
            what = f"{_told(kinds)} without {_told(one)}"
            yield node.lineno, what, Become(kinds, ast.parse(rest, mode="eval").body)
    if name == "replace" or name[:1].isupper():
        for index, keyword in enumerate(node.keywords):
            what = f"{_told(node)} without {keyword.arg}"
            yield node.lineno, what, Change(node, "keywords", index, None)
    if name in ("min", "max", "any", "all"):
        other = {"min": "max", "max": "min", "any": "all", "all": "any"}[name]
        yield node.lineno, f"{name} becomes {other}", Change(node.func, "id", 0, other)


def _alternatives(kinds: ast.expr) -> list[ast.expr]:
    if isinstance(kinds, ast.BinOp):
        return [*_alternatives(kinds.left), *_alternatives(kinds.right)]
    return [kinds]


def _told(node: ast.AST) -> str:
    return ast.unparse(node)[:50]


def _typing_only(tree: ast.AST) -> set[ast.AST]:
    """Annotations and the like: `A | B` there is no operation."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        parts = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "dataclass"):
            parts += [*node.args, *(k.value for k in node.keywords)]
        if isinstance(node, ast.Assert):
            parts.append(node.test)
        for part in filter(None, parts):
            found.update(ast.walk(part))
    return found


def _is_check(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and ast.unparse(statement.value.func) == "require"
    )


@dataclass(frozen=True)
class Change:
    """Put `new` into a field of a node, at an index if it is a list; None takes it out."""

    node: ast.AST
    field: str
    index: int
    new: object

    def __call__(self) -> None:
        old = getattr(self.node, self.field)
        if not isinstance(old, list):
            setattr(self.node, self.field, self.new)
        elif self.new is None:
            del old[self.index]
        else:
            old[self.index] = self.new


@dataclass(frozen=True)
class Become:
    """Put another expression in the place of a node."""

    node: ast.AST
    new: ast.expr

    def __call__(self) -> None:
        new = copy.deepcopy(self.new)
        vars(self.node).clear()
        self.node.__class__ = new.__class__
        vars(self.node).update(vars(new))


def killer_of(mutant: Mutant) -> str:
    """Which tests notice the mutant; empty if none does."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        package = place / "anabranch"
        package.mkdir()
        for path in (ROOT / "anabranch").iterdir():
            if path.name != "__pycache__":
                (package / path.name).symlink_to(path)
        for name in ("runtime", "workloads", "spark_bridge"):
            (package / name).symlink_to(ROOT / name)
        shutil.copytree(
            ROOT / "protocol", package / "protocol", ignore=shutil.ignore_patterns("__pycache__")
        )
        (package / "protocol" / mutant.file).write_text(mutant.source, encoding="utf-8")
        (place / "tests").symlink_to(ROOT / "tests")
        shutil.copy(ROOT / "pyproject.toml", place)
        for tests in TESTS:
            if _fails(place, tests):
                return tests[0]
    return ""


def _fails(place: Path, tests: list[str]) -> bool:
    quiet = ["-x", "-q", "--no-header", "--timeout", "120"]
    run = [sys.executable, "-m", "pytest", *quiet, *tests]
    environment = {**os.environ, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            run, cwd=place, env=environment, capture_output=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", nargs="*", default=FILES)
    parser.add_argument("--limit", type=int, default=10**6, help="at most so many mutants")
    parser.add_argument("--every", type=int, default=1, help="only each so-manieth mutant")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    every = [m for file in options.files for m in mutants_of(file)]
    chosen = every[:: options.every][: options.limit]
    print(f"{len(chosen)} of {len(every)} mutants", flush=True)
    intact = (ROOT / "protocol" / FILES[0]).read_text(encoding="utf-8")
    if killer := killer_of(Mutant(FILES[0], 0, "nothing", intact)):
        print(f"{killer} fails already when nothing is broken: no mutant would prove anything")
        return 1
    survivors = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for mutant, killer in zip(chosen, pool.map(killer_of, chosen), strict=True):
            survivors += not killer
            mark = f"killed by {killer}" if killer else "SURVIVES"
            print(f"{mutant.file}:{mutant.line}: {mutant.what}: {mark}", flush=True)
    print(f"{len(chosen) - survivors} killed, {survivors} survive")
    return 0


if __name__ == "__main__":
    sys.exit(main())
