"""What programs that functions start find of signals: nothing that the runtime has changed."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.runtime.processes import HEAD, LINUX

SHOW = """
from anabranch.runtime.live.process.template import become_template
become_template()
print(os.popen("grep SigIgn /proc/self/status").read().split()[1])
"""


@pytest.mark.skipif(not LINUX, reason="only Linux shows the signals that a process ignores")
@pytest.mark.parametrize("ignored", [False, True])
def test_a_program_ignores_what_the_run_was_told_to_ignore(ignored: bool) -> None:
    def dispose() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.SIG_DFL)

    command = [sys.executable, "-c", HEAD + SHOW]
    told = subprocess.run(command, capture_output=True, text=True, preexec_fn=dispose, check=True)
    ignores_interrupts = int(told.stdout.split()[-1], 16) >> signal.SIGINT - 1 & 1
    assert ignores_interrupts == ignored
