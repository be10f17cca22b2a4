"""The HTTP API as a surface: one careful client a conversation, who asks again under the same key."""

import http.client
import json
import queue
import socket
import threading
from typing import Any

from gateway.platforms.testing.network import Proxy
from tests.gateway.chaos import script
from tests.gateway.chaos.surface import Link, Seen, Surface

_TOKEN = "a-token-for-the-clients"
_TIMEOUT_S = 20.0
_ASK_AGAIN_S = 0.3
_OVER = ("turn_failed",)
"""Codes of refusals that are how a turn came out."""


class ApiSurface(Surface):
    """Clients of the gateway's own server, with a network between."""

    name = "api_server"
    resend = "same"

    def __init__(self) -> None:
        self._port = _free_port()
        self._clients: dict[str, _Client] = {}

    def open(self) -> None:
        self._proxy = Proxy("127.0.0.1", self._port)
        self._proxy.__enter__()
        self.links = [Link(self._proxy, b"/v1/chat/completions")]

    def close(self) -> None:
        for client in self._clients.values():
            client.end()
        self._proxy.__exit__(None, None, None)

    def begin(self, count: int) -> list[str]:
        clients = [_Client(f"talk{number}", self._proxy.port) for number in range(count)]
        self._clients = {client.talk: client for client in clients}
        return list(self._clients)

    def settings(self) -> str:
        return f'[gateway.platforms.api_server]\ntoken = "{_TOKEN}"\nport = {self._port}\n'

    def say(self, talk: str, text: str) -> str:
        return self._clients[talk].say(text)

    def seen(self, talk: str) -> list[Seen]:
        return list(self._clients[talk].seen)

    def sends(self) -> int:
        return sum(len(client.seen) for client in self._clients.values())


class _Client:
    """Asks one thing after the other, each until it is answered, every second one as a stream."""

    def __init__(self, talk: str, port: int) -> None:
        self.talk = talk
        self.seen: list[Seen] = []
        self._port = port
        self._count = 0
        self._jobs: queue.SimpleQueue[tuple[str, str] | None] = queue.SimpleQueue()
        self._over = threading.Event()
        threading.Thread(target=self._run, name=f"client-{talk}", daemon=True).start()

    def say(self, text: str) -> str:
        self._count += 1
        key = f"{self.talk}-{self._count}"
        self._jobs.put((key, text))
        return key

    def end(self) -> None:
        self._over.set()
        self._jobs.put(None)

    def _run(self) -> None:
        while job := self._jobs.get():
            key, text = job
            is_stream = int(key.rpartition("-")[2]) % 2 == 0
            first = self._until_answered(key, text, is_stream=is_stream)
            again = self._until_answered(key, text, is_stream=not is_stream)
            if self._over.is_set():
                return
            self.seen.append(Seen(first, key))
            is_command = text.startswith("/")  # which is not told again what it said
            if script.lines(again) != script.lines(first) and not is_command:
                self.seen.append(Seen(again, key))

    def _until_answered(self, key: str, text: str, *, is_stream: bool) -> str:
        while not self._over.is_set():
            try:
                answer = self._ask(key, text, is_stream=is_stream)
            except (OSError, http.client.HTTPException, ValueError):
                answer = None
            if answer is not None:
                return answer
            self._over.wait(_ASK_AGAIN_S)
        return ""

    def _ask(self, key: str, text: str, *, is_stream: bool) -> str | None:
        """One attempt; None when it must be made again."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_TIMEOUT_S)
        body = {"messages": [{"role": "user", "content": text}], "stream": is_stream}
        headers = {
            "Authorization": f"Bearer {_TOKEN}",
            "Content-Type": "application/json",
            "X-Hermes-Conversation": self.talk,
            "Idempotency-Key": key,
        }
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            response = connection.getresponse()
            received = response.read()
        finally:
            connection.close()
        is_events = response.getheader("Content-Type", "").startswith("text/event-stream")
        return _streamed(received) if is_events else _whole(json.loads(received))


def _whole(response: dict[str, Any]) -> str | None:
    if "error" in response:
        return response["error"]["message"] if response["error"].get("code") in _OVER else None
    return response["choices"][0]["message"]["content"]


def _streamed(body: bytes) -> str | None:
    """The text of a stream that came to its end; None when it broke off."""
    lines = [line[6:] for line in body.decode().splitlines() if line.startswith("data: ")]
    if not lines or lines[-1] != "[DONE]":
        return None
    events = [json.loads(line) for line in lines[:-1]]
    if failed := [event for event in events if "error" in event]:
        return _whole(failed[0])
    deltas = [choice["delta"] for event in events for choice in event["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
