"""OpenAI's chat completions, as OpenAI, OpenRouter, Ollama, llama.cpp, vLLM and LM Studio serve them.

Servers differ in small things. What one refuses (a field it does not know) is left out and the request
is made again at once; the adapter remembers that for as long as it lives.
"""

import itertools
import logging
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from hermes_agent.models.base import Facts, Finish, Reply, Request, Usage
from hermes_agent.models.calls import PartialCall, complete
from hermes_agent.models.http_client import Response
from hermes_agent.models.limits import BLOCK_CHARS, Allowance
from hermes_agent.models.openai_messages import WANTED_BACK, messages_of, tools_of
from hermes_agent.models.providers import Provider
from hermes_agent.models.upstream import Upstream
from hermes_agent.turn.events import ReasoningDelta, Sink, TextDelta, ToolCallBegun
from hermes_agent.turn.stop import Stop
from hermes_core.errors import ModelRefusedError
from hermes_core.types import ToolCall

logger = logging.getLogger(__name__)

_DONE = b"[DONE]"
_FINISHED = ("stop", "length", "content_filter")
"""Reasons to finish after which no tool call may follow."""


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: Any = None


class _Call(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: Any = None
    reasoning: Any = None
    reasoning_content: str | None = None
    reasoning_details: list[dict[str, Any]] | None = None
    tool_calls: list[_Call] | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_cache_hit_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Chunk, strict=False).decode


class OpenAIChat:
    """A model behind an address that speaks chat completions."""

    def __init__(
        self,
        facts: Facts,
        *,
        provider: Provider | None = None,
        base_url: str,
        api_key: str = "",
        key_name: str = "",
        timeout_s: float = 300.0,
    ) -> None:
        """Take the arguments of `Upstream`."""
        self.facts = facts
        self._upstream = Upstream(
            facts,
            base_url,
            {"Authorization": f"Bearer {api_key}"} if api_key else {},
            provider=provider,
            key_name=key_name if api_key else "",
            timeout_s=timeout_s,
        )
        self._dialect = _Dialect(self._upstream.provider.output_limit)

    def ask(self, request: Request, stop: Stop, report: Sink) -> Reply:
        """Answer one request; a field that the server refuses is left out the second time."""
        while True:
            body = self._body(request)
            try:
                return self._ask(body, stop, report)
            except ModelRefusedError as error:
                if not self._dialect.drop(error, body):
                    raise

    def model_names(self) -> list[str]:
        """Return the names of all models of the server; none where it does not tell them."""
        return self._upstream.model_names(Stop())

    def close(self) -> None:
        self._upstream.close()

    def _body(self, request: Request) -> dict[str, Any]:
        """The order of the keys keeps what changes, the messages, behind what does not."""
        body: dict[str, Any] = {"model": self.facts.name, "stream": True}
        if self._dialect.has_usage:
            body["stream_options"] = {"include_usage": True}
        if request.max_output_tokens:
            body[self._dialect.limit] = request.max_output_tokens
        if request.json_schema is not None and self._dialect.has_schemas:
            schema = {"name": "reply", "schema": request.json_schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        if request.tools:
            body["tools"] = tools_of(request.tools)
            if self._dialect.tools_forbid_thought:
                body["reasoning_effort"] = "none"
        body["messages"] = messages_of(
            request,
            takes_images=self.facts.takes_images,
            wanted_back=self._dialect.wanted_back,
        )
        return body

    def _ask(self, body: dict[str, Any], stop: Stop, report: Sink) -> Reply:
        with self._upstream.post("/chat/completions", body, stop) as answer:
            gathered = _PartialReply(report, Allowance(self._upstream.provider.subject))
            if answer.is_stream:
                self._read_stream(answer, gathered, stop)
            else:
                self._read_whole(answer, gathered, stop)
        return gathered.reply()

    def _read_stream(self, answer: Response, gathered: "_PartialReply", stop: Stop) -> None:
        is_done = False
        for data in answer.events():
            if data == _DONE:
                is_done = True
                break
            self._take(data, gathered, stop)
        if not is_done and gathered.finish is None:
            raise self._upstream.broken_off()

    def _read_whole(self, answer: Response, gathered: "_PartialReply", stop: Stop) -> None:
        """Some servers do not stream, whatever they are asked."""
        body = answer.read()
        self._take(body, gathered, stop)
        if gathered.finish is None:
            raise self._upstream.unreadable(body)

    def _take(self, data: bytes, gathered: "_PartialReply", stop: Stop) -> None:
        try:
            chunk = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._upstream.unreadable(data) from error
        if chunk.error is not None:
            raise self._upstream.refused_in_stream(chunk.error, stop)
        gathered.take(chunk)


class _Dialect(msgspec.Struct):
    """The request fields that this server rejected so far."""

    output_limit: str
    """OpenAI's own name for it is newer than what most other servers know."""
    has_usage: bool = True
    has_schemas: bool = True
    wanted_back: Sequence[str] = WANTED_BACK
    switched_limit: bool = False
    tools_forbid_thought: bool = False
    """OpenAI's newest models take tools in this format only when they do not think aloud."""

    @property
    def limit(self) -> str:
        """The field that limits the reply."""
        other = {"max_tokens": "max_completion_tokens"}.get(self.output_limit, "max_tokens")
        return other if self.switched_limit else self.output_limit

    def drop(self, error: ModelRefusedError, body: dict[str, Any]) -> bool:
        """Leave out what a refusal complains of; False when there is nothing to leave out."""
        message = error.message
        if error.status not in (400, 422):
            return False
        if "stream_options" in body and "stream_options" in message:
            self.has_usage = False
        elif self.limit in body and self.limit in message and not self.switched_limit:
            self.switched_limit = True
        elif "response_format" in body and (
            "response_format" in message or "json_schema" in message
        ):
            self.has_schemas = False
        elif "tools" in body and "reasoning_effort" in message and not self.tools_forbid_thought:
            self.tools_forbid_thought = True
        elif self.wanted_back and "reasoning_" in message:
            self.wanted_back = ()
        else:
            return False
        return True


class _PartialReply:
    """A reply as it arrives."""

    def __init__(self, report: Sink, allowance: Allowance) -> None:
        self.finish: str | None = None
        self._report = report
        self._allowance = allowance
        self._text = allowance.text()
        self._reasoning = allowance.text("more reasoning")
        self._calls: list[PartialCall] = []
        self._details: list[dict[str, Any]] = []
        self._wants_reasoning_back = False
        self._is_refusal = False
        self._usage = Usage()

    def take(self, chunk: _Chunk) -> None:
        if chunk.usage is not None:
            self._usage = _usage(chunk.usage)
        if not chunk.choices:
            return
        choice = chunk.choices[0]
        delta = choice.delta or choice.message
        if delta is not None:
            self._take_delta(delta)
        self.finish = choice.finish_reason or self.finish

    def _take_delta(self, delta: _Delta) -> None:
        if delta.content:
            self._say(_text(delta.content))
        if delta.reasoning_content or delta.reasoning:
            self._wants_reasoning_back |= bool(delta.reasoning_content)
            reasoning = delta.reasoning_content or _text(delta.reasoning)
            self._reasoning.add(reasoning)
            self._report(ReasoningDelta(reasoning))
        if delta.reasoning_details:
            size = len(msgspec.json.encode(delta.reasoning_details))
            self._allowance.take(BLOCK_CHARS // 4 + size, "more reasoning")
            self._details += delta.reasoning_details
        if delta.tool_calls:
            self._take_calls(delta.tool_calls)
        if delta.refusal:
            self._is_refusal = True
            self._say(delta.refusal)

    def _say(self, text: str) -> None:
        if text:
            self._text.add(text)
            self._report(TextDelta(text))

    def _take_calls(self, calls: list[_Call]) -> None:
        if self.finish in _FINISHED:
            logger.warning("Ignored %d tool calls after the reply had finished", len(calls))
            return
        for call in calls:
            self._take_call(call)

    def _take_call(self, call: _Call) -> None:
        function = call.function or _Function()
        partial = self._call_of(call, function)
        if function.name and not partial.name:
            self._allowance.take(len(function.name))
            partial.name = function.name
            self._report(ToolCallBegun(partial.name))
        partial.id = partial.id or call.id or ""
        if function.arguments is not None:
            partial.add(function.arguments)

    def _call_of(self, call: _Call, function: _Function) -> PartialCall:
        """Return the call that a fragment belongs to; some servers give all the same index, or none."""
        partial = next((c for c in reversed(self._calls) if c.index == call.index), None)
        if partial is None and call.index is None and self._calls:
            partial = self._calls[-1]
        is_another = partial is not None and (
            (partial.id and call.id and call.id != partial.id)
            or (call.index is None and not call.id and bool(partial.name) and bool(function.name))
        )
        if partial is None or is_another:
            partial = PartialCall(self._allowance, index=call.index, call_id=call.id or "")
            self._calls.append(partial)
        return partial

    def reply(self) -> Reply:
        calls = complete(self._calls)
        extra: dict[str, Any] = {}
        reasoning = str(self._reasoning)
        if self._details:
            extra["reasoning_details"] = _merged(self._details)
        if self._wants_reasoning_back:
            extra["reasoning_content"] = reasoning
        return Reply(
            text=str(self._text),
            tool_calls=calls,
            reasoning=reasoning,
            finish=self._finish(calls),
            usage=self._usage,
            extra=extra,
        )

    def _finish(self, calls: list[ToolCall]) -> Finish:
        if self.finish == "length":
            return "length"
        if self.finish == "content_filter" or self._is_refusal:
            return "refusal"
        return "tool_calls" if calls else "stop"


def _text(content: object) -> str:
    """Text, also where a server sends parts instead."""
    if isinstance(content, str):
        return content
    parts = cast("list[Any]", content) if isinstance(content, list) else []
    texts = (cast("dict[str, Any]", p).get("text") for p in parts if isinstance(p, dict))
    return "".join(text for text in texts if isinstance(text, str))


def _merged(details: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join the fragments of each detail; they say which it is by type and index."""
    merged: list[dict[str, Any]] = []
    for _, group in itertools.groupby(details, _place):
        fragments = list(group)
        whole = {key: value for entry in fragments for key, value in entry.items()}
        for key in whole.keys() & {"text", "summary", "data"}:
            texts = [entry[key] for entry in fragments if isinstance(entry.get(key), str)]
            whole[key] = "".join(texts) if texts else whole[key]
        merged.append(whole)
    return merged


def _place(detail: dict[str, Any]) -> tuple[object, object]:
    return detail.get("type"), detail.get("index")


def _usage(reported: _Usage) -> Usage:
    inputs = reported.prompt_tokens_details or _Details()
    outputs = reported.completion_tokens_details or _Details()
    return Usage(
        input_tokens=reported.prompt_tokens or 0,
        output_tokens=reported.completion_tokens or 0,
        cache_read_tokens=inputs.cached_tokens or reported.prompt_cache_hit_tokens or 0,
        cache_write_tokens=inputs.cache_write_tokens or 0,
        reasoning_tokens=outputs.reasoning_tokens or 0,
    )
