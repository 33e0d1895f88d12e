"""Large pages for a process that is forked thousands of times."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

LARGE = 2 << 20
COLLAPSE = 25
"""`MADV_COLLAPSE` of Linux 6.1 and later."""
_OWN = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) rw-p 00000000 00:00 0 *(?:\[heap\])?$", re.MULTILINE)


def take_large_pages() -> None:
    """Have the memory of this process in pages of 2 MB, as far as the system grants it.

    A fork copies an entry for each page, and drops it at its end: of 180 MB in pages of 4 KB, that
    is a quarter of what a short run takes of the processor."""
    try:
        own = _OWN.findall(Path("/proc/self/maps").read_text())
    except OSError:  # no Linux
        return
    advise = ctypes.CDLL(None).madvise
    for first, last in own:
        begin, end = -(-int(first, 16) // LARGE) * LARGE, int(last, 16) // LARGE * LARGE
        if begin < end:
            advise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), COLLAPSE)
