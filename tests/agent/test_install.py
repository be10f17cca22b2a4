"""Installing packages and running tests, as the agent does it every day: at most one question.

The registry is a server of ours, which the person's pip and npm are configured for.
"""

import hashlib
import io
import json
import shutil
import sys
import tarfile
import threading
import zipfile
from base64 import b64encode
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from hermes_agent.approval.danger.kinds import REGISTRIES_KEY
from hermes_agent.sandbox import egress, hosts
from hermes_agent.sandbox.egress import problem
from hermes_agent.testing.scripted import Step, call
from hermes_agent.tools.read_file import TOOL as READ_FILE
from hermes_agent.tools.terminal import TOOL as TERMINAL
from hermes_agent.turn.events import QuestionAsked
from hermes_core.paths import Home
from hermes_core.settings import AgentSettings, Settings
from hermes_state import SessionDB
from hermes_state.ledger import questions
from tests.agent.conftest import MakeChat, Person

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.promise("P7"),
    pytest.mark.skipif(
        shutil.which("bwrap") is None or bool(problem()),
        reason="bubblewrap with a network namespace does not work here",
    ),
]

HOST = "registry.test"
WHEEL = "hermes_sample-1.0-py3-none-any.whl"
PIP_INSTALL = f"env/bin/pip install -q --no-cache-dir --trusted-host {HOST} hermes-sample"
NPM_INSTALL = "npm install --no-audit --no-fund --cache .npm hermes-sample"
SET_UP = [
    f"{sys.executable} -m venv env",
    "echo 'import hermes_sample; assert hermes_sample.ANSWER == 42; print(\"passed\")' > t.py",
    'echo \'if (require("hermes-sample") !== 42) throw 1; console.log("passed")\' > t.js',
]
TESTS = ["env/bin/python t.py", "node t.js"]


def _wheel() -> bytes:
    file, info = io.BytesIO(), "hermes_sample-1.0.dist-info"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("hermes_sample.py", "ANSWER = 42\n")
        archive.writestr(f"{info}/METADATA", "Name: hermes-sample\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return file.getvalue()


_MANIFEST = {"name": "hermes-sample", "version": "1.0.0", "main": "index.js"}


def _tarball() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, text in (
            ("package.json", json.dumps(_MANIFEST)),
            ("index.js", "module.exports = 42;\n"),
        ):
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return file.getvalue()


class Registry(BaseHTTPRequestHandler):
    """A package index for pip, and a registry for npm, with one package."""

    files: ClassVar = {f"/files/{WHEEL}": _wheel(), "/files/sample.tgz": _tarball()}

    def do_GET(self) -> None:
        body = self.files.get(self.path) or self._page()
        self.send_response(200)
        is_json = body.startswith(b"{")
        self.send_header("Content-Type", "application/json" if is_json else "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _page(self) -> bytes:
        if self.path.startswith("/simple"):
            return f'<a href="/files/{WHEEL}">{WHEEL}</a>'.encode()
        digest = b64encode(hashlib.sha512(self.files["/files/sample.tgz"]).digest()).decode()
        url = f"http://{self.headers['Host']}/files/sample.tgz"
        dist = {"tarball": url, "integrity": f"sha512-{digest}"}
        package = {"name": "hermes-sample", "dist-tags": {"latest": "1.0.0"}}
        return json.dumps({**package, "versions": {"1.0.0": {**_MANIFEST, "dist": dist}}}).encode()

    def log_message(self, format: str, *args: Any) -> None:
        del format, args


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Two registries, for pip and for npm, by a name that we resolve."""
    real = egress.look_up
    monkeypatch.setattr(
        egress, "look_up", lambda host, port: real("127.0.0.1" if host == HOST else host, port)
    )
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Registry) for _ in range(2)]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    names = [f"{HOST}:{server.server_port}" for server in servers]
    monkeypatch.setenv("PIP_INDEX_URL", f"http://{names[0]}/simple")
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", f"http://{names[1]}/")
    hosts._registries.cache_clear()
    yield names
    hosts._registries.cache_clear()
    for server in servers:
        server.shutdown()
        server.server_close()


class Talk:
    """Talks to an agent whose person answers every question in the same way."""

    def __init__(self, make_chat: MakeChat, store: SessionDB, answer: str) -> None:
        self._make_chat = make_chat
        self._store = store
        self._answer = answer
        self.questions: list[QuestionAsked] = []

    def say(self, commands: Sequence[str], *steps: Step) -> list[str]:
        """Let the agent run commands in a new conversation; returns their outputs."""
        script = [*(call("terminal", command=command) for command in commands), *steps, "done"]
        settings = Settings(agent=AgentSettings(titles=False))
        chat = self._make_chat(script, [TERMINAL, READ_FILE], settings=settings, can_ask=True)
        person = Person(chat, self._store, self._answer)
        chat.say()
        self.questions += person.questions
        return [text for role, text in chat.transcript() if role == "tool"]


@pytest.fixture
def notes(home: Home) -> None:
    home.create().memories.mkdir(exist_ok=True)
    (home.memories / "MEMORY.md").write_text("- likes tea\n")


needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")


@needs_npm
def test_packages_are_installed_and_tested_without_a_question(
    make_chat: MakeChat, store: SessionDB, registries: list[str]
) -> None:
    talk = Talk(make_chat, store, "deny")
    outputs = talk.say([*SET_UP, PIP_INSTALL, NPM_INSTALL, PIP_INSTALL, *TESTS])
    assert outputs[-2:] == ["passed", "passed"], outputs
    assert talk.questions == []


@needs_npm
@pytest.mark.parametrize("answer", ["session", "always", "once"])
@pytest.mark.usefixtures("notes")
def test_with_notes_there_is_one_question_for_all_registries(
    make_chat: MakeChat, store: SessionDB, registries: list[str], answer: str
) -> None:
    talk = Talk(make_chat, store, answer)
    outputs = talk.say([*SET_UP, PIP_INSTALL, NPM_INSTALL, *TESTS])
    assert outputs[-2:] == ["passed", "passed"], outputs
    (question,) = talk.questions
    assert f"what {registries[0]} sent and your notes" in question.text
    assert "all package registries" in question.text
    assert question.choices == ["once", "session", "always", "deny"]
    talk.say([PIP_INSTALL, NPM_INSTALL])
    assert len(talk.questions) == (1 if answer == "always" else 2)


@pytest.mark.usefixtures("notes")
def test_a_yes_for_registries_ends_with_other_private_data(
    make_chat: MakeChat, store: SessionDB, registries: list[str], home: Home
) -> None:
    diary = home.root.parent / "diary.txt"
    diary.write_text("dear diary")
    talk = Talk(make_chat, store, "always")
    fetch = (
        f"{sys.executable} -c 'import urllib.request as u; u.urlopen(\"http://{registries[1]}/\")'"
    )
    talk.say([fetch, fetch, fetch])
    assert len(talk.questions) == 1
    assert [row["key"] for row in store.read(questions.grants)] == [REGISTRIES_KEY]
    talk.say([fetch], call("read_file", path=str(diary)), call("terminal", command=fetch))
    assert len(talk.questions) == 2
    assert "diary.txt" in talk.questions[1].text
    assert talk.questions[1].choices == ["once", "session", "deny"]
