"""A pool of worker processes. Only this process handles Ctrl-C, and then it ends its workers."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Literal


@contextmanager
def worker_pool(processes: int, method: Literal["fork", "spawn"]) -> Iterator[ProcessPoolExecutor]:
    """If the block raises an error, the workers are ended at once."""
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
    """Processes that are spawned in the block never receive SIGINT, not even while they import."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_ctrl_c() -> None:
    """Initializer of a worker: ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
