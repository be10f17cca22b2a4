"""Matrix against a real homeserver: nothing is lost or doubled, whatever breaks."""

import asyncio
import json
from pathlib import Path

import pytest

from gateway.locks import AccountLock
from gateway.platforms.base import PlatformError
from gateway.platforms.testing.network import Proxy
from tests.gateway.servers import synapse as server
from tests.gateway.servers.matrix import (
    Bot,
    LossyProxy,
    Person,
    RecordingIngress,
    bot,
    person,
    proxy,
    run,
    synapse,
)
from tests.gateway.servers.synapse import Synapse

__all__ = ["bot", "proxy", "synapse"]

pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(not server.is_installed(), reason=server.MISSING),
]
in_both_kinds_of_room = pytest.mark.parametrize("encrypted", [False, True])


@in_both_kinds_of_room
def test_what_comes_while_we_are_away_is_taken_in_once_and_in_order(
    synapse: Synapse, bot: Bot, tmp_path: Path, encrypted: bool
) -> None:
    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana:
            async with bot.running():
                room = await ana.with_bot(bot, encrypted=encrypted)
                await ana.say(room, "one")
                await bot.ingress.message("one")
            await ana.say(room, "two")
            await ana.say(room, "three")
            async with bot.running():
                await ana.say(room, "four")
                await bot.ingress.message("four")
            assert bot.ingress.texts() == ["one", "two", "three", "four"]

    run(scenario())


@in_both_kinds_of_room
def test_who_takes_the_account_over_goes_on_where_the_other_home_stopped(
    synapse: Synapse, bot: Bot, tmp_path: Path, encrypted: bool
) -> None:
    other = Bot(synapse, synapse.log_in(bot.account), tmp_path / "elsewhere")
    for home in (bot, other):
        home.lock = AccountLock("matrix", bot.account.user_id)

    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana:
            async with other.running():
                room = await ana.with_bot(other, encrypted=encrypted)
            async with bot.running():
                if encrypted:
                    await ana.until_knows_device(bot.account.user_id, bot.account.device_id)
                ana.client.invalidate_outbound_session(room)
                await ana.say(room, "one")
                await bot.ingress.message("one")
            # Its key is sent to both devices, and one of them sleeps.
            ana.client.invalidate_outbound_session(room)
            await ana.say(room, "two")
            async with bot.running():
                await bot.ingress.message("two")
            await ana.say(room, "three")
            async with other.running():
                await other.ingress.message("three")
            await ana.say(room, "four")
            async with bot.running():
                await bot.ingress.message("four")
        assert other.ingress.texts() == ["three"]
        assert bot.ingress.texts() == ["one", "two", "four"]

    run(scenario())


@in_both_kinds_of_room
def test_a_message_that_was_not_stored_when_we_died_comes_again(
    synapse: Synapse, bot: Bot, tmp_path: Path, encrypted: bool
) -> None:
    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana:
            dying = RecordingIngress(tmp_path / "dying")
            async with bot.running():
                room = await ana.with_bot(bot, encrypted=encrypted)
            dying.is_stuck = True
            async with bot.running(dying):
                await ana.say(room, "one")
                await ana.say(room, "two")
                await dying.deliveries.until(lambda items: items)
            async with bot.running():
                await bot.ingress.message("two")
            assert dying.texts() == []
            assert bot.ingress.texts() == ["one", "two"]

    run(scenario())


def test_a_busy_store_is_asked_again_until_it_has_the_message(
    synapse: Synapse, bot: Bot, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana, bot.running():
            room = await ana.with_bot(bot)
            bot.ingress.is_busy = True
            seen = len(bot.ingress.deliveries.items)
            await ana.say(room, "one")
            await ana.say(room, "two")
            await bot.ingress.deliveries.until(lambda items: len(items) >= seen + 2)
            bot.ingress.is_busy = False
            await bot.ingress.message("two")
            assert bot.ingress.texts() == ["one", "two"]

    run(scenario())


def test_more_than_a_sync_shows_is_read_back(synapse: Synapse, bot: Bot, tmp_path: Path) -> None:
    texts = {f"message {n}" for n in range(120)}

    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana:
            async with bot.running():
                room = await ana.with_bot(bot)
            await asyncio.gather(*(ana.say(room, text) for text in texts))
            async with bot.running():
                await bot.ingress.accepted.until(lambda items: len(items) >= len(texts))
            path = f"/_matrix/client/v3/rooms/{room}/messages?dir=b&limit={len(texts)}"
            there = synapse.ask("GET", path, None, ana.client.access_token)["chunk"]
            assert bot.ingress.texts() == [event["content"]["body"] for event in reversed(there)]
            assert set(bot.ingress.texts()) == texts

    run(scenario())


def test_a_kill_at_any_moment_loses_no_encrypted_message_and_doubles_none(
    synapse: Synapse, bot: Bot, tmp_path: Path
) -> None:
    texts = [f"message {n}" for n in range(24)]

    async def speak(ana: Person, room: str) -> None:
        for number, text in enumerate(texts):
            if number % 3 == 0:
                ana.client.invalidate_outbound_session(room)  # every third has a key of its own
            await ana.say(room, text)

    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana:
            async with bot.running():
                room = await ana.with_bot(bot, encrypted=True)
            speaking = asyncio.create_task(speak(ana, room))
            for lines in (1, 2, 1, 3, 1, 2):
                async with bot.child() as child:
                    for _ in range(lines):
                        await child.line()
            await speaking
            async with bot.child() as child:
                await child.until_accepted(texts[-1])
            assert bot.accepted_by_children() == texts

    run(scenario())


@in_both_kinds_of_room
def test_a_piece_that_is_sent_again_is_one_message_also_after_a_restart(
    synapse: Synapse, bot: Bot, tmp_path: Path, encrypted: bool
) -> None:
    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana:
            async with bot.running() as adapter:
                room = await ana.with_bot(bot, encrypted=encrypted)
                first = await adapter.send(room, "the answer", None, {"key": "piece/1"})
                again = await adapter.send(room, "the answer", None, {"key": "piece/1"})
            async with bot.running() as adapter:
                after = await adapter.send(room, "the answer", None, {"key": "piece/1"})
                await adapter.send(room, "the end", None, {"key": "piece/2"})
            assert first.success
            assert first.message_id == again.message_id == after.message_id
            await ana.read("the end")
            assert ana.bodies(room)[-2:] == ["the answer", "the end"]
            assert ana.bodies(room).count("the answer") == 1

    run(scenario())


def test_the_same_device_with_another_token_still_sends_one_message(
    synapse: Synapse, bot: Bot, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana:
            async with bot.running() as adapter:
                room = await ana.with_bot(bot)
                first = await adapter.send(room, "the answer", None, {"key": "k1"})
            other = synapse.log_in(bot.account, device_id=bot.account.device_id)
            bot.settings["access_token"] = other.access_token
            async with bot.running() as adapter:
                again = await adapter.send(room, "the answer", None, {"key": "k1"})
            assert again.success
            assert again.message_id == first.message_id

    run(scenario())


def test_who_was_logged_out_comes_back_with_the_password_as_a_new_device(
    synapse: Synapse, bot: Bot, tmp_path: Path
) -> None:
    account = {"user": bot.account.user_id, "password": bot.account.password}
    bot.settings |= account | {"access_token": ""}
    path = bot.folder / "matrix" / "device.json"

    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana:
            async with bot.running():
                room = await ana.with_bot(bot, encrypted=True)
                before = json.loads(path.read_text())
                synapse.ask("POST", "/_matrix/client/v3/logout", {}, before["access_token"])
                [error] = await bot.lost.until(lambda items: items)
                assert not error.is_fatal
            async with bot.running() as adapter:
                after = json.loads(path.read_text())
                assert after["device_id"] != before["device_id"]
                await ana.until_knows_device(bot.account.user_id, after["device_id"])
                await ana.say(room, "welcome back")
                await bot.ingress.message("welcome back")
                sent = await adapter.send(room, "thank you", None, {"key": "k1"})
                assert sent.success, sent
                assert not (await ana.read("thank you"))["locked"]
            async with bot.running():
                assert json.loads(path.read_text()) == after

    run(scenario())


def test_a_cursor_that_the_server_does_not_know_is_given_up_aloud(
    synapse: Synapse, bot: Bot, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana:
            async with bot.running():
                room = await ana.with_bot(bot)
            cursor = bot.folder / "matrix" / "cursor.json"
            cursor.write_text(json.dumps({"user_id": bot.account.user_id, "since": "nonsense"}))
            async with bot.running():
                await ana.say(room, "still there?")
                await bot.ingress.message("still there?")
        assert "forgot our position" in caplog.text

    run(scenario())


def test_a_rate_limit_says_when_to_come_back(synapse: Synapse, bot: Bot, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana, bot.running() as adapter:
            room = await ana.with_bot(bot)
            synapse.limit(bot.account)
            results = [await adapter.send(room, f"{n}", None, {"key": f"k{n}"}) for n in range(3)]
            limited = [result for result in results if not result.success]
            assert limited
            assert {result.error_kind for result in limited} == {"rate_limited"}
            assert all(result.retry_after and result.retry_after > 0 for result in limited)

    run(scenario())


def test_a_revoked_token_ends_the_connection_and_names_the_setting(
    synapse: Synapse, bot: Bot, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with bot.running() as adapter:
            synapse.ask("POST", "/_matrix/client/v3/logout", {}, bot.account.access_token)
            [error] = await bot.lost.until(lambda items: items)
            assert "logged the account out" in str(error)
            with pytest.raises(PlatformError) as refused:
                await adapter.connect(is_reconnect=True)
        assert refused.value.is_fatal
        assert "access_token (MATRIX_ACCESS_TOKEN)" in str(refused.value)
        assert bot.account.access_token not in str(refused.value)

    run(scenario())


def test_a_wrong_password_is_fatal_and_an_absent_server_is_not(synapse: Synapse, bot: Bot) -> None:
    async def connecting() -> PlatformError:
        adapter = bot.adapter()
        adapter.set_ingress(bot.ingress)
        with pytest.raises(PlatformError) as refused:
            await adapter.connect()
        return refused.value

    async def scenario() -> None:
        user = {"access_token": "", "user": bot.account.user_id, "password": "wrong"}
        bot.settings |= user
        wrong = await connecting()
        assert wrong.is_fatal
        assert "user and password" in wrong.fix
        with Proxy("127.0.0.1", synapse.port) as proxy:
            bot.settings["homeserver"] = f"http://{proxy.address}"
        absent = await connecting()
        assert not absent.is_fatal
        assert "homeserver" in absent.fix

    run(scenario())


@in_both_kinds_of_room
def test_a_cut_network_is_outlived(
    synapse: Synapse, bot: Bot, proxy: LossyProxy, tmp_path: Path, encrypted: bool
) -> None:
    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana, bot.running() as adapter:
            room = await ana.with_bot(bot, encrypted=encrypted)
            proxy.refuse()
            proxy.cut()
            failed = await adapter.send(room, "lost?", None, {"key": "k1"})
            assert failed.error_kind == "network"
            await ana.say(room, "can you hear me?")
            proxy.heal()
            await bot.ingress.message("can you hear me?")
            again = await adapter.send(room, "lost?", None, {"key": "k1"})
            assert again.success, again
            assert not (await ana.read("lost?"))["locked"]
            assert ana.bodies(room).count("lost?") == 1

    run(scenario())


def test_a_server_that_is_away_is_told_of_and_what_was_said_meanwhile_is_read_afterwards(
    synapse: Synapse, bot: Bot, proxy: LossyProxy, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana, bot.running() as adapter:
            room = await ana.with_bot(bot)
            proxy.refuse()
            proxy.cut()
            [error] = await bot.lost.until(lambda items: items)
            assert not error.is_fatal
            assert "is away" in str(error)
            await ana.say(room, "can you hear me?")
            proxy.heal()
            await adapter.connect(is_reconnect=True)
            await bot.ingress.message("can you hear me?")

    run(scenario())


@in_both_kinds_of_room
def test_an_answer_that_got_lost_on_the_way_does_not_make_a_second_message(
    synapse: Synapse, bot: Bot, proxy: LossyProxy, tmp_path: Path, encrypted: bool
) -> None:
    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana, bot.running() as adapter:
            room = await ana.with_bot(bot, encrypted=encrypted)
            await adapter.send(room, "before", None, {"key": "k0"})
            lost = proxy.lose(b"/k1 ")
            unsure = await adapter.send(room, "the answer", None, {"key": "k1"})
            assert unsure.error_kind == "network"
            assert lost.is_set()
            proxy.find()
            there = await ana.read("the answer")
            again = await adapter.send(room, "the answer", None, {"key": "k1"})
            assert again.message_id == there["event_id"]
            await adapter.send(room, "the end", None, {"key": "k2"})
            await ana.read("the end")
            assert ana.bodies(room).count("the answer") == 1

    run(scenario())


def test_who_was_thrown_out_of_a_room_is_refused(
    synapse: Synapse, bot: Bot, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana, bot.running() as adapter:
            room = await ana.with_bot(bot)
            await ana.client.room_kick(room, bot.account.user_id)
            refused = await adapter.send(room, "hello?", None, {"key": "k1"})
            assert refused.error_kind == "refused", refused
            nowhere = await adapter.send("!nowhere:localhost", "hello?", None, {"key": "k2"})
            assert nowhere.error_kind == "refused"

    run(scenario())


def test_what_is_kept_on_disk_is_readable_by_its_owner_alone(
    synapse: Synapse, bot: Bot, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana, bot.running():
            await ana.with_bot(bot, encrypted=True)
        modes = {
            path.name: path.stat().st_mode & 0o077 for path in (bot.folder / "matrix").iterdir()
        }
        assert modes == {"keys.db": 0, "cursor.json": 0}

    run(scenario())
