"""OpenAI's chat completions, as OpenAI, OpenRouter, Ollama, llama.cpp, vLLM and LM Studio serve them.

Servers differ in small things. What one refuses (a field it does not know) is left out and the request
is made again at once; the adapter remembers that for as long as it lives.
"""

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from hermes_agent.events import ReasoningDelta, Sink, TextDelta, ToolCallBegun
from hermes_agent.models import refusals
from hermes_agent.models.base import Facts, Finish, Reply, Request, Usage
from hermes_agent.models.calls import Growing, whole
from hermes_agent.models.http_client import Endpoint, Response, encode
from hermes_agent.models.openai_messages import WANTED_BACK, messages_of, tools_of
from hermes_agent.stop import Stop
from hermes_core.errors import ModelError, ModelRefusedError, ModelUnreachableError
from hermes_core.types import ToolCall

_DONE = b"[DONE]"
_LIST_S = 3.0
"""How long a list of names is waited for, when one is not known."""


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
        base_url: str,
        api_key: str = "",
        key_name: str = "",
        timeout_s: float = 300.0,
    ) -> None:
        """`key_name` is where the key comes from, for whoever must mend it."""
        self._facts = facts
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._endpoint = Endpoint(
            base_url, headers, provider=refusals.spoken(facts.provider), timeout_s=timeout_s
        )
        self._key_name = key_name if api_key else ""
        self._dialect = _Dialect(is_openai=facts.provider == "openai")

    @property
    def facts(self) -> Facts:
        return self._facts

    def ask(self, request: Request, stop: Stop, report: Sink) -> Reply:
        """Answer one request; a field that the server refuses is left out the second time."""
        while True:
            body = self._body(request)
            try:
                return self._ask(encode(body), stop, report)
            except ModelRefusedError as error:
                if not self._dialect.drop(error, body):
                    raise

    def close(self) -> None:
        self._endpoint.close()

    def _body(self, request: Request) -> dict[str, Any]:
        """The order of the keys keeps what changes, the messages, behind what does not."""
        body: dict[str, Any] = {"model": self._facts.name, "stream": True}
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
            takes_images=self._facts.takes_images,
            wanted_back=self._dialect.wanted_back,
        )
        return body

    def _ask(self, body: bytes, stop: Stop, report: Sink) -> Reply:
        with self._endpoint.post("/chat/completions", body, stop) as answer:
            if answer.status != 200:
                raise refusals.error_from(
                    answer.status, answer.headers, answer.read(), self._who(stop)
                )
            gathered = _Gathered(report)
            if answer.is_stream:
                self._read_stream(answer, gathered, stop)
            else:
                self._read_whole(answer, gathered, stop)
        return gathered.reply()

    def _read_stream(self, answer: Response, gathered: "_Gathered", stop: Stop) -> None:
        is_done = False
        for data in answer.events():
            if data == _DONE:
                is_done = True
                break
            self._take(data, gathered, stop)
        if not is_done and gathered.finish is None:
            raise ModelUnreachableError(
                f"{self._endpoint.provider} broke off the stream before the reply was complete.",
                fix="Ask again.",
                retryable=True,
                provider=self._facts.provider,
            )

    def _read_whole(self, answer: Response, gathered: "_Gathered", stop: Stop) -> None:
        """Some servers do not stream, whatever they are asked."""
        body = answer.read()
        self._take(body, gathered, stop)
        if gathered.finish is None:
            raise self._unreadable(body)

    def _take(self, data: bytes, gathered: "_Gathered", stop: Stop) -> None:
        try:
            chunk = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._unreadable(data) from error
        if chunk.error is not None:
            raise refusals.error_in_stream(chunk.error, self._who(stop))
        gathered.take(chunk)

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
        page = self._endpoint.get("/models", stop, timeout_s=_LIST_S)
        return refusals.names_in(page.body) if page.status == 200 else []


class _Dialect(msgspec.Struct):
    """What this server does not take, as found out so far."""

    is_openai: bool
    has_usage: bool = True
    has_schemas: bool = True
    wanted_back: Sequence[str] = WANTED_BACK
    switched_limit: bool = False
    tools_forbid_thought: bool = False
    """OpenAI's newest models take tools in this format only when they do not think aloud."""

    @property
    def limit(self) -> str:
        """OpenAI's own name for the limit is newer than what most other servers know."""
        is_new = self.is_openai is not self.switched_limit
        return "max_completion_tokens" if is_new else "max_tokens"

    def drop(self, error: ModelRefusedError, body: dict[str, Any]) -> bool:
        """Leave out what a refusal complains of; False when there is nothing to leave out."""
        said = error.message
        if error.status not in (400, 422):
            return False
        if "stream_options" in body and "stream_options" in said:
            self.has_usage = False
        elif self.limit in body and self.limit in said and not self.switched_limit:
            self.switched_limit = True
        elif "response_format" in body and ("response_format" in said or "json_schema" in said):
            self.has_schemas = False
        elif "tools" in body and "reasoning_effort" in said and not self.tools_forbid_thought:
            self.tools_forbid_thought = True
        elif self.wanted_back and "reasoning_" in said:
            self.wanted_back = ()
        else:
            return False
        return True


class _Gathered(msgspec.Struct):
    """A reply as it grows."""

    report: Sink
    texts: list[str] = msgspec.field(default_factory=list[str])
    thoughts: list[str] = msgspec.field(default_factory=list[str])
    calls: list[Growing] = msgspec.field(default_factory=list[Growing])
    details: list[dict[str, Any]] = msgspec.field(default_factory=list[dict[str, Any]])
    wants_thoughts_back: bool = False
    is_refusal: bool = False
    finish: str | None = None
    usage: Usage = Usage()

    def take(self, chunk: _Chunk) -> None:
        if chunk.usage is not None:
            self.usage = _usage(chunk.usage)
        if not chunk.choices:
            return
        choice = chunk.choices[0]
        if choice.finish_reason is not None:
            self.finish = choice.finish_reason
        delta = choice.delta or choice.message
        if delta is not None:
            self._take_delta(delta)

    def _take_delta(self, delta: _Delta) -> None:
        if delta.content:
            self._say(_text(delta.content))
        if delta.reasoning_content or delta.reasoning:
            self.wants_thoughts_back |= bool(delta.reasoning_content)
            thought = delta.reasoning_content or _text(delta.reasoning)
            self.thoughts.append(thought)
            self.report(ReasoningDelta(thought))
        if delta.reasoning_details:
            _merge_details(self.details, delta.reasoning_details)
        if delta.tool_calls:
            for call in delta.tool_calls:
                self._take_call(call)
        if delta.refusal:
            self.is_refusal = True
            self._say(delta.refusal)

    def _say(self, text: str) -> None:
        if text:
            self.texts.append(text)
            self.report(TextDelta(text))

    def _take_call(self, call: _Call) -> None:
        function = call.function or _Function()
        slot = self._slot(call, function)
        if function.name and not slot.name:
            slot.name = function.name
            self.report(ToolCallBegun(slot.name))
        slot.id = slot.id or call.id or ""
        if function.arguments is not None:
            slot.add(function.arguments)

    def _slot(self, call: _Call, function: _Function) -> Growing:
        """The call that a fragment belongs to; some servers give no index, or the same to all."""
        slot = next((s for s in reversed(self.calls) if s.index == call.index), None)
        if slot is None and call.index is None and self.calls:
            slot = self.calls[-1]
        is_another = slot is not None and (
            (slot.id and call.id and call.id != slot.id)
            or (call.index is None and not call.id and bool(slot.name) and bool(function.name))
        )
        if slot is None or is_another:
            slot = Growing(call.index)
            self.calls.append(slot)
        return slot

    def reply(self) -> Reply:
        calls = whole(self.calls)
        extra: dict[str, Any] = {}
        thoughts = "".join(self.thoughts)
        if self.details:
            extra["reasoning_details"] = self.details
        if self.wants_thoughts_back:
            extra["reasoning_content"] = thoughts
        return Reply(
            text="".join(self.texts),
            tool_calls=calls,
            reasoning=thoughts,
            finish=self._finish(calls),
            usage=self.usage,
            extra=extra,
        )

    def _finish(self, calls: list[ToolCall]) -> Finish:
        if self.finish == "length":
            return "length"
        if self.finish == "content_filter" or self.is_refusal:
            return "refusal"
        return "tool_calls" if calls else "stop"


def _text(content: object) -> str:
    """Text, also where a server sends parts instead."""
    if isinstance(content, str):
        return content
    parts = cast("list[Any]", content) if isinstance(content, list) else []
    texts = (cast("dict[str, Any]", p).get("text") for p in parts if isinstance(p, dict))
    return "".join(text for text in texts if isinstance(text, str))


def _merge_details(known: list[dict[str, Any]], new: list[dict[str, Any]]) -> None:
    """Fragments of one detail become one; they say which by type and index."""
    for entry in new:
        last = known[-1] if known else {}
        if last and _place(last) == _place(entry):
            for key, value in entry.items():
                is_longer = key in ("text", "summary", "data") and isinstance(value, str)
                last[key] = str(last.get(key) or "") + str(value) if is_longer else value
        else:
            known.append(dict(entry))


def _place(detail: dict[str, Any]) -> tuple[object, object]:
    return detail.get("type"), detail.get("index")


def _usage(said: _Usage) -> Usage:
    inputs = said.prompt_tokens_details or _Details()
    outputs = said.completion_tokens_details or _Details()
    return Usage(
        input_tokens=said.prompt_tokens or 0,
        output_tokens=said.completion_tokens or 0,
        cache_read_tokens=inputs.cached_tokens or said.prompt_cache_hit_tokens or 0,
        cache_write_tokens=inputs.cache_write_tokens or 0,
        reasoning_tokens=outputs.reasoning_tokens or 0,
    )
