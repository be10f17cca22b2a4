"""Anthropic's messages, streamed."""

import logging
from dataclasses import dataclass
from typing import Any

import msgspec

from hermes_agent.models.anthropic_messages import THINKING_KEY, messages_of, system_of, tools_of
from hermes_agent.models.base import Facts, Finish, Reply, Request, ToolSpec, Usage
from hermes_agent.models.calls import PartialCall, complete
from hermes_agent.models.http_client import Response
from hermes_agent.models.limits import BLOCK_CHARS, Allowance, GrowingText
from hermes_agent.models.providers import Provider
from hermes_agent.models.upstream import Upstream
from hermes_agent.turn.events import ReasoningDelta, Sink, TextDelta, ToolCallBegun
from hermes_agent.turn.stop import Stop

logger = logging.getLogger(__name__)

_VERSION = "2023-06-01"
_FORM = "reply"
"""The tool whose input is the reply, where a reply has to have a shape."""
_FINISHES: dict[str, Finish] = {
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}


class _Block(msgspec.Struct):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None


class _Delta(msgspec.Struct):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Message(msgspec.Struct):
    content: list[_Block] = []
    stop_reason: str | None = None
    usage: _Usage | None = None


class _Event(msgspec.Struct):
    type: str = ""
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None
    error: Any = None
    content: list[_Block] = []
    """Of a whole message, where a server does not stream."""
    stop_reason: str | None = None


_decode = msgspec.json.Decoder(_Event, strict=False).decode


class Anthropic:
    """A model behind an address that speaks Anthropic's messages."""

    def __init__(
        self,
        facts: Facts,
        *,
        base_url: str,
        provider: Provider | None = None,
        api_key: str = "",
        key_name: str = "",
        timeout_s: float = 300.0,
    ) -> None:
        """Take the arguments of `Upstream`."""
        self.facts = facts
        headers = {"anthropic-version": _VERSION}
        if api_key:
            headers["x-api-key"] = api_key
        address = base_url.rstrip("/").removesuffix("/v1")
        self._upstream = Upstream(
            facts,
            address,
            headers,
            provider=provider,
            key_name=key_name if api_key else "",
            timeout_s=timeout_s,
            list_path="/v1/models",
        )

    def ask(self, request: Request, stop: Stop, report: Sink) -> Reply:
        """Answer one request."""
        with self._upstream.post("/v1/messages", self._body(request), stop) as answer:
            allowance = Allowance(self._upstream.provider.subject)
            gathered = _PartialReply(report, allowance, has_form=request.json_schema is not None)
            if answer.is_stream:
                self._read_stream(answer, gathered, stop)
            else:
                self._read_whole(answer, gathered, stop)
        return gathered.reply()

    def model_names(self) -> list[str]:
        """Return the names of all models of the server; none where it does not tell them."""
        return self._upstream.model_names(Stop())

    def close(self) -> None:
        self._upstream.close()

    def _body(self, request: Request) -> dict[str, Any]:
        """The order of the keys is the order in which the provider caches them."""
        body: dict[str, Any] = {
            "model": self.facts.name,
            "max_tokens": request.max_output_tokens or self.facts.max_output,
            "stream": True,
        }
        tools = list(request.tools)
        if request.json_schema is not None:
            tools.append(ToolSpec(_FORM, "Give the reply in this form.", request.json_schema))
            body["tool_choice"] = {"type": "tool", "name": _FORM}
        if tools:
            body["tools"] = tools_of(tools)
        if system := system_of(request.system):
            body["system"] = system
        body["messages"] = messages_of(request.messages, takes_images=self.facts.takes_images)
        return body

    def _read_stream(self, answer: Response, gathered: "_PartialReply", stop: Stop) -> None:
        for data in answer.events():
            if self._take(data, gathered, stop) == "message_stop":
                return
        if gathered.stop_reason is None:
            raise self._upstream.broken_off()

    def _read_whole(self, answer: Response, gathered: "_PartialReply", stop: Stop) -> None:
        body = answer.read()
        if self._take(body, gathered, stop) != "message":
            raise self._upstream.unreadable(body)

    def _take(self, data: bytes, gathered: "_PartialReply", stop: Stop) -> str:
        try:
            event = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._upstream.unreadable(data) from error
        if event.error is not None:
            raise self._upstream.refused_in_stream(event.error, stop)
        gathered.take(event)
        return event.type


class _PartialReply:
    """A reply as it arrives, block by block."""

    def __init__(self, report: Sink, allowance: Allowance, *, has_form: bool) -> None:
        self.stop_reason: str | None = None
        self._report = report
        self._allowance = allowance
        self._has_form = has_form
        self._form_is_open = False
        self._text = allowance.text()
        self._thoughts: list[_Thought] = []
        self._calls: list[PartialCall] = []
        self._open_call: PartialCall | None = None
        self._usage = Usage()

    def take(self, event: _Event) -> None:
        kind = event.type
        if kind == "content_block_delta":
            self._grow(event.delta or _Delta())
        elif kind == "content_block_start":
            self._begin(event.content_block or _Block())
        elif kind == "message_start" and event.message is not None:
            self._count(event.message.usage)
        elif kind == "message_delta":
            self._count(event.usage)
            self.stop_reason = (event.delta or _Delta()).stop_reason or self.stop_reason
        elif kind == "message":
            for block in event.content:
                self._begin(block)
            self._count(event.usage)
            self.stop_reason = event.stop_reason

    def _begin(self, block: _Block) -> None:
        self._form_is_open = False
        if block.type == "text" and block.text:
            self._say(block.text)
        elif block.type in ("thinking", "redacted_thinking"):
            self._begin_thought(block)
        elif block.type == "tool_use":
            self._begin_call(block)

    def _begin_thought(self, block: _Block) -> None:
        hidden = (block.data or "") if block.type == "redacted_thinking" else ""
        signature = block.signature or ""
        self._allowance.take(BLOCK_CHARS + len(hidden) + len(signature), "more reasoning")
        self._thoughts.append(_Thought(self._allowance.text("more reasoning"), signature, hidden))
        if not hidden:
            self._think(block.thinking or "")

    def _begin_call(self, block: _Block) -> None:
        if self.stop_reason not in (None, "tool_use"):
            logger.warning("Ignored a tool call after the message had finished")
            self._open_call = None
            return
        if self._has_form and block.name == _FORM:
            self._form_is_open = True
            self._say(msgspec.json.encode(block.input).decode() if block.input else "")
            return
        call = PartialCall(self._allowance, call_id=block.id or "", name=block.name or "")
        if block.input:
            call.add(block.input)
        self._open_call = call
        self._calls.append(call)
        self._report(ToolCallBegun(call.name))

    def _grow(self, delta: _Delta) -> None:
        if delta.text:
            self._say(delta.text)
        elif delta.partial_json:
            if self._form_is_open:
                self._say(delta.partial_json)
            elif self._open_call is not None:
                self._open_call.add(delta.partial_json)
        elif delta.thinking:
            self._think(delta.thinking)
        elif delta.signature and self._thoughts:
            self._allowance.take(len(delta.signature), "more reasoning")
            self._thoughts[-1].signature = delta.signature

    def _say(self, text: str) -> None:
        if text:
            self._text.add(text)
            self._report(TextDelta(text))

    def _think(self, text: str) -> None:
        if text and self._thoughts:
            self._thoughts[-1].text.add(text)
            self._report(ReasoningDelta(text))

    def _count(self, reported: _Usage | None) -> None:
        """Counts are of the whole message so far; what a later event leaves out stays as it was."""
        if reported is None:
            return
        read, written = reported.cache_read_input_tokens, reported.cache_creation_input_tokens
        usage = self._usage
        if reported.input_tokens is not None:
            read, written = read or 0, written or 0
            usage = usage._replace(
                input_tokens=reported.input_tokens + read + written,
                cache_read_tokens=read,
                cache_write_tokens=written,
            )
        if reported.output_tokens is not None:
            usage = usage._replace(output_tokens=reported.output_tokens)
        self._usage = usage

    def reply(self) -> Reply:
        signed = [thought.block for thought in self._thoughts if thought.is_signed]
        reasoning = (str(thought.text) for thought in self._thoughts)
        finish = _FINISHES.get(self.stop_reason or "", "stop")
        if finish in ("stop", "tool_calls"):
            finish = "tool_calls" if self._calls else "stop"
        return Reply(
            text=str(self._text),
            tool_calls=complete(self._calls),
            reasoning="\n\n".join(text for text in reasoning if text),
            finish=finish,
            usage=self._usage,
            extra={THINKING_KEY: signed} if signed else {},
        )


@dataclass
class _Thought:
    """A block of reasoning; the provider accepts only a signed one."""

    text: GrowingText
    signature: str = ""
    hidden: str = ""
    """What the provider shows encrypted alone."""

    @property
    def is_signed(self) -> bool:
        return bool(self.signature or self.hidden)

    @property
    def block(self) -> dict[str, Any]:
        if self.hidden:
            return {"type": "redacted_thinking", "data": self.hidden}
        return {"type": "thinking", "thinking": str(self.text), "signature": self.signature}
