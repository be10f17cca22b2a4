"""The protocol: frames, error codes, and the error that becomes an answer.

One JSON object a line (or a websocket message), both ways. A client sends requests; the server sends
answers, and events without an id. docs/reference/rpc.md lists the methods and events.
"""

import errno
from collections.abc import Mapping
from typing import Any, Final

from hermes_core.errors import HermesError, NothingSaidError, SessionNotFoundError, TitleError

Frame = dict[str, Any]
Rid = Any
"""A request's id: whatever JSON value the client chose."""

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
UNKNOWN_METHOD: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
SERVER_ERROR: Final = -32000

NO_SUCH_SESSION: Final = 4001
UNKNOWN_KEY: Final = 4002
BAD_ARGUMENT: Final = 4004
ID_MISSING: Final = 4006
NOT_STORED: Final = 4007
NOTHING_SAID: Final = 4008
BUSY: Final = 4009
NOTHING_RUNS: Final = 4010
UNKNOWN_COMMAND: Final = 4011
FOLDER_MISSING: Final = 4016
NO_FOLDER: Final = 4017
OUT_OF_RANGE: Final = 4018
USE_DISPATCH: Final = 4018
TITLE_EMPTY: Final = 4021
TITLE_REFUSED: Final = 4022
STILL_OPEN: Final = 4023
TOO_MANY: Final = 4090
NO_AGENT: Final = 5032

CODES: Mapping[int, str] = {
    PARSE_ERROR: "The line is no JSON, or longer than 32 MiB; the id of the answer is null.",
    INVALID_REQUEST: "It is no request: no object, or without the name of a method.",
    UNKNOWN_METHOD: "There is no such method.",
    INVALID_PARAMS: "A parameter is missing, of the wrong type or out of range; the message names it.",
    INTERNAL_ERROR: "Something went wrong inside the server; its log has the details.",
    SERVER_ERROR: "It could not be done; the message says why, `data.fix` what to do.",
    NO_SUCH_SESSION: "No session with this id is open here.",
    UNKNOWN_KEY: "There is no such key or value.",
    BAD_ARGUMENT: "The argument is empty or cannot be used.",
    ID_MISSING: "The id of a stored conversation is missing.",
    NOT_STORED: "The store has no such conversation.",
    NOTHING_SAID: "Nothing has been said in this conversation yet.",
    BUSY: "A turn runs, or the question is unknown or settled.",
    NOTHING_RUNS: "No turn runs that could be told something.",
    UNKNOWN_COMMAND: "There is no such slash command.",
    FOLDER_MISSING: "The folder is missing.",
    NO_FOLDER: "It is no folder.",
    OUT_OF_RANGE: "There is no user message with this ordinal, or it was summed up;"
    " of `slash.exec`: it is a skill, for `command.dispatch`.",
    TITLE_EMPTY: "The title is empty.",
    TITLE_REFUSED: "The title is too long, or another conversation has it.",
    STILL_OPEN: "The conversation is open, here or elsewhere; `data.fix` says what a person can do.",
    TOO_MANY: "Too many sessions are open; close one.",
    5000: "The conversation could not be resumed.",
    5004: "The answer could not be given.",
    5005: "The conversation could not be shortened.",
    5006: "Conversations could not be listed.",
    5007: "The title could not be set.",
    5008: "The conversation could not be branched.",
    5030: "The command failed.",
    NO_AGENT: "The agent could not be made; the message says why.",
    5036: "The conversation could not be deleted.",
}
"""What each code of an error means."""

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


def answer(rid: Rid, result: Mapping[str, Any]) -> Frame:
    """The answer to a request that was done."""
    return {"jsonrpc": "2.0", "id": rid, "result": result}


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
    """What the system says no to, in words that name what to do."""
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
    return next((known for kind, known in _OF_STORE.items() if isinstance(error, kind)), number)


def event(kind: str, session_id: str, payload: Mapping[str, Any] | None = None) -> Frame:
    """Something that a client is told without having asked; without a session, about the server."""
    params: Frame = {"type": kind, "session_id": session_id} if session_id else {"type": kind}
    if payload is not None:
        params["payload"] = payload
    return {"jsonrpc": "2.0", "method": "event", "params": params}


def ready(**more: object) -> Frame:
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
    return event("gateway.ready", "", {"skin": skin, **more})
