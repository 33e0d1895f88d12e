"""How a simulated world says that something is wrong with it."""

from __future__ import annotations


class Fault(Exception):
    """A property does not hold. The text begins with its code: I1 to I12, S1 to S5, L1, L2."""
