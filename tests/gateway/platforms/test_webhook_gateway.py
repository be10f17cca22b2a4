"""Webhooks through the whole gateway: a delivery in, the agent's reply out, once."""

import json

import httpx2

from gateway.platforms.webhook import signature
from gateway.platforms.webhook.adapter import WebhookAdapter
from hermes_agent.testing.scripted import call, say
from tests.gateway.harness import TIMEOUT_S, Inside, World
from tests.gateway.platforms.test_webhook import SECRET, Receiver

_TABLE = """
[gateway.platforms.webhook]
port = 0
secret = "{secret}"

[gateway.platforms.webhook.hooks.build]
prompt = "The build of {{branch}} is {{status}}."
{more}
deliver = "{url}"
"""


class Gateway(Inside):
    """The gateway in this process, with webhooks beside the loopback platform."""

    def __enter__(self) -> "Gateway":
        self._thread.start()
        assert self.call(self.runner.start()) == ["loopback", "webhook"]
        return self

    def deliver(self, delivery: str) -> httpx2.Response:
        services = self.runner._services
        assert services is not None
        adapter = services.connections.connected()["webhook"]
        assert isinstance(adapter, WebhookAdapter)
        body = json.dumps({"branch": "main", "status": "red"}).encode()
        headers = signature.sign("hermes", SECRET, delivery, body)
        return httpx2.post(f"{adapter.url}/build", content=body, headers=headers)


def test_a_delivery_is_answered_where_the_hook_says_and_once(world: World) -> None:
    with Receiver().open() as receiver:
        world.configure(more=_TABLE.format(secret=SECRET, url=receiver.url, more=""))
        world.play(say("It was the linker."))
        with Gateway(world) as gateway:
            assert gateway.deliver("d-1").json()["is_new"]
            assert receiver.arrived.acquire(timeout=TIMEOUT_S)
            assert not gateway.deliver("d-1").json()["is_new"]
        with Gateway(world) as gateway:
            assert not gateway.deliver("d-1").json()["is_new"]
    ((_, body),) = receiver.posts
    assert json.loads(body) == {
        "conversation": "build/d-1",
        "reply_to": "d-1",
        "text": "It was the linker.",
    }
    requests = [request for request in world.model.requests if request.method == "POST"]
    assert len(requests) == 1
    assert requests[0].json["messages"][-1]["content"] == "The build of main is red."


def test_a_delivery_is_known_by_its_id_whatever_belongs_together_by_then(world: World) -> None:
    world.configure(more=_TABLE.format(secret=SECRET, url="none", more=""))
    with Gateway(world) as gateway:
        first = gateway.deliver("d-1").json()
        assert first["is_new"]
    more = 'conversation = "{branch}"'
    world.configure(more=_TABLE.format(secret=SECRET, url="none", more=more))
    with Gateway(world) as gateway:
        assert gateway.deliver("d-1").json() == {**first, "is_new": False}
        assert gateway.deliver("d-2").json()["is_new"]


def test_a_delivery_is_no_answer_to_what_the_agent_asks(world: World) -> None:
    more = 'conversation = "one"'
    world.configure(more=_TABLE.format(secret=SECRET, url="none", more=more))
    world.play(call("clarify", question="Which branch?"), say("I took main."), say("Red again."))
    with Gateway(world) as gateway:
        turns = [gateway.deliver(name).json()["turn_id"] for name in ("d-1", "d-2")]
        assert all(turns)
        results = [gateway.call(gateway.services.ingress.wait_for_result(turn)) for turn in turns]
        assert [result.text for result in results] == ["I took main.", "Red again."]
