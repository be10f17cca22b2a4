"""Replies in the making: their content, the two formats they are sent in, and text that streams."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from gateway import questions
from gateway.platforms.base import Finish, ToolCall
from gateway.platforms.refusal import RefusedRequest
from hermes_agent.turn.events import (
    Event,
    FellBack,
    QuestionAsked,
    Retrying,
    StepStored,
    TextDelta,
)

encode = msgspec.json.Encoder().encode
DONE = b"data: [DONE]\n\n"
DEFAULT_MODEL = "hermes"
"""The name under which clients ask for whatever model the agent has."""
_PARAGRAPH = "\n\n"
_RESTARTED = "\n\n[The model broke off and starts again.]\n\n"


class Reply(NamedTuple):
    """The content of a reply: the text of the agent, or the output of a command."""

    text: str
    usage: Mapping[str, Any]
    model: str
    finish: Finish = "stop"
    session_id: str = ""
    """The session of the reply; empty: the one that accepted the message."""
    tool_calls: Sequence[ToolCall] = ()

    def tokens(self, kind: str) -> int:
        """Return a token count of this reply; 0 when none was reported."""
        return int(self.usage.get(f"{kind}_tokens") or 0)


class ReplyFormat(Protocol):
    """Encodes one reply, whole or as a stream of server-sent events."""

    has_tool_calls: bool
    """Whether replies in this format include tool calls."""
    model: str
    """The model that answers; set as soon as it is known."""

    def whole(self, reply: Reply) -> dict[str, Any]: ...

    def begin(self) -> bytes: ...

    def reasoning(self, text: str) -> bytes: ...

    def text(self, text: str) -> bytes: ...

    def tool_call(self, call: ToolCall) -> bytes:
        """Encode a tool call that starts (`in_progress`) or ends."""
        ...

    def end(self, reply: Reply) -> bytes: ...

    def fail(self, error: RefusedRequest) -> bytes: ...


class StreamedText:
    """Turns the events of a turn into text to send; at the end it adds what the stored reply has more.

    Text that was sent cannot be taken back, so a model that starts again is announced.
    """

    def __init__(self) -> None:
        self._has_sent = False
        self._step: list[str] = []
        """The text sent of the current model call."""
        self._is_step_over = True

    def add(self, event: Event) -> str:
        """Return the text that an event adds."""
        match event:
            case TextDelta(text=text):
                return self._add_delta(text)
            case Retrying() | FellBack():
                return self._restart()
            case QuestionAsked():
                lines = [*questions.lines_of(event), *questions.how_to_answer(event)]
                return self._add_paragraph("\n".join(lines))
            case StepStored():
                self._is_step_over = True
            case _:
                pass
        return ""

    def end(self, reply: str) -> str:
        """Return the part of the stored reply that was not sent yet."""
        sent, reply = "".join(self._step).strip(), reply.strip()
        if reply == sent:
            return ""
        if sent and reply.startswith(sent) and not self._is_step_over:
            return reply[len(sent) :]
        return self._add_paragraph(reply)

    def _add_delta(self, text: str) -> str:
        if self._is_step_over and text:
            self._step.clear()
            self._is_step_over = False
            text = _PARAGRAPH + text if self._has_sent else text
        self._step.append(text)
        return self._sent(text)

    def _restart(self) -> str:
        if self._is_step_over or not self._step:
            return ""
        self._step.clear()
        return self._sent(_RESTARTED)

    def _add_paragraph(self, text: str) -> str:
        """Return text that is a paragraph of its own."""
        self._step.clear()
        self._is_step_over = True
        return self._sent(_PARAGRAPH + text if self._has_sent else text)

    def _sent(self, text: str) -> str:
        self._has_sent = self._has_sent or bool(text)
        return text
