"""Invitations: only people who may write to the agent bring it into a room."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from nio.events import InviteEvent
from nio.responses import InviteInfo

from gateway.platforms.matrix.client import Client
from gateway.platforms.matrix.cursor import Cursor
from gateway.platforms.matrix.invitations import Invitations, inviter_of
from gateway.platforms.matrix.reader import Reader
from gateway.platforms.matrix.receiving import Receiver
from gateway.platforms.matrix.translate import Me
from gateway.platforms.matrix.undecrypted import UndecryptedMessages
from tests.gateway.platforms.scripted_ingress import ScriptedIngress

_US, _ANA, _EVE = "@hermes:example.org", "@ana:example.org", "@eve:evil.test"


class RecordingInvitations:
    """Records the rooms that would be joined."""

    def __init__(self) -> None:
        self.rooms: list[str] = []

    async def enter(self, room_id: str) -> None:
        self.rooms.append(room_id)


def _member(sender: str, who: str, membership: str) -> dict[str, Any]:
    content = {"membership": membership}
    return {"type": "m.room.member", "sender": sender, "state_key": who, "content": content}


def _invitation(*members: dict[str, Any]) -> InviteInfo:
    events = [InviteEvent.parse_event(member) for member in members]
    return InviteInfo([event for event in events if isinstance(event, InviteEvent)])


def _joined(rooms: dict[str, InviteInfo], *, auto_join: bool = True) -> list[str]:
    """Process a sync with invitations; return the rooms that are joined."""
    client = cast("Client", SimpleNamespace(user_id=_US, rooms={}))
    ingress, invitations = ScriptedIngress(), RecordingInvitations()
    ingress.strangers = {_EVE, ""}
    reader = Reader(
        client,
        Receiver(client, ingress, Me(_US, "Hermes", "!")),
        cast("Cursor", None),
        cast("UndecryptedMessages", None),
        cast("Invitations", invitations),
        auto_join=auto_join,
    )

    async def process() -> None:
        for room_id, info in rooms.items():
            await reader._consider(room_id, info)

    asyncio.run(process())
    return invitations.rooms


def test_a_room_is_joined_for_people_who_may_write_alone() -> None:
    rooms = {
        "!friends": _invitation(_member(_ANA, _ANA, "join"), _member(_ANA, _US, "invite")),
        "!trap": _invitation(_member(_ANA, _ANA, "join"), _member(_EVE, _US, "invite")),
        "!unsigned": _invitation(_member(_ANA, _ANA, "join")),
    }
    assert _joined(rooms) == ["!friends"]
    assert _joined(rooms, auto_join=False) == []


@pytest.mark.parametrize(
    ("members", "inviter"),
    [
        ([_member(_ANA, _US, "invite")], _ANA),
        ([_member(_ANA, _EVE, "invite"), _member(_EVE, _US, "invite")], _EVE),
        ([_member(_ANA, _US, "leave")], ""),
        ([], ""),
    ],
)
def test_who_invites_us_is_who_sent_our_own_invitation(
    members: list[dict[str, Any]], inviter: str
) -> None:
    assert inviter_of(_invitation(*members), _US) == inviter
