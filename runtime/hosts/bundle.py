"""The code of a pipeline as it travels to a host: the module and the files that were listed.

A bundle is named by its content: the SHA-256 of its encoding is the version of the pipeline. So the
host can check that it has got what was sent, and different code is a different version.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Annotated

import msgspec
from msgspec import Meta

from anabranch.runtime.hosts.host import Name

BUNDLE_BYTES_MAX = 16 * 2**20
FILES_MAX = 1_000
PATH_CHARS_MAX = 240
VERSION_CHARS = 8
"""Of the name of a version as users see it."""


class BundleError(ValueError):
    """The message has the file, and what to do."""


class BundleFile(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`path`: relative, with slashes."""

    path: Annotated[str, Meta(max_length=PATH_CHARS_MAX)]
    data: bytes


class Bundle(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`name`: of the pipeline on hosts. `module`: the path of the file with the pipeline;
    `variable`: which one of it, if it has several; `settings`: as for `--set`."""

    name: Name
    module: str
    variable: str
    settings: list[str]
    files: Annotated[list[BundleFile], Meta(max_length=FILES_MAX)]


def encoded(bundle: Bundle) -> bytes:
    """Equal bundles are equal bytes. Raises `BundleError`."""
    in_order = sorted(bundle.files, key=lambda file: file.path)
    try:
        data = msgspec.msgpack.encode(msgspec.structs.replace(bundle, files=in_order))
    except UnicodeEncodeError as error:
        raise BundleError(f"{error.object!a}: expected a text in UTF-8") from None
    _check(bundle, len(data))
    return data


def opened(data: bytes, version: str) -> Bundle:
    """Raises `BundleError` if the bytes are not those of that version, or are no bundle."""
    if version_of(data) != version:
        raise BundleError("the bundle is damaged: its content has another SHA-256 than was said")
    try:
        bundle = msgspec.msgpack.decode(data, type=Bundle)
    except msgspec.DecodeError as error:
        raise BundleError(f"this is no bundle: {error}") from None
    _check(bundle, len(data))
    return bundle


def version_of(data: bytes) -> str:
    return sha256(data).hexdigest()


def _check(bundle: Bundle, size: int) -> None:
    if size > BUNDLE_BYTES_MAX:
        largest = max(bundle.files, key=lambda file: len(file.data))
        raise BundleError(
            f"the code takes {size:,} bytes, at most {BUNDLE_BYTES_MAX:,} may travel; the largest "
            f"file is {largest.path} with {len(largest.data):,}. Leave data where the host finds it"
        )
    if len(bundle.files) > FILES_MAX:
        raise BundleError(f"{len(bundle.files):,} files, at most {FILES_MAX:,} may travel")
    paths: set[str] = set()
    for file in bundle.files:
        path = PurePosixPath(file.path)
        if not file.path or path.is_absolute() or ".." in path.parts or "\0" in file.path:
            raise BundleError(f"file {file.path!r}: expected a path below the folder of the module")
        if str(path) in paths or path.parts[0] == "":
            raise BundleError(f"file {file.path!r} is in the bundle twice")
        if any(str(parent) in paths for parent in path.parents):
            raise BundleError(f"file {file.path!r} lies in what is a file itself")
        paths.add(str(path))
    if bundle.module not in paths or not bundle.module.endswith(".py"):
        raise BundleError(f"the bundle has no Python file {bundle.module!r}")


# -- what the code needs ---------------------------------------------------------------------------


def syntax_error(path: str, data: bytes) -> str | None:
    """Where the text is no Python, and why."""
    try:
        ast.parse(data, path)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        return f"{path}{f':{line}' if line else ''}: {getattr(error, 'msg', error)}"
    except (MemoryError, RecursionError):
        return f"{path}: an expression there is nested too deeply for Python"
    return None


def needed(bundle: Bundle) -> dict[str, str]:
    """Modules that the code imports, by the place of the first import. Left out: what is in the
    bundle, what Python has, and what is imported within `try`, which may do without, or for types
    only."""
    own = {PurePosixPath(file.path).parts[0].removesuffix(".py") for file in bundle.files}
    found: dict[str, str] = {}
    for file in bundle.files:
        if not file.path.endswith(".py") or syntax_error(file.path, file.data):
            continue
        for name, line in _imports(ast.parse(file.data)):
            top = name.partition(".")[0]
            if top not in own and top not in sys.stdlib_module_names:
                found.setdefault(top, f"{file.path}:{line}")
    return found


def _imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    open_nodes = [tree]
    while open_nodes:
        node = open_nodes.pop()
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, node.lineno
        elif isinstance(node, ast.If) and _is_for_types(node.test):
            open_nodes += reversed(node.orelse)
        elif not isinstance(node, ast.Try):
            open_nodes += reversed([*ast.iter_child_nodes(node)])


def _is_for_types(test: ast.expr) -> bool:
    """`TYPE_CHECKING`, or `typing.TYPE_CHECKING`."""
    return getattr(test, "attr", getattr(test, "id", "")) == "TYPE_CHECKING"


def lacks(missing: Iterable[tuple[str, str]], host: str) -> str:
    """The text about modules that a host does not have, with the place that imports each."""
    told = ", ".join(f"{name!r} ({place})" for name, place in missing)
    return (
        f"host {host} does not have what the pipeline imports: {told}. Install it there, or send "
        "it along with --file if it is yours"
    )
