"""Numbers of JSON-RPC errors."""

from collections.abc import Mapping
from typing import Final

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
    PARSE_ERROR: "The line is not valid JSON, or longer than 32 MiB; the id of the answer is null.",
    INVALID_REQUEST: "It is not a valid request: not an object, or without the name of a method.",
    UNKNOWN_METHOD: "There is no such method.",
    INVALID_PARAMS: "A parameter is missing, of the wrong type or out of range; the message names it.",
    INTERNAL_ERROR: "The server has an internal error; its log has the details.",
    SERVER_ERROR: "The request failed; the message says why, `data.fix` what to do.",
    NO_SUCH_SESSION: "No session with this id is open here.",
    UNKNOWN_KEY: "There is no such key or value.",
    BAD_ARGUMENT: "The argument is empty or cannot be used.",
    ID_MISSING: "The id of a stored conversation is missing.",
    NOT_STORED: "The store has no such conversation.",
    NOTHING_SAID: "This conversation has no messages yet.",
    BUSY: "A turn is running, or the question is unknown or already answered.",
    NOTHING_RUNS: "There is no running turn to steer.",
    UNKNOWN_COMMAND: "There is no such slash command.",
    FOLDER_MISSING: "The folder is missing.",
    NO_FOLDER: "There is no such folder.",
    OUT_OF_RANGE: "There is no user message with this ordinal, or it was compacted;"
    " of `slash.exec`: it is a skill, for `command.dispatch`.",
    TITLE_EMPTY: "The title is empty.",
    TITLE_REFUSED: "The title is too long, or another conversation has it.",
    STILL_OPEN: "The conversation is open, here or elsewhere; `data.fix` says how to proceed.",
    TOO_MANY: "Too many sessions are open; close one.",
    5000: "The conversation could not be resumed.",
    5004: "The answer could not be given.",
    5005: "The conversation could not be compacted.",
    5006: "Conversations could not be listed.",
    5007: "The title could not be set.",
    5008: "The conversation could not be branched.",
    5030: "The command failed.",
    NO_AGENT: "The agent could not be created; the message says why.",
    5036: "The conversation could not be deleted.",
}
"""The meaning of each code."""
