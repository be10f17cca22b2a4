"""From the event loop to a thread and back: the store and the agent block, the loop must not."""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_pool = ThreadPoolExecutor(max_workers=32, thread_name_prefix="gateway")


async def run_blocking(fn: Callable[[], T]) -> T:
    """Call something that blocks; the context variables go along."""
    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(_pool, lambda: context.run(fn))
