"""The embedded model over the protocol: offered when there is no other, fetched, stopped."""

import contextlib
import hashlib
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hermes_agent.models import discovery
from hermes_agent.models.embedded import catalog, hardware
from hermes_agent.models.embedded.catalog import Entry
from hermes_agent.testing.server import ScriptedServer
from hermes_core import config
from hermes_core.paths import Home
from hermes_state import SessionDB
from hermes_state.ledger import turns
from tests.rpc.harness import Inside, RefusedError
from tui_gateway import server
from tui_gateway.resources import Resources

HALF = 2_000_000
FILE = b"GGUF" + os.urandom(2 * HALF)


class Hub(BaseHTTPRequestHandler):
    """A hub that sends half of the file and then waits."""

    goes_on = threading.Event()

    def do_GET(self) -> None:
        start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{len(FILE) - 1}/{len(FILE)}")
        self.send_header("Content-Length", str(len(FILE) - start))
        self.end_headers()
        self.wfile.write(FILE[start : start + HALF])
        self.wfile.flush()
        self.goes_on.wait(30)
        with contextlib.suppress(ConnectionError):  # it was stopped
            self.wfile.write(FILE[start + HALF :])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[str]:
    Hub.goes_on = threading.Event()
    listening = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{listening.server_address[1]}"
    Hub.goes_on.set()
    listening.shutdown()
    thread.join(30)
    listening.server_close()


@pytest.fixture
def poor(home: Home, hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Inside]:
    """A client of a server that has no model, no key and no local server."""
    tiny = Entry(
        name="tiny",
        title="Tiny",
        authors="its authors",
        license="MIT",
        summary="nothing",
        repository="someone/tiny-gguf",
        file="tiny.gguf",
        sha256=hashlib.sha256(FILE).hexdigest(),
        bytes=len(FILE),
        context=2048,
        memory_bytes=1,
    )
    monkeypatch.setattr(catalog, "entries", lambda: (tiny,))
    monkeypatch.setattr(hardware, "available_bytes", lambda: None)
    monkeypatch.setenv("HERMES_HOME", str(home.root))
    monkeypatch.setenv("HERMES_MODEL_HUB", hub)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(server, "_resources", Resources())
    yield Inside()
    server.shut_down()


def test_without_any_model_the_embedded_one_is_offered_fetched_and_answers_then(
    poor: Inside, home: Home
) -> None:
    sid = poor.open()
    frame = poor.wait(lambda f: bool(f.get("params", {}).get("payload", {}).get("offer")))
    offer = frame["params"]["payload"]["offer"]
    assert (offer["name"], offer["title"], offer["bytes"]) == ("tiny", "Tiny", len(FILE))
    number = poor.post("model.pull", session_id=sid)
    half = poor.event("model.progress", total=len(FILE))
    assert 0 < half["done"] < len(FILE)
    with pytest.raises(RefusedError, match="already"):
        poor.call("model.pull", session_id=sid)
    Hub.goes_on.set()
    assert poor.answer(number) == {"name": "tiny"}
    poor.event("model.progress", done=len(FILE))
    assert (home.models / "tiny.gguf").read_bytes() == FILE
    poor.event("session.info")


def test_a_fetch_can_be_stopped_and_goes_on_later(poor: Inside, home: Home) -> None:
    sid = poor.open()
    assert poor.call("model.pull.stop", session_id=sid) == {"stopped": False}
    number = poor.post("model.pull", session_id=sid)
    poor.event("model.progress", total=len(FILE))
    assert poor.call("model.pull.stop", session_id=sid) == {"stopped": True}
    Hub.goes_on.set()
    with pytest.raises(RefusedError, match="the next one resumes it"):
        poor.answer(number)
    assert (home.models / ".tiny.part").stat().st_size > 0
    assert poor.call("model.pull", session_id=sid) == {"name": "tiny"}


def test_with_a_model_named_that_is_not_there_nothing_is_offered(
    poor: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_MODEL_NAME", "local/of-mine")
    poor.open()
    frame = poor.wait(
        lambda f: bool(f.get("params", {}).get("payload", {}).get("credential_warning"))
    )
    assert frame["params"]["payload"]["offer"]["name"] == ""


def test_a_prompt_that_waits_for_a_model_is_on_disk_and_can_be_stopped(
    poor: Inside, home: Home
) -> None:
    sid = poor.open()
    result = poor.call("prompt.submit", session_id=sid, text="hello", waits_for_model=True)
    poor.event("status.update", kind="waiting")
    with contextlib.closing(SessionDB(home.database)) as store:
        assert store.read(turns.user_text, result["turn_id"]) == "hello"
    poor.call("session.interrupt", session_id=sid)
    assert poor.event("message.complete")["status"] == "interrupted"


def test_a_prompt_of_a_client_that_offers_nothing_fails_with_what_to_do(poor: Inside) -> None:
    ended = poor.say(poor.open())
    assert ended["status"] == "error"
    assert "hermes model pull" in ended["text"]


def test_a_waiting_prompt_is_answered_once_a_model_was_set_up(poor: Inside, home: Home) -> None:
    sid = poor.open()
    poor.call("prompt.submit", session_id=sid, text="hello", waits_for_model=True)
    poor.event("status.update", kind="waiting")
    with ScriptedServer(["Hi."]) as model:
        config.change(home, "model.base_url", model.openai_url)
        assert poor.call("setup.runtime_check", session_id=sid)["model"] == "scripted"
        assert poor.event("message.complete")["text"] == "Hi."
        poor.call("session.close", session_id=sid)


def test_a_waiting_prompt_is_answered_once_a_model_was_chosen(
    poor: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    sid = poor.open()
    poor.call("prompt.submit", session_id=sid, text="hello", waits_for_model=True)
    poor.event("status.update", kind="waiting")
    with pytest.raises(RefusedError, match="no key for openai"):
        poor.call("config.set", session_id=sid, key="model", value="openai/gpt-6.1-terra")
    with ScriptedServer(["Hi."]) as model:
        monkeypatch.setattr(discovery, "PORTS", {model.port: "Ollama"})
        poor.call("config.set", session_id=sid, key="model", value="local/scripted")
        assert poor.event("message.complete")["text"] == "Hi."
        poor.call("session.close", session_id=sid)
