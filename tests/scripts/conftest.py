"""Scripts import their helpers by bare names, as they do when one of them is started."""

from __future__ import annotations

import sys

from tests.scripts import SCRIPTS

if str(SCRIPTS) not in sys.path:
    sys.path.insert(0, str(SCRIPTS))
