"""The journal of an instance: records in segments, written once, read whole or not at all.

The form of a record can be had here, for tools that look into a journal from outside.
"""

from anabranch.runtime.live.journal.journal import _HEAD_BYTES as _HEAD_BYTES
from anabranch.runtime.live.journal.journal import _LENGTHS as _LENGTHS
from anabranch.runtime.live.journal.journal import _records as _records
