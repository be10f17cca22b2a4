"""Health has a thread of its own: it answers whatever the gateway does, and tells when that hangs."""

import asyncio
import threading

import httpx2
import pytest

import gateway.health as health
from tests.gateway.platforms.scripted_ingress import TIMEOUT_S, Loop
from tests.gateway.servers.ports import free_port


def test_an_event_loop_that_hangs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_ANSWER_TIMEOUT_S", 0.2)
    port, loop, release, stop = free_port(), Loop(), threading.Event(), asyncio.Event()
    up, down = threading.Event(), threading.Event()

    async def serve() -> None:
        async with health.serving(lambda: None, port):
            up.set()
            await stop.wait()
        down.set()

    loop.call(lambda: loop._loop.create_task(serve()) and None)
    assert up.wait(TIMEOUT_S)
    url = f"http://127.0.0.1:{port}/health"
    assert httpx2.get(url).json() == {"status": "starting"}
    loop.call(lambda: release.wait(TIMEOUT_S) and None)
    answer = httpx2.get(url)
    assert (answer.status_code, answer.json()) == (503, {"status": "unresponsive"})
    release.set()
    assert httpx2.get(url).json() == {"status": "starting"}
    loop.call(stop.set)
    assert down.wait(TIMEOUT_S)
    loop.close()
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(url)
