"""Anthropic's messages, streamed."""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from hermes_agent.events import ReasoningDelta, Sink, TextDelta, ToolCallBegun
from hermes_agent.models import refusals
from hermes_agent.models.anthropic_messages import THINKING_KEY, messages_of, system_of, tools_of
from hermes_agent.models.base import Facts, Finish, Reply, Request, ToolSpec, Usage
from hermes_agent.models.calls import Growing, whole
from hermes_agent.models.http_client import Endpoint, Response, encode
from hermes_agent.stop import Stop
from hermes_core.errors import ModelError, ModelUnreachableError

_VERSION = "2023-06-01"
_LIST_S = 3.0
"""How long a list of names is waited for, when one is not known."""
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
        base_url: str = "https://api.anthropic.com",
        api_key: str = "",
        key_name: str = "ANTHROPIC_API_KEY",
        timeout_s: float = 300.0,
    ) -> None:
        """`key_name` is where the key comes from, for whoever must mend it."""
        self._facts = facts
        headers = {"anthropic-version": _VERSION}
        if api_key:
            headers["x-api-key"] = api_key
        address = base_url.rstrip("/").removesuffix("/v1")
        self._endpoint = Endpoint(
            address, headers, provider=refusals.spoken(facts.provider), timeout_s=timeout_s
        )
        self._key_name = key_name if api_key else ""

    @property
    def facts(self) -> Facts:
        return self._facts

    def ask(self, request: Request, stop: Stop, report: Sink) -> Reply:
        """Answer one request."""
        body = encode(self._body(request))
        with self._endpoint.post("/v1/messages", body, stop) as answer:
            if answer.status != 200:
                raise refusals.error_from(
                    answer.status, answer.headers, answer.read(), self._who(stop)
                )
            gathered = _Gathered(report, has_form=request.json_schema is not None)
            if answer.is_stream:
                self._read_stream(answer, gathered, stop)
            else:
                self._read_whole(answer, gathered, stop)
        return gathered.reply()

    def close(self) -> None:
        self._endpoint.close()

    def _body(self, request: Request) -> dict[str, Any]:
        """The order of the keys is the order in which the provider caches them."""
        body: dict[str, Any] = {
            "model": self._facts.name,
            "max_tokens": request.max_output_tokens or self._facts.max_output,
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
        body["messages"] = messages_of(request.messages, takes_images=self._facts.takes_images)
        return body

    def _read_stream(self, answer: Response, gathered: "_Gathered", stop: Stop) -> None:
        for data in answer.events():
            if self._take(data, gathered, stop) == "message_stop":
                return
        if gathered.stop_reason is None:
            raise ModelUnreachableError(
                f"{self._endpoint.provider} broke off the stream before the reply was complete.",
                fix="Ask again.",
                retryable=True,
                provider=self._facts.provider,
            )

    def _read_whole(self, answer: Response, gathered: "_Gathered", stop: Stop) -> None:
        body = answer.read()
        if self._take(body, gathered, stop) != "message":
            raise self._unreadable(body)

    def _take(self, data: bytes, gathered: "_Gathered", stop: Stop) -> str:
        try:
            event = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._unreadable(data) from error
        if event.error is not None:
            raise refusals.error_in_stream(event.error, self._who(stop))
        gathered.take(event)
        return event.type

    def _unreadable(self, data: bytes) -> ModelError:
        return refusals.unreadable(data, self._who(Stop()))

    def _who(self, stop: Stop) -> refusals.Who:
        return refusals.Who(
            refusals.spoken(self._facts.provider),
            self._facts.name,
            self._key_name,
            self._endpoint.base_url,
            lambda: self._names(stop),
        )

    def _names(self, stop: Stop) -> list[str]:
        page = self._endpoint.get("/v1/models", stop, timeout_s=_LIST_S)
        return refusals.names_in(page.body) if page.status == 200 else []


@dataclass
class _Gathered:
    """A reply as it grows, block by block."""

    report: Sink
    has_form: bool
    texts: list[str] = field(default_factory=list[str])
    thoughts: list["_Thought"] = field(default_factory=list["_Thought"])
    calls: list[Growing] = field(default_factory=list[Growing])
    stop_reason: str | None = None
    usage: Usage = Usage()
    _form_is_open: bool = False

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
        elif block.type == "thinking":
            self.thoughts.append(_Thought(signature=block.signature or ""))
            self._think(block.thinking or "")
        elif block.type == "redacted_thinking":
            self.thoughts.append(_Thought(hidden=block.data or ""))
        elif block.type == "tool_use":
            self._begin_call(block)

    def _begin_call(self, block: _Block) -> None:
        if self.has_form and block.name == _FORM:
            self._form_is_open = True
            self._say(msgspec.json.encode(block.input).decode() if block.input else "")
            return
        call = Growing(id=block.id or "", name=block.name or "")
        if block.input:
            call.add(block.input)
        self.calls.append(call)
        self.report(ToolCallBegun(call.name))

    def _grow(self, delta: _Delta) -> None:
        if delta.text:
            self._say(delta.text)
        elif delta.partial_json:
            if self._form_is_open:
                self._say(delta.partial_json)
            elif self.calls:
                self.calls[-1].add(delta.partial_json)
        elif delta.thinking:
            self._think(delta.thinking)
        elif delta.signature and self.thoughts:
            self.thoughts[-1].signature = delta.signature

    def _say(self, text: str) -> None:
        if text:
            self.texts.append(text)
            self.report(TextDelta(text))

    def _think(self, text: str) -> None:
        if text and self.thoughts:
            self.thoughts[-1].fragments.append(text)
            self.report(ReasoningDelta(text))

    def _count(self, said: _Usage | None) -> None:
        """Counts are of the whole message so far; what a later event leaves out stays as it was."""
        if said is None:
            return
        read, written = said.cache_read_input_tokens, said.cache_creation_input_tokens
        known = self.usage
        if said.input_tokens is not None:
            read, written = read or 0, written or 0
            known = known._replace(
                input_tokens=said.input_tokens + read + written,
                cache_read_tokens=read,
                cache_write_tokens=written,
            )
        if said.output_tokens is not None:
            known = known._replace(output_tokens=said.output_tokens)
        self.usage = known

    def reply(self) -> Reply:
        signed = [thought.block for thought in self.thoughts if thought.is_signed]
        said = (thought.text for thought in self.thoughts)
        finish = _FINISHES.get(self.stop_reason or "", "stop")
        if finish in ("stop", "tool_calls"):
            finish = "tool_calls" if self.calls else "stop"
        return Reply(
            text="".join(self.texts),
            tool_calls=whole(self.calls),
            reasoning="\n\n".join(thought for thought in said if thought),
            finish=finish,
            usage=self.usage,
            extra={THINKING_KEY: signed} if signed else {},
        )


@dataclass
class _Thought:
    """A block of thinking; only a signed one is taken back."""

    signature: str = ""
    hidden: str = ""
    """What the provider shows in cipher alone."""
    fragments: list[str] = field(default_factory=list[str])

    @property
    def text(self) -> str:
        return "".join(self.fragments)

    @property
    def is_signed(self) -> bool:
        return bool(self.signature or self.hidden)

    @property
    def block(self) -> dict[str, Any]:
        if self.hidden:
            return {"type": "redacted_thinking", "data": self.hidden}
        return {"type": "thinking", "thinking": self.text, "signature": self.signature}
