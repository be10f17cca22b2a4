"""The protocol: frames, error codes, and the error that becomes an answer.

One JSON object a line (or a websocket message), both ways. A client sends requests; the server sends
answers, and events without an id. docs/reference/rpc.md lists the methods and events.
"""

import errno
import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from hermes_core.errors import HermesError, NothingSaidError, SessionNotFoundError, TitleError
from hermes_protocol import events
from hermes_protocol.errors import NOT_STORED, NOTHING_SAID, SERVER_ERROR, TITLE_REFUSED
from hermes_protocol.results import Position
from hermes_protocol.structs import WireStruct

logger = logging.getLogger(__name__)

T = TypeVar("T")

Frame = dict[str, Any]
Result = WireStruct | Mapping[str, Any]
"""The result of a request; a struct is turned into what is sent by `answer`."""
Rid = Any
"""A request's id: whatever JSON value the client chose."""

_OF_STORE: Mapping[type[HermesError], int] = {
    SessionNotFoundError: NOT_STORED,
    NothingSaidError: NOTHING_SAID,
    TitleError: TITLE_REFUSED,
}
"""The codes of what the store says no to, whichever method asks it."""


class RpcError(HermesError):
    """An answer that says no: a number for the program, words for the person."""

    code = "rpc"

    def __init__(self, number: int, message: str, *, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.number = number


def answer(rid: Rid, result: Result) -> Frame:
    """The answer to a request that was done."""
    content = result.to_wire() if isinstance(result, WireStruct) else result
    return {"jsonrpc": "2.0", "id": rid, "result": content}


def refusal(rid: Rid, number: int, message: str, data: Mapping[str, Any] | None = None) -> Frame:
    """The answer to a request that was not done."""
    error: Frame = {"code": number, "message": message}
    if data:
        error["data"] = data
    return {"jsonrpc": "2.0", "id": rid, "error": error}


def refusal_of(rid: Rid, error: HermesError, number: int = SERVER_ERROR) -> Frame:
    """The answer that an error makes; `number` is the method's own code for what goes wrong in it."""
    data = {"code": error.code, "fix": error.fix} if error.fix else {"code": error.code}
    return refusal(rid, _number_of(error, number), error.message, data)


def of_system(error: OSError) -> HermesError:
    """Return an error of the system, in words that name what to do."""
    where = f"{error.filename}: " if error.filename else ""
    fixes = {
        errno.ENOSPC: "Make room on the disk.",
        errno.EDQUOT: "Make room on the disk.",
        errno.EROFS: "Make the home writable.",
        errno.EACCES: "Make the home writable.",
    }
    fix = fixes.get(error.errno or 0, "")
    return HermesError(f"{where}{error.strerror or error}.", fix=fix)


def _number_of(error: HermesError, number: int) -> int:
    if isinstance(error, RpcError):
        return error.number
    return next((code for kind, code in _OF_STORE.items() if isinstance(error, kind)), number)


def event(session_id: str, content: WireStruct, position: Position | None = None) -> Frame:
    """The frame of an event; without a session it is about the server.

    `position` is that of an event of a conversation's log.
    """
    return frame(events.name_of(content), session_id, content.to_wire(), position)


def frame(
    kind: str,
    session_id: str,
    payload: Mapping[str, Any] | None = None,
    position: Position | None = None,
) -> Frame:
    """The frame of an event with its name and payload."""
    params: Frame = {"type": kind, "session_id": session_id} if session_id else {"type": kind}
    if position is not None:
        params |= {"log": position.log, "seq": position.seq}
    if payload is not None:
        params["payload"] = payload
    return {"jsonrpc": "2.0", "method": "event", "params": params}


def ready(url: str | None = None, token_file: str | None = None) -> Frame:
    """The first frame that a client gets."""
    skin = {
        "name": "default",
        "colors": {},
        "branding": {"agent_name": "Hermes"},
        "banner_logo": "",
        "banner_hero": "",
        "tool_prefix": "",
        "help_header": "",
    }
    return event("", events.Ready(skin, url, token_file))


def outcome_of(work: Callable[[], T], code: int, failure: str) -> T | HermesError:
    """Run a function in its thread and return its result, or its failure as an error to report."""
    try:
        return work()
    except HermesError as error:
        return error
    except Exception as error:
        logger.exception("%s", failure)
        return RpcError(code, f"{failure}: {error!r}.")
