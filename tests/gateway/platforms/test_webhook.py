"""Webhooks: signed deliveries in, signed replies out, on real servers on loopback."""

import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import Platform, PlatformConfig
from gateway.platforms.base import PlatformError, SendResult
from gateway.platforms.webhook import translate
from gateway.platforms.webhook.adapter import WebhookAdapter
from gateway.platforms.webhook.manifest import MANIFEST, WebhookSettings
from hermes_core import clock
from hermes_core.errors import StoreFullError
from tests.gateway.platforms.scripted_ingress import TIMEOUT_S, Loop, ScriptedIngress, connected

SECRET = "a secret of the tests"
NOW = 1_800_000_000.0


@dataclass
class Server:
    """Served webhooks, and ways to deliver to them."""

    ingress: ScriptedIngress
    adapter: WebhookAdapter
    loop: Loop
    client: httpx2.Client

    def post(self, body: bytes, headers: dict[str, str], name: str = "build") -> httpx2.Response:
        sent = [(header.encode(), value.encode()) for header, value in headers.items()]
        return self.client.post(f"{self.adapter.url}/{name}", content=body, headers=sent)

    def deliver(self, content: Any, delivery: str = "", name: str = "build") -> httpx2.Response:
        body = json.dumps(content).encode()
        return self.post(body, signed(body, delivery), name)

    def send(self, chat_id: str, text: str = "Fixed.", key: str = "turn-1:0") -> SendResult:
        work = self.adapter.send(chat_id, text, reply_to="d-1", metadata={"key": key})
        return self.loop.run(work)


def digest(content: bytes, secret: str = SECRET) -> str:
    return "sha256=" + hmac.new(secret.encode(), content, hashlib.sha256).hexdigest()


def signed(
    body: bytes, delivery: str = "", at: float = NOW, secret: str = SECRET
) -> dict[str, str]:
    stamp = str(int(at))
    prefix = f"{stamp}.{delivery}." if delivery else f"{stamp}."
    headers = {
        "X-Hermes-Timestamp": stamp,
        "X-Hermes-Signature": digest(prefix.encode() + body, secret),
    }
    return headers | ({"X-Hermes-Delivery": delivery} if delivery else {})


@contextmanager
def serving(hooks: dict[str, Any], **settings: Any) -> Generator[Server]:
    table = {"secret": SECRET, "port": 0, "hooks": hooks} | settings
    chosen = msgspec.convert(table, WebhookSettings)
    adapter = MANIFEST.make(PlatformConfig(enabled=True), chosen, Path("unused"))
    assert isinstance(adapter, WebhookAdapter)
    ingress = ScriptedIngress()
    with (
        clock.replaced(lambda: NOW),
        connected(adapter, ingress) as loop,
        httpx2.Client(timeout=TIMEOUT_S) as client,
    ):
        yield Server(ingress, adapter, loop, client)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving({"build": {}, "github": {"style": "github"}}) as running_server:
        yield running_server


# -- deliveries ------------------------------------------------------------------------------------


def test_a_signed_delivery_is_taken_in_and_then_acknowledged(server: Server) -> None:
    answer = server.deliver({"status": "red"}, "d-1")
    assert answer.status_code == 202
    assert answer.json() == {
        "outcome": "turn",
        "is_new": True,
        "turn_id": f"{0:032x}",
        "session_id": "s-0",
    }
    (event,) = server.ingress.events
    assert event.text == 'Webhook build:\n{"status":"red"}'
    assert event.message_id == "d-1"
    assert event.options == {"is_single": True}
    source = event.source
    assert source is not None
    assert (source.platform, source.chat_id) == (Platform.WEBHOOK, "build/d-1")
    assert (source.user_id, source.role_authorized) == ("build", True)


def test_the_same_delivery_is_taken_in_once(server: Server) -> None:
    assert server.deliver({"n": 1}, "d-1").json()["is_new"]
    again = server.deliver({"n": 1}, "d-1")
    assert (again.status_code, again.json()["is_new"]) == (202, False)
    assert server.deliver({"n": 1}, "d-2").json()["is_new"]
    assert len(server.ingress.events) == 2


def test_without_an_id_what_was_signed_is_the_id(server: Server) -> None:
    body = b'{"n": 1}'
    headers = signed(body)
    assert server.post(body, headers).json()["is_new"]
    assert not server.post(body, headers).json()["is_new"]
    assert server.post(body, signed(body, at=NOW + 1)).json()["is_new"]


def test_a_store_that_refuses_is_told_as_unavailable_and_nothing_is_acknowledged(
    server: Server,
) -> None:
    server.ingress.error = StoreFullError("The disk is full.")
    answer = server.deliver({"n": 1}, "d-1")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    server.ingress.error = None
    assert server.deliver({"n": 1}, "d-1").json()["is_new"]


def test_a_delivery_of_github_runs_once_whatever_its_headers_say(server: Server) -> None:
    body = b'{"action": "opened"}'
    headers = {
        "X-Hub-Signature-256": digest(body),
        "X-GitHub-Delivery": "72d3162e-cc78-11e3",
        "X-GitHub-Event": "issues",
    }
    assert server.post(body, headers, "github").status_code == 202
    assert not server.post(body, headers, "github").json()["is_new"]
    for name in ("X-GitHub-Delivery", "X-Hermes-Delivery"):
        replayed = headers | {name: "another-id", "X-GitHub-Event": "push"}
        assert not server.post(body, replayed, "github").json()["is_new"]
    (event,) = server.ingress.events
    assert event.text.startswith("Webhook github, event issues:\n")
    assert server.post(body, headers | {"X-GitHub-Event": "ping"}, "github").status_code == 200
    other = b'{"action": "closed"}'
    headers["X-Hub-Signature-256"] = digest(other)
    assert server.post(other, headers, "github").json()["is_new"]


BODY = b'{"a": 1}'
GOOD = signed(BODY, "d-1")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Hermes-Signature": GOOD["X-Hermes-Signature"]},
        GOOD | {"X-Hermes-Signature": ""},
        GOOD | {"X-Hermes-Signature": GOOD["X-Hermes-Signature"].removeprefix("sha256=")},
        GOOD | {"X-Hermes-Signature": "sha256=" + "0" * 64},
        GOOD | {"X-Hermes-Signature": "sha256=é"},
        GOOD | {"X-Hermes-Timestamp": str(int(NOW) + 1)},
        GOOD | {"X-Hermes-Delivery": "d-2"},
        {name: value for name, value in GOOD.items() if name != "X-Hermes-Delivery"},
        signed(b'{"a": 2}', "d-1"),
        signed(BODY, "d-1", secret="another secret"),
        signed(BODY, "d-1", at=NOW - 301),
        signed(BODY, "d-1", at=NOW + 301),
        {"X-Hub-Signature-256": digest(BODY)},
        {
            "X-Hermes-Timestamp": "soon",
            "X-Hermes-Signature": digest(b"soon." + BODY),
        },
        {
            "X-Hermes-Timestamp": "-1",
            "X-Hermes-Signature": digest(b"-1." + BODY),
        },
    ],
)
def test_what_is_not_signed_by_who_knows_the_secret_now_is_refused(
    server: Server, headers: dict[str, str]
) -> None:
    answer = server.post(BODY, headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_signature")
    assert SECRET not in answer.text
    assert server.ingress.events == []


def test_a_request_is_good_to_the_edge_of_the_window(server: Server) -> None:
    assert server.post(BODY, signed(BODY, "a", at=NOW - 300)).status_code == 202
    assert server.post(BODY, signed(BODY, "b", at=NOW + 300)).status_code == 202


def test_each_hook_has_its_own_secret() -> None:
    hooks = {"build": {}, "own": {"secret": "only for this one"}}
    with serving(hooks) as server:
        assert server.post(BODY, signed(BODY, "a"), "own").status_code == 401
        mine = signed(BODY, "a", secret="only for this one")
        assert server.post(BODY, mine, "own").status_code == 202
        assert server.post(BODY, mine, "build").status_code == 401


_DEEP = b"[" * 5000 + b"]" * 5000


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff", b'"text"', b"7", b"payload=%7B%7D", b"null", _DEEP]
)
def test_a_body_that_is_no_object_and_no_list_is_refused(server: Server, body: bytes) -> None:
    answer = server.post(body, signed(body, "d-1"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")


@pytest.mark.parametrize("delivery", ["a b", "x" * 129, "a/b", "é"])
def test_a_delivery_id_that_is_none_is_refused(server: Server, delivery: str) -> None:
    answer = server.post(BODY, signed(BODY, delivery))
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_delivery")


def test_an_unknown_hook_another_method_and_a_large_body_are_refused() -> None:
    with serving({"build": {}}, body_limit_mb=1) as server:
        assert server.deliver({}, "d-1", name="nothing").status_code == 404
        assert httpx2.get(f"{server.adapter.url}/build").status_code == 405
        large = b"[" + b" " * 1_200_000 + b"]"
        assert server.post(large, signed(large, "d-1")).status_code == 413
        assert server.deliver([], "d-1").status_code == 202
        assert httpx2.get(server.adapter.url.replace("hooks", "health")).status_code == 200


def test_a_fault_of_ours_is_one_answer_and_the_server_goes_on(server: Server) -> None:
    server.ingress.error = ZeroDivisionError("a bug")
    assert server.deliver({}, "d-1").status_code == 500
    server.ingress.error = None
    assert server.deliver({}, "d-1").status_code == 202


# -- what the agent is told ------------------------------------------------------------------------


def test_the_prompt_is_filled_from_the_json_and_what_belongs_together_shares_a_conversation() -> (
    None
):
    hook = {
        "prompt": "Issue {issue.number} ({issue.labels.0.name}, {missing.field}): {issue.user}",
        "conversation": "{repo}#{issue.number}",
    }
    issue = {"number": 7, "labels": [{"name": "bug"}], "user": {"login": "ada"}}
    with serving({"build": hook}) as server:
        server.deliver({"repo": "hermes", "issue": issue}, "d-1")
        server.deliver({"repo": "hermes", "issue": issue}, "d-2")
        server.deliver({"repo": "a b/c", "issue": issue}, "d-3")
        server.deliver({"repo": "a_b/c", "issue": issue}, "d-4")
    assert server.ingress.events[0].text == 'Issue 7 (bug, ): {"login":"ada"}'
    assert server.ingress.events[0].options == {}
    chats = [event.source.chat_id for event in server.ingress.events if event.source]
    assert chats[0] == chats[1] == "build/hermes#7"
    assert len(set(chats)) == 3


def test_a_text_that_others_wrote_is_never_a_command() -> None:
    with serving({"build": {"prompt": "{comment}"}}) as server:
        server.deliver({"comment": "/new"}, "d-1")
        server.deliver({"comment": "  /stop"}, "d-2")
        server.deliver({}, "d-3")
    texts = [event.text for event in server.ingress.events]
    assert texts == ["Webhook build:\n/new", "Webhook build:\n  /stop", "Webhook build:\n"]
    assert not any(event.is_command() for event in server.ingress.events)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(template=st.text(max_size=40) | st.just("{a.0.b} {0} {a.} {.a} {{a}}"), value=JSON)
def test_any_template_can_be_filled_from_any_json(template: str, value: Any) -> None:
    assert isinstance(translate.render(template, value), str)
    if "{" not in template:
        assert translate.render(template, value) == template


# -- replies ---------------------------------------------------------------------------------------


@dataclass
class Receiver:
    """A server that replies are posted to."""

    statuses: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    posts: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    arrived: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    url: str = ""

    @contextmanager
    def open(self) -> Generator["Receiver"]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.posts.append((dict(self.headers.items()), body))
                receiver.arrived.release()
                status = receiver.statuses.pop(0) if receiver.statuses else 200
                if status == 0:
                    return  # hangs up without an answer
                self.send_response(status)
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Not on the terminal."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            self.url = f"http://127.0.0.1:{server.server_port}/replies"
            try:
                yield self
            finally:
                server.shutdown()
                thread.join(TIMEOUT_S)


def test_a_reply_is_posted_signed_and_under_the_name_of_its_piece() -> None:
    with Receiver().open() as receiver, serving({"build": {"deliver": receiver.url}}) as server:
        result = server.send("build/d-1")
        assert (result.success, result.message_id) == (True, "turn-1:0")
        assert server.send("build/d-1").success
    (headers, body), (again, _) = receiver.posts
    assert json.loads(body) == {"conversation": "build/d-1", "reply_to": "d-1", "text": "Fixed."}
    assert headers["X-Hermes-Delivery"] == again["X-Hermes-Delivery"] == "turn-1:0"
    named = f"{headers['X-Hermes-Timestamp']}.turn-1:0.".encode()
    assert headers["X-Hermes-Signature"] == digest(named + body)
    assert server.adapter.abilities.resend == "same"


def test_a_reply_of_a_hook_in_githubs_style_is_signed_in_that_style() -> None:
    hook = {"style": "github"}
    with Receiver().open() as receiver, serving({"g": hook | {"deliver": receiver.url}}) as server:
        assert server.send("g/d-1", key="a key/with änything").success
    ((headers, body),) = receiver.posts
    assert headers["X-Hub-Signature-256"] == digest(body)
    assert len(headers["X-Hermes-Delivery"]) == 64


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (429, "rate_limited"),
        (413, "too_long"),
        (500, "unsure"),
        (503, "unsure"),
        (408, "unsure"),
        (0, "unsure"),
        (301, "refused"),
        (400, "refused"),
        (410, "refused"),
    ],
)
def test_what_the_receiver_says_is_what_the_gateway_is_told(status: int, kind: str) -> None:
    with (
        Receiver([status]).open() as receiver,
        serving({"build": {"deliver": receiver.url}}) as server,
    ):
        result = server.send("build/d-1")
        assert (result.success, result.error_kind) == (False, kind)
        assert server.send("build/d-1").success


@pytest.mark.parametrize("status", [429, 503])
def test_a_receiver_that_wants_time_is_given_it(status: int) -> None:
    with (
        Receiver([status], {"Retry-After": "7"}).open() as receiver,
        serving({"build": {"deliver": receiver.url}}) as server,
    ):
        result = server.send("build/d-1")
    assert (result.error_kind, result.retry_after) == ("rate_limited", 7.0)


def test_a_receiver_that_is_not_there_did_not_get_it() -> None:
    with Receiver().open() as receiver:
        url = receiver.url
    with serving({"build": {"deliver": url}}) as server:
        assert server.send("build/d-1").error_kind == "network"


@pytest.mark.parametrize("is_there", [True, False])
def test_what_goes_wrong_with_a_post_names_the_receiver_without_what_lets_one_in_there(
    is_there: bool,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        url = f"http://me:password@127.0.0.1:{port}/services/path?token=query"
        if not is_there:
            silent.close()
        with serving({"build": {"deliver": url}}) as server:
            threading.Thread(target=_hang_up_on, args=[silent], daemon=True).start()
            result = server.send("build/d-1")
    assert result.error is not None and "127.0.0.1" in result.error
    assert not any(word in result.error for word in ("password", "path", "query"))


def _hang_up_on(listening: socket.socket) -> None:
    with suppress(OSError):
        listening.accept()[0].close()


def test_a_reply_that_nobody_wants_is_sent_and_one_of_a_hook_that_is_gone_refused() -> None:
    with serving({"build": {}}) as server:
        assert server.send("build/d-1").success
        assert server.send("gone/d-1").error_kind == "refused"


# -- settings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"hooks": {"build": {}}, "secret": ""},
        {"hooks": {"build": {"secret": "short"}}, "secret": ""},
        {"hooks": {"Build/x": {}}},
        {"hooks": {"build": {"deliver": "somewhere"}}},
        {"hooks": {"build": {"deliver": "file:///etc/passwd"}}},
        {"hooks": {"build": {"deliver": "http://[::1"}}},
    ],
)
def test_settings_that_cannot_work_are_a_fatal_error_that_says_what_to_do(table: Any) -> None:
    settings = msgspec.convert({"secret": SECRET} | table, WebhookSettings)
    with pytest.raises(PlatformError) as caught:
        MANIFEST.make(PlatformConfig(), settings, Path("unused"))
    assert caught.value.is_fatal
    assert caught.value.fix
