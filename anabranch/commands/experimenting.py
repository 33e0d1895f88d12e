"""What the commands of `anabranch experiment` share: their options, and what they write."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from anabranch.commands.failing import Refusal, WrongUsage
from anabranch.commands.out_folder import OutFolder
from anabranch.commands.telling import say
from anabranch.runtime.values.checks import PipelineError
from anabranch.workloads.experiments.recordings import find
from anabranch.workloads.experiments.spreading import Spread, over_cores

if TYPE_CHECKING:
    from anabranch.workloads.curve_base import FloatArray

F = TypeVar("F", bound=Callable[..., Any])


PLACES = "cores|spark[=MASTER]"


def recording(folder: Path, below: str, name: str) -> Path:
    """A file of `--traces`, there or in its folder `below`."""
    path = find(folder, below, name)
    if path is None:
        raise WrongUsage(f"--traces: there is no {name} in {folder}")
    return path


def recorded(folder: Path, below: str, name: str, read: Callable[[Path], FloatArray]) -> FloatArray:
    """What `read` makes of such a file. It raises `OSError` or `ValueError` for another one."""
    try:
        return read(recording(folder, below, name))
    except (OSError, ValueError) as error:
        raise WrongUsage(f"--traces: {error}") from None


def _place(_context: click.Context, _parameter: click.Parameter, value: str) -> Spread:
    """Where runs of an experiment are made: `cores`, `spark` or `spark=MASTER`."""
    if value == "cores":
        return over_cores
    from anabranch.spark_bridge.sessions import master_of
    from anabranch.spark_bridge.spreading import LOCAL, OverSpark

    try:
        return OverSpark(master_of(value, LOCAL))
    except PipelineError:
        raise click.BadParameter(f"{value!r}: expected cores, spark or spark=MASTER") from None


def options(quick: str) -> Callable[[F], F]:
    """`--out`, `--json`, `--quick` and `--on`; `quick` says what that leaves out."""

    def decorate(function: F) -> F:
        for option in (
            click.option(
                "--on",
                "spread",
                default="cores",
                show_default=True,
                metavar=PLACES,
                callback=_place,
                help="Where runs are made; of a Spark cluster each task has a seed.",
            ),
            click.option("--quick", is_flag=True, help=quick),
            click.option("--json", "as_json", is_flag=True, help="Print the numbers as JSON."),
            click.option("--out", type=OutFolder(), help="For the results."),
        ):
            function = option(function)
        return function

    return decorate


@contextmanager
def spreading() -> Iterator[None]:
    """Around runs: what `--on` needs and is missing is the user's matter, a live run that fails the
    machine's."""
    from anabranch.spark_bridge.errors import SparkUnavailable
    from anabranch.workloads.experiments.noting import RunSpoilt

    try:
        yield
    except SparkUnavailable as error:
        raise WrongUsage(f"--on spark: {error}") from None
    except PipelineError as error:
        raise WrongUsage(str(error)) from None
    except RunSpoilt as error:
        raise Refusal(str(error)) from None


class Found(NamedTuple):
    """What an experiment has found: as text, as numbers, as rows of figures of each run, and
    drawn into a folder."""

    text: str
    numbers: Mapping[str, object]
    rows: Sequence[Mapping[str, Any]]
    draw: Callable[[Path], object]


def publish(name: str, found: Found, *, out: Path | None, as_json: bool, spread: Spread) -> None:
    """Print the table or the numbers, and write both and the figures to `out`; of runs on a cluster
    the rows, too, as Parquet."""
    from anabranch.panels import PictureUnavailable

    plain = json.dumps(found.numbers, indent=2)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{name}.md").write_text(found.text, encoding="utf-8")
        (out / f"{name}.json").write_text(plain + "\n", encoding="utf-8")
        try:
            found.draw(out)
        except PictureUnavailable as error:
            click.echo(f"no figures: {error}", err=True)
        if spread is not over_cores:
            from anabranch.spark_bridge.spreading import write_rows

            write_rows(found.rows, out / f"{name}.parquet")
    say(plain if as_json else found.text)


def progress(done: int, of: int) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r{done} of {of} parts", nl=done == of, err=True)
    elif done * 10 // of != (done - 1) * 10 // of:
        click.echo(f"{done} of {of} parts", err=True)
