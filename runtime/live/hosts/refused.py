"""What an agent refuses to do with a pipeline."""

from __future__ import annotations


class PipelineRefused(Exception):
    """`wrong`: the request makes no sense; otherwise it could not be done."""

    def __init__(self, message: str, *, wrong: bool = True) -> None:
        super().__init__(message)
        self.wrong = wrong


class HostRefused(Exception):
    """A host takes no instances of a run, and will not take any later. The message says why."""
