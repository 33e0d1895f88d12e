"""`anabranch logs`: what a pipeline on a host has printed, and what it prints."""

from __future__ import annotations

import codecs
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from anabranch.commands.agent_options import ask, at_option, say_json, token_option
from anabranch.commands.failing import Refusal, WrongUsage
from anabranch.commands.shared_options import json_option
from anabranch.commands.telling import say

if TYPE_CHECKING:
    from anabranch.runtime.hosts.pipelines import LogNews

AGAIN_S = 1.0
"""Between two attempts to reach an agent that does not answer."""
LINE_CHARS_MAX = 2**20
"""Of a line as JSON; a longer one is cut in two."""
EXAMPLES = """\b
Examples:
  anabranch logs headlines
  anabranch logs headlines@3f2a91c0 --lines 1000
  anabranch logs headlines --follow

\b
The agent keeps the last 4 to 8 MB of each pipeline. --follow goes on until the pipeline has ended,
or Ctrl-C; while the agent does not answer, it waits for it. With --json it prints an object per
line, and at the end the state of the pipeline.
Exit code: 0 done, 1 no agent answers, 2 wrong usage or no such pipeline.
"""


@click.command(epilog=EXAMPLES)
@click.argument("pipeline", metavar="PIPELINE")
@at_option
@click.option(
    "--lines",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    metavar="N",
    help="The last ones.",
)
@click.option("--follow", "-f", is_flag=True, help="Go on with what it prints, until it has ended.")
@token_option
@json_option
def command(
    pipeline: str, at: str, lines: int, follow: bool, token_file: Path | None, as_json: bool
) -> None:
    """Show what a pipeline has printed, and what its run says."""
    from anabranch.runtime.hosts.pipelines import AskLogs, Logs

    if follow:
        _follow(Following(pipeline, at, lines, token_file), as_json=as_json)
        return
    found = ask(at, token_file, AskLogs(pipeline, lines), Logs)
    if as_json:
        say_json({"at": at, "id": found.id, "lines": found.text.splitlines()})
    else:
        say(found.text, nl=False)


class Following:
    """Asks for what comes next, also of an agent that has started again: a place in the log means
    the same to it."""

    def __init__(self, pipeline: str, at: str, lines: int, token_file: Path | None) -> None:
        self.id = pipeline
        self._at = at
        self._lines = lines
        self._token_file = token_file
        self._after: int | None = None

    def next(self) -> LogNews:
        """Raises `WrongUsage`, and `Refusal` if the agent has not answered so far."""
        from anabranch.runtime.hosts.pipelines import AwaitLogs, LogNews

        is_silent = False
        while True:
            try:
                request = AwaitLogs(self.id, self._after, self._lines)
                news = ask(self._at, self._token_file, request, LogNews)
            except WrongUsage:
                raise
            except Refusal as refusal:
                if self._after is None:
                    raise
                if not is_silent:
                    _note(f"{refusal.message}; waiting for it")
                is_silent = True
                time.sleep(AGAIN_S)
                continue
            if is_silent:
                _note(f"the agent at {self._at} answers again")
            if news.dropped and self._after is not None:
                _note(f"{news.dropped:,} bytes are left out: the agent has dropped them")
            self._after, self.id = news.at, news.id
            return news


def _follow(following: Following, *, as_json: bool) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    lines = Lines(lambda line: say_json({"id": following.id, "line": line}))
    try:
        while True:
            news = following.next()
            text = decoder.decode(news.data)
            if as_json:
                lines.add(text)
            else:
                click.echo(text, nl=False)
            sys.stdout.flush()
            if news.state:
                break
    except KeyboardInterrupt:
        return
    if as_json:
        lines.end()
        say_json({"id": following.id, "state": news.state})
    else:
        _note(f"{following.id} has ended: {news.state}")


class Lines:
    """Cuts a text into lines."""

    def __init__(self, take: Callable[[str], None]) -> None:
        self._take = take
        self._rest = ""

    def add(self, text: str) -> None:
        *whole, self._rest = (self._rest + text).split("\n")
        for line in whole:
            self._take(line)
        if len(self._rest) > LINE_CHARS_MAX:
            self.end()

    def end(self) -> None:
        if self._rest:
            self._take(self._rest)
        self._rest = ""


def _note(text: str) -> None:
    click.echo(f"anabranch: {text}", err=True)
