"""What Telegram delivers is on disk before it is acknowledged, whatever breaks on the way."""

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from gateway.platforms.base import MessageEvent, PlatformError, Receipt
from gateway.platforms.telegram import polling
from hermes_core import clock
from hermes_core.errors import StoreBusyError
from tests.gateway.platforms.scripted_ingress import TIMEOUT_S
from tests.gateway.platforms.telegram_bot import Ingress, running, unconnected
from tests.gateway.servers.ports import free_port
from tests.gateway.servers.telegram import ANNA, BEN, BotApi, Cut, Fail, Hold


@pytest.fixture
def api() -> Iterator[BotApi]:
    with BotApi() as api:
        yield api


@pytest.fixture
def ingress() -> Ingress:
    return Ingress()


def confirmed(api: BotApi) -> None:
    """Wait until Telegram has no update left for us."""
    api.world.wait_for(lambda: not api.world.updates)


def test_a_message_is_handed_in_and_then_acknowledged(api: BotApi, ingress: Ingress) -> None:
    with running(api, ingress):
        api.world.write("hello")

        assert ingress.wait_for_events()[0].text == "hello"
        confirmed(api)


def test_messages_from_before_the_start_are_heard(api: BotApi, ingress: Ingress) -> None:
    for number in range(250):
        api.world.write(str(number))

    with running(api, ingress):
        assert [event.text for event in ingress.wait_for_events(250)] == [
            str(number) for number in range(250)
        ]
        confirmed(api)


def test_nothing_is_acknowledged_while_the_desk_has_not_taken_it(
    api: BotApi, ingress: Ingress
) -> None:
    ingress.gate.clear()
    with running(api, ingress):
        api.world.write("one")
        ingress.wait_for(lambda: len(ingress.arrivals) == 1)
        api.world.write("two")
        assert len(api.world.updates) == 2

        ingress.gate.set()
        ingress.wait_for_events(2)
        confirmed(api)


def test_a_chat_that_takes_long_holds_up_no_other(api: BotApi) -> None:
    ingress = _Slow("a large file")
    with running(api, ingress):
        api.world.write("a large file", person=ANNA)
        ingress.wait_for(lambda: len(ingress.arrivals) == 1)
        api.world.write("after it", person=ANNA)
        api.world.write("one", person=BEN)
        ingress.wait_for_events(1)
        api.world.write("two", person=BEN)
        assert [event.text for event in ingress.wait_for_events(2)] == ["one", "two"]
        assert len(api.world.updates) == 4, "the first is not on disk, and may have to come again"

        ingress.go_on.set()
        texts = [event.text for event in ingress.wait_for_events(4)]
        assert texts == ["one", "two", "a large file", "after it"]
        confirmed(api)
    assert len(ingress.arrivals) == 4, "nothing is handed in twice"


def test_what_another_chat_took_in_meanwhile_is_known_after_a_crash(api: BotApi) -> None:
    ingress = _Slow("a large file")
    with running(api, ingress) as bot:
        api.world.write("a large file", person=ANNA)
        api.world.write("one", person=BEN)
        ingress.wait_for_events(1)
        bot.crash()
        ingress.go_on.set()
    with running(api, ingress):
        assert sorted(event.text for event in ingress.wait_for_events(2)) == ["a large file", "one"]
        confirmed(api)


def test_a_group_that_moved_stays_behind_what_was_said_before_it(api: BotApi) -> None:
    ingress = _Slow("before")
    api.world.add_chat(-77, "group")
    with running(api, ingress):
        api.world.write("before", chat=-77)
        ingress.wait_for(lambda: len(ingress.arrivals) == 1)
        api.world.upgrade(-77, -1077)
        api.world.write("after", chat=-1077)
        api.world.write("elsewhere")
        ingress.wait_for_events(1)
        api.world.write("and after that", chat=-1077)
        api.world.write("elsewhere again")
        assert [event.text for event in ingress.wait_for_events(2)] == [
            "elsewhere",
            "elsewhere again",
        ]
        ingress.go_on.set()
        texts = [event.text for event in ingress.wait_for_events(5)]
        assert texts[2:] == ["before", "after", "and after that"]


class _Slow(Ingress):
    """An ingress at which one message takes as long as a test wants."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text
        self.go_on = threading.Event()

    async def accept(self, event: MessageEvent) -> Receipt:
        if event.text == self._text:
            self.arrivals.append(event.message_id)
            self._tell()
            await asyncio.to_thread(self.go_on.wait, TIMEOUT_S)
            self.arrivals.remove(event.message_id)
        return await super().accept(event)


def test_a_store_that_fails_gets_the_message_again_until_it_takes_it(
    api: BotApi, ingress: Ingress
) -> None:
    ingress.errors.extend(StoreBusyError("The database is locked.") for _ in range(3))
    for text in ("one", "two"):
        api.world.write(text)
    with running(api, ingress):
        assert [event.text for event in ingress.wait_for_events(2)] == ["one", "two"]
        assert ingress.arrivals == ["1", "1", "1", "1", "2"]
        confirmed(api)


def test_a_bot_that_stops_while_the_store_fails_acknowledges_nothing(
    api: BotApi, ingress: Ingress
) -> None:
    ingress.errors.extend(StoreBusyError("The database is locked.") for _ in range(1000))
    api.world.write("one")
    with running(api, ingress):
        ingress.wait_for(lambda: len(ingress.arrivals) >= 1)

    assert len(api.world.updates) == 1


def test_after_a_crash_before_the_desk_took_it_the_message_comes_again(
    api: BotApi, ingress: Ingress
) -> None:
    ingress.gate.clear()
    with running(api, ingress) as bot:
        api.world.write("hello")
        ingress.wait_for(lambda: len(ingress.arrivals) == 1)
        bot.crash()

    later = Ingress()
    with running(api, later):
        assert later.wait_for_events()[0].text == "hello"


def test_after_a_crash_before_the_acknowledgement_the_message_is_known(
    api: BotApi, ingress: Ingress
) -> None:
    ingress.way_out.clear()
    with running(api, ingress) as bot:
        api.world.write("hello")
        ingress.wait_for_events()
        bot.crash()
        ingress.way_out.set()
    assert len(api.world.updates) == 1

    with running(api, ingress):
        confirmed(api)
    assert ingress.arrivals == ["1", "1"]
    assert len(ingress.events) == 1


def test_that_a_group_moved_is_acknowledged_when_the_desk_has_noted_it(
    api: BotApi, ingress: Ingress
) -> None:
    api.world.add_chat(-77, "group")
    api.world.upgrade(-77, -1077)
    ingress.errors.append(StoreBusyError("The database is locked."))
    ingress.gate.clear()
    with running(api, ingress):
        ingress.wait_for(lambda: ingress.arrivals == ["-1077"])
        assert len(api.world.updates) == 2

        ingress.gate.set()
        confirmed(api)
    assert ingress.arrivals == ["-1077"] * 3
    assert ingress.moves == [("-77", "-1077")] * 2


def test_an_update_that_is_acknowledged_during_a_poll_is_not_handed_in_again() -> None:
    offsets: list[int] = []
    delivered: list[int] = []

    async def poll() -> None:
        is_polled, is_stored = asyncio.Event(), asyncio.Event()

        async def updates(offset: int, timeout_s: int) -> list[dict[str, Any]]:
            del timeout_s
            offsets.append(offset)
            if len(offsets) == 2:  # this poll does not acknowledge the update yet
                is_polled.set()
                await is_stored.wait()
            if len(offsets) == 3:
                poller._stopping.set()
            return [{"update_id": 7}] if offset <= 7 else []

        async def deliver(parts: Sequence[dict[str, Any]]) -> None:
            await is_polled.wait()
            delivered.extend(part["update_id"] for part in parts)
            asyncio.get_running_loop().call_soon(is_stored.set)

        wire: Any = SimpleNamespace(updates=updates)
        poller = polling.Poller(wire, deliver, timeout_s=0)
        async with asyncio.timeout(TIMEOUT_S):
            await poller.run()

    asyncio.run(poll())
    assert delivered == [7]
    assert offsets == [0, 0, 8]


def test_what_was_said_before_a_group_moved_is_handed_in_before_what_follows(
    api: BotApi, ingress: Ingress
) -> None:
    api.world.add_chat(-77, "group")
    api.world.write("before", chat=-77)
    api.world.upgrade(-77, -1077)
    api.world.write("after", chat=-1077)
    api.world.write("elsewhere")
    ingress.gate.clear()
    with running(api, ingress):
        ingress.wait_for(lambda: len(ingress.arrivals) >= 2)  # every chat has begun
        assert ingress.arrivals == ["1", "1"]
        ingress.gate.set()
        texts = [event.text for event in ingress.wait_for_events(3)]
    assert texts.index("before") < texts.index("after")


def test_a_stop_confirms_what_was_taken_in(api: BotApi, ingress: Ingress) -> None:
    ingress.gate.clear()
    with running(api, ingress) as bot:
        api.world.write("hello")
        ingress.wait_for(lambda: len(ingress.arrivals) == 1)
        stopping = threading.Thread(target=bot.disconnect)
        stopping.start()
        ingress.gate.set()
        stopping.join(10)

        assert not api.world.updates
        assert len(ingress.events) == 1


def test_a_desk_that_breaks_loses_nothing_and_is_reported(api: BotApi, ingress: Ingress) -> None:
    ingress.errors.append(RuntimeError("A bug."))
    api.world.write("hello")
    with running(api, ingress) as bot:
        assert bot.is_lost.wait(10)
        bot.loop.run(bot.adapter.connect(is_reconnect=True))

        assert ingress.wait_for_events()[0].text == "hello"


@pytest.mark.parametrize(
    "odd",
    [
        {"message_id": "no number", "chat": 5},
        {"message_id": 7, "date": 0},
        {"message_id": 7, "date": 0, "chat": {"id": 1, "type": "planet"}, "text": 5},
    ],
)
def test_an_update_that_cannot_be_read_is_skipped_and_the_next_one_heard(
    api: BotApi, ingress: Ingress, odd: dict[str, object]
) -> None:
    with running(api, ingress) as bot:
        api.world.tell("message", odd)
        api.world.write("hello")

        ingress.wait_for(lambda: any(event.text == "hello" for event in ingress.events))
        confirmed(api)
        assert not bot.lost


@pytest.mark.parametrize(
    "fault",
    [
        Cut("before"),
        Cut("after"),
        Fail(500),
        Fail(502, "Bad Gateway"),
        Fail(429, "Too Many Requests", retry_after=1),
        Fail(409, "Conflict: terminated by other getUpdates request"),
    ],
)
def test_a_poll_that_fails_is_made_again(api: BotApi, ingress: Ingress, fault: Cut | Fail) -> None:
    api.fail("getUpdates", fault)
    with running(api, ingress) as bot:
        api.world.write("hello")

        assert ingress.wait_for_events()[0].text == "hello"
        assert not bot.lost


def test_a_second_program_on_the_token_is_named_and_outlasted(
    api: BotApi, ingress: Ingress, caplog: pytest.LogCaptureFixture
) -> None:
    with running(api, ingress):
        api.world.wait_for(lambda: api._poll == 1)
        with urlopen(f"{api.url}/bot{api.token}/getUpdates?timeout=0", timeout=10) as rival:
            assert json.load(rival)["ok"]
        api.world.write("hello")

        assert ingress.wait_for_events()[0].text == "hello"
    assert "Another program polls this Telegram bot token" in caplog.text


def test_a_second_program_that_stays_is_reported(api: BotApi, ingress: Ingress) -> None:
    conflict = Fail(409, "Conflict: terminated by other getUpdates request")
    api.fail("getUpdates", *[conflict] * polling.MAX_FAILURES)
    with running(api, ingress) as bot:
        assert bot.is_lost.wait(10)

    assert "Another program polls" in bot.lost[0].message
    assert "Stop the other program" in bot.lost[0].fix
    assert not bot.lost[0].is_fatal


def test_a_network_that_is_gone_is_reported_and_found_again(api: BotApi, ingress: Ingress) -> None:
    with running(api, ingress) as bot:
        api.world.wait_for(lambda: api._poll == 1)
        api.go_offline()
        assert bot.is_lost.wait(10)
        assert not bot.lost[0].is_fatal
        with pytest.raises(PlatformError, match="cannot be reached"):
            bot.loop.run(bot.adapter.connect(is_reconnect=True))

        api.go_online()
        api.world.write("hello")
        bot.loop.run(bot.adapter.connect(is_reconnect=True))
        assert ingress.wait_for_events()[0].text == "hello"


def test_after_a_sleep_the_stale_poll_is_given_up(
    api: BotApi, ingress: Ingress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "_TICK_S", 0.02)
    api.fail("getUpdates", Hold(threading.Event()))
    with running(api, ingress):
        api.world.wait_for(lambda: api._poll == 1)
        api.world.write("while it slept")
        began = time.time()
        with clock.replaced(lambda: began + 3600 * (time.time() - began)):
            assert ingress.wait_for_events()[0].text == "while it slept"


@pytest.mark.parametrize("token", ["", "no token", "4242:AAEanotherTokenThatNobodyEverGaveOut"])
def test_a_wrong_token_is_fatal_and_says_where_it_belongs(
    api: BotApi, ingress: Ingress, token: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with unconnected(api, ingress, token=token) as bot, pytest.raises(PlatformError) as caught:
        bot.loop.run(bot.adapter.connect())

    assert caught.value.is_fatal
    assert "TELEGRAM_BOT_TOKEN" in str(caught.value)
    assert "[gateway.platforms.telegram]" in str(caught.value)
    assert not token or token not in str(caught.value) + caplog.text


def test_a_token_that_is_revoked_while_it_runs_is_fatal(api: BotApi, ingress: Ingress) -> None:
    api.fail("getUpdates", Fail(401, "Unauthorized"))
    with running(api, ingress) as bot:
        assert bot.is_lost.wait(10)

    assert bot.lost[0].is_fatal


def test_the_token_is_in_no_log(
    api: BotApi, ingress: Ingress, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    api.fail("getUpdates", Cut(), Fail(500))
    with running(api, ingress) as bot:
        api.world.attach("document", b"x", about={"file_name": "a.txt"})
        ingress.wait_for_events()
        bot.send(str(ANNA.id), "hello")

    assert api.token not in caplog.text


_KILLED_SCRIPT = """
import asyncio, sys
from gateway.config import PlatformConfig
from gateway.platforms.telegram.adapter import TelegramAdapter
from gateway.platforms.telegram.manifest import TelegramSettings

class Ingress:
    async def accept(self, event):
        print(event.text, flush=True)
        await asyncio.Event().wait()

async def main():
    settings = TelegramSettings(token=sys.argv[1], api_url=sys.argv[2])
    adapter = TelegramAdapter(PlatformConfig(), settings)
    adapter.set_ingress(Ingress())
    await adapter.connect()
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_a_killed_process_leaves_the_message_to_the_next_one(api: BotApi, ingress: Ingress) -> None:
    api.world.write("hello")
    with subprocess.Popen(
        [sys.executable, "-c", _KILLED_SCRIPT, api.token, api.url],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as client_process:
        assert client_process.stdout is not None
        assert client_process.stdout.readline() == "hello\n"
        client_process.send_signal(signal.SIGKILL)

    with running(api, ingress):
        assert ingress.wait_for_events()[0].text == "hello"
        confirmed(api)


@pytest.fixture
def hook() -> dict[str, object]:
    port = free_port()
    return {
        "mode": "webhook",
        "webhook_port": port,
        "webhook_url": f"http://127.0.0.1:{port}/telegram",
    }


def test_the_webhook_answers_when_the_message_is_taken_in(
    api: BotApi, ingress: Ingress, hook: dict[str, object]
) -> None:
    ingress.gate.clear()
    with running(api, ingress, **hook):
        api.world.write("one")
        api.world.write("two")
        ingress.wait_for(lambda: len(ingress.arrivals) == 1)
        assert len(api.world.updates) == 2

        ingress.gate.set()
        assert [event.text for event in ingress.wait_for_events(2)] == ["one", "two"]
        confirmed(api)


def test_the_webhook_gets_again_what_the_store_did_not_take(
    api: BotApi, ingress: Ingress, hook: dict[str, object]
) -> None:
    ingress.errors.extend([StoreBusyError("The database is locked."), RuntimeError("A bug.")])
    with running(api, ingress, **hook):
        api.world.write("one")
        api.world.write("two")

        assert [event.text for event in ingress.wait_for_events(2)] == ["one", "two"]
        assert ingress.arrivals == ["1", "1", "1", "2"]


@pytest.mark.parametrize(
    ("path", "secret", "body", "status"),
    [
        ("/telegram", "", b'{"update_id": 1}', 403),
        ("/telegram", "wrong", b'{"update_id": 1}', 403),
        ("/other", "right", b'{"update_id": 1}', 404),
        ("/telegram", "right", b"{", 400),
        ("/telegram", "right", b"[]", 400),
        ("/telegram", "right", b" " * 1_100_000, 413),
    ],
)
def test_the_webhook_refuses_who_is_not_telegram(
    api: BotApi,
    ingress: Ingress,
    hook: dict[str, object],
    path: str,
    secret: str,
    body: bytes,
    status: int,
) -> None:
    with running(api, ingress, **hook):
        assert api._webhook is not None
        header = {"right": api._webhook.secret}.get(secret, secret)
        url = f"http://127.0.0.1:{hook['webhook_port']}{path}"
        headers = {"X-Telegram-Bot-Api-Secret-Token": header}
        with pytest.raises(HTTPError) as caught:
            urlopen(Request(url, body, headers), timeout=10)
        caught.value.close()

    assert caught.value.code == status
    assert not ingress.arrivals


def test_a_webhook_that_somebody_takes_away_is_reported(
    api: BotApi, ingress: Ingress, hook: dict[str, object]
) -> None:
    with unconnected(api, ingress, **hook) as bot:
        bot.adapter.watch_s = 0.01
        bot.loop.run(bot.adapter.connect())
        with urlopen(f"{api.url}/bot{api.token}/deleteWebhook", timeout=10) as rival:
            assert json.load(rival)["ok"]
        assert bot.is_lost.wait(10)

    assert "Another program took over the webhook" in bot.lost[0].message
    assert not bot.lost[0].is_fatal


def test_a_webhook_that_telegram_cannot_reach_is_told_in_the_log(
    api: BotApi, ingress: Ingress, hook: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    hook["webhook_url"] = f"http://127.0.0.1:{free_port()}/telegram"
    api.world.write("hello")
    with unconnected(api, ingress, **hook) as bot:
        bot.adapter.watch_s = 0.01
        bot.loop.run(bot.adapter.connect())
        api.world.wait_for(lambda: api._webhook and api._webhook.failed_at)
        looks = api.count("getWebhookInfo")
        api.world.wait_for(lambda: api.count("getWebhookInfo") > looks + 5)

    assert "Telegram cannot reach the webhook" in caplog.text
    assert not bot.lost


def test_what_waits_for_a_webhook_is_heard_by_a_poll(
    api: BotApi, ingress: Ingress, hook: dict[str, object]
) -> None:
    with running(api, ingress, **hook):
        pass
    api.world.write("hello")

    with running(api, ingress):
        assert ingress.wait_for_events()[0].text == "hello"
    with running(api, ingress, **hook):
        api.world.write("and back")
        assert ingress.wait_for_events(2)[1].text == "and back"


def test_a_webhook_without_an_address_or_a_port_says_so(api: BotApi, ingress: Ingress) -> None:
    missing = pytest.raises(PlatformError, match="webhook_url")
    with unconnected(api, ingress, mode="webhook") as bot, missing:
        bot.loop.run(bot.adapter.connect())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        where = {"webhook_port": port, "webhook_url": f"http://127.0.0.1:{port}/"}
        in_use = pytest.raises(PlatformError, match=str(port))
        with unconnected(api, ingress, mode="webhook", **where) as bot, in_use:
            bot.loop.run(bot.adapter.connect())
    assert api._webhook is None
