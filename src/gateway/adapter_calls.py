"""Calls of adapters: whatever an adapter raises becomes an error of its platform.

Not every exception is an `Exception`: `SystemExit` in a task ends the event loop, and a stray
`CancelledError` ends the task. Only a real cancellation may do so.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

from gateway.platforms.base import PlatformError
from hermes_core.errors import describe_error

logger = logging.getLogger(__name__)

Params = ParamSpec("Params")
Answer = TypeVar("Answer")


async def called(
    method: Callable[Params, Awaitable[Answer]], *args: Params.args, **kwargs: Params.kwargs
) -> Answer:
    """Call a method of an adapter; raises an `Exception`, or the cancellation of the calling task."""
    task = own_task()
    try:
        return await method(*args, **kwargs)
    except Exception:
        raise
    except BaseException as error:
        if is_end_of(task, error):
            raise
        raise PlatformError(f"Something went wrong: {describe_error(error)}.") from error


async def attempted(
    what: str,
    method: Callable[Params, Awaitable[object]],
    *args: Params.args,
    **kwargs: Params.kwargs,
) -> None:
    """Call a method without waiting for its result; log what it raises, and let the caller continue."""
    try:
        await method(*args, **kwargs)
    except Exception:
        logger.exception("%s failed", what)


def own_task() -> asyncio.Task[Any]:
    """Return the current task."""
    task = asyncio.current_task()
    assert task is not None
    return task


def is_end_of(task: asyncio.Task[Any], error: BaseException) -> bool:
    """Return whether an error comes from outside of a task: it was cancelled or closed."""
    if isinstance(error, asyncio.CancelledError):
        return task.cancelling() > 0
    is_running = asyncio.current_task(task.get_loop()) is task
    return isinstance(error, GeneratorExit) and not is_running
