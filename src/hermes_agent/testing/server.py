"""The scripted HTTP server: OpenAI chat completions and Anthropic messages, with real streaming.

    with ScriptedServer([say("hi"), rate_limited(2), cut("Half of")]) as server:
        ...  # server.url, server.requests

Steps are those of the scripted model and the faults; a function makes the step for a request. Without a
script it repeats what it is told and calls the tools it is told to call, so that it can stand in for a
model. `python -m hermes_agent.testing.server --help` runs it from a shell.
"""

import contextlib
import json
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, cast

import msgspec

from hermes_agent.models.base import Usage
from hermes_agent.testing import echo, validity
from hermes_agent.testing.faults import (
    Answer,
    Break,
    Cut,
    Events,
    Fault,
    Flood,
    Hold,
    Refuse,
    unknown_model,
)
from hermes_agent.testing.scripted import TIMEOUT_S, Step, as_step, words
from hermes_agent.testing.wording import AnthropicWording, Frame, OpenAIWording, Wording
from hermes_agent.turn.stop import Stop
from hermes_core.errors import Interrupted

Play = Step | Fault | str
Script = Iterable[Play] | Callable[["Recorded"], Play]
Wire = Literal["openai", "anthropic", ""]

_WORDINGS: dict[str, Wording] = {"openai": OpenAIWording(), "anthropic": AnthropicWording()}
_PATHS: dict[str, Wire] = {"/v1/chat/completions": "openai", "/v1/messages": "anthropic"}


@dataclass(frozen=True)
class Recorded:
    """A request as it came in."""

    method: str
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    client: str = ""
    """The address and port it came from: the same for requests on one connection."""

    @property
    def wire(self) -> Wire:
        return _PATHS.get(self.path, "")

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.body or b"{}")


class ScriptedServer:
    """Plays a script to whoever asks on a port of this machine."""

    def __init__(
        self,
        script: Script | None = None,
        *,
        port: int = 0,
        key: str = "",
        models: Mapping[str, Mapping[str, Any]] | None = None,
        strict_models: bool = False,
        strict_transcripts: bool = False,
        pages: Mapping[str, object] | None = None,
    ) -> None:
        """Without a key every key is right. `models` are listed with their further fields; `pages`
        are other paths and the JSON found there. `strict_transcripts` refuses a request in which a
        tool call has no result."""
        self._make = script if callable(script) else None if script is not None else echo.step
        self._steps = deque(cast("Iterable[Play]", script) if self._make is None else ())
        self._key = key
        self.models: Mapping[str, Mapping[str, Any]] = (
            {"scripted": {"max_model_len": 8192}} if models is None else models
        )
        self._strict = strict_models
        self._is_strict_about_calls = strict_transcripts
        self.refused: list[str] = []
        """What was wrong with transcripts that were refused."""
        self._pages = dict(pages or {})
        self.requests: list[Recorded] = []
        self.flooded: list[int] = []
        """The bytes that each flood sent until its client had enough."""
        self.stop = Stop()
        self.news = threading.Condition()
        self._http = _HTTP(("127.0.0.1", port), partial(_Conversation, self))
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    @property
    def port(self) -> int:
        return self._http.server_address[1]

    @property
    def url(self) -> str:
        """The address without a path."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def openai_url(self) -> str:
        """The base address for OpenAI's format."""
        return f"{self.url}/v1"

    def add(self, *steps: Play) -> None:
        """Write more of the script."""
        self._steps.extend(steps)

    def start(self) -> "ScriptedServer":
        self._thread.start()
        return self

    def close(self) -> None:
        """End every silence and every connection."""
        self.stop.set()
        self._http.shutdown()
        self._http.end()
        self._http.server_close()
        self._thread.join(TIMEOUT_S)

    __enter__ = start

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait_for_requests(self, number: int, timeout_s: float = TIMEOUT_S) -> list[Recorded]:
        """The requests to a model, once there are so many; raises TimeoutError."""
        with self.news:
            if not self.news.wait_for(lambda: len(self.model_requests) >= number, timeout_s):
                raise TimeoutError(f"{len(self.model_requests)} of {number} requests came")
        return self.model_requests

    def wait_for_floods(self, number: int, timeout_s: float = TIMEOUT_S) -> list[int]:
        """Return the bytes of each flood, once so many have ended; raises TimeoutError."""
        with self.news:
            if not self.news.wait_for(lambda: len(self.flooded) >= number, timeout_s):
                raise TimeoutError(f"{len(self.flooded)} of {number} floods ended")
        return self.flooded

    @property
    def model_requests(self) -> list[Recorded]:
        """The requests to a model, without those for lists and pages."""
        return [request for request in self.requests if request.wire]

    @property
    def clients(self) -> set[str]:
        """The connections that requests to a model came on."""
        return {request.client for request in self.model_requests}

    def record(self, request: Recorded) -> None:
        with self.news:
            self.requests.append(request)
            self.news.notify_all()

    def play(self, request: Recorded) -> Step | Fault:
        """Choose the reply to a request."""
        if request.path not in _PATHS:
            return self._page(request)
        if not self._is_let_in(request):
            return Refuse(401, "Incorrect API key provided.", code="invalid_api_key")
        model = str(request.json.get("model", ""))
        if self._strict and model not in self.models:
            return unknown_model(model)
        if self._is_strict_about_calls and (found := validity.problems_of_request(request)):
            self.refused += found
            return Refuse(400, f"An assistant message with tool_calls: {'; '.join(found)}.")
        with self.news:
            if self._make is not None:
                play = self._make(request)
            elif self._steps:
                play = self._steps.popleft()
            else:
                play = Refuse(418, f"The script ended; this is request {len(self.model_requests)}.")
        return as_step(play) if isinstance(play, str) else play

    def _is_let_in(self, request: Recorded) -> bool:
        credentials = (request.headers.get("x-api-key"), request.headers.get("authorization"))
        return (
            not self._key or credentials[0] == self._key or credentials[1] == f"Bearer {self._key}"
        )

    def _page(self, request: Recorded) -> Answer | Refuse:
        if request.path in self._pages:
            return Answer(msgspec.json.encode(self._pages[request.path]))
        if request.path != "/v1/models":
            return Refuse(404, f"There is nothing at {request.path}.")
        if not self._is_let_in(request):
            return Refuse(401, "Incorrect API key provided.", code="invalid_api_key")
        entries = [
            {"id": name, "object": "model", "created": 0, "owned_by": "scripted", **more}
            for name, more in self.models.items()
        ]
        return Answer(msgspec.json.encode({"object": "list", "data": entries}))


class _HTTP(ThreadingHTTPServer):
    """Threads that are not waited for, and connections that can all be ended."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], make: Callable[..., Any]) -> None:
        super().__init__(address, make)
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 -- the base's
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 -- the base's
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def end(self) -> None:
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """Somebody hung up in the middle: that is what tests do."""


class _Conversation(BaseHTTPRequestHandler):
    """One connection: requests one after the other, each answered by its step."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, script: ScriptedServer, *args: Any) -> None:  # noqa: ANN401 -- the base's
        self.script = script
        super().__init__(*args)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing on stderr."""

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        client = f"{self.client_address[0]}:{self.client_address[1]}"
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Recorded(self.command, self.path, headers, self.rfile.read(length), client)
        self.script.record(request)
        wording = _WORDINGS[request.wire or "openai"]
        with contextlib.suppress(Interrupted):
            self._play(self.script.play(request), request, wording)
            return
        self.close_connection = True

    def _play(self, play: Step | Fault, request: Recorded, wording: Wording) -> None:
        match play:
            case Refuse():
                body = msgspec.json.encode(wording.refusal(play))
                self._answer(Answer(body, play.status, headers=play.headers))
            case Answer():
                self._answer(play)
            case Hold(quiet):
                quiet.keep(self.script.stop)
                self._play(as_step("Here I am."), request, wording)
            case Events():
                self._events(play)
            case Cut(after):
                self._cut(as_step(after), request, wording)
            case Break():
                self._break(play, request, wording)
            case Flood():
                self._flood(play)
            case Step():
                self._reply(play, request, wording)

    def _answer(self, answer: Answer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)

    def _reply(self, step: Step, request: Recorded, wording: Wording) -> None:
        usage = step.usage or Usage(len(request.body) // 4 + 1, _size(step) // 4 + 1)
        if not request.json.get("stream"):
            if step.quiet is not None:
                step.quiet.keep(self.script.stop)
            body = msgspec.json.encode(wording.whole(step, request.json, usage))
            self._answer(Answer(body))
            return
        self._begin_stream()
        for frame in wording.opening(step, request.json, usage):
            self._frame(frame, step.delay_s)
        if step.quiet is not None:
            step.quiet.keep(self.script.stop)
        for frame in wording.closing(step, request.json, usage):
            self._frame(frame, step.delay_s)
        self._end_stream(done=request.wire == "openai")

    def _events(self, events: Events) -> None:
        self._begin_stream()
        for payload in events.payloads:
            self._chunk(b"data: " + payload + b"\n\n")
        if events.quiet is not None:
            events.quiet.keep(self.script.stop)
        self._end_stream(done=False)

    def _cut(self, step: Step, request: Recorded, wording: Wording) -> None:
        self._begin_stream()
        for frame in wording.opening(step, request.json, Usage()):
            self._frame(frame, 0)
        self.close_connection = True

    def _break(self, broken: Break, request: Recorded, wording: Wording) -> None:
        self._begin_stream()
        step = Step(chunks=words(broken.after))
        for frame in wording.opening(step, request.json, Usage()):
            self._frame(frame, 0)
        self._frame(wording.break_(broken), 0)
        self._end_stream(done=False)

    def _flood(self, flood: Flood) -> None:
        """Send until the client has enough."""
        self.close_connection = True
        sent = number = 0
        try:
            self.wfile.write(flood.first)
            while sent < flood.most:
                if flood.pause_s:
                    self.script.stop.wait(flood.pause_s)
                sent += self.wfile.write(flood.again(number))
                number += 1
        except OSError:
            pass
        finally:
            with self.script.news:
                self.script.flooded.append(sent)
                self.script.news.notify_all()

    def _begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _frame(self, frame: Frame, delay_s: float) -> None:
        if delay_s and frame.is_chunk:
            self.script.stop.wait(delay_s)
        name = f"event: {frame.name}\n".encode() if frame.name else b""
        self._chunk(name + b"data: " + msgspec.json.encode(frame.payload) + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _end_stream(self, *, done: bool) -> None:
        if done:
            self._chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")


def _size(step: Step) -> int:
    arguments = sum(len(call["function"]["arguments"]) for call in step.calls)
    return len(step.text) + len(step.reasoning) + arguments


if __name__ == "__main__":
    from hermes_agent.testing.shell import main

    main()
