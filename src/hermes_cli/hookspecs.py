"""The contract of every hook: the signature and docstring of one empty function each.

* A callback declares any of the arguments and returns None or one of the dicts below.
* Other results are logged with the plugin's name and ignored.
* All callbacks get the same values. Do not change them in place; return a change.
* If several plugins answer, a `block` or `drop` wins; of several changes the first wins.

`docs/reference/hooks.md` is generated from this module.
"""

from collections.abc import Callable
from types import FunctionType
from typing import Any, Literal, TypedDict


class Block(TypedDict):
    """Do not run this tool call; the model gets `message` instead of a result."""

    action: Literal["block"]
    message: str


class Change(TypedDict):
    """Run the tool call with these arguments instead."""

    action: Literal["change"]
    arguments: dict[str, Any]


class Rewrite(TypedDict):
    """Continue with this text instead."""

    action: Literal["rewrite"]
    text: str


class Drop(TypedDict):
    """Do not process this message; `reason` is stored with it."""

    action: Literal["drop"]
    reason: str


def on_session_start(session_id: str, model: str, platform: str) -> None:
    """A new session is stored. Fires once per session, after its commit.

    session_id: the new session.
    model: the model it starts with, or an empty string if none is chosen yet.
    platform: the surface that started it, such as "cli", "tui" or "telegram".

    Observer: its result is ignored.
    """


def on_session_end(
    session_id: str, completed: bool, interrupted: bool, model: str, platform: str
) -> None:
    """A surface closed a session. Fires each time, after its last messages were committed.

    The session may be resumed later; `on_session_finalize` means that it is over.

    session_id: the closed session.
    completed: whether its work was done.
    interrupted: whether it was closed by force, by a signal, or during a turn.
    model: the last model.
    platform: the surface that closed it.

    Observer: its result is ignored.
    """


def on_session_finalize(session_id: str, platform: str) -> None:
    """A session is over: replaced by a new one, expired, or its surface shut down.

    Also fires when the compaction that created it is undone. Fires after the commit of its end reason.
    When the gateway stops, it fires for each session with a running turn, without an end reason. That
    session continues after the next start, so the hook may fire again.

    session_id: the session that is over.
    platform: its surface.

    Observer: its result is ignored.
    """


def on_session_lost(session_id: str, platform: str) -> None:
    """A process died and left a session open; another one closes it now, and its end reason is stored.

    `on_session_end` and `on_session_finalize` follow. An unfinished turn continues when somebody resumes
    the conversation.

    session_id: the session that the process left.
    platform: its surface.

    Observer: its result is ignored.
    """


def on_session_reset(session_id: str, platform: str) -> None:
    """A conversation restarts in a new session. Fires after `on_session_finalize` of the old one.

    session_id: the new, empty session.
    platform: its surface.

    Observer: its result is ignored.
    """


def pre_compaction(
    old_session_id: str, new_session_id: str, message_count: int, platform: str
) -> None:
    """A conversation is about to be compacted into a new session; nothing has changed yet.

    If the compaction fails, `post_compaction` does not follow and the new id is never used.

    old_session_id: the current session, with every message.
    new_session_id: the session that will continue from the summary.
    message_count: number of messages of the old session.
    platform: the surface of the conversation.

    Observer: its result is ignored.
    """


def post_compaction(old_session_id: str, new_session_id: str, summary: str, platform: str) -> None:
    """A conversation was compacted into a new session. Fires once, after the commit.

    old_session_id: the session that ended; its messages stay readable.
    new_session_id: the session that continues.
    summary: the summary at the beginning of the new session.
    platform: the surface of the conversation.

    Observer: its result is ignored.
    """


def on_turn_start(
    session_id: str, turn_id: str, user_message: str, model: str, platform: str
) -> None:
    """A turn starts. Its message was committed before; a resumed turn fires again.

    session_id: the session it runs in.
    turn_id: the turn, the same in all its hooks.
    user_message: the text to answer.
    model: the first model.
    platform: the surface of the message.

    Observer: its result is ignored.
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

    session_id: the session it ended in: the new one if the turn was compacted.
    turn_id: the turn.
    status: how it ended.
    response: the final text, or an empty string.
    error: the reason of a failure as users see it, or an empty string.
    model: the last model.
    platform: the surface of the message.

    Observer: its result is ignored.
    """


def pre_model_call(
    session_id: str,
    turn_id: str,
    step: int,
    model: str,
    message_count: int,
    tool_count: int,
) -> None:
    """A request is about to go to a model. Fires once per step, not for retries.

    session_id: the session.
    turn_id: the turn.
    step: the number of this model call in the turn, from 1.
    model: the model.
    message_count: number of messages in the request.
    tool_count: number of tools in the request.

    Observer: its result is ignored.
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
    """A model answered or failed. Fires once per `pre_model_call`.

    session_id: the session.
    turn_id: the turn.
    step: the number of this model call in the turn, from 1.
    model: the model.
    input_tokens: the count of the provider, or 0.
    output_tokens: the count of the provider, or 0.
    finish_reason: the reason of the provider for the end.
    error: the error, or an empty string.
    duration_ms: from the request to the last byte.

    Observer: its result is ignored.
    """


def pre_tool_call(
    session_id: str, turn_id: str, tool_call_id: str, tool_name: str, arguments: dict[str, Any]
) -> Block | Change | None:
    """A tool is about to run. Fires before the approval, so that people see a changed call.

    If a tool calls another one (`call_tool`, `execute_code`), both fire, with the same `tool_call_id`.

    session_id: the session.
    turn_id: the turn.
    tool_call_id: the id that the model gave the call.
    tool_name: the tool.
    arguments: the arguments of the model.

    May block: {"action": "block", "message": text} prevents the call.
    May change: {"action": "change", "arguments": table} runs it with other arguments, which are
    validated like those of the model.
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
    """A tool call has its result. Fires once per call, after the commit.

    For a call inside another one it fires just before that of the outer call. A call whose result was
    lost in a crash or a stop has the status `failed`.

    session_id: the session.
    turn_id: the turn.
    tool_call_id: the id that the model gave the call.
    tool_name: the tool.
    arguments: the final arguments.
    status: done, failed, blocked by a plugin, or denied by a person or a policy.
    result: the result for the model.
    duration_ms: running time, 0 if it did not run.

    Observer: its result is ignored.
    """


def on_approval_asked(
    approval_id: str, session_id: str, tool_name: str, description: str, platform: str
) -> None:
    """A tool call waits for approval. Fires after the question was committed.

    approval_id: the question.
    session_id: the waiting session.
    tool_name: the tool to run.
    description: the effect of the call, as users see it.
    platform: the surface that asks.

    Observer: its result is ignored; a plugin cannot answer for a person.
    """


def on_approval_answered(
    approval_id: str,
    session_id: str,
    tool_name: str,
    choice: Literal["once", "session", "always", "deny", "expired"],
    answered_by: str,
    platform: str,
) -> None:
    """An approval was answered, timed out, or was canceled by a stop. Fires after the commit.

    approval_id: the question.
    session_id: the waiting session.
    tool_name: the tool to run.
    choice: the answer; `expired` after a timeout or a stop.
    answered_by: the person who answered, or an empty string.
    platform: the surface of the answer.

    Observer: its result is ignored.
    """


def on_message_received(
    platform: str, chat_id: str, user_id: str, message_id: str, text: str
) -> Rewrite | Drop | None:
    """A message from a person with access is about to be accepted.

    platform: the platform.
    chat_id: the chat.
    user_id: the sender.
    message_id: its id on the platform.
    text: its text.

    May rewrite: {"action": "rewrite", "text": text} replaces the text.
    May drop: {"action": "drop", "reason": text} leaves it unanswered, but stored.
    """


def pre_send(platform: str, chat_id: str, session_id: str, text: str) -> Rewrite | Drop | None:
    """A reply is about to be sent to a chat, before it is split into parts.

    Does not fire for the HTTP API, which answers in the response of the request.

    platform: the platform.
    chat_id: the chat.
    session_id: the session of the reply.
    text: its text.

    May rewrite: {"action": "rewrite", "text": text} is sent instead; the session keeps the
    original.
    May drop: {"action": "drop", "reason": text} sends nothing; the session keeps the original, and
    the delivery is stored as dropped.
    """


def on_gateway_start(platforms: list[str]) -> None:
    """The gateway has started. Fires once, when all reachable platforms are connected.

    Turns of an earlier process resume before that, so their hooks may fire first.

    platforms: the connected platforms.

    Observer: its result is ignored.
    """


def on_gateway_stop(reason: str) -> None:
    """The gateway has stopped. Fires once, after the sessions were finalized and before the exit.

    reason: the reason, as users see it.

    Observer: its result is ignored.
    """


SPECS: dict[str, Callable[..., object]] = {
    name: value
    for name, value in list(globals().items())
    if isinstance(value, FunctionType) and value.__module__ == __name__
}
"""Every hook by name, in order of definition."""
