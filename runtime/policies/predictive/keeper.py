"""The predictive controller at the keeper (PL, 4a): one instance decides for all of its siblings.

All get the same sums and feed filter and feedback with them, so whichever is the keeper next
loses nothing. A lost plan costs a period.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from anabranch.runtime.policies.predictive.policy import Predictive


@dataclass(frozen=True)
class PredictiveKeeper(Predictive):
    """The same as predictive, but the keeper of the operator decides, and tells its siblings the
    number of instances by a neighbour."""

    source: ClassVar[str] = "De Matteis & Mencagli 2017, decided by one instance"
    at_keeper: ClassVar[bool] = True
