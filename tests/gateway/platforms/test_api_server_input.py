"""What the API refuses, and that nothing it is sent ends it."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.gateway.platforms.scripted_ingress import TIMEOUT_S
from tests.gateway.platforms.test_api_server import PIXEL, TOKEN, Server, serving, user
from tests.support.clients import openai
from tests.support.examples import examples


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path) as running_server:
        yield running_server


def picture(url: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [picture_part(url)]}]}


def picture_part(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}
BAD = [
    (b"", "invalid_json", None),
    (b"{", "invalid_json", None),
    (b'{"metadata": ' + b"[" * 5000 + b"]" * 5000 + b"}", "invalid_json", None),
    (b"\xff\xfe", "invalid_json", None),
    (b'{"model": "\xff"}', "invalid_json", None),
    ([], "invalid_value", None),
    ({}, "invalid_value", None),
    ({"messages": "hi"}, "invalid_value", "messages"),
    ({"messages": []}, "invalid_value", "messages"),
    ({"messages": [1]}, "invalid_value", "messages[0]"),
    ({"messages": [{"content": "hi"}]}, "invalid_value", "messages[0]"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "invalid_value", "messages[0].role"),
    ({"messages": [{"role": "user", "content": 7}]}, "invalid_value", "messages[0].content"),
    ({"messages": [{"role": "user"}]}, "invalid_value", "messages[0].content"),
    ({"messages": user("  \n")}, "invalid_value", "messages[0].content"),
    ({"messages": [{"role": "assistant", "content": "x"}]}, "invalid_value", "messages"),
    ({"messages": [{"role": "system", "content": "x"}]}, "invalid_value", "messages"),
    (
        {"messages": [{"role": "user", "content": [{"type": "video", "url": "x"}]}]},
        "invalid_value",
        "messages[0].content[0].type",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        "invalid_value",
        "messages[0].content[0]",
    ),
    (picture("https://example.org/a.png"), "invalid_image_url", "messages[0].content[0].image_url"),
    (picture("file:///etc/passwd"), "invalid_image_url", "messages[0].content[0].image_url"),
    (
        picture("data:text/html;base64,AAAA"),
        "invalid_image_url",
        "messages[0].content[0].image_url",
    ),
    (picture("data:image/png;base64,%%%"), "invalid_image", "messages[0].content[0].image_url"),
    (picture("data:image/png;base64,"), "invalid_image", "messages[0].content[0].image_url"),
    ({"messages": user("hi"), "stream": "yes"}, "invalid_value", "stream"),
    ({"messages": user("hi"), "model": 5}, "invalid_value", "model"),
    ({"messages": user("hi"), "n": 2}, "unsupported_parameter", "n"),
    ({"messages": user("hi"), "tools": [TOOL]}, "unsupported_parameter", "tools"),
    ({"messages": user("hi"), "functions": [{}]}, "unsupported_parameter", "functions"),
    (
        {"messages": user("hi"), "response_format": {"type": "grammar"}},
        "unsupported_parameter",
        "response_format",
    ),
    (
        {"messages": user("hi"), "response_format": {"type": "json_schema"}},
        "invalid_value",
        "response_format",
    ),
]


@pytest.mark.parametrize(("body", "code", "param"), BAD)
def test_a_bad_body_is_refused_with_the_place_and_the_reason(
    server: Server, body: Any, code: str, param: str | None
) -> None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = server.post(content=raw)
    error = answer.json()["error"]
    assert answer.status_code == 400
    assert (error["code"], error["param"], error["type"]) == (code, param, "invalid_request_error")
    assert error["message"]
    assert server.ingress.events == []


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, None),
        ({"input": 5}, "input"),
        ({"input": []}, "input"),
        ({"input": ""}, "input[0].content"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].type"),
        ({"input": [{"type": "reasoning", "role": "user"}]}, "input"),
        ({"input": "x", "metadata": {"a": 1}}, "metadata[...]"),
        ({"input": "x", "tools": [TOOL]}, "tools"),
        ({"input": "x", "text": {"format": {"type": "json_schema"}}}, "text.format"),
    ],
)
def test_a_bad_response_is_refused_likewise(server: Server, body: Any, param: str | None) -> None:
    answer = server.post("responses", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert server.ingress.events == []


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Hermes-Conversation": "../up"},
        {"X-Hermes-Conversation": "session:1"},
        {"X-Hermes-Conversation": "a" * 129},
        {"X-Hermes-Conversation": "a\x00b"},
        {"X-Hermes-Conversation": "a", "X-Hermes-Session-Id": "b"},
        {"X-Hermes-Session-Id": "a/../b"},
        {"Idempotency-Key": "k" * 256},
    ],
)
def test_a_bad_name_of_a_conversation_or_a_key_is_refused(
    server: Server, headers: dict[str, str]
) -> None:
    if any("\x00" in value for value in headers.values()):
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        assert b" 400 " in raw(server, lines.encode()).split(b"\r\n")[0]
        return
    answer = server.post(json={"messages": user("hi")}, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_header"
    assert server.ingress.events == []


def test_tools_that_are_not_to_be_used_or_that_are_ignored_are_no_error(tmp_path: Path) -> None:
    with serving(tmp_path / "a") as server:
        body = {"messages": user("hi"), "tools": [TOOL], "tool_choice": "none"}
        assert server.post(json=body).status_code == 200
        assert server.post(json={"messages": user("hi"), "tools": []}).status_code == 200
    with serving(tmp_path / "b", client_tools="ignore") as server:
        assert server.post(json={"messages": user("hi"), "tools": [TOOL]}).status_code == 200


def test_what_only_concerns_the_sampling_is_not_looked_at(server: Server) -> None:
    answer = server.client().chat.completions.create(
        model="hermes",
        messages=user("hi"),
        temperature=0.1,
        max_tokens=5,
        seed=1,
        stop=["x"],
        extra_body={"whatever": {"is": ["new"]}},
    )
    assert answer.choices[0].message.content


def test_a_picture_that_is_too_large_for_the_gateway_is_refused(server: Server) -> None:
    answer = server.post(json=picture("data:image/png;base64," + "A" * 1_400_000))
    assert answer.status_code == 400
    assert "larger" in answer.json()["error"]["message"]


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_that_is_too_large_is_refused(tmp_path: Path, is_chunked: bool) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(24):
            yield b" " * 65536

    with serving(tmp_path, body_limit_mb=1) as server:
        content: Any = chunks() if is_chunked else b" " * (24 * 65536)
        answer = server.post(content=content)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
        assert server.post(json={"messages": user("hi")}).status_code == 200


def test_a_body_that_does_not_come_is_not_waited_for(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.platforms.listener._BODY_TIMEOUT_S", 0.05)
    assert b" 408 " in raw(server, b"Content-Length: 10\r\n").split(b"\r\n")[0]


def test_a_body_that_is_still_on_its_way_when_the_gateway_stops_is_to_be_sent_again(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S) as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
            + f"Authorization: Bearer {TOKEN}\r\nContent-Length: 10\r\n\r\n".encode()
        )
        assert b" 100 " in connection.recv(65536)  # it is being read
        server.loop.run(server.adapter.disconnect())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert b" 503 " in answer.split(b"\r\n")[0]
    assert b"retry-after: " in answer.lower() and b'"code":"restarting"' in answer
    assert "Traceback" not in caplog.text


def raw(server: Server, headers: bytes, rest: bytes = b"") -> bytes:
    """What comes back for a request that no client would make, until the connection is closed."""
    with socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S) as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            + f"Authorization: Bearer {TOKEN}\r\n".encode()
            + headers
            + b"\r\n"
            + rest
        )
        return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.mark.parametrize("junk", [b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00"])
def test_junk_on_the_wire_harms_nobody(server: Server, junk: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S) as connection:
        connection.sendall(junk)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass
    assert server.post(json={"messages": user("hi")}).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/chat/completions", 405),
        ("DELETE", "/v1/models", 405),
        ("GET", "/v1/nothing", 404),
        ("POST", "/v1/embeddings", 404),
        ("GET", "/", 404),
        ("GET", "/v1/models/unknown", 404),
    ],
)
def test_what_is_not_there_is_an_error_in_the_same_shape(
    server: Server, method: str, path: str, status: int
) -> None:
    url = server.adapter.url.removesuffix("/v1") + path
    answer = httpx2.request(method, url, headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


# -- who may ask ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x"]
)
def test_nobody_is_let_in_without_the_token(server: Server, authorization: str) -> None:
    for path in ("chat/completions", "responses", "models"):
        answer = server.post(
            path, json={"messages": user("hi")}, headers={"Authorization": authorization}
        )
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
        assert TOKEN not in answer.text
    with pytest.raises(openai.AuthenticationError):
        server.client(api_key="wrong").models.list()
    assert server.ingress.events == []


def test_the_health_can_be_asked_for_without_a_token(server: Server) -> None:
    answer = httpx2.get(server.adapter.url.removesuffix("v1") + "health")
    assert answer.json() == {"status": "ok"}


@pytest.mark.parametrize(
    ("host", "is_let_in"),
    [
        ("localhost", True),
        ("LOCALHOST:8642", True),
        ("127.0.0.1:1", True),
        ("[::1]:8642", True),
        ("192.168.1.5:8642", True),
        ("hermes.lan", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost@evil.example", False),
        ("[::1", False),
        ("", False),
    ],
)
def test_a_name_that_somebody_made_point_here_is_refused(
    tmp_path: Path, host: str, is_let_in: bool
) -> None:
    with serving(tmp_path, hosts=["hermes.lan"]) as server:
        for path in ("/v1/models", "/health"):
            answer = httpx2.get(
                server.adapter.url.removesuffix("/v1") + path,
                headers={"Host": host, "Authorization": f"Bearer {TOKEN}"},
            )
            assert answer.status_code == (200 if is_let_in else 403)


@pytest.mark.parametrize(
    ("origin", "is_let_in"),
    [
        ("http://localhost:3000", True),
        ("http://127.0.0.1", True),
        ("https://chat.example", True),
        ("https://evil.example", False),
        ("https://chat.example.evil", False),
        ("null", False),
        ("http://192.168.1.5", False),
    ],
)
def test_a_page_from_elsewhere_is_refused(tmp_path: Path, origin: str, is_let_in: bool) -> None:
    with serving(tmp_path, origins=["https://chat.example"]) as server:
        answer = server.post(json={"messages": user("hi")}, headers={"Origin": origin})
        assert answer.status_code == (200 if is_let_in else 403)
        is_told = answer.headers.get("access-control-allow-origin") == origin
        assert is_told is (origin == "https://chat.example")


def test_a_page_that_is_known_can_read_every_answer(tmp_path: Path) -> None:
    with serving(tmp_path, origins=["https://Chat.example/"]) as server:
        page = {"Origin": "https://chat.example"}
        answers = [
            server.post(json={"messages": user("hi")}, headers=page),
            server.post(json={"messages": []}, headers=page),
            server.post(
                json={"messages": user("hi")}, headers=page | {"Authorization": "Bearer no"}
            ),
            server.post("nowhere", headers=page),
        ]
    assert [answer.status_code for answer in answers] == [200, 400, 401, 404]
    for answer in answers:
        assert answer.headers.get("access-control-allow-origin") == "https://chat.example"
        exposed = answer.headers["access-control-expose-headers"]
        assert {"X-Should-Retry", "Retry-After"} < set(exposed.split(", "))


def test_a_browser_may_ask_beforehand_for_a_page_that_is_known(tmp_path: Path) -> None:
    with serving(tmp_path, origins=["https://chat.example"]) as server:
        answer = httpx2.options(
            f"{server.adapter.url}/chat/completions",
            headers={
                "Origin": "https://chat.example",
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization, content-type",
            },
        )
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == "https://chat.example"


# -- anything at all --------------------------------------------------------------------------------

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
ROLES = st.sampled_from(["user", "assistant", "system", "tool", ""])
PARTS = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image_url", "input_text", "x"])},
    optional={"text": JSON, "image_url": JSON | st.just({"url": PIXEL})},
)
MESSAGE = st.fixed_dictionaries(
    {"role": ROLES}, optional={"content": JSON | st.text() | st.lists(PARTS, max_size=3)}
)
NAMES = ["model", "stream", "n", "tools", "tool_choice", "instructions", "previous_response_id"]
BODY = st.fixed_dictionaries(
    {}, optional={"messages": st.lists(MESSAGE, max_size=4) | JSON} | dict.fromkeys(NAMES, JSON)
)


@settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(body=BODY | JSON, path=st.sampled_from(["chat/completions", "responses"]))
def test_whatever_is_sent_gets_an_answer_in_the_right_shape(
    server: Server, body: Any, path: str
) -> None:
    if path == "responses" and isinstance(body, dict) and "messages" in body:
        body = {**body, "input": body["messages"]}
    answer = server.post(path, json=body)
    assert answer.status_code in (200, 400, 404)
    if answer.status_code != 200:
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(body=st.binary(max_size=200))
def test_bytes_that_mean_nothing_are_refused(server: Server, body: bytes) -> None:
    assert server.post(content=body).status_code == 400
