"""What may import what, read from the source text, and what the tree promises about itself.

`scripts, tests -> anabranch -> workloads, spark_engine -> spark_bridge -> runtime -> protocol`;
inside runtime each room imports only those before it (`ROOMS`), and the drivers live and explorer
never each other.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS: dict[str, Any] = PROJECT["tool"]["setuptools"]
FOLDERS: dict[str, str] = SETUPTOOLS["package-dir"]

FACE = "anabranch"
MAY_IMPORT = {
    "protocol": set[str](),
    "runtime": {"protocol"},
    "workloads": {"runtime", "protocol"},
    "spark_bridge": {"runtime", "protocol"},
    "spark_engine": {"spark_bridge", "runtime", "protocol"},
    FACE: {"workloads", "spark_engine", "spark_bridge", "runtime", "protocol"},
    "pyspark_anabranch": {"spark_bridge", "runtime", "protocol"},
}
DRIVERS = ("live", "explorer")
ON_VALUES = {"runtime", "spark_bridge", "spark_engine"}
"""Layers that stand on values of runtime, and on a driver only as a part of it: a job of Spark is a
driver of its own."""
ROOMS = (
    "ports",
    *("values", "measuring", "reporting", "policies", "plan", "columns", "processing"),
    *("storage", "keyed", "sources", "sinks", "mqtt", "pipeline", "savepoint", "explorer", "hosts"),
    "broken_protocols",
    *("live.link", "live.hosts", "live.journal", "live.channel", "live.copies", "live.commit"),
    *("live.instance", "live.process", "live.agent"),
    "world",
)
"""The folders of runtime. Each imports only those before it, also for type checkers."""
ABOVE_THE_DRIVERS = {"world", "broken_protocols"}
"""The folders of runtime that run the code of a driver, and so may import it."""
KNOW_INSTANCES = ["runtime.world.processes", "runtime.world.stepped", "testing_instances"]
NOT_INSTALLED = f"{FACE}.runtime.broken_protocols"
"""A package that is in the repository only."""

PURE_STDLIB = {
    "__future__", "abc", "bisect", "collections", "dataclasses", "enum", "functools", "heapq",
    "itertools", "math", "operator", "re", "textwrap", "types", "typing",
}  # fmt: skip
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "__import__", "breakpoint"}
POLICY_BANS = {"asyncio", "datetime", "logging", "os", "random", "socket", "subprocess",
               "threading", "time"}  # fmt: skip

LINES_MAX = 600
CLASS_LINES_MAX, ATTRIBUTES_MAX, FUNCTION_LINES_MAX = 250, 20, 60
REASON = re.compile(r"\b(Large|Long)\s+because\b")
"""In a docstring, why a class or a function is larger than that."""
TEXT_SUFFIXES = {"", ".py", ".md", ".toml", ".sh", ".cfg", ".ini", ".yml", ".yaml"}


@dataclass(frozen=True)
class Import:
    module: str
    """Full name of what is imported: `from a.b import c` is `a.b.c`."""
    line: int

    @property
    def top(self) -> str:
        return self.module.partition(".")[0]


@dataclass(frozen=True)
class Source:
    name: str
    path: Path
    text: str

    @property
    def layer(self) -> str:
        return layer_of(self.name)

    @property
    def imports(self) -> tuple[Import, ...]:
        return imports_in(self.text)

    def at(self, found: Import | ast.ClassDef) -> str:
        line = found.line if isinstance(found, Import) else found.lineno
        return f"{self.path.relative_to(ROOT)}:{line}"


Rule = Callable[[Source], Iterator[str]]


@cache
def imports_in(text: str) -> tuple[Import, ...]:
    """All imports of a source text, also those inside functions and for type checkers."""
    return tuple(_imports_in(text))


def _imports_in(text: str) -> Iterator[Import]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = "." * node.level + (node.module or "")
            yield from (Import(f"{package}.{alias.name}", node.lineno) for alias in node.names)


def layer_of(module: str) -> str:
    """The layer that a module, or something in it, belongs to; its own name if none of ours."""
    parts = module.split(".")
    if parts[0] != FACE or len(parts) == 1:
        return parts[0]
    return parts[1] if parts[1] in MAY_IMPORT else FACE


def driver_of(module: str) -> str | None:
    """Which driver of runtime a module is part of, if of one."""
    parts = module.split(".")
    if parts[:2] == [FACE, "runtime"] and len(parts) > 2 and parts[2] in DRIVERS:
        return parts[2]
    return None


def room_of(module: str) -> str | None:
    """The folder of runtime that a module, or something in it, belongs to."""
    parts = module.split(".")
    if parts[:2] != [FACE, "runtime"] or len(parts) < 4:
        return None
    return ".".join(parts[2:4]) if parts[2] == "live" else parts[2]


def against_the_rooms(source: Source) -> Iterator[str]:
    own = room_of(source.name)
    if own is None:
        return
    allowed = ROOMS[: ROOMS.index(own) + 1]
    for found in source.imports:
        room = room_of(found.module)
        if room is not None and room not in allowed:
            yield f"{source.at(found)}: room {own} may not import {found.module}"


def circle_among(sources: list[Source]) -> list[str]:
    """Names of modules each of which imports the one before it, from one to itself; empty if there
    are none."""
    names = {source.name for source in sources}
    imports = {
        source.name: {_module_of(found.module, names) for found in source.imports}
        & (names - {source.name})
        for source in sources
    }
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def _module_of(imported: str, names: set[str]) -> str:
    """The module that is imported, or that has the name which is."""
    return imported if imported in names else imported.rpartition(".")[0]


def against_the_layers(source: Source) -> Iterator[str]:
    ours = MAY_IMPORT.keys() | {"tests", "scripts"}
    allowed = MAY_IMPORT[source.layer] | {source.layer}
    for found in source.imports:
        layer = layer_of(found.module)
        if layer in ours and layer not in allowed:
            yield f"{source.at(found)}: {source.layer} may not import {found.module}"


def against_the_drivers(source: Source) -> Iterator[str]:
    if source.layer not in ON_VALUES or room_of(source.name) in ABOVE_THE_DRIVERS:
        return
    own = driver_of(source.name)
    for found in source.imports:
        if driver_of(found.module) not in {None, own}:
            yield f"{source.at(found)}: {own or 'a value'} may not import {found.module}"


def against_the_names(source: Source) -> Iterator[str]:
    """Our packages under their short names would be second copies of themselves."""
    short = set(FOLDERS.values()) - {FACE}
    for found in source.imports:
        if found.top in short or found.module.startswith("."):
            yield f"{source.at(found)}: {found.module} is not an import name; {FACE}.* is"


def against_purity(source: Source) -> Iterator[str]:
    for found in source.imports:
        if found.top not in PURE_STDLIB | {FACE}:
            yield f"{source.at(found)}: {found.module} is not for the pure core"
    for node in ast.walk(ast.parse(source.text)):
        if isinstance(node, ast.Name) and node.id in IMPURE_CALLS:
            yield f"{source.path.name}:{node.lineno}: {node.id} is not for the pure core"


def against_the_policies(source: Source) -> Iterator[str]:
    for found in source.imports:
        # The type of an injected generator is fine, the global one is not.
        if found.top in POLICY_BANS and found.module != "random.Random":
            yield f"{source.at(found)}: a policy is a pure function, without {found.module}"


def against_the_bridge(source: Source) -> Iterator[str]:
    if source.layer not in {"spark_bridge", "spark_engine", "pyspark_anabranch"}:
        for found in source.imports:
            if found.top in {"pyspark", "py4j"}:
                yield f"{source.at(found)}: only the folders of Spark import {found.top}"


def against_what_is_not_installed(source: Source) -> Iterator[str]:
    """A function may import it, and has to ask first whether it is there."""
    if source.name.startswith(NOT_INSTALLED):
        return
    at_once = [n for n in ast.parse(source.text).body if not _defines(n)]
    for found in imports_in("\n".join(map(ast.unparse, at_once))):
        if found.module.startswith(NOT_INSTALLED):
            yield f"{source.path.relative_to(ROOT)}: {found.module} is not installed"


def _defines(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


MANY_ATTRIBUTES = "class A:\n  def f(self):" + "".join(
    f"\n    self.a{n} = 0" for n in range(ATTRIBUTES_MAX + 1)
)


def against_large_parts(source: Source) -> Iterator[str]:
    """A class or a function that does not fit on a few screens, or on one, has two purposes; or its
    docstring says why it has one."""
    for node in ast.walk(ast.parse(source.text)):
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if isinstance(node, ast.ClassDef):
            large = lines > CLASS_LINES_MAX or len(attributes_of(node)) > ATTRIBUTES_MAX
        else:
            large = lines > FUNCTION_LINES_MAX
        if large and not REASON.search(ast.get_docstring(node) or ""):
            yield f"{source.path.name}:{node.lineno}: {node.name} is too large: {lines} lines"


def attributes_of(node: ast.ClassDef) -> set[str]:
    """Those that its methods set."""
    return {
        inner.attr
        for inner in ast.walk(node)
        if isinstance(inner, ast.Attribute)
        and isinstance(inner.ctx, ast.Store)
        and isinstance(inner.value, ast.Name)
        and inner.value.id == "self"
    }


def namesakes(sources: list[Source]) -> list[str]:
    """Classes with the name of another one of their layer. An experiment is a layer of its own."""
    where: dict[tuple[str, str], list[str]] = {}
    for source in sources:
        layer = (
            ".".join(source.name.split(".")[:3]) if source.layer == "workloads" else source.layer
        )
        for node in ast.walk(ast.parse(source.text)):
            if isinstance(node, ast.ClassDef):
                where.setdefault((layer, node.name), []).append(source.at(node))
    return [f"{name}: {', '.join(at)}" for (_, name), at in where.items() if len(at) > 1]


def package_sources() -> list[Source]:
    sources = []
    for package, folder in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            inner = path.relative_to(ROOT / folder).with_suffix("").parts
            name = ".".join((package, *inner)).removesuffix(".__init__")
            sources.append(Source(name, path, path.read_text()))
    sources += [Source(path.stem, path, path.read_text()) for path in ROOT.glob("*.py")]
    return sources


PACKAGE = package_sources()
BESIDE = [
    Source(".".join(path.relative_to(ROOT).with_suffix("").parts), path, path.read_text())
    for folder in ("tests", "scripts")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


def found_by(rule: Rule, sources: list[Source]) -> list[str]:
    return [finding for source in sources for finding in rule(source)]


def test_imports_point_from_the_face_down_to_the_core() -> None:
    assert found_by(against_the_layers, PACKAGE) == []


def test_drivers_stand_on_values_and_never_on_each_other() -> None:
    assert found_by(against_the_drivers, PACKAGE) == []


def test_each_room_of_runtime_imports_only_rooms_before_it() -> None:
    assert found_by(against_the_rooms, PACKAGE) == []


@pytest.mark.parametrize("room", [*ROOMS, *MAY_IMPORT])
def test_modules_of_a_room_or_a_layer_import_each_other_in_no_circle(room: str) -> None:
    circle = circle_among([s for s in PACKAGE if room in (room_of(s.name), s.layer)])
    assert circle == []


def test_a_circle_is_found_where_only_a_type_checker_sees_it() -> None:
    texts = {
        "anabranch.runtime.sinks.a": "if TYPE_CHECKING:\n  from anabranch.runtime.sinks.c import C",
        "anabranch.runtime.sinks.b": "import anabranch.runtime.sinks.a",
        "anabranch.runtime.sinks.c": "def f():\n  from anabranch.runtime.sinks import b",
    }
    sources = [Source(name, ROOT / "made_up.py", text) for name, text in texts.items()]
    assert {*circle_among(sources)} == texts.keys()
    assert circle_among(sources[1:]) == []


@pytest.mark.parametrize(
    ("whole", "begun_by", "in_a_world"),
    [
        ("agent.agent", "agent.launch", ["runtime.world.world", "runtime.world.forecast"]),
        ("instance.instance", "process.instance_process", KNOW_INSTANCES),
    ],
)
def test_only_what_begins_an_agent_or_an_instance_imports_it(
    whole: str, begun_by: str, in_a_world: list[str]
) -> None:
    live = f"{FACE}.runtime.live"
    importers = {
        s.name
        for s in PACKAGE
        for found in s.imports
        if found.module == f"{live}.{whole}" or found.module.startswith(f"{live}.{whole}.")
    }
    assert importers == {f"{FACE}.{name}" for name in (f"runtime.live.{begun_by}", *in_a_world)}


def test_every_module_of_runtime_is_in_a_room() -> None:
    modules = [s.name for s in PACKAGE if s.layer == "runtime" and s.path.name != "__init__.py"]
    assert {room_of(name) for name in modules} == {*ROOMS}


def test_our_packages_are_imported_under_their_full_names() -> None:
    assert found_by(against_the_names, PACKAGE + BESIDE) == []


def test_the_core_is_pure() -> None:
    assert found_by(against_purity, [s for s in PACKAGE if s.layer == "protocol"]) == []


def test_policies_are_pure() -> None:
    policies = [s for s in PACKAGE if s.name.startswith(f"{FACE}.runtime.policies")]
    assert found_by(against_the_policies, policies) == []


def test_only_the_folders_of_spark_import_pyspark() -> None:
    assert found_by(against_the_bridge, PACKAGE) == []


def test_classes_and_functions_are_of_a_size_or_say_why_not() -> None:
    assert found_by(against_large_parts, PACKAGE) == []


def test_no_two_classes_of_a_layer_have_the_same_name() -> None:
    assert namesakes(PACKAGE) == []


def test_two_classes_of_the_same_name_are_found() -> None:
    two = [Source(f"anabranch.runtime.{n}.a", ROOT / f"{n}.py", "class A:\n  a = 1") for n in "bc"]
    assert namesakes(two) == ["A: b.py:1, c.py:1"]
    assert namesakes([two[0], Source("anabranch.protocol.a", ROOT / "d.py", two[0].text)]) == []


def test_a_reason_makes_a_large_class_right() -> None:
    text = MANY_ATTRIBUTES.replace(":", ":\n  'Large because all of it is one state.'", 1)
    assert found_by(against_large_parts, [Source("anabranch.runtime.a", ROOT / "a.py", text)]) == []


@pytest.mark.parametrize(
    ("rule", "name", "text"),
    [
        (against_large_parts, "anabranch.cli", "def f():" + FUNCTION_LINES_MAX * "\n  pass"),
        (against_large_parts, "anabranch.cli", "class A:" + CLASS_LINES_MAX * "\n  a = 1"),
        (against_large_parts, "anabranch.cli", MANY_ATTRIBUTES),
        (against_the_layers, "anabranch.protocol.a", "from anabranch.runtime import graph"),
        (against_the_layers, "anabranch.runtime.a", "def f():\n  import anabranch.workloads.b"),
        (against_the_layers, "anabranch.runtime.a", "from anabranch import Pipeline"),
        (against_the_layers, "anabranch.runtime.a", "import anabranch as ab"),
        (against_the_layers, "anabranch.workloads.a", "from anabranch import spark_bridge"),
        (against_the_layers, "anabranch.spark_bridge.a", "from anabranch.workloads import b"),
        (against_the_layers, "anabranch.spark_bridge.a", "from anabranch.spark_engine import b"),
        (against_the_layers, "anabranch.cli", "from tests import helpers"),
        (against_the_drivers, "anabranch.runtime.live.a", "import anabranch.runtime.explorer.b"),
        (against_the_drivers, "anabranch.runtime.explorer.a", "from anabranch.runtime import live"),
        (
            against_the_drivers,
            "anabranch.runtime.pipeline.graph",
            "from anabranch.runtime.live import a",
        ),
        (
            against_the_drivers,
            "anabranch.spark_engine.a",
            "from anabranch.runtime.live.agent.b import c",
        ),
        (against_the_names, "tests.a", "from protocol.ids import InstanceId"),
        (against_the_names, "anabranch.runtime.a", "from . import graph"),
        (
            against_what_is_not_installed,
            "anabranch.runtime.explorer.a",
            "from anabranch.runtime.broken_protocols import published",
        ),
        (against_purity, "anabranch.protocol.a", "import os.path"),
        (against_purity, "anabranch.protocol.a", "from time import monotonic"),
        (against_purity, "anabranch.protocol.a", "import msgspec"),
        (against_purity, "anabranch.protocol.a", "def f(x):\n  print(x)"),
        (against_the_policies, "anabranch.runtime.policies.a", "import random"),
        (against_the_policies, "anabranch.runtime.policies.a", "from random import random"),
        (against_the_bridge, "anabranch.cli", "def f():\n  from pyspark.sql import SparkSession"),
    ],
)
def test_each_rule_finds_what_breaks_it(rule: Rule, name: str, text: str) -> None:
    assert len(list(rule(Source(name, ROOT / "made_up.py", text)))) == 1


def test_the_linter_refuses_the_same_in_the_core() -> None:
    rules = tomllib.loads((ROOT / "protocol" / "ruff.toml").read_text())
    banned = rules["lint"]["flake8-tidy-imports"]["banned-api"].keys()
    assert not banned & PURE_STDLIB
    ruff = [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format=concise"]
    done = subprocess.run(
        [*ruff, "--select=TID251", "--stdin-filename", str(ROOT / "protocol/made_up.py"), "-"],
        input="".join(f"import {module}\n" for module in banned),
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    refused = re.findall(r"TID251 `(\w+)` is banned", done.stdout)
    assert sorted(refused) == sorted(banned)


def test_pyproject_lists_every_package_and_module_and_no_other() -> None:
    there = {s.name for s in PACKAGE if s.path.name == "__init__.py"}
    installed = {name for name in there if not name.startswith(NOT_INSTALLED)}
    assert there - installed
    assert sorted(SETUPTOOLS["packages"]) == sorted(installed)
    assert SETUPTOOLS.get("py-modules", []) == sorted(path.stem for path in ROOT.glob("*.py"))


def test_no_run_has_left_its_results_in_the_root() -> None:
    """Such as the tables of a Spark that was started there."""
    ours = {*filter(None, FOLDERS.values()), "docs", "scripts", "tests"}
    left_by_tools = re.compile(r"^[._]|\.egg-info$|^(build|dist)$")
    there = {path.name for path in ROOT.iterdir() if path.is_dir()}
    assert {name for name in there if not left_by_tools.search(name)} - ours == set()


def test_what_is_installed_begins_without_what_is_not() -> None:
    assert found_by(against_what_is_not_installed, PACKAGE) == []


def test_every_test_folder_is_a_package() -> None:
    folders = {path.parent for path in (ROOT / "tests").rglob("test_*.py")}
    assert [str(f) for f in sorted(folders) if not (f / "__init__.py").exists()] == []


def text_files() -> Iterator[tuple[Path, str]]:
    """What we wrote ourselves: not data, not what tools leave behind."""
    for top in sorted(ROOT.iterdir()):
        if top.name in {".ci", ".gitignore"} or not re.search(r"^\.|egg-info$|^build$", top.name):
            for path in [top] if top.is_file() else sorted(top.rglob("*")):
                if path.is_file() and path.suffix in TEXT_SUFFIXES:
                    yield path.relative_to(ROOT), path.read_text()


def test_no_file_is_longer_than_a_reader_can_hold() -> None:
    long = {str(path): text.count("\n") for path, text in text_files()}
    assert {path: n for path, n in long.items() if n > LINES_MAX} == {}


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    private = re.compile(r"(?<![\w./~-])/(?:work|tmp/hq|root)/")
    assert [str(path) for path, text in text_files() if private.search(text)] == []


def test_the_tree_walk_sees_the_files_it_judges() -> None:
    seen = {str(path) for path, _ in text_files()}
    assert {"pyproject.toml", "scripts/test", ".ci/run", "protocol/ids.py", "README.md"} <= seen
