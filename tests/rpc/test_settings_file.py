"""A config.toml that cannot be read: nothing is opened, and the server goes on when it is corrected."""

import pytest

from hermes_agent.testing.server import ScriptedServer
from tests.rpc.harness import RefusedError, World


def test_a_session_is_opened_when_the_settings_are_corrected(
    world: World, model: ScriptedServer
) -> None:
    world.home.create().config.write_text("[model\n")
    process = world.start()
    for _ in range(2):
        with pytest.raises(RefusedError, match="config.toml"):
            process.open()
    world.home.config.write_text('[model]\nname = "scripted"\n')
    model.add("hi")
    sid = process.open()
    assert process.say(sid)["text"] == "hi"
    process.event("session.info", running=False)
    assert [row["id"] for row in process.call("session.active_list")["sessions"]] == [sid]
    payloads = [
        f["params"] for f in process.frames if f.get("params", {}).get("type") == "session.info"
    ]
    assert {params["session_id"] for params in payloads} == {sid}
