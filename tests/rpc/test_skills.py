"""Skills over JSON-RPC: listed, completed, and said by the client."""

import pytest

from hermes_agent.testing.server import ScriptedServer
from tests.agent.test_skills import REVIEW, write
from tests.rpc.harness import RefusedError, World


def test_a_skill_is_dispatched_as_a_message_that_the_client_submits(
    world: World, model: ScriptedServer
) -> None:
    write(world.home, "review", REVIEW)
    client = world.start()
    opened = client.call("session.create")
    sid, key = opened["session_id"], opened["stored_session_id"]
    with pytest.raises(RefusedError) as refused:
        client.call("slash.exec", session_id=sid, command="/code-review it")
    assert refused.value.number == 4018
    result = client.call("command.dispatch", session_id=sid, name="code_review", arg="the parser")
    assert (result["type"], result["name"]) == ("skill", "code-review")
    assert result["message"].startswith("[skill code-review] the parser\n")
    model.add("Fine.")
    assert client.say(sid, result["message"])["text"] == "Fine."
    assert world.transcript(key)[0] == ("user", result["message"])
    client.call("slash.exec", session_id=sid, command="/retry")
    assert client.event("message.start", user=result["message"])


def test_skills_are_in_the_catalogue_and_complete_a_line(world: World) -> None:
    write(world.home, "review", REVIEW)
    write(world.home, "queue", "Hidden by the built-in command.")
    write(world.home, "broken", "---\n")
    client = world.start()
    catalog = client.call("commands.catalog")
    listed = {category["name"]: category["pairs"] for category in catalog["categories"]}
    assert listed["Skills"] == [["/code-review", "Looks at a change with fresh eyes."]]
    assert catalog["skill_count"] == 1
    assert "broken/SKILL.md" in catalog["warning"]
    assert client.call("command.resolve", name="/code-review")["category"] == "Skills"
    (item,) = client.call("complete.slash", text="/code")["items"]
    assert (item["text"], item["meta"]) == ("code-review", "Looks at a change with fresh eyes.")
    sid = client.open()
    assert "\nSkills\n" in client.call("slash.exec", session_id=sid, command="/help")["output"]
