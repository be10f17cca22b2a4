"""HTTP itself: events, proxies, certificates, connections that are kept."""

import re
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_agent.models.base import Request
from hermes_agent.models.event_stream import payloads
from hermes_agent.models.http_client import Endpoint
from hermes_agent.models.proxy import proxy_for
from hermes_agent.testing.scripted import TIMEOUT_S
from hermes_agent.turn.events import ignore
from hermes_agent.turn.stop import Stop
from hermes_core.config import Proxies, proxies
from hermes_core.errors import ConfigError, ModelError, ModelUnreachableError
from tests.agent.models.conftest import Make

HELLO = Request("You help.", [], [{"role": "user", "content": "hello"}])
REPLY = b'{"choices":[{"message":{"content":"Hi."},"finish_reason":"stop"}]}'


@given(
    st.lists(st.binary(min_size=1).filter(lambda b: b.strip() == b and not set(b) & {10, 13})),
    st.sampled_from([b"\n", b"\r\n"]),
    st.integers(1, 40),
)
def test_events_are_the_same_however_the_bytes_are_cut(data: list[bytes], end: bytes, size: int):
    stream = b": hello" + end + end
    for payload in data:
        stream += b"event: x" + end + b"data: " + payload + end + b"id: 7" + end + end
    chunks = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert list(payloads(chunks)) == data


def test_an_event_may_have_several_lines_and_no_end():
    assert list(payloads([b"data: a\ndata:b\n\ndata: c"])) == [b"a\nb", b"c"]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:8080",
        "ftp://x/v1",
        "http://",
        "http://x:99999/v1",
        "http://x:a/v1",
        f"http://{'ä' * 64}.test/v1",
    ],
)
def test_an_address_that_is_none_is_refused(url: str):
    with pytest.raises(ConfigError, match="not a valid address"):
        Endpoint(url, {}, provider="x")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://api.test/v1", "http://secure:3128"),
        ("http://api.test/v1", "http://plain:3128"),
        ("http://127.0.0.1:8080/v1", ""),
        ("http://localhost/v1", ""),
        ("https://inside.corp/v1", ""),
        ("https://deep.inside.corp/v1", ""),
        ("https://notinside.corp/v1", "http://secure:3128"),
        ("https://10.1.2.3/v1", ""),
        ("https://exact.test:8443/v1", ""),
    ],
)
def test_the_proxy_is_chosen_as_other_tools_do(url: str, expected: str):
    proxies = Proxies(
        http_proxy="http://plain:3128",
        https_proxy="secure:3128",
        no_proxy=" .inside.corp, 10.0.0.0/8 ,exact.test:8443",
    )
    assert proxy_for(url, proxies) == expected


def test_one_proxy_may_be_for_all_and_none_for_anybody():
    assert proxy_for("https://a.test", Proxies(all_proxy="http://p:1")) == "http://p:1"
    assert proxy_for("https://a.test", Proxies(all_proxy="http://p:1", no_proxy="*")) == ""


def test_small_letters_win_in_the_environment():
    env = {"HTTP_PROXY": "big", "http_proxy": "small", "NO_PROXY": "x"}
    assert proxies(env) == Proxies(http_proxy="small", no_proxy="x")


class Once:
    """Takes one connection, keeps its first bytes, answers with what it was given."""

    def __init__(self, answer: bytes, context: ssl.SSLContext | None = None) -> None:
        self.received = b""
        self._answer = answer
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(TIMEOUT_S)
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        line, _ = self._listener.accept()
        line.settimeout(TIMEOUT_S)
        try:
            if self._context is not None:
                line = self._context.wrap_socket(line, server_side=True)
            self.received = _receive(line)
            line.sendall(self._answer)
        except OSError:
            pass  # the other side did not like what it saw
        finally:
            line.close()

    def close(self) -> None:
        self._listener.close()
        self._thread.join(TIMEOUT_S)


def _is_whole(request: bytes) -> bool:
    """Whether a request has come to its end; one that is answered too early is cut by the system."""
    head, end, body = request.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head.lower())
    return bool(end) and len(body) >= (int(length[1]) if length else 0)


def answer_of(body: bytes, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def once() -> Iterator[Any]:
    servers: list[Once] = []

    def make(answer: bytes, context: ssl.SSLContext | None = None) -> Once:
        servers.append(Once(answer, context))
        return servers[-1]

    yield make
    for server in servers:
        server.close()


def test_a_plain_address_is_asked_through_the_proxy(
    once: Any, connect: Make, monkeypatch: pytest.MonkeyPatch
):
    proxy = once(answer_of(REPLY))
    monkeypatch.setenv("http_proxy", f"http://me:secret@127.0.0.1:{proxy.port}")
    assert connect("openai", "http://model.test").ask(HELLO, Stop(), ignore).text == "Hi."
    assert proxy.received.startswith(b"POST http://model.test/v1/chat/completions HTTP/1.1")
    assert b"roxy-authorization: basic" in proxy.received.lower()


def test_a_safe_address_is_asked_through_a_tunnel(
    once: Any, connect: Make, monkeypatch: pytest.MonkeyPatch
):
    proxy = once(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.port}")
    with pytest.raises(ModelUnreachableError) as caught:
        connect("openai", "https://model.test").ask(HELLO, Stop(), ignore)
    assert proxy.received.startswith(b"CONNECT model.test:443")
    assert "proxy" in caught.value.fix


def test_the_inside_of_a_tunnel_is_the_servers_own(
    once: Any, connect: Make, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    server, received = once(answer_of(REPLY), context), list[bytes]()

    def let_through(listener: socket.socket) -> None:
        line, _ = listener.accept()
        with line, socket.create_connection(("127.0.0.1", server.port)) as far:
            received.append(_receive(line))
            line.sendall(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")
            back = threading.Thread(target=_pass_on, args=(far, line), daemon=True)
            back.start()
            _pass_on(line, far)
            back.join(TIMEOUT_S)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=let_through, args=(listener,), daemon=True)
        thread.start()
        proxy = f"http://me:p%40ss@127.0.0.1:{listener.getsockname()[1]}"
        monkeypatch.setenv("https_proxy", proxy)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        monkeypatch.setattr("hermes_agent.models.proxy._is_this_machine", lambda _host: False)
        model = connect("openai", f"https://127.0.0.1:{server.port}")
        assert model.ask(HELLO, Stop(), ignore).text == "Hi."
        thread.join(TIMEOUT_S)
    assert received[0].startswith(f"CONNECT 127.0.0.1:{server.port} HTTP/1.1".encode())
    assert b"Proxy-Authorization: Basic bWU6cEBzcw==" in received[0]
    assert server.received.startswith(b"POST /v1/chat/completions")


def test_a_proxy_that_speaks_something_else_is_named(
    connect: Make, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("all_proxy", "socks5://127.0.0.1:1080")
    with pytest.raises(ModelUnreachableError, match="socks5:// proxies are not supported"):
        connect("openai", "http://model.test").ask(HELLO, Stop(), ignore)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", key]
        + ["-out", cert, "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True,
        capture_output=True,
    )
    return cert, key


def test_a_certificate_that_nobody_vouches_for_is_refused(
    once: Any, connect: Make, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    server = once(answer_of(REPLY), context)
    with pytest.raises(ModelUnreachableError, match="certificate is not trusted"):
        connect("openai", f"https://127.0.0.1:{server.port}").ask(HELLO, Stop(), ignore)


def test_a_certificate_that_is_trusted_is_accepted(
    once: Any, connect: Make, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    server = once(answer_of(REPLY), context)
    model = connect("openai", f"https://127.0.0.1:{server.port}")
    assert model.ask(HELLO, Stop(), ignore).text == "Hi."
    assert server.received.startswith(b"POST /v1/chat/completions")


def test_a_sink_that_fails_is_not_taken_for_the_server(once: Any, connect: Make):
    server = once(answer_of(REPLY))

    def broken(_event: object) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        connect("openai", f"http://127.0.0.1:{server.port}").ask(HELLO, Stop(), broken)


def test_a_server_that_hangs_up_without_a_word_is_told(once: Any, connect: Make):
    server = once(b"")
    with pytest.raises(ModelUnreachableError, match="cut the connection") as caught:
        connect("openai", f"http://127.0.0.1:{server.port}").ask(HELLO, Stop(), ignore)
    assert caught.value.retryable


def test_a_body_that_ends_too_early_is_told(once: Any, connect: Make):
    server = once(answer_of(REPLY)[:-10])
    with pytest.raises(ModelUnreachableError, match="cut the connection"):
        connect("openai", f"http://127.0.0.1:{server.port}").ask(HELLO, Stop(), ignore)


@pytest.mark.parametrize(
    ("answer", "why", "cause"),
    [
        (b"", "it closed without a response", "RemoteDisconnected"),
        (CHUNKED + b"5\r\nda", "the response broke off in the middle", "IncompleteRead"),
        (CHUNKED, "the response broke off in the middle", "IncompleteRead"),
        (b"nonsense\r\n\r\n", "its response is not HTTP", "BadStatusLine"),
    ],
)
def test_how_a_connection_was_cut_is_told_in_words_and_its_cause_is_in_the_log(
    once: Any,
    connect: Make,
    caplog: pytest.LogCaptureFixture,
    answer: bytes,
    why: str,
    cause: str,
):
    caplog.set_level("INFO")
    with pytest.raises(ModelUnreachableError) as caught:
        connect("openai", f"http://127.0.0.1:{once(answer).port}").ask(HELLO, Stop(), ignore)
    assert caught.value.message.endswith(f"cut the connection: {why}.")
    assert cause in caplog.text


def test_what_a_server_says_while_it_is_still_told_is_heard(connect: Make):
    refusal = answer_of(b'{"error":{"message":"too much"}}', "413 Payload Too Large")

    def serve(listener: socket.socket) -> None:
        line, _ = listener.accept()
        with line:
            line.settimeout(TIMEOUT_S)
            line.recv(1000)
            line.sendall(refusal)
            line.shutdown(socket.SHUT_RDWR)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(TIMEOUT_S)
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        model = connect("openai", f"http://127.0.0.1:{listener.getsockname()[1]}")
        long = HELLO._replace(messages=[{"role": "user", "content": "x" * 20_000_000}])
        with pytest.raises(ModelError, match="too much"):
            model.ask(long, Stop(), ignore)
        thread.join(TIMEOUT_S)


@pytest.mark.parametrize("key", ["sk-1\r\nX-Other: yes", "\u201csk-1\u201d"])
def test_a_key_that_cannot_be_sent_is_named_before_anything_is(key: str):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        endpoint = Endpoint(url, {"Authorization": key}, provider="x")
        with pytest.raises(ModelError, match="Authorization header for x") as caught:
            endpoint.get("/models", Stop(), timeout_s=1)
        assert "Enter the key again" in caught.value.fix
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_a_connection_serves_again_until_its_endpoint_is_closed():
    response = answer_of(b"{}").replace(b"Connection: close\r\n", b"")
    ends: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        line, _ = listener.accept()
        with line:
            line.settimeout(TIMEOUT_S)
            for _ in range(2):
                _receive(line)
                line.sendall(response)
            ends.append(line.recv(1))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(TIMEOUT_S)
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        endpoint = Endpoint(url, {}, provider="x")
        assert endpoint.get("/a", Stop(), timeout_s=TIMEOUT_S).body == b"{}"
        assert endpoint.get("/b", Stop(), timeout_s=TIMEOUT_S).body == b"{}"
        endpoint.close()
        thread.join(TIMEOUT_S)
    assert ends == [b""]


def test_a_request_is_not_sent_again_once_a_byte_of_its_response_came(connect: Make):
    response = answer_of(REPLY).replace(b"Connection: close\r\n", b"")
    received: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        line, _ = listener.accept()
        with line:
            line.settimeout(TIMEOUT_S)
            received.append(_receive(line))
            line.sendall(response)
            received.append(_receive(line))
            line.sendall(b"HTT")  # and close

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        model = connect("openai", f"http://127.0.0.1:{listener.getsockname()[1]}")
        assert model.ask(HELLO, Stop(), ignore).text == "Hi."
        with pytest.raises(ModelUnreachableError, match="cut the connection"):
            model.ask(HELLO, Stop(), ignore)
        thread.join(TIMEOUT_S)
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert len(received) == 2


def test_a_connection_that_was_dead_already_is_made_anew(connect: Make):
    response = answer_of(REPLY).replace(b"Connection: close\r\n", b"")
    served: list[int] = []

    def serve(listener: socket.socket) -> None:
        for number in range(2):
            line, _ = listener.accept()
            with line:
                line.settimeout(TIMEOUT_S)
                _receive(line)
                line.sendall(response)
                served.append(number)
                if number == 0:
                    _receive(line)  # and hang up, as if nothing had come

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(TIMEOUT_S)
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        model = connect("openai", f"http://127.0.0.1:{listener.getsockname()[1]}")
        assert model.ask(HELLO, Stop(), ignore).text == "Hi."
        assert model.ask(HELLO, Stop(), ignore).text == "Hi."
        thread.join(TIMEOUT_S)
    assert served == [0, 1]


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    while data := source.recv(65536):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)


def _receive(line: socket.socket) -> bytes:
    received = b""
    while not _is_whole(received):
        received += line.recv(65536)
    return received
