"""Matrix events as messages: every kind that clients write, and those they should not."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.platforms.base import MessageEvent, MessageType
from gateway.platforms.matrix.translate import (
    Me,
    Media,
    Room,
    Translated,
    since_arrival,
    text_of,
    translate,
)

ME = Me("@hermes:example.org", "Hermes")
ROOM = Room("!room:example.org", "Kitchen", "Cooking", False, "Ana")


def source(content: dict[str, Any], **about: Any) -> dict[str, Any]:
    return {
        "type": "m.room.message",
        "event_id": "$1",
        "sender": "@ana:example.org",
        "origin_server_ts": 1_700_000_000_000,
        "content": content,
    } | about


def text(body: str, **content: Any) -> dict[str, Any]:
    return source({"msgtype": "m.text", "body": body} | content)


def translated(event: dict[str, Any], room: Room = ROOM) -> Translated:
    found = translate(event, room, ME)
    assert found is not None
    return found


def message(event: dict[str, Any], room: Room = ROOM) -> MessageEvent:
    return translated(event, room).event


def test_a_text_has_its_place_and_its_sender() -> None:
    event = message(text("hello"))
    assert (event.text, event.message_id, event.message_type) == ("hello", "$1", MessageType.TEXT)
    assert event.timestamp == datetime.fromtimestamp(1_700_000_000, UTC)
    assert event.source is not None
    assert event.source.to_dict() == {
        "platform": "matrix",
        "chat_id": "!room:example.org",
        "chat_name": "Kitchen",
        "chat_type": "group",
        "user_id": "@ana:example.org",
        "user_name": "Ana",
        "thread_id": None,
        "chat_topic": "Cooking",
        "message_id": "$1",
    }


def test_a_direct_chat_is_named_after_the_other_one() -> None:
    event = message(text("hello"), ROOM._replace(is_direct=True))
    assert event.source is not None
    assert (event.source.chat_type, event.source.chat_name) == ("dm", "Ana")


@pytest.mark.parametrize(
    "event",
    [
        text("mine") | {"sender": ME.user_id},
        source({"msgtype": "m.notice", "body": "from a bot"}),
        source({"msgtype": "m.server_notice", "body": "from the server"}),
        source({"msgtype": "m.key.verification.request", "body": "verify me"}),
        source({"msgtype": "m.of_tomorrow"}),
        source({"name": "Kitchen"}, type="m.room.name", state_key=""),
        source({}, unsigned={"redacted_because": {}}),
        source({"m.relates_to": {"rel_type": "m.annotation"}}, type="m.reaction"),
        source({"redacts": "$0"}, type="m.room.redaction"),
        {},
    ],
    ids=lambda event: str(event.get("type", "nothing")),
)
def test_what_is_no_message_for_us_is_left_out(event: dict[str, Any]) -> None:
    assert translate(event, ROOM, ME) is None


def test_an_edit_has_the_new_text_and_names_the_old_message() -> None:
    new = {"msgtype": "m.text", "body": "hello, Hermes"}
    relation = {"rel_type": "m.replace", "event_id": "$0"}
    event = message(text("* hello", **{"m.new_content": new, "m.relates_to": relation}))
    assert (event.text, event.edits, event.message_id) == ("hello, Hermes", "$0", "$1")
    assert event.is_mention


@pytest.mark.parametrize(
    ("body", "quoted", "expected"),
    [
        ("> <@bo:example.org> one\n> two\n\nyes", "one\ntwo", "yes"),
        ("> * <@bo:example.org> waves\n\nyes\n> no", "waves", "yes\n> no"),
        ("> to be or not to be\n\nyes", None, "> to be or not to be\n\nyes"),
        ("yes", None, "yes"),
    ],
)
def test_a_reply_is_freed_of_what_it_quotes(body: str, quoted: str | None, expected: str) -> None:
    relation = {"m.in_reply_to": {"event_id": "$0"}}
    event = message(text(body, **{"m.relates_to": relation}))
    assert (event.reply_to_message_id, event.reply_to_text, event.text) == ("$0", quoted, expected)


def test_a_quote_in_a_message_that_is_no_reply_stays() -> None:
    body = "> <@bo:example.org> one\n\nyes"
    assert message(text(body)).text == text_of(text(body)) == body


def test_in_a_thread_a_reply_is_only_one_when_it_was_meant() -> None:
    thread = {"rel_type": "m.thread", "event_id": "$0", "m.in_reply_to": {"event_id": "$5"}}
    meant = message(text("hi", **{"m.relates_to": thread | {"is_falling_back": False}}))
    fallback = message(text("hi", **{"m.relates_to": thread | {"is_falling_back": True}}))
    assert (meant.reply_to_message_id, fallback.reply_to_message_id) == ("$5", None)
    assert meant.source is not None
    assert meant.source.thread_id == "$0"


@pytest.mark.parametrize(
    ("event", "is_mention"),
    [
        (text("you there?", **{"m.mentions": {"user_ids": [ME.user_id]}}), True),
        (text("you there?", **{"m.mentions": {"user_ids": ["@bo:example.org"]}}), False),
        (text("ask @hermes:example.org"), True),
        (text("ask hermes please"), True),
        (text("a hermeskeil"), False),
        (text("x", formatted_body='<a href="https://matrix.to/#/@hermes:example.org">H</a>'), True),
        (text("hello"), False),
    ],
)
def test_a_mention_is_one_by_id_or_by_name(event: dict[str, Any], is_mention: bool) -> None:
    assert message(event).is_mention is is_mention


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("Hermes: hello", "hello"),
        ("@hermes, hello", "hello"),
        ("@hermes:example.org hello", "hello"),
        ("Hermes !new", "/new"),
        ("Hermes: /new", "/new"),
        ("Hermes was a god", "Hermes was a god"),
        ("Hermes:", "Hermes:"),
        ("!title A day", "/title A day"),
        ("!!!", "!!!"),
        ("! new", "! new"),
        ("/new", "/new"),
    ],
)
def test_our_name_before_a_text_goes_and_a_command_is_one(body: str, expected: str) -> None:
    event = message(text(body))
    assert event.text == expected
    assert (event.message_type is MessageType.COMMAND) == expected.startswith("/")


def test_without_a_prefix_only_a_slash_makes_a_command() -> None:
    found = translate(text("!new"), ROOM, Me("@hermes:example.org", "Hermes", ""))
    assert found is not None
    assert found.event.text == "!new"


def test_a_picture_has_a_caption_when_it_has_a_name_too() -> None:
    picture = {"msgtype": "m.image", "url": "mxc://example.org/1"}
    named = translated(source(picture | {"body": "my cat", "filename": "cat.png"}))
    assert (named.event.text, named.media) == ("my cat", Media("mxc://example.org/1", "cat.png"))
    bare = translated(source(picture | {"body": "cat.png"}))
    assert (bare.event.text, bare.media) == ("", Media("mxc://example.org/1", "cat.png"))
    assert bare.event.message_type is MessageType.PHOTO


def test_an_encrypted_file_brings_its_secret() -> None:
    secret = {"url": "mxc://example.org/1", "key": {"k": "…"}, "iv": "…", "hashes": {"sha256": "…"}}
    found = translated(source({"msgtype": "m.file", "body": "a.pdf", "file": secret}))
    assert found.media == Media("mxc://example.org/1", "a.pdf", secret)


@pytest.mark.parametrize("url", ["https://elsewhere.org/1", "", None, 5])
def test_a_file_that_does_not_lie_on_the_server_is_not_fetched(url: object) -> None:
    assert translated(source({"msgtype": "m.file", "body": "a.pdf", "url": url})).media is None


def test_the_other_kinds_are_what_they_say() -> None:
    voice = {"msgtype": "m.audio", "body": "v.ogg", "org.matrix.msc3245.voice": {}}
    assert message(source(voice)).message_type is MessageType.VOICE
    place = {"msgtype": "m.location", "body": "Here", "geo_uri": "geo:1,2"}
    assert message(source(place)).text == "Here (geo:1,2)"
    assert message(source({"msgtype": "m.emote", "body": "waves"})).text == "* Ana waves"
    assert message(source({"msgtype": "m.of_tomorrow", "body": "in words"})).text == "in words"
    sticker = source({"body": "a cat", "url": "mxc://example.org/1"}, type="m.sticker")
    assert translated(sticker).event.text == "a cat"
    assert translated(sticker).media is not None


def member(membership: str, before: str = "", who: str = ME.user_id) -> dict[str, Any]:
    about = {"unsigned": {"prev_content": {"membership": before}}} if before else {}
    return source({"membership": membership}, type="m.room.member", state_key=who) | about


@pytest.mark.parametrize(
    ("sources", "start"),
    [
        ([text("a"), text("b")], 0),
        ([text("a"), member("invite"), text("b"), member("join", "invite")], 2),
        ([text("a"), member("join"), text("b")], 2),
        ([text("a"), member("join", "leave"), text("b")], 2),
        ([text("a"), member("join", "invite"), text("b")], 0),
        ([text("a"), member("join", "join"), text("b")], 0),
        ([text("a"), member("invite", who="@bo:example.org"), text("b")], 0),
        ([member("invite"), text("a"), member("leave"), text("b"), member("invite")], 5),
    ],
)
def test_a_room_begins_to_be_for_us_with_the_invitation(
    sources: list[dict[str, Any]], start: int
) -> None:
    assert since_arrival(sources, ME.user_id) == start


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
_names = [
    "msgtype",
    "body",
    "m.relates_to",
    "m.new_content",
    "m.mentions",
    "file",
    "url",
    "filename",
]
_contents = st.dictionaries(st.sampled_from(_names), _json | st.sampled_from(["m.text", "m.image"]))
_events = st.fixed_dictionaries(
    {"type": st.sampled_from(["m.room.message", "m.sticker"]), "event_id": _json, "sender": _json},
    optional={"content": _json | _contents, "origin_server_ts": _json, "unsigned": _json},
)


@given(_events)
def test_whatever_a_client_writes_is_translated_or_left_out(event: dict[str, Any]) -> None:
    found = translate(event, ROOM, ME)
    assert found is None or found.event.message_id == event["event_id"]
    since_arrival([event], ME.user_id)
