"""Calls into plugins, with their exceptions contained.

A BaseException that is not an Exception, such as SystemExit, would pass our boundaries and end a thread
or the process. Only Ctrl-C may do that.
"""

import logging
import opcode
import sys
import threading
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import ParamSpec, TypeVar

from hermes_cli.hook_answers import AnswerError, refuse_unfinished
from hermes_core.errors import HermesError, Interrupted, PluginError, describe_error

logger = logging.getLogger(__name__)

_OURS = frozenset(
    {
        "gateway",
        "hermes_agent",
        "hermes_cli",
        "hermes_core",
        "hermes_state",
        "hermes_tui",
        "tui_gateway",
    }
)
_RAISE = opcode.opmap["RAISE_VARARGS"]

Params = ParamSpec("Params")
Returned = TypeVar("Returned")


def guarded(
    plugin: str, what: str, function: Callable[Params, Returned]
) -> Callable[Params, Returned]:
    """Wrap a function of a plugin so that it raises only `Exception`, or KeyboardInterrupt for Ctrl-C.

    Logs errors other than HermesError with the plugin's name.
    """

    @wraps(function, updated=())
    def call(*args: Params.args, **kwargs: Params.kwargs) -> Returned:
        try:
            result = function(*args, **kwargs)
            refuse_unfinished(result)
        except (HermesError, Interrupted):
            raise
        except AnswerError as error:
            message = f"The plugin {plugin} failed in {what}: it returned {error}."
            logger.error(message)  # noqa: TRY400 -- no traceback: the result is wrong
            raise PluginError(message) from error
        except BaseException as error:
            if is_user_interrupt(error):
                raise
            logger.exception("Plugin %s failed in %s", plugin, what)
            if isinstance(error, Exception):
                raise
            raise PluginError(
                f"The plugin {plugin} failed in {what}: {describe_error(error)}"
            ) from error
        return result

    return call


def is_user_interrupt(error: BaseException) -> bool:
    """Return whether an error is a Ctrl-C, not a KeyboardInterrupt that the plugin raised.

    A Ctrl-C reaches only the main thread: between two instructions, or from a signal handler such as
    that of `asyncio.run`.
    """
    if not isinstance(error, KeyboardInterrupt):
        return False
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and not _is_raised_by_plugin(error.__traceback__)


def _is_raised_by_plugin(traceback: TracebackType | None) -> bool:
    """Return whether a `raise` outside of Hermes and the standard library raised it."""
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return False
    frame = traceback.tb_frame
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    is_foreign = package not in sys.stdlib_module_names and package not in _OURS
    return is_foreign and frame.f_code.co_code[traceback.tb_lasti] == _RAISE
