"""The contract of every hook: one empty function each, whose signature and text are the contract.

A callback takes any of the named arguments, and gives back nothing or one of the small dicts below;
whatever else it gives back is logged with its plugin's name and ignored.
Every callback of a hook sees the same values and must leave them as they are; a change is returned.
Where several plugins answer, a `block` or `drop` of any of them wins over every change, and of
several changes the first counts. `docs/reference/hooks.md` is made from this page.
"""

from collections.abc import Callable
from types import FunctionType
from typing import Any, Literal, TypedDict


class Block(TypedDict):
    """Do not run this tool call; the model is told `message` in place of a result."""

    action: Literal["block"]
    message: str


class Change(TypedDict):
    """Run the tool call with these arguments instead, all of them."""

    action: Literal["change"]
    arguments: dict[str, Any]


class Rewrite(TypedDict):
    """Go on with this text instead."""

    action: Literal["rewrite"]
    text: str


class Drop(TypedDict):
    """Go no further with this message; `reason` is kept with it."""

    action: Literal["drop"]
    reason: str


def on_session_start(session_id: str, model: str, platform: str) -> None:
    """A new session is in the store. Fires once a session, after the commit that created it.

    session_id: the new session.
    model: the model it starts with, or an empty text when none is chosen yet.
    platform: the surface it was started on, such as "cli", "tui" or "telegram".

    Observer: what it returns is ignored.
    """


def on_session_end(
    session_id: str, completed: bool, interrupted: bool, model: str, platform: str
) -> None:
    """A surface let go of a session. Fires once each time, after its last messages were committed.

    The session may be resumed later; `on_session_finalize` says that it is over.

    session_id: the session that was left.
    completed: whether its work was done when it was left.
    interrupted: whether it was cut off: closed by force, by a signal, or in the middle of a turn.
    model: the model used last.
    platform: the surface that let go of it.

    Observer: what it returns is ignored.
    """


def on_session_finalize(session_id: str, platform: str) -> None:
    """A session is over: a new one was asked for, it expired, or its surface shut down.

    Also when the compaction that made it is undone: the conversation goes on in the session before.
    Fires after the commit that gave it an end reason. A stop of the gateway gives none: it fires once
    for each session whose turn ran when the stop began. That session goes on after the next start, so
    it may be over once more.

    session_id: the session that is over.
    platform: the surface it belonged to.

    Observer: what it returns is ignored.
    """


def on_session_reset(session_id: str, platform: str) -> None:
    """A conversation starts afresh in a new session. Fires after `on_session_finalize` of the old.

    session_id: the new session, which is empty.
    platform: the surface it belongs to.

    Observer: what it returns is ignored.
    """


def pre_compaction(
    old_session_id: str, new_session_id: str, message_count: int, platform: str
) -> None:
    """A conversation is about to be shortened and moved to a new session; nothing is changed yet.

    When the compaction fails, `post_compaction` does not follow and the new id is never used.

    old_session_id: the session as it is, with every message.
    new_session_id: the session that will go on from the summary.
    message_count: how many messages the old session holds.
    platform: the surface the conversation belongs to.

    Observer: what it returns is ignored.
    """


def post_compaction(old_session_id: str, new_session_id: str, summary: str, platform: str) -> None:
    """A conversation goes on under a new id. Fires once, after the commit that moved it.

    old_session_id: the session that ended; its messages stay readable.
    new_session_id: the session that goes on.
    summary: what stands at the head of the new session.
    platform: the surface the conversation belongs to.

    Observer: what it returns is ignored.
    """


def on_turn_start(
    session_id: str, turn_id: str, user_message: str, model: str, platform: str
) -> None:
    """A turn begins to run. Its message was committed before; a resumed turn fires again.

    session_id: the session it runs in.
    turn_id: the turn, the same in every hook of this turn.
    user_message: the text that is to be answered.
    model: the model that is asked first.
    platform: the surface the message came from.

    Observer: what it returns is ignored.
    """


def on_turn_end(
    session_id: str,
    turn_id: str,
    status: Literal["answered", "failed", "interrupted"],
    response: str,
    error: str,
    model: str,
    platform: str,
) -> None:
    """A turn is over. Fires once, after the commit that ended it.

    session_id: the session it ended in, which is the new one when the turn was compacted.
    turn_id: the turn.
    status: how it ended.
    response: the final text, empty when there is none.
    error: the reason a person is told, empty when it did not fail.
    model: the model used last.
    platform: the surface the message came from.

    Observer: what it returns is ignored.
    """


def pre_model_call(
    session_id: str,
    turn_id: str,
    step: int,
    model: str,
    message_count: int,
    tool_count: int,
) -> None:
    """A request is about to go to a model. Fires once a step; what is retried belongs to the same.

    session_id: the session.
    turn_id: the turn.
    step: which model call of the turn this is, from 1.
    model: the model that is asked.
    message_count: how many messages the request carries.
    tool_count: how many tools the model is offered.

    Observer: what it returns is ignored.
    """


def post_model_call(  # noqa: PLR0913 -- the arguments are the contract
    session_id: str,
    turn_id: str,
    step: int,
    model: str,
    input_tokens: int,
    output_tokens: int,
    finish_reason: str,
    error: str,
    duration_ms: int,
) -> None:
    """A model answered or failed. Fires once for every `pre_model_call`.

    session_id: the session.
    turn_id: the turn.
    step: which model call of the turn this was, from 1.
    model: the model that was asked.
    input_tokens: what the provider counted, 0 when it did not say.
    output_tokens: what the provider counted, 0 when it did not say.
    finish_reason: why the model stopped, as the provider named it.
    error: what went wrong, empty when nothing did.
    duration_ms: from the request to the last byte.

    Observer: what it returns is ignored.
    """


def pre_tool_call(
    session_id: str, turn_id: str, tool_call_id: str, tool_name: str, arguments: dict[str, Any]
) -> Block | Change | None:
    """A tool is about to run. Fires before any approval is asked, so that a person sees the change.

    A tool that calls another (`call_tool`, `execute_code`) is one call, and the other is one of its own
    with the same `tool_call_id`.

    session_id: the session.
    turn_id: the turn.
    tool_call_id: the call, as the model named it.
    tool_name: the tool.
    arguments: what the model gave.

    May block: {"action": "block", "message": text} keeps the tool from running.
    May change: {"action": "change", "arguments": table} runs it with other arguments, which are
    checked like those of the model.
    """


def post_tool_call(
    session_id: str,
    turn_id: str,
    tool_call_id: str,
    tool_name: str,
    arguments: dict[str, Any],
    status: Literal["done", "failed", "blocked", "denied"],
    result: str,
    duration_ms: int,
) -> None:
    """A tool call is settled. Fires once a call, after the commit of its result.

    For a call inside another it fires when the outer one is settled, and before it does for that. A call
    whose end a crash or a stop took away is told as failed, by whoever settles it.

    session_id: the session.
    turn_id: the turn.
    tool_call_id: the call, as the model named it.
    tool_name: the tool.
    arguments: what it ran with, or would have.
    status: done, failed, blocked by a plugin, or denied by a person or a policy.
    result: what the model is told.
    duration_ms: how long the tool ran, 0 when it did not.

    Observer: what it returns is ignored.
    """


def on_approval_asked(
    approval_id: str, session_id: str, tool_name: str, description: str, platform: str
) -> None:
    """A person is asked whether something may run. Fires after the question was committed.

    approval_id: the question.
    session_id: the session that waits for it.
    tool_name: the tool that wants to run.
    description: what it would do, as the person reads it.
    platform: the surface that asks.

    Observer: what it returns is ignored; a plugin cannot answer in place of a person.
    """


def on_approval_answered(
    approval_id: str,
    session_id: str,
    tool_name: str,
    choice: Literal["once", "session", "always", "deny", "expired"],
    answered_by: str,
    platform: str,
) -> None:
    """A question was answered, or nobody answered in time or before a stop. Fires after the commit.

    approval_id: the question.
    session_id: the session that waited for it.
    tool_name: the tool that wanted to run.
    choice: allowed once, for this session or always; denied; or not answered in time, or at all because
    the turn was stopped.
    answered_by: who answered, empty when nobody did.
    platform: the surface the answer came from.

    Observer: what it returns is ignored.
    """


def on_message_received(
    platform: str, chat_id: str, user_id: str, message_id: str, text: str
) -> Rewrite | Drop | None:
    """A message came in from somebody who may speak here, and is about to be taken.

    platform: where it came from.
    chat_id: the chat it was written in.
    user_id: who wrote it.
    message_id: its name on the platform.
    text: what it says.

    May rewrite: {"action": "rewrite", "text": text} is taken in its place.
    May drop: {"action": "drop", "reason": text} leaves it unanswered; it stays on record.
    """


def pre_send(platform: str, chat_id: str, session_id: str, text: str) -> Rewrite | Drop | None:
    """A reply is about to be sent to a chat, before it is cut into pieces.

    What the HTTP API answers goes back on the request itself and is not sent: it does not fire there.

    platform: where it goes.
    chat_id: the chat it goes to.
    session_id: the session that says it.
    text: what it says.

    May rewrite: {"action": "rewrite", "text": text} is sent in its place; the session keeps the
    original.
    May drop: {"action": "drop", "reason": text} sends nothing; the session keeps the original, and
    the delivery is on record as dropped.
    """


def on_gateway_start(platforms: list[str]) -> None:
    """The gateway is up. Fires once, when every platform that could be reached is connected.

    Turns that an earlier process left open go on before that, so their hooks may come first.

    platforms: the connected ones.

    Observer: what it returns is ignored.
    """


def on_gateway_stop(reason: str) -> None:
    """The gateway is down. Fires once, after the sessions were finalized and before the exit.

    reason: why, for a person.

    Observer: what it returns is ignored.
    """


SPECS: dict[str, Callable[..., object]] = {
    name: value
    for name, value in list(globals().items())
    if isinstance(value, FunctionType) and value.__module__ == __name__
}
"""Every hook by its name, in the order of this page."""
