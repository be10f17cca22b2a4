"""Matrix rooms that are replaced by others, on a real homeserver: followed when both rooms say so."""

from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import pytest

from tests.gateway.servers import synapse as server
from tests.gateway.servers.matrix import Bot, Person, bot, person, run, synapse
from tests.gateway.servers.synapse import Synapse

__all__ = ["bot", "synapse"]

pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(not server.is_installed(), reason=server.MISSING),
]


def upgraded(synapse: Synapse, who: Person, room: str) -> str:
    """The room that takes the place of another one; nobody but its maker is in it."""
    path = f"/_matrix/client/v3/rooms/{quote(room)}/upgrade"
    return str(
        synapse.ask("POST", path, {"new_version": "10"}, who.client.access_token)[
            "replacement_room"
        ]
    )


async def come(who: Person, bot: Bot, room: str) -> None:
    """Have the bot come into a room, and say something there."""
    await who.client.room_invite(room, bot.account.user_id)
    await who.until_joined(room, bot.account.user_id)
    await who.say(room, "hello again")
    await bot.ingress.message("hello again")


def test_a_room_that_was_upgraded_is_followed_before_anything_is_said_there(
    synapse: Synapse, bot: Bot, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana, bot.running() as adapter:
            old = await ana.with_bot(bot)
            new = upgraded(synapse, ana, old)
            waits = await adapter.send(old, "a reply", None, {"key": "k1"})
            assert (waits.error_kind, waits.retry_after is not None) == ("network", True)
            await come(ana, bot, new)
            assert set(bot.ingress.moves.items) == {(old, new)}
            assert (await adapter.send(new, "a reply", None, {"key": "k1"})).success

    run(scenario())


def test_a_move_that_the_store_does_not_take_is_told_again(
    synapse: Synapse, bot: Bot, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana, bot.running():
            old = await ana.with_bot(bot)
            new = upgraded(synapse, ana, old)
            bot.ingress.is_busy = True
            await ana.client.room_invite(new, bot.account.user_id)
            await ana.until_joined(new, bot.account.user_id)
            await bot.ingress.refusals.until(lambda items: len(items) > 1)
            assert bot.ingress.moves.items == []
            bot.ingress.is_busy = False
            assert await bot.ingress.moves.until(lambda items: items[:1]) == [(old, new)]

    run(scenario())


def test_a_replacement_that_was_joined_before_it_was_announced_is_followed(
    synapse: Synapse, bot: Bot, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana, bot.running():
            old = await ana.with_bot(bot)
            new = await following(ana, old)
            await come(ana, bot, new)
            await ana.client.room_put_state(
                old, "m.room.tombstone", {"body": "Over there.", "replacement_room": new}
            )
            assert await bot.ingress.moves.until(lambda items: items[:1]) == [(old, new)]

    run(scenario())


async def following(who: Person, old: str) -> str:
    """A room of theirs that says to take the place of another one."""
    response = await who.client.room_create(predecessor={"room_id": old, "event_id": "$none"})
    return str(cast("Any", response).room_id)


def test_a_room_that_only_says_itself_to_be_a_replacement_is_not_believed(
    synapse: Synapse, bot: Bot, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with (
            person(synapse, "ana", tmp_path) as ana,
            person(synapse, "eve", tmp_path) as eve,
            bot.running(),
        ):
            old = await ana.with_bot(bot)
            new = await following(eve, old)
            await come(eve, bot, new)
            assert bot.ingress.moves.items == []

    run(scenario())


def test_a_room_that_does_not_know_of_it_is_no_replacement(
    synapse: Synapse, bot: Bot, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with person(synapse, "ana", tmp_path) as ana, bot.running():
            old, other = await ana.with_bot(bot), await ana.with_bot(bot)
            await ana.client.room_put_state(
                old, "m.room.tombstone", {"body": "Over there.", "replacement_room": other}
            )
            await ana.say(old, "after it")
            await bot.ingress.message("after it")
            assert bot.ingress.moves.items == []

    run(scenario())
