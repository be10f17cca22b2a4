"""Matrix against a real homeserver: who can read what, and what becomes of it when keys are missing."""

import json
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest

from gateway.platforms.base import PlatformError
from gateway.platforms.matrix.adapter import MatrixAdapter
from tests.gateway.servers import synapse as server
from tests.gateway.servers.matrix import (
    Bot,
    LossyProxy,
    Person,
    bot,
    device,
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


def test_lost_keys_make_a_new_device_of_us(synapse: Synapse, bot: Bot, tmp_path: Path) -> None:
    account = {"user": bot.account.user_id, "password": bot.account.password}
    bot.settings |= account | {"access_token": ""}
    path = bot.folder / "matrix" / "device.json"

    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana:
            async with bot.running():
                room = await ana.with_bot(bot, encrypted=True)
            before = json.loads(path.read_text())
            (bot.folder / "matrix" / "keys.db").unlink()
            async with bot.running():
                after = json.loads(path.read_text())
                assert after["device_id"] != before["device_id"]
                await ana.until_knows_device(bot.account.user_id, after["device_id"])
                await ana.say(room, "welcome back")
                await bot.ingress.message("welcome back")

    run(scenario())


def test_another_password_is_tried_before_it_is_taken(
    synapse: Synapse, bot: Bot, tmp_path: Path
) -> None:
    account = {"user": bot.account.user_id, "password": bot.account.password}
    bot.settings |= account | {"access_token": ""}
    path = bot.folder / "matrix" / "device.json"

    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana:
            async with bot.running():
                room = await ana.with_bot(bot, encrypted=True)
            before = path.read_text()
            bot.settings["password"] = "wrong"
            with pytest.raises(PlatformError, match="rejects our user and password"):
                async with bot.running():
                    pass
            bot.settings["password"] = bot.account.password
            async with bot.running():
                assert path.read_text() == before, "the login of before is still good"
                await ana.say(room, "still the same device?")
                await bot.ingress.message("still the same device?")
            assert bot.account.password not in before

    run(scenario())


def test_a_token_whose_keys_are_lost_still_reads_plain_rooms_and_says_what_is_wrong(
    synapse: Synapse, bot: Bot, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana:
            async with bot.running():
                room = await ana.with_bot(bot)
            (bot.folder / "matrix" / "keys.db").unlink()
            async with bot.running():
                await ana.say(room, "still there?")
                await bot.ingress.message("still there?")
        assert "set another access_token" in caplog.text

    run(scenario())


def test_a_key_that_did_not_get_through_is_not_followed_by_a_message_nobody_can_read(
    synapse: Synapse, bot: Bot, proxy: LossyProxy, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana, bot.running() as adapter:
            room = await ana.with_bot(bot, encrypted=True)
            proxy.lose(b"/sendToDevice/")
            failed = await adapter.send(room, "the answer", None, {"key": "k1"})
            assert failed.error_kind == "network"
            proxy.find()
            again = await adapter.send(room, "the answer", None, {"key": "k1"})
            assert again.success, again
            assert not (await ana.read("the answer"))["locked"]

    run(scenario())


def test_keys_that_cannot_be_written_for_a_while_cost_nothing(
    synapse: Synapse, bot: Bot, tmp_path: Path
) -> None:
    def writable(adapter: MatrixAdapter, is_writable: bool) -> None:
        client = cast("Any", adapter._client)
        client.store.database.execute_sql(f"PRAGMA query_only = {int(not is_writable)}")

    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana, bot.running() as adapter:
            room = await ana.with_bot(bot, encrypted=True)
            writable(adapter, False)
            failed = await adapter.send(room, "the answer", None, {"key": "k1"})
            assert failed.error_kind == "network", failed
            writable(adapter, True)
            again = await adapter.send(room, "the answer", None, {"key": "k1"})
            assert again.success, again
            assert not (await ana.read("the answer"))["locked"]

            writable(adapter, False)
            ana.client.invalidate_outbound_session(room)  # the next message brings a key
            await ana.say(room, "and now?")
            [error] = await bot.lost.until(lambda items: items)
            assert not error.is_fatal
            await adapter.connect(is_reconnect=True)
            await bot.ingress.message("and now?")
            assert bot.ingress.texts() == ["and now?"]

    run(scenario())


async def withhold_key(sender: Person, room: str) -> dict[str, Any]:
    """Begin a new key for a room and do not hand it out; what would hand it out is returned."""
    olm = cast("Any", sender.client.olm)
    await sender.client.joined_members(room)
    if sender.client.should_query_keys:
        await sender.client.keys_query()
    await sender.client.keys_claim(cast("Any", sender.client.get_missing_sessions(room)))
    olm.create_outbound_group_session(room)
    users = list(sender.client.rooms[room].users)
    [(_, to_share)] = olm.share_group_session_parallel(room, users, ignore_unverified_devices=True)
    olm.outbound_group_sessions[room].shared = True
    return cast("dict[str, Any]", to_share)


def test_a_message_whose_key_comes_late_is_taken_in_then_also_after_a_restart(
    synapse: Synapse, bot: Bot, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana:
            async with bot.running():
                room = await ana.with_bot(bot, encrypted=True)
                key = await withhold_key(ana, room)
                await ana.say(room, "can you read this?")
                await ana.say(room, "and this?")
                await bot.until_locked(2)
            async with bot.running():
                synapse.ask(
                    "PUT",
                    f"/_matrix/client/v3/sendToDevice/m.room.encrypted/{uuid4()}",
                    key,
                    ana.client.access_token,
                )
                await bot.ingress.message("and this?")
            assert bot.ingress.texts() == ["can you read this?", "and this?"]
            async with bot.running():
                await bot.until_locked(0)
            assert bot.ingress.texts() == ["can you read this?", "and this?"]

    run(scenario())


def test_somebody_whose_message_stays_unreadable_is_told_once(
    synapse: Synapse, bot: Bot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.platforms.matrix.adapter.MatrixAdapter.key_timeout_s", 0.0)

    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana:
            async with bot.running():
                room = await ana.with_bot(bot, encrypted=True)
                await withhold_key(ana, room)
                event_id = await ana.say(room, "can you read this?")
                await ana.say(room, "and this?")
                [notice] = await ana.seen.until(
                    lambda items: [
                        event for event in items if event["content"].get("msgtype") == "m.notice"
                    ]
                )
                assert "I cannot read your last message" in notice["content"]["body"]
                assert notice["content"]["m.relates_to"]["m.in_reply_to"]["event_id"] == event_id
            async with bot.running() as adapter:
                await adapter.send(room, "the end", None, {"key": "k1"})
                await ana.read("the end")
            notices = [
                event for event in ana.seen.items if event["content"].get("msgtype") == "m.notice"
            ]
            assert len(notices) == 1

    run(scenario())


def test_only_verified_devices_read_when_the_setting_says_so(
    synapse: Synapse, bot: Bot, tmp_path: Path
) -> None:
    async def scenario() -> None:
        account = synapse.register("ana")
        async with (
            device(synapse, account, tmp_path) as phone,
            device(synapse, synapse.log_in(account), tmp_path) as laptop,
        ):
            olm = cast("Any", phone.client.olm)
            fingerprint = olm.account.identity_keys["ed25519"]
            bot.settings |= {"ignore_unverified_devices": False, "verified_devices": [fingerprint]}
            async with bot.running() as adapter:
                room = await phone.with_bot(bot, encrypted=True)
                sent = await adapter.send(room, "secret", None, {"key": "k1"})
                assert sent.success, sent
                assert not (await phone.read("secret"))["locked"]
                there = await laptop.seen.until(
                    lambda items: [event for event in items if event["event_id"] == sent.message_id]
                )
                assert there[0]["locked"]

    run(scenario())
