"""Numbers as people read them."""

from __future__ import annotations

_UNITS = (("G", 1e9), ("M", 1e6), ("k", 1e3))
_BLOCKS = " ▏▎▍▌▋▊▉█"


def count(n: int) -> str:
    return f"{n:,}"


def rate(per_s: float) -> str:
    """Three figures: 0, 12, 1.25k, 480k, 1.6M."""
    if per_s < 0.05:
        return "0"
    for unit, size in _UNITS:
        if per_s >= size * 0.9995:
            return (
                f"{per_s / size:.3g}{unit}" if per_s < size * 999.5 else f"{per_s / size:.0f}{unit}"
            )
    return f"{per_s:.3g}"


def share(part: float) -> str:
    return f"{100 * part:.0f} %"


def duration(seconds: float) -> str:
    """12.4 s, 3:05 min, 2:03:05 h."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02} h" if hours else f"{minutes}:{rest:02} min"


def milliseconds(ms: float | None) -> str:
    if ms is None:
        return "-"
    return f"{ms / 1000:.3g} s" if ms >= 1000 else f"{ms:.3g} ms"


def bar(part: float, width: int) -> str:
    """A bar of `width` characters, full at 1 and never longer."""
    eighths = round(max(0.0, min(1.0, part)) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_BLOCKS[rest] if rest else "")).ljust(width)


def plural(n: int, one: str, many: str | None = None) -> str:
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def died(n: int) -> str:
    """The number of processes that died, with the words that their instances were resumed."""
    on = "a new one" if n == 1 else "new ones"
    return f"{plural(n, 'process', 'processes')} died and went on in {on}"


def table(rows: list[list[str]], left: int = 1) -> list[str]:
    """Lines of aligned columns; the first `left` columns to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
