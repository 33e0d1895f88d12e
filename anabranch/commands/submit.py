"""`anabranch submit`: send a pipeline to the agent of a host, which runs it."""

from __future__ import annotations

import re
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING

import click

from anabranch.commands.agent_options import (
    address_option,
    ask,
    say_json,
    say_pipelines,
    token_option,
)
from anabranch.commands.failing import WrongUsage
from anabranch.commands.shared_options import json_option, settings_option

if TYPE_CHECKING:
    from anabranch.runtime.hosts.bundle import Bundle, BundleFile

EXAMPLES = """\b
Examples:
  anabranch submit headlines.py
  anabranch submit headlines.py --to 127.0.0.1:7434 --file words.py --file models
  anabranch submit headlines.py --set split.scale.max_instances=4
  anabranch submit headlines.py --name night --json | jq -r '.pipelines[0].id'

\b
The file travels with those that are listed, to which imports of your own modules belong. Paths are
kept, below the folder of the file. The SHA-256 of all of it is the version; different versions run
side by side, as NAME@VERSION. Files that the pipeline names by relative paths are looked for, and
results written, in a folder of the agent: name them by absolute paths.
Exit code: 0 its run has begun, 1 it could not be done, 2 wrong usage or a mistake in the pipeline.
"""


@click.command(epilog=EXAMPLES)
@click.argument("target", metavar="FILE.py[:NAME]")
@address_option("--to")
@click.option(
    "--file",
    "listed",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="A file, or a folder with its files, that the pipeline needs. May be repeated.",
)
@click.option("--name", metavar="NAME", help="Of the pipeline on the host; that of the file.")
@settings_option
@token_option
@json_option
def command(
    target: str,
    at: str,
    listed: tuple[Path, ...],
    name: str | None,
    settings: tuple[str, ...],
    token_file: Path | None,
    as_json: bool,
) -> None:
    """Send the pipeline in FILE.py to the agent of a host, which runs it."""
    from anabranch.runtime.hosts.bundle import BundleError, encoded, version_of
    from anabranch.runtime.hosts.pipelines import PipelinesKnown, Submit

    try:
        data = encoded(_bundle(target, listed, name, settings))
    except BundleError as error:
        raise WrongUsage(str(error)) from None
    known = ask(at, token_file, Submit(data, version_of(data)), PipelinesKnown)
    if as_json:
        say_json({"at": at, "pipelines": known.pipelines})
    else:
        say_pipelines(known.pipelines)


def _bundle(
    target: str, listed: tuple[Path, ...], name: str | None, settings: tuple[str, ...]
) -> Bundle:
    from anabranch.loading import LoadError, split_target
    from anabranch.runtime.hosts.bundle import BUNDLE_BYTES_MAX, FILES_MAX, Bundle, syntax_error

    try:
        path, variable = split_target(target)
    except LoadError as error:
        raise WrongUsage(str(error)) from None
    files = {path.name: _read(path, path.parent)}
    size = 0
    for each in listed:
        for found in _files_in(each):
            file = _read(found, path.parent)
            files[file.path] = file
            size += len(file.data)
            if size > BUNDLE_BYTES_MAX or len(files) > FILES_MAX:
                raise WrongUsage(
                    f"--file {each}: more than {FILES_MAX:,} files or {BUNDLE_BYTES_MAX:,} bytes "
                    "in all; send what the code needs, and put data where the host finds it"
                )
    for file in files.values():
        if file.path.endswith(".py") and (wrong := syntax_error(file.path, file.data)):
            raise WrongUsage(wrong)
    return Bundle(
        name=_name(name or path.stem, given=name is not None),
        module=path.name,
        variable=variable or "",
        settings=[*settings],
        files=[*files.values()],
    )


def _name(name: str, *, given: bool) -> str:
    if given and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", name):
        raise WrongUsage(f"--name {name}: expected letters, digits, '.', '_' and '-', at most 63")
    return re.sub(r"[^A-Za-z0-9._-]", "-", name).lstrip("._-")[:63] or "pipeline"


def _files_in(path: Path) -> list[Path]:
    """Of a folder all but what Python and others leave there."""
    if not path.exists():
        raise WrongUsage(f"--file {path}: no such file")
    if not path.is_dir():
        return [path]
    hidden = ("__pycache__", ".")
    inside = [p for p in sorted(path.rglob("*")) if p.is_file()]
    return [p for p in inside if not any(x.startswith(hidden) for x in p.relative_to(path).parts)]


def _read(path: Path, folder: Path) -> BundleFile:
    from anabranch.runtime.hosts.bundle import BUNDLE_BYTES_MAX, BundleFile

    whole = path.resolve()
    if not whole.is_relative_to(folder):
        raise WrongUsage(
            f"--file {path}: lies outside of {folder}, the folder of the pipeline; put it there, "
            "so that the pipeline finds it in the same place on the host"
        )
    try:
        status = whole.stat()
        if not S_ISREG(status.st_mode):
            raise WrongUsage(f"{path}: expected a file that can be read again, or a folder")
        if (size := status.st_size) > BUNDLE_BYTES_MAX:
            raise WrongUsage(
                f"{path}: {size:,} bytes are more than may travel with a pipeline "
                f"({BUNDLE_BYTES_MAX:,}); put it where the host finds it"
            )
        return BundleFile(whole.relative_to(folder).as_posix(), whole.read_bytes())
    except OSError as error:
        raise WrongUsage(f"{path}: {error.strerror}") from None
