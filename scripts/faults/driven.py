"""The pipeline of a run that is driven by `drive`, where another process finds it again.

To be imported by that program only: its first argument says which run it is.
"""

from __future__ import annotations

import faulthandler
import sys
from pathlib import Path

from faults.cutting import obey
from faults.flow import pipeline_of
from faults.settings import TELL, read

obey()
faulthandler.register(TELL)
pipeline = pipeline_of(read(Path(sys.argv[1])))
