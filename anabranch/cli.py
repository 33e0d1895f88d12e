"""The command line. Commands are imported when called, so that `anabranch --version` is quick."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import sys
import traceback
from collections.abc import Iterator
from importlib import import_module
from typing import Any, NoReturn

import click

from anabranch import __version__
from anabranch.commands.failing import DONE, INTERRUPTED, OutputLost
from anabranch.commands.telling import flush_all
from anabranch.runtime.reporting.standard_output import STDOUT
from anabranch.runtime.values.hints import hint

COMMANDS = {
    "run": "Run a pipeline until its input ends.",
    "validate": "Check a pipeline and show its graph.",
    "backfill": "Run a pipeline over a span of history first.",
    "experiment": "Run a published evaluation again, theirs beside ours.",
    "verify": "Search all interleavings of the protocol for a fault.",
    "simulate": "Forecast what a pipeline would do under a load.",
    "report": "Write reports of runs as tables of Parquet files.",
    "policies": "List the policies by which operators scale.",
    "agent": "Run the agent of this host, which knows other hosts.",
    "ca": "Make certificates for hosts and for people.",
    "hosts": "Show the hosts that an agent knows.",
    "submit": "Send a pipeline to the agent of a host, which runs it.",
    "status": "Show what the pipelines of a host do.",
    "logs": "Show what a pipeline on a host has printed.",
    "scale": "Bring an operator of a pipeline on a host to N instances.",
    "drain": "Have instances leave a host, for maintenance.",
    "give-up": "Go on without a host that is lost for good.",
    "stop": "End a pipeline on a host.",
    "broker": "Run a broker of MQTT on this machine, for trials.",
    "replay": "Repeat one seed of the simulated swarm.",
}

EXAMPLES = """\b
Examples:
  anabranch run headlines.py
  anabranch run headlines.py --report report.json
  anabranch validate headlines.py

\b
A pipeline file, headlines.py:
  import anabranch as ab
  pipeline = ab.Pipeline("headlines")
  lines = pipeline.source("lines", ab.files("texts/*.txt"))
  words = lines.flat_map("split", str.split, scale=ab.Scale(max_instances=8))
  words.filter("long", lambda w: len(w) > 3).sink("out", ab.jsonl("words.jsonl"))
"""

GC_THRESHOLD = 50_000
"""A command begins with many imports, of which nothing becomes garbage."""


class Commands(click.Group):
    """Has its commands by name and line of help; imports the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        gc.set_threshold(GC_THRESHOLD)
        command = import_module(f"anabranch.commands.{name.replace('-', '_')}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            way = hint(name, COMMANDS, "commands")
            if ".py" in name:
                way = f"did you mean 'anabranch run {name}'?"
            ctx.fail(f"no command {name!r}; {way}")
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, **extra: Any) -> Any:
        _fill_closed_streams()
        _escape_what_has_no_letters()
        try:
            return super().main(*args, **extra)
        except OSError as error:
            if not _is_of_output(error):
                raise
            _drop_output()
            _give_up(OutputLost.by(error))
        finally:
            _flush()

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _reader_may_be_gone():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with _reader_may_be_gone():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            # Before a run takes care of Ctrl-C itself, as while the user's file is read.
            click.echo("anabranch: interrupted", err=True)
            ctx.exit(INTERRUPTED)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=Commands, epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, "-V", "--version", message="anabranch %(version)s")
def main() -> None:
    """Stream processing that scales itself without a master."""


@contextlib.contextmanager
def _reader_may_be_gone() -> Iterator[None]:
    """Of a text that click prints by itself, such as help; it would call that a failure."""
    try:
        yield
    except BrokenPipeError as error:
        if not _is_of_output(error):
            raise
        _drop_output()
        raise click.exceptions.Exit(DONE) from None


def _drop_output() -> None:
    """What is still in the buffer would fail again when it is flushed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _escape_what_has_no_letters() -> None:
    """Names and errors are shown on a terminal of any encoding, if need be with backslashes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _flush() -> None:
    """Such as a help text: without this, Python would fail in its last moment, in its own words."""
    try:
        flush_all()
    except OutputLost as lost:
        _give_up(lost)


def _is_of_output(error: OSError) -> bool:
    """Whether click has failed to print a text of its own, as of help."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return frame.f_globals.get("__name__") == click.utils.__name__


def _give_up(lost: OutputLost) -> NoReturn:
    lost.show()
    sys.exit(lost.exit_code)


def _fill_closed_streams() -> None:
    """Standard streams that the caller has closed (`>&-`) fail when used, as they should.

    Their numbers must not be free: the next file opened would become standard output. Opened for
    the other direction, they give the error of a closed file.
    """
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDONLY if fd else os.O_WRONLY), True)
    # Writing to standard output fails, if it is used; errors cannot be shown anyway.
    if sys.stdout is None:
        sys.stdout = open(STDOUT, "w", closefd=False)  # noqa: SIM115 - open to the end
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


if __name__ == "__main__":
    main()
