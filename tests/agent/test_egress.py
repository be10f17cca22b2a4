"""The way out of the sandbox: real namespaces and connections, a server of our own at the other end."""

import contextlib
import os
import shlex
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.sandbox import hosts as host_rules
from hermes_agent.sandbox.egress import Command, Egress, problem
from hermes_agent.sandbox.hosts import HostGrants, configured_hosts, matches
from hermes_agent.sandbox.network import NetworkNamespace, NetworkUnavailableError
from hermes_agent.sandbox.proxy import Destination, Proxy, Refusal
from hermes_agent.sandbox.sandboxes import AskHost
from hermes_agent.testing.scripted import call
from hermes_agent.tools.process import TOOL as PROCESS
from hermes_agent.tools.terminal import TOOL as TERMINAL
from hermes_agent.turn.events import Event, QuestionAsked
from hermes_core.errors import ToolDeniedError
from hermes_core.settings import AgentSettings, Settings, ToolSettings
from hermes_state import SessionDB
from hermes_state.ledger import questions
from tests.agent.conftest import Chat, MakeChat

GET = """
import sys, urllib.request, urllib.error
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""
TUNNEL = """
import http.client, os, sys
from base64 import b64encode
from urllib.parse import urlsplit
proxy, target = urlsplit(os.environ["HTTPS_PROXY"]), sys.argv[1]
login = b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
connection = http.client.HTTPConnection(proxy.hostname, proxy.port, timeout=10)
host, _, port = target.partition(":")
connection.set_tunnel(host, int(port), {"Proxy-Authorization": f"Basic {login}"})
connection.request("GET", "/tunnelled")
print(connection.getresponse().read().decode())
"""
CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)
    print("connected")
except OSError as error:
    print("refused", error)
"""


class Upstream(BaseHTTPRequestHandler):
    """Answers with the path it was asked for, and with what the proxy passed on."""

    def do_GET(self) -> None:
        body = f"{self.path} {self.headers.get('Proxy-Authorization', 'no credentials')}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        del format, args


@pytest.fixture
def upstream() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Upstream) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def namespace() -> Iterator[NetworkNamespace]:
    try:
        network_namespace = NetworkNamespace.make()
    except NetworkUnavailableError as error:
        pytest.skip(f"no network namespace here: {error}")
    with contextlib.closing(network_namespace):
        yield network_namespace


@contextlib.contextmanager
def start(namespace: NetworkNamespace, script: str, *arguments: str, **how: Any) -> Generator[Any]:
    """A process of Python in a namespace."""
    descriptors: list[int] = []
    words = [*namespace.enter(descriptors), sys.executable, "-I", "-c", script, *arguments]
    try:
        process = subprocess.Popen(words, pass_fds=descriptors, text=True, **how)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    with process:
        yield process


class Sandboxed:
    """Runs Python in a namespace whose way out follows these rules."""

    def __init__(self, namespace: NetworkNamespace, rules: Egress) -> None:
        self.namespace = namespace
        self.rules = rules
        self.proxy = Proxy(namespace.listener, rules.connect)
        self.notes: list[str] = []
        self.reached: list[str] = []

    def run(self, script: str, *arguments: str, ask: AskHost | None = None) -> str:
        self.rules.begin("token", Command((), ask, self.notes.append, self.reached.append))
        environment = self.proxy.environment("token") | {"NO_PROXY": "", "no_proxy": ""}
        streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with start(self.namespace, script, *arguments, env=environment, **streams) as process:
            output, _ = process.communicate(timeout=25)
        self.rules.end("token")
        return output.strip()


@contextlib.contextmanager
def sandboxed(
    namespace: NetworkNamespace, *allowed: str, granted: HostGrants | None = None
) -> Generator[Sandboxed]:
    grants = granted or HostGrants()
    box = Sandboxed(namespace, Egress(allowed, lambda: grants))
    with contextlib.closing(box.proxy):
        yield box


def test_a_host_in_the_settings_is_reached(namespace: NetworkNamespace, upstream: str) -> None:
    with sandboxed(namespace, upstream) as box:
        assert box.run(GET, f"http://{upstream}/plain?a=1") == "/plain?a=1 no credentials"
        assert box.run(TUNNEL, upstream) == "/tunnelled no credentials"
        assert box.reached == [upstream, upstream]


def test_nothing_is_reached_past_the_proxy(namespace: NetworkNamespace, upstream: str) -> None:
    host, _, port = upstream.partition(":")
    with sandboxed(namespace, upstream) as box:
        assert box.run(CONNECT, host, port).startswith("refused")
        assert box.run(CONNECT, "192.0.2.1", "80").startswith("refused")


def test_commands_share_the_loopback_and_others_do_not(namespace: NetworkNamespace) -> None:
    listen = (
        "import socket; s = socket.create_server(('127.0.0.1', 0));"
        " print(s.getsockname()[1], flush=True); s.accept()"
    )
    with start(namespace, listen, stdout=subprocess.PIPE) as server:
        port = server.stdout.readline().strip()
        with contextlib.closing(NetworkNamespace.make()) as other, sandboxed(other) as stranger:
            assert stranger.run(CONNECT, "127.0.0.1", port).startswith("refused")
        with sandboxed(namespace) as box:
            assert box.run(CONNECT, "127.0.0.1", port) == "connected"
        assert server.wait(10) == 0


def test_an_unknown_host_is_asked_for_once() -> None:
    asked_hosts: list[str] = []
    notes: list[str] = []
    hosts: set[str] = set()
    both_wait = threading.Barrier(2, timeout=20)

    def ask(host: str) -> None:
        asked_hosts.append(host)
        hosts.add(host)

    rules = Egress((), lambda: HostGrants(hosts))

    def reach() -> None:
        both_wait.wait()
        # The name leads to no public address, which is looked at after the question.
        with pytest.raises(Refusal, match="not known|private"):
            rules.connect(Destination("unknown.invalid", 443, "token"))

    rules.begin("token", Command((), ask, notes.append, notes.append))
    threads = [threading.Thread(target=reach) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(25)
    assert asked_hosts == ["unknown.invalid"]


def test_a_denial_reaches_the_command(namespace: NetworkNamespace) -> None:
    def ask(host: str) -> None:
        raise ToolDeniedError(f"The user did not allow {host}.")

    with sandboxed(namespace) as box:
        output = box.run(GET, "http://x.invalid:8080/", ask=ask)
        assert "403 The user did not allow x.invalid:8080" in output
        assert box.notes == ["no connection to x.invalid: The user did not allow x.invalid:8080."]


def test_where_no_one_can_be_asked_the_text_says_what_to_do(namespace: NetworkNamespace) -> None:
    with sandboxed(namespace) as box:
        assert "tools.allowed_hosts" in box.run(GET, "http://unknown.invalid/")


def test_an_allowed_name_that_leads_to_a_private_address_is_refused(
    namespace: NetworkNamespace, upstream: str
) -> None:
    granted = HostGrants(hosts=[upstream])
    with sandboxed(namespace, granted=granted) as box:
        assert "private network" in box.run(GET, f"http://{upstream}/")


def test_a_client_without_our_password_is_refused(
    namespace: NetworkNamespace, upstream: str
) -> None:
    strange = "import os; os.environ['http_proxy'] = os.environ['http_proxy'].replace('@', 'x@')\n"
    with sandboxed(namespace, upstream) as box:
        assert "Use the proxy address" in box.run(strange + GET, f"http://{upstream}/")


def test_a_client_that_waits_to_be_asked_for_credentials_is_asked(
    namespace: NetworkNamespace, upstream: str
) -> None:
    client = f"""
import http.client, os
from urllib.parse import urlsplit
proxy = urlsplit(os.environ["http_proxy"])
connection = http.client.HTTPConnection(proxy.hostname, proxy.port, timeout=10)
connection.request("GET", "http://{upstream}/")
answer = connection.getresponse()
print(answer.status, answer.headers["Proxy-Authenticate"])
"""
    with sandboxed(namespace, upstream) as box:
        assert box.run(client) == '407 Basic realm="hermes"'


def test_a_head_without_end_is_refused(namespace: NetworkNamespace) -> None:
    with sandboxed(namespace):
        flood = f"""
import socket
s = socket.create_connection(("127.0.0.1", {namespace.port}), 10)
try:
    for _ in range(2000): s.sendall(b"GET / HTTP/1.1\\r\\nX: " + b"x" * 1000)
    print(s.recv(100))
except OSError: print("closed")
"""
        with start(namespace, flood, stdout=subprocess.PIPE) as client:
            output, _ = client.communicate(timeout=25)
        assert "too long" in output or "closed" in output


def test_preset_hosts_are_asked_for_when_there_is_something_to_lose() -> None:
    hosts: list[str] = []

    def ask(host: str) -> None:
        hosts.append(host)
        raise ToolDeniedError("No.")

    rules = Egress((), lambda: HostGrants(asks_for_all=True))
    rules.begin("token", Command((), ask, lambda _note: None, lambda _host: None))
    with pytest.raises(Refusal, match="No"):
        rules.connect(Destination("github.com", 443, "token"))
    assert hosts == ["github.com"]


@pytest.mark.parametrize(
    ("entry", "host", "port", "fits"),
    [
        ("example.com", "example.com", 443, True),
        ("example.com", "www.example.com", 443, False),
        ("example.com", "example.com", 22, False),
        ("example.com:22", "example.com", 22, True),
        ("example.com:22", "example.com", 443, False),
        ("*.example.com", "www.example.com", 80, True),
        ("*.example.com", "example.com", 80, False),
        ("*.example.com", "evilexample.com", 80, False),
        ("Example.com", "example.com", 80, True),
    ],
)
def test_entries_name_hosts(entry: str, host: str, port: int, fits: bool) -> None:
    assert matches([entry], host, port) is fits


@pytest.fixture
def no_answers() -> Iterator[None]:
    """Forget what the package tools of this machine said."""
    yield
    host_rules._registries.cache_clear()


@pytest.mark.usefixtures("no_answers")
def test_servers_of_package_tools_come_from_their_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text("#!/bin/sh\necho https://me:secret@mirror.invalid:8443/; cat .npmrc\n")
    npm.chmod(0o755)
    (tmp_path / ".npmrc").write_text("registry = https://in-the-workspace.invalid/\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{npm.parent}:/usr/bin:/bin")
    monkeypatch.setattr(host_rules, "_CONFIGURATIONS", [("npm", ("config", "get", "registry"))])
    host_rules._registries.cache_clear()
    assert configured_hosts() == {"mirror.invalid:8443"}
    cargo = npm.with_name("cargo")
    cargo.write_text("#!/bin/sh\n")
    cargo.chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".cargo").mkdir()
    (tmp_path / ".cargo/config.toml").write_text(
        '[source.mirror]\nregistry = "sparse+https://crates.invalid/index/"\n'
    )
    host_rules._registries.cache_clear()
    assert configured_hosts() == {"crates.invalid", "mirror.invalid:8443"}


def test_closing_the_proxy_ends_its_connections(namespace: NetworkNamespace) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as silent:
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        with sandboxed(namespace, host) as box:
            box.rules.begin("token", Command((), None, box.notes.append, box.reached.append))
            quiet: dict[str, Any] = dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL)
            environment = box.proxy.environment("token")
            with start(namespace, TUNNEL, host, env=environment, **quiet) as client:
                connection, _ = silent.accept()
                box.proxy.close()
                assert client.wait(20) != 0
                connection.close()


needs_bwrap = pytest.mark.skipif(
    shutil.which("bwrap") is None or bool(problem()),
    reason="bubblewrap with a network namespace does not work here",
)
FETCH = f"{sys.executable} -c {shlex.quote(GET)}"


def ask_chat(
    make_chat: MakeChat, store: SessionDB, answer: str, commands: Sequence[str], **tools: Any
) -> Chat:
    """Let a model run commands in the sandbox; a person answers every question."""
    settings = Settings(
        agent=AgentSettings(titles=False), tools=ToolSettings(network="ask", **tools)
    )
    script = [*(call("terminal", command=command) for command in commands), "done"]
    chat = make_chat(script, [TERMINAL], settings=settings, can_ask=True)
    record = chat.agent.sink

    def sink(event: Event) -> None:
        record(event)
        if isinstance(event, QuestionAsked):
            store.write(questions.answer, event.question_id, answer, by="tester")

    chat.agent.sink = sink
    chat.say()
    return chat


def outputs(chat: Chat) -> list[str]:
    return [text for role, text in chat.transcript() if role == "tool"]


@needs_bwrap
def test_a_command_reaches_allowed_hosts_only(
    make_chat: MakeChat, store: SessionDB, upstream: str
) -> None:
    command = f"NO_PROXY= no_proxy= {FETCH} http://{upstream}/from-inside"
    chat = ask_chat(make_chat, store, "deny", [command], allowed_hosts=[upstream])
    assert outputs(chat) == ["/from-inside no credentials"]
    assert not chat.sink.of(QuestionAsked)


@needs_bwrap
def test_a_person_is_asked_for_a_host_while_the_command_runs(
    make_chat: MakeChat, store: SessionDB
) -> None:
    command = f"{FETCH} http://unknown.invalid/"
    chat = ask_chat(make_chat, store, "deny", [command])
    (question,) = chat.sink.of(QuestionAsked)
    assert question.text == (
        "Connects to unknown.invalid\n"
        '"For this conversation" and "always" cover any command that connects to unknown.invalid.'
    )
    assert question.detail == command
    assert "no connection to unknown.invalid: The user did not allow this call." in outputs(chat)[0]


@needs_bwrap
def test_a_lasting_yes_for_a_host_holds_for_other_commands(
    make_chat: MakeChat, store: SessionDB
) -> None:
    commands = [f"{FETCH} http://unknown.invalid/{path}" for path in ("one", "two")]
    chat = ask_chat(make_chat, store, "session", commands)
    assert len(chat.sink.of(QuestionAsked)) == 1
    assert all("The name unknown.invalid is not known" in output for output in outputs(chat))


@pytest.fixture
def ssh_server() -> Iterator[tuple[int, list[bytes]]]:
    """A server that hears how a client of ssh begins, and hangs up."""
    requests: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = server.accept()
                    with client:
                        client.sendall(b"SSH-2.0-test\r\n")
                        requests.append(client.recv(100))

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1], requests


@needs_bwrap
@pytest.mark.skipif(shutil.which("ssh") is None, reason="ssh is not installed")
def test_ssh_and_git_over_ssh_use_the_proxy(
    make_chat: MakeChat, store: SessionDB, ssh_server: tuple[int, list[bytes]]
) -> None:
    port, requests = ssh_server
    commands = [
        f"ssh -p {port} -o BatchMode=yes me@127.0.0.1 true",
        f"git ls-remote ssh://me@127.0.0.1:{port}/x.git",
        "ssh -p 1 -o BatchMode=yes me@192.0.2.1 true",
    ]
    chat = ask_chat(make_chat, store, "once", commands, allowed_hosts=[f"127.0.0.1:{port}"])
    assert [hello[:8] for hello in requests] == [b"SSH-2.0-"] * 2
    texts = [question.text for question in chat.sink.of(QuestionAsked)]
    assert len(texts) == len(commands)
    assert f"reach 127.0.0.1:{port}" in texts[0]
    assert f"Uses your SSH keys to reach 127.0.0.1:{port}" in texts[1]
    assert "private network" in outputs(chat)[2]


@needs_bwrap
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_over_http_uses_the_proxy(make_chat: MakeChat, store: SessionDB, upstream: str) -> None:
    commands = [
        f"NO_PROXY= no_proxy= git ls-remote http://{upstream}/x.git",
        "git clone https://unknown.invalid/x.git",
    ]
    chat = ask_chat(make_chat, store, "deny", commands, allowed_hosts=[upstream])
    assert "fatal" not in outputs(chat)[0]
    (question,) = chat.sink.of(QuestionAsked)
    assert question.text.startswith("Connects to unknown.invalid\n")
    assert "no connection to unknown.invalid" in outputs(chat)[1]


@needs_bwrap
def test_a_command_in_the_background_cannot_ask(make_chat: MakeChat, store: SessionDB) -> None:
    command = f"{FETCH} http://unknown.invalid/"
    settings = Settings(agent=AgentSettings(titles=False), tools=ToolSettings(network="ask"))
    script = [
        call("terminal", command=command, background=True),
        call("process", action="wait", id="p1", seconds=20),
        "done",
    ]
    chat = make_chat(script, [TERMINAL, PROCESS], settings=settings, can_ask=True)
    chat.say()
    assert "no one can be asked now" in outputs(chat)[1]
