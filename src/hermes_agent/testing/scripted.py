"""The scripted model, the steps it is written in, and a sink that remembers.

    model = ScriptedModel([call("read_file", path="a.txt"), say("It is empty.")])

A script is a list of steps, one a request, or a function that makes the step for a request, for chats
without an end. A plain text is a step that says it.
"""

import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import msgspec

from hermes_agent.models.base import Facts, Finish, Reply, Request, Usage
from hermes_agent.turn.events import Event, ReasoningDelta, TextDelta, ToolCallBegun
from hermes_agent.turn.stop import Stop
from hermes_core.errors import ContextTooLongError, ModelError
from hermes_core.types import FunctionCall, ToolCall

TIMEOUT_S = 30.0
"""How long a test waits for something that must happen."""

_WORD = re.compile(r"\S+\s*|\s+")


class Quiet:
    """A silence that a test can wait for and end."""

    def __init__(self) -> None:
        self.started = threading.Event()
        """Set when the model has fallen silent."""
        self._over = threading.Event()

    def release(self) -> None:
        """Let the model go on."""
        self._over.set()

    def keep(self, stop: Stop) -> None:
        """Be silent until released or stopped; raises Interrupted."""
        with stop.callback(self._over.set):
            self.started.set()
            self._over.wait()
        stop.check()


@dataclass(frozen=True)
class Step:
    """The behavior of a model for one request: stream, be silent, fail, or else reply."""

    chunks: tuple[str, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    delay_s: float = 0.0
    """Before each chunk."""
    quiet: Quiet | None = None
    error: ModelError | None = None
    rest: tuple[str, ...] = ()
    """Said after a silence was released."""
    finish: Finish | None = None
    usage: Usage | None = None
    extra: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def text(self) -> str:
        return "".join(self.chunks + self.rest)


def say(
    text: str,
    *,
    chunks: Sequence[str] | None = None,
    reasoning: str = "",
    delay_s: float = 0.0,
    finish: Finish | None = None,
    usage: Usage | None = None,
    extra: dict[str, Any] | None = None,
) -> Step:
    """Say a text, word by word unless the chunks are given."""
    return Step(
        chunks=tuple(chunks) if chunks is not None else words(text),
        reasoning=reasoning,
        delay_s=delay_s,
        finish=finish,
        usage=usage,
        extra=extra or {},
    )


def call(tool: str, /, **arguments: object) -> Step:
    """Call a tool with these arguments."""
    return raw_call(tool, msgspec.json.encode(arguments).decode())


def raw_call(tool: str, arguments: str, *, call_id: str = "") -> Step:
    """Call a tool with arguments as text, which need not be JSON; an empty id is made up when asked."""
    function: FunctionCall = {"name": tool, "arguments": arguments}
    call: ToolCall = {"id": call_id, "type": "function", "function": function}
    return Step(calls=(call,))


def together(*steps: "Step | str") -> Step:
    """All of it in one reply: parallel calls, or a text and a call."""
    parts = [as_step(step) for step in steps]
    last = parts[-1]
    return replace(
        last,
        chunks=tuple(chunk for part in parts for chunk in part.chunks),
        calls=tuple(call for part in parts for call in part.calls),
        reasoning="".join(part.reasoning for part in parts),
        delay_s=max(part.delay_s for part in parts),
    )


def fail(error: ModelError, *, after: str = "") -> Step:
    """Fail, perhaps after some of the reply was streamed."""
    return Step(chunks=words(after), error=error)


def silence(quiet: Quiet | None = None, *, after: str = "", then: str = "") -> Step:
    """Say `after`, then nothing until stopped; say `then` when the silence is released."""
    return Step(chunks=words(after), quiet=quiet or Quiet(), rest=words(then))


def words(text: str) -> tuple[str, ...]:
    """A text as the chunks a model would stream."""
    return tuple(_WORD.findall(text))


def as_step(step: "Step | str") -> Step:
    """A step; a plain text stands for saying it."""
    return say(step) if isinstance(step, str) else step


Script = Iterable[Step | str] | Callable[[Request], Step | str]
Wait = Callable[[Stop, float], None]


def estimate(request: Request) -> int:
    """The tokens this model counts for a request: a quarter of its characters."""
    tools = [[tool.name, tool.description, tool.parameters] for tool in request.tools]
    return len(msgspec.json.encode([request.system, tools, request.messages])) // 4 + 1


class ScriptedModel:
    """A model that does what its script says and remembers what it was asked."""

    def __init__(
        self,
        script: Script,
        *,
        facts: Facts | None = None,
        window: int = 128_000,
        wait: Wait = Stop.wait,
        strict_window: bool = False,
    ) -> None:
        """`wait` replaces the pauses; a strict window refuses what does not fit, as providers do."""
        self._make = script if callable(script) else None
        self._steps = deque[Step | str]() if callable(script) else deque(script)
        self._facts = facts or Facts("scripted", "scripted", window, is_free=True)
        self._wait = wait
        self._strict = strict_window
        self._lock = threading.Lock()
        self._call_count = 0
        self.requests: list[Request] = []
        self.closed = False

    @property
    def facts(self) -> Facts:
        return self._facts

    def add(self, *steps: Step | str) -> None:
        """Write more of the script."""
        self._steps.extend(steps)

    def ask(self, request: Request, stop: Stop, report: Callable[[Event], None]) -> Reply:
        """Do the next step of the script."""
        stop.check()
        step = self._next(request)
        tokens = estimate(request)
        if self._strict and tokens > self._facts.window:
            raise ContextTooLongError(f"{tokens} tokens do not fit into {self._facts.window}.")
        self._perform(step, stop, report)
        usage = step.usage or Usage(tokens, _size(step) // 4 + 1)
        return Reply(
            text=step.text,
            tool_calls=self._numbered(step.calls),
            reasoning=step.reasoning,
            finish=step.finish or ("tool_calls" if step.calls else "stop"),
            usage=usage,
            extra=step.extra,
        )

    def close(self) -> None:
        self.closed = True

    def _next(self, request: Request) -> Step:
        with self._lock:
            self.requests.append(request)
            if self._make is not None:
                return as_step(self._make(request))
            if not self._steps:
                raise ModelError(f"The script ended; this is request {len(self.requests)}.")
            return as_step(self._steps.popleft())

    def _perform(self, step: Step, stop: Stop, report: Callable[[Event], None]) -> None:
        if step.reasoning:
            self._stream(words(step.reasoning), step, stop, lambda t: report(ReasoningDelta(t)))
        self._stream(step.chunks, step, stop, lambda t: report(TextDelta(t)))
        if step.quiet is not None:
            step.quiet.keep(stop)
            self._stream(step.rest, step, stop, lambda t: report(TextDelta(t)))
        if step.error is not None:
            raise step.error
        for call in step.calls:
            self._pause(step, stop)
            report(ToolCallBegun(call["function"]["name"]))

    def _stream(
        self, chunks: Sequence[str], step: Step, stop: Stop, tell: Callable[[str], None]
    ) -> None:
        for chunk in chunks:
            self._pause(step, stop)
            tell(chunk)

    def _pause(self, step: Step, stop: Stop) -> None:
        if step.delay_s:
            self._wait(stop, step.delay_s)
        stop.check()

    def _numbered(self, calls: Sequence[ToolCall]) -> list[ToolCall]:
        numbered: list[ToolCall] = []
        for call in calls:
            with self._lock:
                self._call_count += 1
                number = self._call_count
            numbered.append({**call, "id": call["id"] or f"call_{number}"})
        return numbered


def _size(step: Step) -> int:
    arguments = sum(len(call["function"]["arguments"]) for call in step.calls)
    return len(step.text) + len(step.reasoning) + arguments


Kind = TypeVar("Kind", bound=Event)


class RecordingSink:
    """A sink that keeps every event, and lets a test wait for one."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._news = threading.Condition()

    def __call__(self, event: Event) -> None:
        with self._news:
            self.events.append(event)
            self._news.notify_all()

    def of(self, kind: type[Kind]) -> list[Kind]:
        """Every event of a kind so far."""
        with self._news:
            return [event for event in self.events if isinstance(event, kind)]

    @property
    def text(self) -> str:
        """The reply as it was streamed."""
        return "".join(event.text for event in self.of(TextDelta))

    @property
    def reasoning(self) -> str:
        """The reasoning text."""
        return "".join(event.text for event in self.of(ReasoningDelta))

    def wait_for(self, kind: type[Kind], *, timeout_s: float = TIMEOUT_S) -> Kind:
        """The first event of a kind; raises TimeoutError when it does not come."""
        with self._news:
            if not self._news.wait_for(lambda: self._has(kind), timeout_s):
                raise TimeoutError(f"no {kind.__name__} came; there were {self.events}")
        return self.of(kind)[0]

    def _has(self, kind: type[Event]) -> bool:
        return any(isinstance(event, kind) for event in self.events)
