"""Calling what belongs to a plugin: whatever it raises stays with the plugin.

Not every exception is an `Exception`: one that ends a task, a generator or the interpreter passes
every boundary of ours and takes a thread, a poller or the process along. Only a person's Ctrl-C may.
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
Made = TypeVar("Made")


def contained(plugin: str, what: str, function: Callable[Params, Made]) -> Callable[Params, Made]:
    """A function of a plugin that raises nothing but an `Exception`, or a person's Ctrl-C.

    What it did not raise for others to read (a HermesError) is logged with the plugin's name.
    """

    @wraps(function, updated=())
    def call(*args: Params.args, **kwargs: Params.kwargs) -> Made:
        try:
            result = function(*args, **kwargs)
            refuse_unfinished(result)
        except (HermesError, Interrupted):
            raise
        except AnswerError as error:
            said = f"The plugin {plugin} failed in {what}: it gives {error}."
            logger.error(said)  # noqa: TRY400 -- the fault is in no line of ours
            raise PluginError(said) from error
        except BaseException as error:
            if is_of_a_person(error):
                raise
            logger.exception("plugin %s failed in %s", plugin, what)
            if isinstance(error, Exception):
                raise
            raise PluginError(
                f"The plugin {plugin} failed in {what}: {describe_error(error)}"
            ) from error
        return result

    return call


def is_of_a_person(error: BaseException) -> bool:
    """Return whether somebody pressed Ctrl-C while the plugin's code ran.

    That comes to the main thread alone, and between two instructions or out of a handler of signals:
    that of `asyncio.run` has an instruction for it, as has a plugin that raises the same by itself.
    """
    if not isinstance(error, KeyboardInterrupt):
        return False
    is_here = threading.current_thread() is threading.main_thread()
    return is_here and not _is_raised_by_others(error.__traceback__)


def _is_raised_by_others(traceback: TracebackType | None) -> bool:
    """Return whether an instruction raised it in code that is neither Python's nor ours."""
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return False
    frame = traceback.tb_frame
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    is_others = package not in sys.stdlib_module_names and package not in _OURS
    return is_others and frame.f_code.co_code[traceback.tb_lasti] == _RAISE
