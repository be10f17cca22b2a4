"""Links that change after the gate has looked: file tools never leave the path that was allowed."""

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.approval.danger import access_of, places
from hermes_agent.approval.gate import Permit
from hermes_agent.tools import patch, read_file, search_files, write_file
from hermes_agent.tools.base import Result, Tool
from hermes_core.errors import ToolError
from tests.agent.tools.conftest import Desk

pytestmark = pytest.mark.promise("P7")

SECRET = "PRIVATE KEY of the person"
CALLS = 150


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    folder = tmp_path / "person" / ".ssh"
    folder.mkdir(parents=True)
    (folder / "id_x").write_text(SECRET)
    return folder / "id_x"


def attempt(desk: Desk, tool: Tool, between: Callable[[], Any], **args: Any) -> str:
    """Make a call as the gate does, without a person: what is dangerous does not run."""
    try:
        path = places.resolve(args["path"], str(desk.bench.cwd))
        dangers = tool.dangers_of({**args, "path": path}, desk.bench)
        if dangers:
            return "denied"
        between()
        answer = tool.run(args, desk.call(permit=Permit._for_tests(access_of(dangers), path)))
    except ToolError as error:
        return str(error)
    return answer.text + answer.diff if isinstance(answer, Result) else answer


def replaced_by(path: Path, target: Path) -> Callable[[], None]:
    def swap() -> None:
        path.rename(path.with_name("aside"))
        path.symlink_to(target)

    return swap


ATTACKS = [
    (read_file.TOOL, {}),
    (write_file.TOOL, {"content": "EVIL"}),
    (patch.TOOL, {"old": "PRIVATE", "new": "EVIL"}),
    (search_files.TOOL, {"pattern": "PRIVATE"}),
]


@pytest.mark.parametrize(("tool", "args"), ATTACKS, ids=lambda value: getattr(value, "name", ""))
@pytest.mark.parametrize("where", ["file", "folder", "above"])
def test_a_link_that_comes_in_after_the_gate_is_not_followed(
    desk: Desk, key: Path, tool: Tool, args: dict[str, str], where: str
) -> None:
    folder = desk.workspace / "a" / "b"
    folder.mkdir(parents=True)
    (folder / "notes").write_text("PRIVATE notes")
    (key.parent / "notes").write_text(SECRET)
    (key.parent.parent / "b").symlink_to(key.parent)
    path, target = {
        "file": (folder / "notes", key.parent / "notes"),
        "folder": (folder, key.parent),
        "above": (folder.parent, key.parent.parent),
    }[where]
    text = attempt(desk, tool, replaced_by(path, target), path="a/b/notes", **args)
    assert text != "denied"
    assert SECRET not in text
    assert key.read_text() == (key.parent / "notes").read_text() == SECRET
    assert sorted(entry.name for entry in key.parent.iterdir()) == ["id_x", "notes"]


@pytest.fixture
def flipping(desk: Desk, key: Path) -> Iterator[Path]:
    """A link in the workspace that leads to a folder of ours and to the keys in turn."""
    own = desk.workspace / "own"
    own.mkdir()
    (own / "notes").write_text("ours")
    (key.parent / "notes").write_text(SECRET)
    link, other = desk.workspace / "link", desk.workspace / "other"
    link.symlink_to(own)
    has_ended = threading.Event()

    def flip() -> None:
        for target in itertools.cycle([key.parent, own]):
            if has_ended.is_set():
                return
            other.symlink_to(target)
            other.rename(link)

    thread = threading.Thread(target=flip, daemon=True)
    thread.start()
    yield link
    has_ended.set()
    thread.join(10)


@pytest.mark.usefixtures("flipping")
def test_a_link_that_is_flipped_all_the_time_leads_to_no_secret(desk: Desk, key: Path) -> None:
    texts = [
        attempt(desk, tool, lambda: None, path="link/notes", **args)
        for _ in range(CALLS)
        for tool, args in ((read_file.TOOL, {}), (write_file.TOOL, {"content": "ours"}))
    ]
    assert not any(SECRET in text for text in texts)
    assert {"denied", "ours"} <= set(texts), "both sides of the race were seen"
    assert (key.parent / "notes").read_text() == SECRET
