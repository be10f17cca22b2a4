"""Matrix against a real homeserver: what people write reaches the ingress, and what we write them."""

import asyncio
import io
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import ClientConnectionError
from nio.responses import UploadResponse

from gateway.platforms.base import MessageType
from gateway.platforms.matrix import content, invitations
from gateway.platforms.matrix.client import Client
from tests.gateway.servers import synapse as server
from tests.gateway.servers.matrix import Bot, Person, bot, person, run, synapse
from tests.gateway.servers.synapse import Synapse

__all__ = ["bot", "synapse"]

pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(not server.is_installed(), reason=server.MISSING),
]
in_both_kinds_of_room = pytest.mark.parametrize("encrypted", [False, True])


@in_both_kinds_of_room
def test_a_direct_chat_works_in_both_directions(
    synapse: Synapse, bot: Bot, tmp_path: Path, encrypted: bool
) -> None:
    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana, bot.running() as adapter:
            room = await ana.with_bot(bot, encrypted=encrypted)
            await ana.say(room, "hello")
            event = await bot.ingress.message("hello")
            assert event.source is not None
            assert event.source.chat_type == "dm"
            assert (event.source.user_id, event.source.user_name) == (ana.user_id, "Ana")
            assert event.message_type is MessageType.TEXT

            sent = await adapter.send(room, "**hi** there", event.message_id, {"key": "k1"})
            assert sent.success, sent
            seen = await ana.read("**hi** there")
            assert seen["event_id"] == sent.message_id
            assert seen["content"]["formatted_body"] == "<p><strong>hi</strong> there</p>"
            relation = seen["content"]["m.relates_to"]
            assert relation["m.in_reply_to"]["event_id"] == event.message_id

    run(scenario())


@in_both_kinds_of_room
def test_a_reply_grows_by_edits(
    synapse: Synapse, bot: Bot, tmp_path: Path, encrypted: bool
) -> None:
    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana, bot.running() as adapter:
            room = await ana.with_bot(bot, encrypted=encrypted)
            first = await adapter.send(room, "Once", None, {"key": "k1"})
            assert first.message_id
            edited = await adapter.edit_message(room, first.message_id, "Once *upon* a time")
            assert edited.success
            seen = await ana.read("* Once *upon* a time")
            new = seen["content"]["m.new_content"]
            assert new["formatted_body"] == "<p>Once <em>upon</em> a time</p>"
            assert seen["content"]["m.relates_to"]["event_id"] == first.message_id

    run(scenario())


@in_both_kinds_of_room
def test_a_thread_stays_a_thread_also_for_an_edit_in_it(
    synapse: Synapse, bot: Bot, tmp_path: Path, encrypted: bool
) -> None:
    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana, bot.running() as adapter:
            room = await ana.with_bot(bot, encrypted=encrypted)
            root = await ana.say(room, "root")
            thread = {"rel_type": "m.thread", "event_id": root}
            event_id = await ana.say(room, "in it", **{"m.relates_to": thread})
            event = await bot.ingress.message("in it")
            assert event.source is not None
            assert event.source.thread_id == root

            new = {"msgtype": "m.text", "body": "in it, corrected"}
            relation = {"rel_type": "m.replace", "event_id": event_id}
            await ana.say(room, "* …", **{"m.relates_to": relation, "m.new_content": new})
            edit = await bot.ingress.message("in it, corrected")
            assert edit.edits == event_id
            assert edit.source is not None
            assert edit.source.thread_id == root

            await adapter.send(room, "mine", event_id, {"key": "k1", "thread_id": root})
            answer = (await ana.read("mine"))["content"]["m.relates_to"]
            assert answer["rel_type"] == "m.thread"
            assert answer["event_id"] == root
            assert answer["m.in_reply_to"]["event_id"] == event_id

    run(scenario())


def test_in_a_group_a_mention_or_a_reply_to_us_is_meant_for_us(
    synapse: Synapse, bot: Bot, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with (
            person(synapse, "ana", tmp_path) as ana,
            person(synapse, "ben", tmp_path) as ben,
            bot.running() as adapter,
        ):
            room = await ana.with_bot(bot, ben.user_id)
            await ben.client.join(room)
            await ana.until_joined(room, ben.user_id)
            await ana.say(room, "between us")
            among = await bot.ingress.message("between us")
            assert among.source is not None
            assert among.source.chat_type == "group"
            assert not among.is_mention

            await ben.say(room, "Hermes: and you?")
            assert (await bot.ingress.message("and you?")).is_mention
            mention = {"m.mentions": {"user_ids": [bot.account.user_id]}}
            await ben.say(room, "what about it", **mention)
            assert (await bot.ingress.message("what about it")).is_mention

            ours = await adapter.send(room, "fine", None, {"key": "k1"})
            relation = {"m.relates_to": {"m.in_reply_to": {"event_id": ours.message_id}}}
            await ana.say(room, "really?", **relation)
            reply = await bot.ingress.message("really?")
            assert reply.is_mention
            assert reply.reply_to_is_own_message
            assert reply.reply_to_text == "fine"

    run(scenario())


@in_both_kinds_of_room
def test_a_reply_quotes_the_last_version(
    synapse: Synapse, bot: Bot, tmp_path: Path, encrypted: bool
) -> None:
    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana, bot.running() as adapter:
            room = await ana.with_bot(bot, encrypted=encrypted)
            streamed = await adapter.send(room, "Once ▉", None, {"key": "k1"})
            assert streamed.message_id
            await adapter.edit_message(room, streamed.message_id, "Once upon a time")
            await ana.read("* Once upon a time")
            to_us = {"m.relates_to": {"m.in_reply_to": {"event_id": streamed.message_id}}}
            await ana.say(room, "and then?", **to_us)
            reply = await bot.ingress.message("and then?")
            assert reply.reply_to_text == "Once upon a time"
            assert reply.reply_to_is_own_message

            own = await ana.say(room, "old words")
            await ana.say(room, **content.edit("new words", own))
            await bot.ingress.message("new words")
            to_own = {"m.relates_to": {"m.in_reply_to": {"event_id": own}}}
            await ana.say(room, "explain that", **to_own)
            assert (await bot.ingress.message("explain that")).reply_to_text == "new words"

    run(scenario())


async def attach(sender: Person, room: str, data: bytes, *, encrypted: bool) -> None:
    uploaded, keys = await sender.client.upload(
        io.BytesIO(data), "image/png", "picture.png", encrypt=encrypted, filesize=len(data)
    )
    assert isinstance(uploaded, UploadResponse)
    where: dict[str, Any] = {"url": uploaded.content_uri}
    if encrypted:
        where = {"file": cast("dict[str, Any]", keys) | where}
    await sender.say(room, "look", msgtype="m.image", filename="picture.png", **where)


@in_both_kinds_of_room
def test_files_go_in_both_directions(
    synapse: Synapse, bot: Bot, tmp_path: Path, encrypted: bool
) -> None:
    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana, bot.running() as adapter:
            room = await ana.with_bot(bot, encrypted=encrypted)
            await attach(ana, room, b"a picture", encrypted=encrypted)
            event = await bot.ingress.message("look")
            assert event.message_type is MessageType.PHOTO
            assert [
                (attachment.name, attachment.path.read_bytes()) for attachment in event.attachments
            ] == [("picture.png", b"a picture")]

            report = tmp_path / "report.txt"
            report.write_text("all is well", encoding="utf-8")
            path = str(tmp_path / "gone.txt")
            sent = await adapter.send(
                room, "here", None, {"key": "k1", "files": [str(report), path]}
            )
            assert sent.success, sent
            assert len(sent.continuation_message_ids) == 2
            seen = (await ana.read("report.txt"))["content"]
            assert seen["msgtype"] == "m.file"
            assert ("file" in seen) is encrypted
            sorry = await ana.seen.until(
                lambda items: [
                    event for event in items if "gone.txt" in event["content"].get("body", "")
                ]
            )
            assert "could not be sent" in sorry[0]["content"]["body"]

    run(scenario())


def test_a_file_that_is_too_large_is_said_to_be(synapse: Synapse, bot: Bot, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana, bot.running():
            room = await ana.with_bot(bot)
            await attach(ana, room, b"x" * 1_000_001, encrypted=False)
            [event] = await bot.ingress.accepted.until(lambda items: items)
            assert event.attachments == []
            assert event.text.startswith(
                "look\n[The file picture.png was left out: picture.png has"
            )

    run(scenario())


@in_both_kinds_of_room
def test_what_was_said_between_the_invitation_and_our_coming_is_taken_in(
    synapse: Synapse, bot: Bot, tmp_path: Path, encrypted: bool
) -> None:
    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana:
            async with bot.running():
                pass  # the account has a device now, which is offline
            room = await ana.invite(encrypted=encrypted)
            await ana.seen.until(lambda items: any(event["room"] == room for event in items))
            await ana.say(room, "before you")
            await ana.client.room_invite(room, bot.account.user_id)
            await ana.seen.until(
                lambda items: any(event.get("state_key") == bot.account.user_id for event in items)
            )
            await ana.say(room, "are you coming?")
            async with bot.running():
                await bot.ingress.message("are you coming?")
            assert bot.ingress.texts() == ["are you coming?"]

    run(scenario())


def test_a_new_installation_does_not_answer_what_was_said_before(
    synapse: Synapse, bot: Bot, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana:
            room = await ana.invite(bot.account.user_id)
            synapse.ask("POST", f"/_matrix/client/v3/join/{room}", {}, bot.account.access_token)
            await ana.say(room, "long ago")
            async with bot.running():
                await ana.say(room, "now")
                await bot.ingress.message("now")
            assert bot.ingress.texts() == ["now"]

    run(scenario())


def test_without_auto_join_an_invitation_is_left_alone(
    synapse: Synapse, bot: Bot, tmp_path: Path
) -> None:
    bot.settings["auto_join"] = False

    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana, bot.running():
            old = await ana.invite(bot.account.user_id)
            room = await ana.invite(bot.account.user_id)
            synapse.ask("POST", f"/_matrix/client/v3/join/{room}", {}, bot.account.access_token)
            await ana.until_joined(room, bot.account.user_id)
            await ana.say(room, "hello")
            await bot.ingress.message("hello")  # by then the first invitation has been seen
            members = synapse.ask(
                "GET",
                f"/_matrix/client/v3/rooms/{old}/joined_members",
                None,
                ana.client.access_token,
            )
            assert list(members["joined"]) == [ana.user_id]

    run(scenario())


def test_a_room_that_cannot_be_entered_yet_holds_up_no_other_and_is_entered_later(
    synapse: Synapse, bot: Bot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async def silence(_client: Client, _room_id: str) -> None:
            await asyncio.Event().wait()  # as with a room whose server does not answer

        async with person(synapse, "ana", tmp_path) as ana:
            async with bot.running():
                room = await ana.with_bot(bot)
                with monkeypatch.context() as away:
                    away.setattr(invitations, "_JOIN_TIMEOUT_S", 0.1)
                    away.setattr(Client, "join", silence)
                    others = [await ana.invite(bot.account.user_id) for _ in range(2)]
                    await ana.say(room, "still there?")
                    await bot.ingress.message("still there?")
            async with bot.running():
                for other in others:
                    await ana.until_joined(other, bot.account.user_id)

    run(scenario())


def test_a_room_that_could_not_be_entered_for_a_moment_is_entered(
    synapse: Synapse, bot: Bot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = iter([502])
    join = Client.join

    async def fail_at_first(client: Client, room_id: str) -> object:
        if status := next(failures, None):
            raise ClientConnectionError(f"{status} Bad Gateway")
        return await join(client, room_id)

    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana, bot.running():
            monkeypatch.setattr(Client, "join", fail_at_first)
            await ana.with_bot(bot)

    run(scenario())


def test_our_own_messages_and_those_of_bots_are_not_taken_in(
    synapse: Synapse, bot: Bot, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana, bot.running() as adapter:
            room = await ana.with_bot(bot)
            await adapter.send(room, "mine", None, {"key": "k1"})
            await ana.say(room, "from a bot", msgtype="m.notice")
            event_id = await ana.say(room, "!help me")
            await bot.ingress.message("/help me")
            await ana.client.room_redact(room, event_id)
            await ana.say(room, "last")
            await bot.ingress.message("last")
            assert bot.ingress.texts() == ["/help me", "last"]

    run(scenario())


@in_both_kinds_of_room
@pytest.mark.parametrize("letter", ['"', "я", "🙂", "<", "*"])
def test_a_text_as_long_as_the_limit_fits_whatever_it_is_made_of(
    synapse: Synapse, bot: Bot, tmp_path: Path, encrypted: bool, letter: str
) -> None:
    text = letter * (content.TEXT_LIMIT // content.measure(letter))

    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana, bot.running() as adapter:
            room = await ana.with_bot(bot, encrypted=encrypted)
            sent = await adapter.send(room, text, None, {"key": "k1"})
            assert sent.success, sent.error
            assert sent.message_id
            edited = await adapter.edit_message(room, sent.message_id, text)
            assert edited.success, edited.error
            await ana.read(text)

    run(scenario())


def test_typing_is_shown_and_ends(synapse: Synapse, bot: Bot, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana, bot.running() as adapter:
            room = await ana.with_bot(bot)
            await adapter.send_typing(room)
            await ana.until_typing(room, [bot.account.user_id])
            await adapter.stop_typing(room)
            await ana.until_typing(room, [])

    run(scenario())
