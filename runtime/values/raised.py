"""Where in the user's program an exception was raised."""

from __future__ import annotations

import os
import sysconfig

from anabranch.runtime.values.foreign import describe, traceback_of

LIBRARIES = tuple(
    {sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
"""Folders of Python and of installed packages."""
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def located(error: BaseException) -> str:
    """`describe(error)`, and in brackets where it was raised, if that is in the user's program."""
    where = where_raised(error)
    return f"{describe(error)} ({where})" if where else describe(error)


def where_raised(error: BaseException) -> str:
    """`file:line in function` of the innermost frame of the user's; empty if there is none.

    Frames of the standard library and of installed packages count only if the user has none.
    """
    theirs, any_frame = "", ""
    trace = traceback_of(error)
    while trace is not None:
        code = trace.tb_frame.f_code
        if not code.co_filename.startswith(_OURS):
            any_frame = f"{code.co_filename}:{trace.tb_lineno} in {code.co_name}"
            if not code.co_filename.startswith((*LIBRARIES, "<")):
                theirs = any_frame
        trace = trace.tb_next
    return theirs or any_frame
