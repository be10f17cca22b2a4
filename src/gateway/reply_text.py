"""The text that a person reads at the end of a turn, also when there is no reply.

No turn ends in silence unless the person stopped it.
"""

from collections.abc import Mapping
from typing import Any

from gateway.outline import closed
from hermes_agent.turn.values import Outcome

_CONTEXT_WORDS = ("context", "token", "too large", "too long", "exceed", "payload")
_LONG_HISTORY = 50

TOO_LONG = (
    "⚠️ This conversation has become too large for the model's context window."
    " /compact makes room, /reset starts a new one."
)
NOT_PROCESSED = "⚠️ Your message was not processed. Please send it again."
STOPPED_BEFORE = "⚠️ It was interrupted before your message was processed. Please send it again."
EMPTY = "⚠️ No response was generated. Please try again; /reset starts a new conversation."


def normalize_empty_agent_response(
    agent_result: Mapping[str, Any], response: str, *, history_len: int = 0
) -> str:
    """Return the text for an empty response; any other response stays as it is."""
    if response:
        return response
    calls = int(agent_result.get("api_calls") or 0)
    error = str(agent_result.get("error") or "")
    if agent_result.get("failed"):
        return _failed(error, history_len)
    if agent_result.get("interrupted"):
        return STOPPED_BEFORE if calls == 0 else response
    if calls == 0:
        return response if agent_result.get("partial") else NOT_PROCESSED
    if agent_result.get("partial"):
        if "remained incomplete after" in error:
            return response
        return f"⚠️ Processing stopped: {(error or 'it could not be completed')[:200]}"
    return EMPTY


def _failed(error: str, history_len: int) -> str:
    lower = error.lower()
    is_too_long = any(word in lower for word in _CONTEXT_WORDS)
    if is_too_long or ("400" in lower and history_len > _LONG_HISTORY):
        return TOO_LONG
    reason = (error or "unknown error")[:300]
    return f"⚠️ The request failed: {reason}\nTry again, or /reset to start a new conversation."


def text_of(outcome: Outcome, api_calls: int) -> str:
    """Return the text that a person reads at the end of a turn."""
    match outcome.status:
        case "failed":
            return _text_of_failed(outcome)
        case "interrupted":
            return _text_of_interrupted(outcome, api_calls)
        case "answered" | "suspended":
            return _text_of_answered(outcome, api_calls)


def _text_of_failed(outcome: Outcome) -> str:
    if outcome.code == "model.context_too_long":
        return _below(outcome.text, TOO_LONG)
    return _below(outcome.text, f"⚠️ {outcome.reason or 'Something went wrong.'}")


def _text_of_interrupted(outcome: Outcome, api_calls: int) -> str:
    if outcome.text:
        return _below(outcome.text, "⏹ Stopped.")
    return normalize_empty_agent_response({"interrupted": True, "api_calls": api_calls}, "")


def _text_of_answered(outcome: Outcome, api_calls: int) -> str:
    if outcome.is_partial and outcome.text:
        return _below(outcome.text, "⚠️ The model reached the length limit of one answer.")
    result = {"api_calls": api_calls, "partial": outcome.is_partial, "error": outcome.reason}
    return normalize_empty_agent_response(result, outcome.text.strip())


def _below(text: str, notice: str) -> str:
    return f"{closed(text)}\n\n{notice}" if text else notice
