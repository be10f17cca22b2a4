"""Checkpoints over JSON-RPC, as a terminal client uses them."""

import shutil

import pytest

from hermes_agent.testing.scripted import call
from hermes_agent.testing.server import ScriptedServer
from tests.rpc.harness import Inside, RefusedError, World

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def sid(client: Inside, world: World, model: ScriptedServer) -> str:
    """A session with two turns that changed files."""
    (world.workspace / "a.txt").write_text("zero\n")
    opened = client.open()
    model.add(call("write_file", path="a.txt", content="one\n"), "Done.")
    client.say(opened, "first")
    model.add(
        call("write_file", path="a.txt", content="two\n"),
        call("write_file", path="b.txt", content="new\n"),
        "Done.",
    )
    client.say(opened, "second")
    return opened


def test_checkpoints_are_listed_compared_and_restored(
    client: Inside, world: World, sid: str
) -> None:
    listed = client.call("rollback.list", session_id=sid)
    assert listed["enabled"]
    latest, first = listed["checkpoints"]
    assert (latest["message"], first["message"]) == ("second", "first")
    compared = client.call("rollback.diff", session_id=sid, hash=first["hash"])
    assert "-two\n" in compared["diff"] and "+zero\n" in compared["diff"]
    assert "restore a.txt" in compared["stat"] and "delete b.txt" in compared["stat"]
    done = client.call("rollback.restore", session_id=sid, hash=latest["hash"], file_path="b.txt")
    assert done["restored"] == ["b.txt"] and done["success"]
    assert not (world.workspace / "b.txt").exists()
    assert (world.workspace / "a.txt").read_text() == "two\n"
    done = client.call("rollback.restore", session_id=sid, hash=first["hash"])
    assert done["restored"] == ["a.txt"]
    assert (world.workspace / "a.txt").read_text() == "zero\n"
    assert client.call("rollback.list", session_id=sid)["checkpoints"] == []
    assert len(client.call("session.history", session_id=sid)["messages"]) > 2, "messages stay"


def test_a_file_that_was_edited_since_is_a_conflict(client: Inside, world: World, sid: str) -> None:
    (world.workspace / "a.txt").write_text("by hand\n")
    latest = client.call("rollback.list", session_id=sid)["checkpoints"][0]
    done = client.call("rollback.restore", session_id=sid, hash=latest["hash"])
    assert (done["restored"], done["conflicts"]) == (["b.txt"], ["a.txt"])


@pytest.mark.parametrize("name", ["", "0", "x", "-1", "99999999"])
def test_an_unknown_checkpoint_is_refused(client: Inside, sid: str, name: str) -> None:
    for method in ("rollback.diff", "rollback.restore"):
        with pytest.raises(RefusedError, match="no such checkpoint"):
            client.call(method, session_id=sid, hash=name)
