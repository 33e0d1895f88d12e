"""A sequence chart as SVG: one lifeline for each instance, time downwards, one row a step."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from html import escape

from anabranch.protocol.ids import InstanceId
from anabranch.runtime.explorer.items import Item
from anabranch.runtime.explorer.story import Row, say

LEFT, TOP, GAP, STEP = 60, 60, 170, 34
STYLE = """
  text { font: 12px sans-serif; fill: #222 }
  .say, .own { paint-order: stroke; stroke: white; stroke-width: 4px }
  .who { font-weight: bold; text-anchor: middle }
  .num { fill: #888; text-anchor: end }
  .say { font-size: 11px; fill: #1f4e79 }
  .own { font-size: 11px; fill: #444 }
  .fault { fill: #b00020; font-weight: bold }
  .life { stroke: #bbb; stroke-dasharray: 3 3 }
  .arrow { stroke: #1f77b4; fill: none; marker-end: url(#head) }
  .tuple { stroke: #2ca02c; stroke-width: 2 }
  .lost { stroke: #b00020; stroke-dasharray: 5 3 }
  .dot { fill: #1f77b4 }
"""


def chart(rows: Sequence[Row], fault: str, title: str = "") -> str:
    """Draw an exchange. A message that has not arrived by the end is a broken red arrow."""
    people = _people(rows)
    across = {who: LEFT + GAP // 2 + GAP * place for place, who in enumerate(people)}
    height = TOP + STEP * (len(rows) + 2)
    width = LEFT + GAP * len(people) + 40
    drawn = _arrows(rows, across)
    body = [*_lifelines(across, height), *(line for line, _ in drawn), *(w for _, w in drawn)]
    for row in rows:
        y = _y(row.number)
        body.append(f'<text class="num" x="{LEFT - 20}" y="{y + 4}">{row.number}</text>')
        body.append(f'<circle class="dot" cx="{across[row.actor]}" cy="{y}" r="3"/>')
        if row.received is None:
            body.append(_words("own", across[row.actor] + 6, y - 6, row.text.split(";")[0]))
        elif row.before != row.after:
            body.append(_words("own", across[row.actor] + 6, y + 13, row.after))
    body.append(_words("fault", LEFT - 20, height - STEP // 2, fault))
    width = max(width, LEFT + 7 * len(fault), LEFT + 8 * len(title))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">',
            f"<style>{STYLE}</style>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7"'
            ' markerHeight="7" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#555"/>'
            "</marker></defs>",
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text x="{LEFT - 20}" y="20">{escape(title)}</text>',
            *body,
            "</svg>",
        ]
    )


def _people(rows: Sequence[Row]) -> list[InstanceId]:
    met = {row.actor for row in rows} | {to for row in rows for to, _ in row.sent}
    return sorted(met | {row.received.sender for row in rows if row.received})


def _lifelines(across: dict[InstanceId, int], height: int) -> list[str]:
    lines = []
    for who, x in across.items():
        lines.append(f'<text class="who" x="{x}" y="{TOP - 18}">{escape(str(who))}</text>')
        lines.append(f'<line class="life" x1="{x}" y1="{TOP - 10}" x2="{x}" y2="{height - STEP}"/>')
    return lines


def _arrows(rows: Sequence[Row], across: dict[InstanceId, int]) -> list[tuple[str, str]]:
    """Each message from the step that sent it to the step that received it, since channels are
    FIFO: its line, and its words, which are drawn above all lines. What comes again after a death
    is sent with it."""
    under_way: dict[tuple[InstanceId, InstanceId], deque[tuple[int, Item]]] = {}
    drawn = []
    for row in rows:
        if row.received is not None:
            channel = under_way[row.received.sender, row.actor]
            sent_at, item = channel.popleft()
            ends = across[row.received.sender], across[row.actor]
            drawn.append(_arrow(ends, (_y(sent_at), _y(row.number)), item))
        for to, item in row.sent:
            under_way.setdefault((row.actor, to), deque()).append((row.number, item))
        for sender, item in reversed(row.again):
            under_way[sender, row.actor].appendleft((row.number, item))
    for (sender, receiver), channel in under_way.items():
        for sent_at, item in channel:
            ys = (_y(sent_at), _y(len(rows)) + STEP // 2)
            drawn.append(_arrow((across[sender], across[receiver]), ys, item, "lost"))
    return drawn


def _arrow(
    xs: tuple[int, int], ys: tuple[int, int], item: Item, extra: str = ""
) -> tuple[str, str]:
    kind = "tuple" if say(item) == "tuple" else ""
    line = f'<path class="arrow {kind} {extra}" d="M{xs[0]},{ys[0]} L{xs[1]},{ys[1]}"/>'
    # The words stand at the receiving end, where arrows of one step have parted.
    from_left = xs[0] < xs[1]
    anchor = ' text-anchor="end"' if from_left else ""
    x = xs[1] - 12 if from_left else xs[1] + 12
    return line, _words("say", x, ys[1] - 6, say(item), anchor)


def _words(kind: str, x: int, y: int, text: str, extra: str = "") -> str:
    return f'<text class="{kind}" x="{x}" y="{y}"{extra}>{escape(text)}</text>'


def _y(number: int) -> int:
    return TOP + STEP * (number - 1) + STEP // 2
