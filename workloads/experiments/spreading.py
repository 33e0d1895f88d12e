"""Independent runs of an experiment, spread over the processors of this machine.

A `Job` is a value that can be pickled; its `run` gives a value that can be pickled, and the same
value each time. So it does not matter where it runs: `Spread` is the type of whatever runs jobs,
`over_cores` here, a Spark cluster in `spark_bridge.spreading`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import as_completed
from typing import Any, Protocol, TypeVar

from anabranch.runtime.values.worker_pool import worker_pool

R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")
PROCESSES_MAX = 8


class Job(Protocol[R_co]):
    """One run. `seed`: jobs of a seed are one task of a cluster."""

    @property
    def seed(self) -> int: ...

    def run(self) -> R_co: ...


Progress = Callable[[int, int], None]
"""(jobs done, of so many)"""
Row = Mapping[str, float | int | str | None]
"""The figures of a run, for a table with one row per run."""


class Spread(Protocol):
    """Runs jobs somewhere and returns what they give, in the order of the jobs."""

    def __call__(self, jobs: Sequence[Job[R]], progress: Progress) -> list[R]: ...


def silent(done: int, of: int) -> None:
    """Progress is not reported."""


def over_cores(jobs: Sequence[Job[R]], progress: Progress = silent) -> list[R]:
    """In processes of this machine, one per processor: forks, which know a policy of one's own.

    If this process is interrupted or a run raises, the other runs are given up.
    """
    processes = min(PROCESSES_MAX, os.cpu_count() or 1, len(jobs))
    if processes <= 1:
        return _here(jobs, progress)
    with worker_pool(processes, "fork") as pool:
        running = [pool.submit(run_job, job) for job in jobs]
        for done, future in enumerate(as_completed(running), 1):
            future.result()
            progress(done, len(jobs))
        return [future.result() for future in running]


def _here(jobs: Sequence[Job[R]], progress: Progress) -> list[R]:
    found = []
    for done, job in enumerate(jobs, 1):
        found.append(job.run())
        progress(done, len(jobs))
    return found


def run_job(job: Job[Any]) -> Any:
    """For other processes: they know a function by its name."""
    return job.run()
