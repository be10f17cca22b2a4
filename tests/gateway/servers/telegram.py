"""A Bot API server on loopback: long polling, webhooks, flood limits, and faults on demand.

    with BotApi() as api:
        ...  # a client with api.token at api.url
        api.world.write("hello")           # a person writes
        api.world.replies()                # what the bot wrote to them
        api.fail("sendMessage", Cut("after"))

It keeps its chats for as long as it lives, however often clients come and go. `python -m
tests.gateway.servers.telegram` runs it alone; then `POST /world/VERB` with JSON does what the
methods of `World` do.
"""

import argparse
import contextlib
import json
import socket
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Mapping
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, NamedTuple, Self, cast
from urllib.error import URLError
from urllib.parse import parse_qsl, unquote, urlsplit
from urllib.request import Request, urlopen

from tests.gateway.servers.telegram_methods import METHODS, Call
from tests.gateway.servers.telegram_world import ANNA, BEN, Json, Person, Refusal, World

__all__ = ["ANNA", "BEN", "BotApi", "Cut", "Delay", "Fail", "Flood", "Hold", "Person", "main"]

TOKEN = "4242:AAEexampleOfATokenThatTelegramWouldGive"
NAME = "hermes_test_bot"
SECRET_HEADER = "X-Telegram-Bot-Api-Secret-Token"
_SENDS = ("sendMessage", "sendDocument", "sendPhoto", "editMessageText")
_LONGEST_POLL_S = 50


class Cut(NamedTuple):
    """The connection breaks: before the request was carried out, or after."""

    when: Literal["before", "after"] = "before"


class Fail(NamedTuple):
    """The server answers with an error; a flood limit has `retry_after`."""

    code: int = 500
    description: str = "Internal Server Error"
    retry_after: int = 0


class Hold(NamedTuple):
    """The answer waits until the event is set; the request is carried out first."""

    until: threading.Event


class Delay(NamedTuple):
    """The request is carried out so much later."""

    seconds: float


Fault = Cut | Fail | Hold | Delay


class Flood(NamedTuple):
    """So many messages a chat in so many seconds, then 429."""

    messages: int
    seconds: float


class _Webhook:
    """Where updates are pushed to, and how that went."""

    def __init__(self, url: str, secret: str) -> None:
        self.url = url
        self.secret = secret
        self.last_error = ""
        self.failed_at = 0


class BotApi:
    """The server of one bot."""

    def __init__(self, token: str = TOKEN, *, port: int = 0, name: str = NAME) -> None:
        self.token = token
        self.world = World(
            {
                "id": int(token.partition(":")[0]),
                "is_bot": True,
                "first_name": "Hermes",
                "username": name,
                "can_join_groups": True,
                "can_read_all_group_messages": True,
                "supports_inline_queries": False,
            }
        )
        self.flood: Flood | None = None
        self.retry_push_s = 0.05
        """How long a webhook that failed is left alone."""
        self.requests: list[tuple[str, Json]] = []
        """Every call that came in, carried out or not."""
        self._faults: defaultdict[str, deque[Fault]] = defaultdict(deque)
        self._sent: defaultdict[str, deque[float]] = defaultdict(deque)
        self._poll = 0
        self._webhook: _Webhook | None = None
        self._is_closing = False
        self._port = port
        self._server: _Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self.go_online()
        return self

    def __exit__(self, *_: object) -> None:
        with self.world.changed:
            self._is_closing = True
            self.world.changed.notify_all()
        self.go_offline()

    def go_online(self) -> None:
        """Listen, on the same port as before."""
        self._server = _Server(("127.0.0.1", self._port), _Connection)
        self._server.api = self
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def go_offline(self) -> None:
        """Listen no more and cut every connection, as a network does that is gone."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server.cut_all()
            self._server = None

    def fail(self, method: str, *faults: Fault) -> None:
        """Let the next calls of a method meet these faults, one each."""
        with self.world.changed:
            self._faults[method].extend(faults)

    def count(self, method: str) -> int:
        """How often a method was carried out."""
        return self.world.calls[method]

    def answer(self, method: str, call: Call) -> Any:
        """Carry out a call; raises Refusal, and _Broken when the connection is to break."""
        with self.world.changed:
            self.requests.append((method, dict(call.params)))
            self.world.changed.notify_all()
            faults = self._faults[method]
            fault = faults.popleft() if faults else None
        if isinstance(fault, Fail):
            more = {"retry_after": fault.retry_after} if fault.retry_after else {}
            raise Refusal(fault.code, fault.description, **more)
        if fault == Cut("before"):
            raise _Broken
        if isinstance(fault, Delay):
            time.sleep(fault.seconds)
        result = self._carry_out(method, call)
        if fault == Cut("after"):
            raise _Broken
        if isinstance(fault, Hold):
            fault.until.wait()
        return result

    def _carry_out(self, method: str, call: Call) -> Any:
        own = {
            "getUpdates": self._get_updates,
            "setWebhook": self._set_webhook,
            "deleteWebhook": self._delete_webhook,
            "getWebhookInfo": self._webhook_info,
        }
        if method not in own and method not in METHODS:
            raise Refusal(404, "Not Found: method not found")
        with self.world.changed:
            if method in _SENDS:
                self._check_flood(call.text("chat_id"))
            result = own[method](call) if method in own else METHODS[method](self.world, call)
            self.world.calls[method] += 1
            self.world.changed.notify_all()
            return result

    def _check_flood(self, chat: str) -> None:
        if self.flood is None:
            return
        now, sent = time.monotonic(), self._sent[chat]
        while sent and sent[0] <= now - self.flood.seconds:
            sent.popleft()
        if len(sent) >= self.flood.messages:
            wait = max(1, round(sent[0] + self.flood.seconds - now))
            raise Refusal(429, f"Too Many Requests: retry after {wait}", retry_after=wait)
        sent.append(now)

    def _get_updates(self, call: Call) -> list[Json]:
        """Wait for updates; a later poll, or a webhook, ends this one with a conflict."""
        if self._webhook is not None:
            raise Refusal(
                409,
                "Conflict: can't use getUpdates method while webhook is active; "
                "use deleteWebhook to delete the webhook first",
            )
        limit = call.integer("limit", 100)
        if not 1 <= limit <= 100:
            raise Refusal(400, "Bad Request: invalid limit specified")
        self._poll += 1
        mine, world = self._poll, self.world
        world.changed.notify_all()
        self._move_to(call.integer("offset"))
        if call.value("allowed_updates") is not None:
            world.allowed = cast("list[str]", call.value("allowed_updates"))
        world.changed.wait_for(
            lambda: world.updates or self._poll != mine or self._is_closing,
            min(call.integer("timeout"), _LONGEST_POLL_S),
        )
        if self._poll != mine:
            raise Refusal(
                409,
                "Conflict: terminated by other getUpdates request; "
                "make sure that only one bot instance is running",
            )
        return world.updates[:limit]

    def _move_to(self, offset: int) -> None:
        if offset < 0:
            offset = self.world.updates[offset:][0]["update_id"] if self.world.updates else 0
        self.world.confirm(offset)

    def _set_webhook(self, call: Call) -> bool:
        url, secret = call.text("url"), call.text("secret_token")
        if not url:
            return self._delete_webhook(call)
        if urlsplit(url).scheme != "https" and urlsplit(url).hostname != "127.0.0.1":
            raise Refusal(
                400, "Bad Request: bad webhook: An HTTPS URL must be provided for webhook"
            )
        if call.value("allowed_updates") is not None:
            self.world.allowed = cast("list[str]", call.value("allowed_updates"))
        if call.value("drop_pending_updates"):
            self.world.confirm(sys.maxsize)
        self._poll += 1
        self._webhook = _Webhook(url, secret)
        self.world.changed.notify_all()
        threading.Thread(target=self._push, args=(self._webhook,), daemon=True).start()
        return True

    def _delete_webhook(self, call: Call) -> bool:
        if call.value("drop_pending_updates"):
            self.world.confirm(sys.maxsize)
        self._webhook = None
        self.world.changed.notify_all()
        return True

    def _webhook_info(self, _call: Call) -> Json:
        hook = self._webhook
        info: Json = {
            "url": hook.url if hook else "",
            "has_custom_certificate": False,
            "pending_update_count": len(self.world.updates),
        }
        if hook and hook.last_error:
            info |= {"last_error_date": hook.failed_at, "last_error_message": hook.last_error}
        return info

    def _push(self, hook: _Webhook) -> None:
        """Deliver updates one after the other, each until it is answered with 200."""
        changed, world = self.world.changed, self.world

        def is_over() -> bool:
            return self._webhook is not hook or self._is_closing

        while True:
            with changed:
                changed.wait_for(lambda: world.updates or is_over())
                if is_over():
                    return
                update = world.updates[0]
            hook.last_error = _push_one(hook, update)
            with changed:
                if not hook.last_error:
                    world.confirm(update["update_id"] + 1)
                else:
                    hook.failed_at = int(time.time())
                    changed.wait_for(is_over, self.retry_push_s)


def _push_one(hook: _Webhook, update: Json) -> str:
    """What went wrong; empty when the update was taken."""
    headers = {"Content-Type": "application/json", SECRET_HEADER: hook.secret}
    request = Request(hook.url, json.dumps(update).encode(), headers)
    try:
        with urlopen(request, timeout=30) as response:
            return "" if response.status == 200 else f"Wrong response: {response.status}"
    except (URLError, OSError, TimeoutError) as error:
        return f"Wrong response from the webhook: {error}"


class _Broken(Exception):
    """The connection is to be cut instead of an answer."""


class _Server(ThreadingHTTPServer):
    """Knows its connections, so that they can be cut."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    api: BotApi

    def __init__(self, address: tuple[str, int], connection: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, connection)
        self._open: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""
        del client_address
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, None)

    def cut_all(self) -> None:
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Connection(BaseHTTPRequestHandler):
    """One client: /bot<token>/<method>, /file/bot<token>/<path> and /world/<verb>."""

    protocol_version = "HTTP/1.1"
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride] -- ours knows the api

    def do_GET(self) -> None:
        prefix = f"/file/bot{self.server.api.token}/"
        path = unquote(self.path)
        if not path.startswith(prefix):
            self._serve()
            return
        held = dict(self.server.api.world.files.values())
        content = held.get(path.removeprefix(prefix))
        self._say(404 if content is None else 200, content or b"", "application/octet-stream")

    def do_POST(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        _, place, method = (parts.path.split("/") + ["", ""])[:3]
        try:
            answer: Json = {"ok": True, "result": self._result(place, method, parts.query, body)}
            code = 200
        except Refusal as refusal:
            code = refusal.code
            answer = {"ok": False, "error_code": code, "description": refusal.description}
            if refusal.parameters:
                answer["parameters"] = refusal.parameters
        except _Broken:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self._say(code, json.dumps(answer).encode(), "application/json")

    def _result(self, place: str, method: str, query: str, body: bytes) -> Any:
        api = self.server.api
        if place == "world":
            return _do_remotely(api, method, json.loads(body or b"{}"))
        if not place.startswith("bot") or ":" not in place:
            raise Refusal(404, "Not Found")
        if place != f"bot{api.token}":
            raise Refusal(401, "Unauthorized")
        params, files = _read(self.headers.get("Content-Type") or "", body)
        return api.answer(method, Call(dict(parse_qsl(query)) | params, files))

    def _say(self, code: int, content: bytes, kind: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _read(kind: str, body: bytes) -> tuple[Json, dict[str, tuple[str, bytes]]]:
    """The parameters and the files of a request, in any of the forms that the Bot API takes."""
    if kind.startswith("application/json"):
        return json.loads(body or b"{}"), {}
    if not kind.startswith("multipart/form-data"):
        return dict(parse_qsl(body.decode(), keep_blank_values=True)), {}
    message = BytesParser(policy=HTTP).parsebytes(f"Content-Type: {kind}\r\n\r\n".encode() + body)
    params: Json = {}
    files: dict[str, tuple[str, bytes]] = {}
    for part in message.iter_parts():
        name = str(part.get_param("name", header="content-disposition"))
        content = cast("bytes", part.get_payload(decode=True))
        if part.get_filename() is None:
            params[name] = content.decode()
        else:
            files[name] = (str(part.get_filename()), content)
    return params, files


_FAULTS: Mapping[str, type[Cut | Fail | Delay]] = {"cut": Cut, "fail": Fail, "delay": Delay}
_REMOTE = ("write", "edit", "press", "block", "upgrade", "add_chat", "shown", "replies")


def _do_remotely(api: BotApi, verb: str, arguments: Mapping[str, Any]) -> Any:
    """Do what a person does, or arrange a fault, for a test in another process."""
    params = dict(arguments)
    if verb == "calls":
        return api.world.calls
    if verb == "fail":
        return api.fail(params.pop("method"), _FAULTS[params.pop("fault")](**params))
    if verb not in _REMOTE:
        raise Refusal(404, f"Not Found: one of {', '.join(_REMOTE)}, calls, fail")
    if "person" in params:
        params["person"] = Person(*params["person"])
    if params.get("topics") is not None:  # the keys of JSON are texts
        params["topics"] = {int(number): name for number, name in params["topics"].items()}
    done = getattr(api.world, verb)(**params)
    if verb == "shown":
        return [message._asdict() | {"file": message.file is not None} for message in done]
    return done


def main(arguments: list[str] | None = None) -> None:
    """Run the server until it is stopped; its address is the first line of the output."""
    parser = argparse.ArgumentParser(description=BotApi.__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--token", default=TOKEN)
    chosen = parser.parse_args(arguments)
    with BotApi(chosen.token, port=chosen.port) as api:
        sys.stdout.write(f"{api.url}\n")
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
