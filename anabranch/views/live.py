"""The view for terminals: a table that is drawn anew a few times per second.

Only this module imports rich, and only when a terminal is there.
"""

from __future__ import annotations

import contextlib

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from anabranch.runtime.reporting.snapshot import OperatorSnapshot, RunSnapshot
from anabranch.views.figures import bar, count, died, duration, milliseconds, plural, rate, share
from anabranch.views.view import culprits, held_up

BAR = 8
DOTS = 8
EVENTS_SHOWN = 4
HOT_SHARE, HOT_LOAD = 0.5, 0.8
SILENT_S = 3.0
"""An instance that has sent nothing for so long is stuck, or starved of processors."""
NARROW = 110
"""Terminals with fewer columns get no dots, totals and latencies, and remarks below the table."""


class LiveView:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def show(self, snapshot: RunSnapshot) -> None:
        with contextlib.suppress(OSError):  # the terminal is gone; the run goes on
            self._live.update(picture(snapshot, self._console.width), refresh=True)

    def say(self, line: str) -> None:
        with contextlib.suppress(OSError):
            self._console.print(Text(line))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._live.stop()


def picture(snapshot: RunSnapshot, width: int) -> RenderableType:
    """The whole frame, for a terminal of so many columns."""
    wide = width >= NARROW
    waiting, slow = held_up(snapshot), culprits(snapshot)
    silent = {m.id for o in snapshot.operators for m in o.members if m.silent_s > SILENT_S}
    remarks = {o.name: _remark(o, waiting.get(o.name), silent, wide) for o in snapshot.operators}
    table = _columns(wide)
    for operator in snapshot.operators:
        name = Text(operator.name, style="bold red" if operator.name in slow else "bold")
        table.add_row(name, *_cells(operator, wide), *([remarks[operator.name]] if wide else []))
    below = [] if wide else [_line(Text(f"  {n}: ").append(r)) for n, r in remarks.items() if r]
    return Group(*_title(snapshot), table, *below, *_events(snapshot))


def _line(text: Text) -> Text:
    """One that is cut instead of going on below."""
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _title(snapshot: RunSnapshot) -> list[Text]:
    text = Text(snapshot.pipeline, style="bold")
    text.append(f"  {snapshot.phase}  {duration(snapshot.seconds)}", style="not bold")
    instances = sum(o.instances for o in snapshot.operators)
    text.append(f"  {plural(instances, 'instance')}, {snapshot.idle} warm", style="not bold dim")
    if snapshot.host_busy is not None:
        text.append(f", processors {share(snapshot.host_busy)}", style="not bold dim")
    deaths = sum(o.deaths for o in snapshot.operators)
    if deaths:
        text.append(f"  {died(deaths)}", style="not bold yellow")
    lines = [_line(text)]
    if snapshot.phase == "ending":
        lines.append(Text("finishing what was read; Ctrl-C stops at once", style="yellow"))
    return lines


def _columns(wide: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 1))
    table.add_column("operator", no_wrap=True, max_width=24 if wide else 16, overflow="ellipsis")
    table.add_column("instances" if wide else "inst", no_wrap=True)
    for name in ("in/s", "out/s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("load", no_wrap=True)
    table.add_column("queue", justify="right", no_wrap=True)
    table.add_column("+/-", justify="right", no_wrap=True)
    if wide:
        table.add_column("total", justify="right", no_wrap=True)
        table.add_column("p99", justify="right", no_wrap=True)
        table.add_column("", no_wrap=True, overflow="ellipsis")
    return table


def _cells(operator: OperatorSnapshot, wide: bool) -> list[RenderableType]:
    cells: list[RenderableType] = [
        _instances(operator, DOTS if wide else 0),
        rate(operator.rate_in),
        rate(operator.rate_out),
        _load(operator),
        count(operator.queued + operator.held),
        f"{operator.joins}/{operator.leaves}",
    ]
    if wide:
        cells += [count(operator.tuples_out), milliseconds(operator.latency_p99_ms)]
    return cells


def _instances(operator: OperatorSnapshot, dots: int) -> Text:
    text = Text("●" * min(operator.instances, dots), style="cyan")
    return text.append(f"{' ' if dots else ''}{operator.instances}", style="default")


def _load(operator: OperatorSnapshot) -> Text:
    style = "red" if operator.load > 1 else "yellow" if operator.load > 0.8 else "green"
    text = Text(bar(operator.load, BAR), style=style)
    return text.append(f" {share(operator.load):>6}", style="default")


def _remark(
    operator: OperatorSnapshot, blocked_by: str | None, silent: set[str], wide: bool
) -> Text:
    text = Text()
    if wide and operator.policy:
        text.append(f"{operator.policy} ", style="dim")
    if wide and len(operator.rate_to) > 1:
        streams = ", ".join(f"{name} {rate(n)}" for name, n in operator.rate_to.items())
        text.append(f"to {streams} ", style="dim")
    if operator.progress is not None:
        text.append(f"{bar(operator.progress, BAR)} {share(operator.progress)} ", style="blue")
    if operator.dead:
        text.append(f"{plural(operator.dead, 'dead letter')} ", style="magenta")
    if blocked_by:
        text.append(f"held up by {blocked_by} ", style="red")
    if hot := _hot(operator):
        text.append(f"{hot} ", style="yellow")
    late = silent & {w for m in operator.members for w in m.waiting_for}
    if late:
        text.append(f"waits for {', '.join(sorted(late))}, which is silent", style="red")
    return text


def _hot(operator: OperatorSnapshot) -> str:
    """A key group that alone is most of a busy instance's load: more instances will not help."""
    for member in operator.members:
        for group, of_load in member.hot[:1]:
            if of_load >= HOT_SHARE and member.load >= HOT_LOAD and member.groups > 1:
                return f"key group {group} is {share(of_load)} of {member.id}"
    return ""


def _events(snapshot: RunSnapshot) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for event in snapshot.events[-EVENTS_SHOWN:]:
        what = f"{event.t:7.1f} s  {event.instance or event.operator} {event.kind}"
        lines.append(_line(Text(f"{what}  {event.detail}".rstrip(), style="dim")))
    return lines
