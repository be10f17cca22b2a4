"""Fetching a model: sources in order, resuming, the hash, the lock, the user's own file."""

import base64
import hashlib
import os
import stat
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

from hermes_agent.models.embedded import catalog, gguf, hardware, model_files, pull
from hermes_agent.models.embedded.catalog import Entry
from hermes_agent.models.embedded.progress import Step
from hermes_core.errors import ModelMissingError, UsageError
from hermes_core.paths import Home

FILE = b"GGUF" + os.urandom(100_000)


class Hub:
    """A hub on this machine that can cut connections, ignore ranges and serve something else."""

    def __init__(self) -> None:
        self.content = FILE
        self.status = 200
        self.cut_after: list[int] = []
        """How many bytes each of the next answers sends before the connection breaks."""
        self.knows_ranges = True
        self.ranges: list[str] = []
        self.paths: list[str] = []
        self.address = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.paths.append(request.path)
        self.ranges.append(request.headers.get("Range", ""))
        if self.status != 200:
            request.send_error(self.status)
            return
        start = int(self.ranges[-1].removeprefix("bytes=").rstrip("-")) if self.knows_ranges else 0
        body = self.content[start:]
        request.send_response(206 if self.knows_ranges else 200)
        if self.knows_ranges:
            last, total = len(self.content) - 1, len(self.content)
            request.send_header("Content-Range", f"bytes {start}-{last}/{total}")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body[: self.cut_after.pop(0) if self.cut_after else None])


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub()

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            hub.answer(self)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    yield hub
    server.shutdown()
    thread.join(30)
    server.server_close()


def model(content: bytes = FILE) -> Entry:
    return Entry(
        name="tiny",
        title="Tiny",
        authors="its authors",
        license="MIT",
        summary="nothing",
        repository="someone/tiny-gguf",
        file="tiny-q4.gguf",
        sha256=hashlib.sha256(content).hexdigest(),
        bytes=len(content),
        context=2048,
        memory_bytes=1,
    )


def unfinished(home: Home, content: bytes) -> None:
    home.models.mkdir(parents=True)
    (home.models / ".tiny.part").write_bytes(content)


def test_a_file_from_the_hub_is_checked_private_and_found_again(home: Home, hub: Hub) -> None:
    steps: list[Step] = []
    path = pull.fetch(model(), home, hub=hub.address, progress=steps.append)
    assert path.read_bytes() == FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert hub.paths == ["/someone/tiny-gguf/resolve/main/tiny-q4.gguf"]
    assert Step("from the model hub", len(FILE), len(FILE)) in steps
    assert any("its authors" in step.text and "MIT" in step.text for step in steps)
    assert pull.fetch(model(), home, hub=hub.address) == path
    assert len(hub.paths) == 1
    record = model_files.record(home, "tiny")
    assert record is not None
    assert record.sha256 == model().sha256
    assert record.source == hub.address


def test_a_cut_connection_goes_on_where_it_broke(home: Home, hub: Hub) -> None:
    hub.cut_after = [30_000, 20_000]
    path = pull.fetch(model(), home, hub=hub.address)
    assert path.read_bytes() == FILE
    assert hub.ranges == ["bytes=0-", "bytes=30000-", "bytes=50000-"]


def test_an_aborted_pull_resumes_in_the_next_process(home: Home, hub: Hub) -> None:
    unfinished(home, FILE[:70_000])
    assert pull.fetch(model(), home, hub=hub.address).read_bytes() == FILE
    assert hub.ranges == ["bytes=70000-"]


def test_a_hub_without_ranges_sends_the_file_from_the_start(home: Home, hub: Hub) -> None:
    hub.knows_ranges = False
    unfinished(home, FILE[:70_000])
    assert pull.fetch(model(), home, hub=hub.address).read_bytes() == FILE


def test_a_damaged_unfinished_file_is_fetched_anew(home: Home, hub: Hub) -> None:
    unfinished(home, bytes(70_000))
    assert pull.fetch(model(), home, hub=hub.address).read_bytes() == FILE
    assert hub.ranges == ["bytes=70000-", "bytes=0-"]


def test_a_wrong_hash_removes_the_file_and_says_so(home: Home, hub: Hub) -> None:
    hub.content = FILE[:-1] + bytes([FILE[-1] ^ 1])
    with pytest.raises(
        ModelMissingError, match="not the file that its authors published; it was rem"
    ):
        pull.fetch(model(), home, hub=hub.address)
    assert list(home.models.glob("*.gguf")) == []
    assert model_files.installed(home) == []


def test_another_file_under_the_name_is_not_even_begun(home: Home, hub: Hub) -> None:
    hub.content = b"<html>please log in</html>"
    with pytest.raises(ModelMissingError, match="another file under this name"):
        pull.fetch(model(), home, hub=hub.address)


@pytest.mark.parametrize("status", [401, 404, 503])
def test_a_hub_that_refuses_is_named_with_another_way(home: Home, hub: Hub, status: int) -> None:
    hub.status = status
    with pytest.raises(ModelMissingError, match=f"it answered {status}") as caught:
        pull.fetch(model(), home, hub=hub.address)
    assert "--gguf PATH" in caught.value.fix


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", ""])
def test_a_model_without_a_hub_cannot_be_fetched(home: Home, address: str) -> None:
    with pytest.raises(ModelMissingError, match="cannot be downloaded") as caught:
        pull.fetch(model(), home, hub=address)
    assert "--gguf PATH" in caught.value.fix


def test_two_pulls_at_once_fetch_once(home: Home, hub: Hub) -> None:
    together = threading.Barrier(2)
    found: list[Path] = []

    def pull_once() -> None:
        together.wait(30)
        found.append(pull.fetch(model(), home, hub=hub.address))

    threads = [threading.Thread(target=pull_once) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == 2
    assert len(hub.paths) == 1


def test_a_disk_without_room_is_told_before_anything_is_fetched(home: Home, hub: Hub) -> None:
    huge = msgspec.structs.replace(model(), bytes=10**18)
    with pytest.raises(ModelMissingError, match="not enough space") as raised:
        pull.fetch(huge, home, hub=hub.address)
    assert "HERMES_HOME" in raised.value.fix
    assert hub.paths == []


def test_a_file_that_was_brought_by_hand_is_checked_and_kept(home: Home, hub: Hub) -> None:
    home.models.mkdir(parents=True)
    (home.models / "tiny.gguf").write_bytes(FILE)
    pull.fetch(model(), home, hub=hub.address)
    assert hub.paths == []


def test_a_file_that_changed_since_is_not_trusted(home: Home, hub: Hub) -> None:
    path = pull.fetch(model(), home, hub=hub.address)
    path.write_bytes(bytes(len(FILE)))
    assert model_files.record(home, "tiny") is None
    assert pull.fetch(model(), home, hub=hub.address).read_bytes() == FILE


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def head(**values: str | int) -> bytes:
    """A GGUF head with these single values and a list between them."""
    body = string("tokenizer.tokens") + struct.pack("<IIQ", 9, 8, 2) + string("a") + string("b")
    for key, value in values.items():
        name = key.replace("__", ".")
        kind = struct.pack("<I", 8) + string(value) if isinstance(value, str) else b""
        kind = kind or struct.pack("<II", 4, int(value))
        body += string(name) + kind
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(values) + 1) + body


OWN = head(
    general__architecture="llama",
    general__name="My Model",
    general__license="mit",
    llama__context_length=4096,
    tokenizer__ggml__model="gpt2",
)


def test_the_head_of_a_gguf_file_is_read_past_its_lists(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(OWN)
    assert gguf.check(path)["general.name"] == "My Model"
    assert gguf.context_length(gguf.read(path)) == 4096


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "does not begin as one"),
        (b"PK\x03\x04zip", "does not begin as one"),
        (OWN[: len(OWN) // 2], "damaged or cut off"),
        (b"GGUF" + struct.pack("<IQQ", 99, 0, 0), "version 99"),
        (head(general__architecture="clip"), "not a language model"),
        (head(general__architecture="llama", split__count=3), "several parts"),
    ],
)
def test_a_file_that_is_no_model_is_refused(
    home: Home, tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=reason) as raised:
        pull.pull(None, home, gguf=path)
    assert raised.value.fix


def test_a_file_of_the_users_own_is_linked_and_nobody_vouches_for_it(
    home: Home, tmp_path: Path
) -> None:
    path = tmp_path / "My Model v2.gguf"
    path.write_bytes(OWN)
    steps: list[Step] = []
    found = pull.pull(None, home, gguf=path, progress=steps.append)
    assert found == home.models / "my-model-v2.gguf"
    assert found.resolve() == path
    assert model_files.installed(home) == ["my-model-v2"]
    assert model_files.path_of(home) == found
    text = " ".join(step.text for step in steps)
    assert "not in the catalog" in text
    assert "licence mit" in text


def test_a_file_of_the_users_own_that_went_away_is_no_longer_there(
    home: Home, tmp_path: Path
) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(OWN)
    pull.pull("first", home, gguf=path)
    path.unlink()
    assert model_files.installed(home) == []
    with pytest.raises(ModelMissingError, match="not downloaded yet"):
        model_files.path_of(home)


def test_a_name_of_the_catalog_is_kept_for_its_file(home: Home, tmp_path: Path) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(OWN)
    with pytest.raises(UsageError, match="SHA-256 differs"):
        pull.pull("qwen2.5-coder-0.5b", home, gguf=path)


def test_an_unknown_name_is_told_the_known_ones(home: Home) -> None:
    with pytest.raises(UsageError) as raised:
        pull.pull("gpt-99", home)
    assert "qwen2.5-coder-1.5b" in raised.value.fix


def test_the_catalog_holds_together() -> None:
    for entry in catalog.entries():
        assert len(base64.b16decode(entry.sha256, casefold=True)) == 32
        assert entry.bytes < entry.memory_bytes
        assert catalog.get(entry.file) is entry


def test_the_choice_says_why(home: Home) -> None:
    choice = pull.choose(home)
    assert choice.name in [entry.name for entry in catalog.entries()]
    assert choice.reason


def test_where_memory_is_short_the_light_model_is_chosen(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "available_bytes", lambda: 1_000_000_000)
    choice = pull.choose(home)
    assert choice.name == "qwen2.5-coder-0.5b"
    assert "memory" in choice.reason


def test_a_container_that_limits_memory_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "_GROUP", tmp_path)
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("400000\n")
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert hardware.available_bytes() == 600_000
    assert hardware.cores() == 1
    (tmp_path / "memory.max").write_text("max\n")
    assert (hardware.available_bytes() or 0) > 600_000
