"""Processes that compute for this one. Ctrl-C is for this one, and ends them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Literal


@contextmanager
def worker_pool(processes: int, method: Literal["fork", "spawn"]) -> Iterator[ProcessPoolExecutor]:
    """If the block raises, workers are ended in the middle of what they do."""
    pool = ProcessPoolExecutor(processes, get_context(method), initializer=leave_ctrl_c)
    try:
        yield pool
    except BaseException:
        for worker in list((pool._processes or {}).values()):
            worker.terminate()
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()


@contextmanager
def ctrl_c_held_back() -> Iterator[None]:
    """Processes that are spawned here never get it, not even while they import."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_ctrl_c() -> None:
    """In a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
