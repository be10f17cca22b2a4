"""The way from the event loop to threads and back."""

import asyncio
import contextvars
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable

import pytest

from gateway.blocking import MAX_THREADS, _Job, _Threads, run_blocking

_TIMEOUT_S = 20.0


def test_what_a_call_returns_comes_back_and_the_loop_goes_on_meanwhile() -> None:
    async def go() -> tuple[str, bool]:
        gate = threading.Event()
        asyncio.get_running_loop().call_soon(gate.set)
        return await run_blocking(lambda: (threading.current_thread().name, gate.wait(_TIMEOUT_S)))

    name, was_let_go = asyncio.run(go())
    assert name != threading.current_thread().name
    assert was_let_go


@pytest.mark.parametrize("kind", [ValueError, asyncio.CancelledError, GeneratorExit])
def test_what_a_call_raises_is_raised_where_it_came_from(kind: type[BaseException]) -> None:
    def fail() -> None:
        raise kind("no")

    async def go() -> None:
        with pytest.raises(kind, match="no"):
            await run_blocking(fail)
        assert await run_blocking(lambda: 1) == 1

    asyncio.run(go())


def test_a_call_that_stops_an_iteration_keeps_nobody_waiting() -> None:
    async def go() -> None:
        with pytest.raises(RuntimeError, match="StopIteration"):
            await run_blocking(lambda: next(iter(())))

    asyncio.run(go())


def test_context_variables_go_along_and_do_not_come_back() -> None:
    word = contextvars.ContextVar("word", default="none")

    def say() -> str:
        found = word.get()
        word.set("changed")
        return found

    async def go() -> None:
        word.set("ours")
        assert await run_blocking(say) == "ours"
        assert word.get() == "ours"

    asyncio.run(go())


def test_an_error_is_not_kept_once_it_was_dealt_with() -> None:
    class Marked(Exception):
        pass

    def fail() -> None:
        raise Marked

    async def go() -> "weakref.ref[Marked]":
        try:
            await run_blocking(fail)
        except Marked as error:
            return weakref.ref(error)
        raise AssertionError

    gc.disable()
    try:
        assert asyncio.run(go())() is None
    finally:
        gc.enable()


def test_who_waits_may_be_cancelled_and_the_work_goes_on_to_its_end() -> None:
    began, gate, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        assert gate.wait(_TIMEOUT_S)
        ended.set()

    async def go() -> None:
        task = asyncio.create_task(run_blocking(work))
        assert await run_blocking(lambda: began.wait(_TIMEOUT_S))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.set()
        assert await run_blocking(lambda: ended.wait(_TIMEOUT_S))

    asyncio.run(go())


def test_at_most_so_many_run_at_once_and_the_others_follow_in_their_order() -> None:
    gate, order = threading.Event(), list[int]()

    async def go() -> None:
        full = threading.Barrier(MAX_THREADS + 1)

        def hold() -> None:
            full.wait(_TIMEOUT_S)
            assert gate.wait(_TIMEOUT_S)

        held = [asyncio.create_task(run_blocking(hold)) for _ in range(MAX_THREADS)]
        await asyncio.sleep(0)
        full.wait(_TIMEOUT_S)
        tasks = [
            asyncio.create_task(run_blocking(lambda number=number: order.append(number)))
            for number in range(3)
        ]
        given_up = asyncio.create_task(run_blocking(lambda: order.append(-1)))
        await asyncio.sleep(0)
        assert order == []
        given_up.cancel()
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(*held, *tasks)
        await asyncio.gather(given_up, return_exceptions=True)

    asyncio.run(go())
    assert sorted(order) == [0, 1, 2]


def test_a_job_that_needs_another_one_is_not_kept_waiting_for_a_thread() -> None:
    """As many deep as there may be threads: none is taken for idle that is not."""

    async def go(depth: int) -> int:
        loop = asyncio.get_running_loop()

        def deeper() -> int:
            if depth == 1:
                return 1
            job = asyncio.run_coroutine_threadsafe(go(depth - 1), loop)
            return 1 + job.result(_TIMEOUT_S)

        return await run_blocking(deeper)

    for _ in range(5):
        assert asyncio.run(go(MAX_THREADS)) == MAX_THREADS


def test_a_loop_that_is_closed_meanwhile_harms_no_thread() -> None:
    gate, is_begun, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        is_begun.set()
        gate.wait(_TIMEOUT_S)
        ended.set()

    async def leave() -> None:
        task = asyncio.create_task(run_blocking(work))
        assert await run_blocking(lambda: is_begun.wait(_TIMEOUT_S))
        task.cancel()

    asyncio.run(leave())
    gate.set()
    assert ended.wait(_TIMEOUT_S)

    async def all_of_them() -> None:
        full = threading.Barrier(MAX_THREADS)
        jobs = [run_blocking(lambda: full.wait(_TIMEOUT_S)) for _ in range(MAX_THREADS)]
        assert len(await asyncio.gather(*jobs)) == MAX_THREADS

    asyncio.run(all_of_them())  # every thread is still there


_LEAVES_WORK_BEHIND = """
import asyncio, threading
from gateway.blocking import run_blocking

began = threading.Event()

def work():
    began.set()
    threading.main_thread().join()
    print("done", flush=True)

async def go():
    task = asyncio.create_task(run_blocking(work))
    await run_blocking(began.wait)
    task.cancel()

asyncio.run(go())
print("leaving", flush=True)
"""


def test_a_process_ends_by_itself_and_not_in_the_middle_of_a_job() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LEAVES_WORK_BEHIND],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=True,
    )
    assert done.stdout.split() == ["leaving", "done"]
    assert done.stderr == ""


def test_close_waits_for_what_waits() -> None:
    threads, gate, done = _Threads(1), threading.Event(), list[int]()
    steps: list[Callable[[], object]] = [
        lambda: gate.wait(_TIMEOUT_S),
        lambda: done.append(1),
        lambda: done.append(2),
    ]

    async def go() -> None:
        for step in steps:
            threads.run(_Job(step))
        gate.set()
        threads.close()

    asyncio.run(go())
    assert done == [1, 2]
