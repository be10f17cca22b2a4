"""Calling what an adapter has: whatever it raises is an error of its platform.

Not every exception is an `Exception`: `SystemExit` in a task ends the whole loop, and a cancellation
that nobody asked for ends the task that it comes up in. Only who really ends that task may do so.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

from gateway.platforms.base import PlatformError
from hermes_core.errors import describe_error

Params = ParamSpec("Params")
Answer = TypeVar("Answer")


async def called(
    method: Callable[Params, Awaitable[Answer]], *args: Params.args, **kwargs: Params.kwargs
) -> Answer:
    """What a method of an adapter answers; raises an `Exception`, or what ends the task that calls."""
    task = own_task()
    try:
        return await method(*args, **kwargs)
    except Exception:
        raise
    except BaseException as error:
        if is_end_of(task, error):
            raise
        raise PlatformError(f"Something went wrong: {describe_error(error)}.") from error


def own_task() -> asyncio.Task[Any]:
    """The task that this is called in."""
    task = asyncio.current_task()
    assert task is not None
    return task


def is_end_of(task: asyncio.Task[Any], error: BaseException) -> bool:
    """Whether a task is ended from outside, rather than that its own code raised the same.

    Then it was cancelled, or it does not run at all: one that is thrown away is closed.
    """
    if isinstance(error, asyncio.CancelledError):
        return task.cancelling() > 0
    is_running = asyncio.current_task(task.get_loop()) is task
    return isinstance(error, GeneratorExit) and not is_running
