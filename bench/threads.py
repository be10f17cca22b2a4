"""Measured work runs where turns run: on worker threads, since the main thread never writes itself."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


def on_worker(fn: Callable[[], T]) -> T:
    """Run `fn` on a thread of its own and give back what it returns or raises."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(fn).result()


def together(count: int, fn: Callable[[int], object]) -> float:
    """Run `fn` on so many threads, let go at the same moment; the seconds until all are done."""
    gate = threading.Barrier(count + 1)

    def work(number: int) -> None:
        gate.wait()
        fn(number)

    with ThreadPoolExecutor(count) as pool:
        done = [pool.submit(work, number) for number in range(count)]
        gate.wait()
        began = time.perf_counter()
        for future in done:
            future.result()
        return time.perf_counter() - began


@contextmanager
def on_one_processor() -> Iterator[bool]:
    """Threads begun meanwhile share one processor; False where the system cannot bind them."""
    if not hasattr(os, "sched_setaffinity"):
        yield False
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield True
    finally:
        os.sched_setaffinity(0, allowed)
