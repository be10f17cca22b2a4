"""The embedded model as a model: plain text in, plain text or constrained JSON out."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hermes_agent.models.base import Facts, Finish, Reply, Request, Usage
from hermes_agent.models.embedded import engine, gguf, hardware, model_files
from hermes_agent.models.embedded.engine import Chunk, Engine
from hermes_agent.models.small_prompt import text_of
from hermes_agent.turn.events import Sink, TextDelta
from hermes_agent.turn.stop import Stop
from hermes_core.paths import Home

_WINDOWS = (8192, 4096, 2048)
_WORKING_BYTES = 400_000_000
"""What the engine takes beside the file and the window."""

_BYTES_PER_TOKEN = 60_000
"""Of the window, when the file does not tell."""

_MAX_OUTPUT_TOKENS = 1024


def open_model(home: Home, name: str = "", window: int = 0) -> "EmbeddedModel":
    """The embedded model of that name, the first one there is without a name.

    Raises ModelMissingError when it was not pulled. It is loaded when it is first asked.
    """
    path = model_files.path_of(home, name)
    return EmbeddedModel(path, window=window, cache=home.cache / "prompts")


class EmbeddedModel:
    """Answers with the engine; knows nothing of tools, which `small` adds."""

    def __init__(self, path: Path, *, window: int = 0, cache: Path | None = None) -> None:
        self._path = path
        self._cache = cache
        window = window or _window_for(gguf.read(path), path.stat().st_size)
        self._facts = Facts(
            path.stem,
            engine.PROVIDER,
            window=window,
            max_output=min(_MAX_OUTPUT_TOKENS, window // 4),
            is_free=True,
            is_small=True,
        )

    @property
    def facts(self) -> Facts:
        return self._facts

    @property
    def _engine(self) -> Engine:
        return engine.engine(self._path, self._facts.window, self._cache)

    def ask(self, request: Request, stop: Stop, report: Sink) -> Reply:
        answer = _Answer(report)
        self._engine.chat(self._body(request), stop=stop, report=report, take=answer.take)
        return Reply(text="".join(answer.text), finish=answer.finish, usage=answer.usage)

    def close(self) -> None:
        """The engine stays for the next request; it ends with the process."""

    def _body(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {
            "messages": _messages(request),
            "max_tokens": request.max_output_tokens or self._facts.max_output,
            "temperature": 0,
            "stream_options": {"include_usage": True},
        }
        if request.json_schema is not None:
            schema = {"schema": dict(request.json_schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        else:  # in free text a small model likes to say the same line for ever
            body["repeat_penalty"] = 1.1
        return body


class _Answer:
    """Puts the chunks of an answer together and passes its text on."""

    def __init__(self, report: Sink) -> None:
        self._report = report
        self.text: list[str] = []
        self.finish: Finish = "stop"
        self.usage = Usage()

    def take(self, chunk: Chunk) -> None:
        for choice in chunk.get("choices", ()):
            if text := choice.get("delta", {}).get("content"):
                self.text.append(text)
                self._report(TextDelta(text))
            if choice.get("finish_reason") == "length":
                self.finish = "length"
        if used := chunk.get("usage"):
            details: Mapping[str, int] = used.get("prompt_tokens_details") or {}
            self.usage = Usage(
                used["prompt_tokens"], used["completion_tokens"], details.get("cached_tokens", 0)
            )


def _messages(request: Request) -> list[dict[str, str]]:
    """The request in the three roles that every chat template knows."""
    found = [{"role": "system", "content": request.system}] if request.system else []
    for message in request.messages:
        role = "assistant" if message["role"] == "assistant" else "user"
        found.append({"role": role, "content": text_of(message)})
    return found


def _window_for(head: dict[str, gguf.Value], size: int) -> int:
    """The largest window that memory has room for, up to the usual one and the trained one."""
    spare = hardware.available_bytes()
    room = None if spare is None else spare - size - _WORKING_BYTES
    trained = gguf.context_length(head) or _WINDOWS[0]
    cost = _token_cost(head)
    fits = (window for window in _WINDOWS if room is None or window * cost <= room)
    return min(next(fits, _WINDOWS[-1]), trained)


def _token_cost(head: dict[str, gguf.Value]) -> int:
    """Bytes of memory that a token of the window takes."""
    family = head.get("general.architecture")
    try:
        layers, heads, kv_heads, width = (
            int(head[f"{family}.{key}"])
            for key in (
                "block_count", "attention.head_count", "attention.head_count_kv", "embedding_length",
            )
        )  # fmt: skip
        return layers * kv_heads * (width // heads) * 2 * 2
    except (KeyError, ZeroDivisionError):
        return _BYTES_PER_TOKEN
