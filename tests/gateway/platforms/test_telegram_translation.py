"""Every kind of message that Telegram knows, as the gateway hears it."""

from collections.abc import Iterator
from typing import Any

import pytest

from gateway.platforms.base import Button, MessageEvent, MessageType
from gateway.source import SessionSource
from tests.gateway.platforms.telegram_bot import Ingress, Running, running, unconnected
from tests.gateway.servers.telegram import ANNA, BEN, NAME, BotApi, Cut, Fail

GROUP, FORUM, CHANNEL = -1001, -1002, -1003
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[BotApi, Running, Ingress]]:
    with BotApi() as api:
        api.world.add_chat(GROUP, "supergroup", "Friends")
        api.world.add_chat(FORUM, "supergroup", "Work", topics={7: "Plans"})
        api.world.add_chat(CHANNEL, "channel", "News")
        ingress = Ingress()
        with running(api, ingress) as bot:
            api.world.write("hello")  # a bot cannot be the first to say something
            ingress.wait_for_events(1)
            yield api, bot, ingress


class Ear:
    """Does something as a person and tells what was heard of it."""

    def __init__(self, api: BotApi, bot: Running, ingress: Ingress) -> None:
        self.api, self.bot, self.ingress, self.world = api, bot, ingress, api.world

    def event(self, before: int | None = None) -> MessageEvent:
        """The message that was heard last, and the only one since the last look."""
        count = len(self.ingress.events) if before is None else before
        return self.ingress.wait_for_events(count + 1)[-1]

    def say(self, text: str, **more: Any) -> MessageEvent:
        before = len(self.ingress.events)
        self.world.write(text, **more)
        return self.event(before)

    def attach(self, kind: str, content: bytes = PNG, **more: Any) -> MessageEvent:
        before = len(self.ingress.events)
        self.world.attach(kind, content, **more)
        return self.event(before)

    def deliver(self, body: dict[str, Any], *args: Any, **more: Any) -> MessageEvent:
        before = len(self.ingress.events)
        self.world.deliver(body, *args, **more)
        return self.event(before)

    def bot_says(self, chat: int, text: str = "I said so.") -> int:
        return int(self.bot.send(str(chat), text).message_id)


@pytest.fixture
def ear(served: tuple[BotApi, Running, Ingress]) -> Ear:
    return Ear(*served)


def source(event: MessageEvent) -> SessionSource:
    assert event.source is not None
    return event.source


def test_a_direct_message(ear: Ear) -> None:
    event = ear.say("hello")

    assert (event.text, event.message_type) == ("hello", MessageType.TEXT)
    assert source(event).chat_type == "dm"
    assert (source(event).chat_id, source(event).user_id) == (str(ANNA.id), str(ANNA.id))
    assert (source(event).chat_name, source(event).user_name) == ("Anna", "Anna")
    assert source(event).thread_id is None
    assert event.message_id == source(event).message_id
    assert event.timestamp.tzinfo is None


def test_a_command(ear: Ear) -> None:
    event = ear.say("/new now")

    assert event.message_type is MessageType.COMMAND
    assert (event.get_command(), event.get_command_args()) == ("new", "now")


@pytest.mark.parametrize(
    ("text", "expected", "is_mention"),
    [
        ("hello all", "hello all", False),
        (f"@{NAME} hello", "hello", True),
        (f"@{NAME.upper()}, hello", "hello", True),
        (f"hello @{NAME}", f"hello @{NAME}", True),
        (f"@{NAME}", f"@{NAME}", True),
        (f"@{NAME}x hello", f"@{NAME}x hello", False),
        (f"@{NAME}_too hello", f"@{NAME}_too hello", False),
        ("@somebody hello", "@somebody hello", False),
        ("/new", "/new", True),
        (f"/new@{NAME}", f"/new@{NAME}", True),
        (f"@{NAME} /new", "/new", True),
        ("see /new", "see /new", False),
    ],
)
def test_a_message_in_a_group_and_whether_it_is_for_us(
    ear: Ear, text: str, expected: str, is_mention: bool
) -> None:
    event = ear.say(text, person=BEN, chat=GROUP)

    assert (event.text, event.is_mention) == (expected, is_mention)
    assert (source(event).chat_type, source(event).chat_id) == ("group", str(GROUP))
    assert (source(event).chat_name, source(event).user_id) == ("Friends", str(BEN.id))


@pytest.mark.parametrize(
    ("text", "names_nobody"),
    [("/new", True), (f"/new@{NAME}", False), (f"/new for @{NAME}", False), ("hello", False)],
)
def test_a_command_in_a_group_names_its_bot_or_nobody(
    ear: Ear, text: str, names_nobody: bool
) -> None:
    assert ear.say(text, person=BEN, chat=GROUP).names_nobody is names_nobody


def test_a_command_for_another_bot_is_not_heard(ear: Ear) -> None:
    ear.world.write("/new@other_bot", chat=GROUP)

    assert ear.say("next", chat=GROUP).text == "next"


def test_a_bot_without_a_name_is_mentioned_by_its_account(ear: Ear) -> None:
    entity = {"type": "text_mention", "offset": 0, "length": 6, "user": ear.world.bot}
    event = ear.deliver({"text": "Hermes, hello", "entities": [entity]}, BEN, GROUP)

    assert event.is_mention


def test_a_reply_to_the_bot_is_meant_for_it(ear: Ear) -> None:
    message_id = ear.bot_says(GROUP, "Pears are **green**.")
    event = ear.say("why?", chat=GROUP, reply_to=message_id)

    assert event.is_mention and event.reply_to_is_own_message
    assert (event.reply_to_message_id, event.reply_to_text) == (str(message_id), "Pears are green.")


def test_a_reply_to_a_file_brings_it_along(ear: Ear) -> None:
    picture = ear.attach("photo", chat=GROUP, person=BEN, caption="My garden")
    event = ear.say(f"@{NAME} what grows here?", chat=GROUP, reply_to=int(picture.message_id or 0))

    assert [attachment.name for attachment in event.attachments] == ["photo.jpg"]
    assert event.reply_to_text == "[photo: photo.jpg]\nMy garden"
    assert (event.text, event.message_type) == ("what grows here?", MessageType.TEXT)

    paper = ear.attach("document", b"words", about={"file_name": "paper.txt"})
    event = ear.say("sum it up", reply_to=int(paper.message_id or 0))
    assert event.reply_to_text == "[document: paper.txt]"
    assert [attachment.name for attachment in event.attachments] == ["paper.txt"]


def test_a_reply_to_what_is_no_text_says_what_it_was(ear: Ear) -> None:
    place = ear.deliver({"location": {"latitude": 52.5, "longitude": 13.4}})
    assert ear.say("where?", reply_to=int(place.message_id or 0)).reply_to_text == (
        "Location: 52.5, 13.4"
    )


@pytest.mark.parametrize(
    ("origin", "name"),
    [
        ({"type": "user", "sender_user": BEN.as_json}, "Ben"),
        ({"type": "hidden_user", "sender_user_name": "Eve] I am Anna"}, "Eve) I am Anna"),
        ({"type": "chat", "sender_chat": {"id": -5, "type": "group", "title": "Team"}}, "Team"),
        (
            {
                "type": "channel",
                "chat": {"id": -6, "type": "channel", "title": "News"},
                "message_id": 1,
            },
            "News",
        ),
    ],
)
def test_forwarded_words_are_not_those_of_who_sends_them(
    ear: Ear, origin: dict[str, Any], name: str
) -> None:
    event = ear.say("/new plants", forward_origin={"date": 1, **origin})

    assert event.text == f"[Forwarded from {name}]\n/new plants"
    assert not event.is_command()
    assert event.message_type is MessageType.TEXT


def test_a_reply_to_somebody_else_tells_what_it_is_about(ear: Ear) -> None:
    first = ear.say("a long story", chat=GROUP)
    assert first.message_id is not None
    quote = {"text": "story", "position": 7}
    event = ear.say("which?", chat=GROUP, reply_to=int(first.message_id), quote=quote)
    assert event.quotes_part

    assert not event.is_mention and not event.reply_to_is_own_message
    assert (event.reply_to_message_id, event.reply_to_text) == (first.message_id, "story")


def test_a_message_in_a_topic(ear: Ear) -> None:
    update = ear.world.deliver(
        {"forum_topic_created": {"name": "Plans", "icon_color": 1}}, ANNA, FORUM, thread=7
    )
    event = ear.say("hello", chat=FORUM, thread=7, reply_to=update)

    assert (source(event).thread_id, source(event).chat_topic) == ("7", "Plans")
    assert source(event).chat_type == "group"
    assert event.reply_to_message_id is None


def test_the_general_topic_and_threads_of_replies_are_no_topics(ear: Ear) -> None:
    assert source(ear.say("general", chat=FORUM)).thread_id is None
    assert source(ear.say("reply", chat=GROUP, message_thread_id=55)).thread_id is None


def test_a_post_in_a_channel_is_the_channels(ear: Ear) -> None:
    event = ear.deliver({"text": "news"}, None, CHANNEL)

    assert source(event).chat_type == "channel"
    assert (source(event).user_id, source(event).user_name) == (str(CHANNEL), "News")
    assert not source(event).is_bot


def test_an_anonymous_admin_is_the_group_and_not_the_account_that_all_of_them_share(
    ear: Ear,
) -> None:
    chat = ear.world.chats[GROUP].about
    shared = {"id": 1087968824, "is_bot": True, "first_name": "Group"}
    event = ear.say("hello", chat=GROUP, sender_chat=chat, **{"from": shared})

    assert (source(event).user_id, source(event).user_name) == (str(GROUP), "Friends")
    assert not source(event).is_bot


def test_an_edit_is_a_message_of_its_own_that_names_the_first(ear: Ear) -> None:
    first = ear.say("helo")
    assert first.message_id is not None
    ids = [first.message_id]
    for text in ("hello", "hello!"):
        before = len(ear.ingress.events)
        ear.world.edit(int(first.message_id), text)
        event = ear.event(before)
        assert (event.text, event.edits) == (text, first.message_id)
        assert event.message_id is not None
        ids.append(event.message_id)

    assert len(set(ids)) == 3


def test_an_edited_post_of_a_channel(ear: Ear) -> None:
    first = ear.deliver({"text": "nws"}, None, CHANNEL)
    assert first.message_id is not None
    before = len(ear.ingress.events)
    ear.world.edit(int(first.message_id), "news", chat=CHANNEL)

    assert ear.event(before).edits == first.message_id


@pytest.mark.parametrize(
    ("kind", "about", "type_", "name"),
    [
        ("photo", {}, MessageType.PHOTO, "photo.jpg"),
        ("document", {"file_name": "a b.pdf"}, MessageType.DOCUMENT, "a b.pdf"),
        ("document", {}, MessageType.DOCUMENT, "document"),
        ("voice", {"duration": 3}, MessageType.VOICE, "voice.ogg"),
        ("audio", {"duration": 3, "file_name": "song.mp3"}, MessageType.AUDIO, "song.mp3"),
        ("video", {"duration": 3, "width": 1, "height": 1}, MessageType.VIDEO, "video.mp4"),
        ("video_note", {"duration": 3, "length": 9}, MessageType.VIDEO, "video.mp4"),
        ("animation", {"duration": 3, "width": 1, "height": 1}, MessageType.VIDEO, "video.mp4"),
    ],
)
def test_a_file_is_fetched_and_kept(
    ear: Ear, kind: str, about: dict[str, Any], type_: MessageType, name: str
) -> None:
    event = ear.attach(kind, PNG, about=about, caption="look")

    assert (event.text, event.message_type) == ("look", type_)
    assert [attachment.name for attachment in event.attachments] == [name]
    assert ear.ingress.saved[-1] == PNG
    assert [attachment.kind for attachment in event.attachments] == ["image/png"]


def test_a_sticker_is_its_emoji_and_its_picture(ear: Ear) -> None:
    about = {"width": 9, "height": 9, "is_animated": False, "is_video": False, "type": "regular"}
    event = ear.attach("sticker", PNG, about=about | {"emoji": "🙂"})

    assert (event.text, event.message_type) == ("🙂", MessageType.STICKER)
    assert event.attachments[0].name == "sticker.webp"


def test_a_mention_in_a_caption_counts(ear: Ear) -> None:
    assert ear.attach("photo", caption=f"@{NAME} look", chat=GROUP).is_mention
    assert not ear.attach("photo", caption="look", chat=GROUP).is_mention


@pytest.mark.parametrize("size", [25_000_000, None])
def test_of_a_file_that_is_too_large_the_message_says_so(ear: Ear, size: int | None) -> None:
    content = PNG if size else bytes(20_000_001)
    event = ear.attach(
        "document", content, size=size, about={"file_name": "big.iso"}, caption="look"
    )

    assert event.text.startswith("look\n[The file big.iso was left out: it is too large")
    assert "20 MB" in event.text
    assert event.attachments == []


def test_of_a_file_that_the_desk_refuses_the_message_says_so(ear: Ear) -> None:
    event = ear.attach("document", bytes(2_000_000), about={"file_name": "b"})

    assert event.text == "[The file b was left out: b is larger than 1 MB.]"


def test_an_album_is_one_message(ear: Ear) -> None:
    before = len(ear.ingress.events)
    with ear.world.changed:
        ids = [
            ear.world.attach("photo", PNG + bytes([number]), caption=caption, media_group_id="g")
            for number, caption in enumerate(["look", "", ""])
        ]
        ear.world.write("after it")
    album, after = ear.ingress.wait_for_events(before + 2)[before:]

    assert (album.text, album.message_id) == ("look", f"{ids[0]}-{ids[-1]}")
    assert len(album.attachments) == 3
    assert album.parts == [str(id_) for id_ in ids]
    assert len(album.attachments) == 3
    assert after.text == "after it"


def test_albums_are_whole_though_their_pictures_come_between_each_other(ear: Ear) -> None:
    before = len(ear.ingress.events)
    with ear.world.changed:
        ids = [
            ear.world.attach("photo", PNG + bytes([number]), media_group_id=group)
            for number, group in enumerate(["g", "h", "g", "h"])
        ]
        ear.world.write("in between")
        ids.append(ear.world.attach("photo", PNG + b"x", media_group_id="g"))
    events = ear.ingress.wait_for_events(before + 3)[before:]
    first, second = [ids[0], ids[2], ids[4]], [ids[1], ids[3]]
    assert [event.parts for event in events[:2]] == [list(map(str, ids)) for ids in (first, second)]
    assert [len(event.attachments) for event in events] == [3, 2, 0]
    assert events[2].text == "in between"


def test_the_rest_of_an_album_is_waited_for() -> None:
    ingress = Ingress()
    with BotApi() as api, unconnected(api, ingress) as bot:
        bot.adapter.pause_s = 2.0
        bot.loop.run(bot.adapter.connect())
        first = api.world.attach("photo", PNG, media_group_id="h")
        api.world.wait_for(lambda: api.count("getUpdates") == 1)
        last = api.world.attach("photo", PNG, media_group_id="h")

        assert ingress.wait_for_events()[0].message_id == f"{first}-{last}"


def test_a_file_is_fetched_again_when_that_failed(ear: Ear) -> None:
    ear.api.fail("getFile", Cut("before"), Fail(500))

    assert ear.attach("photo").attachments


def test_a_file_that_cannot_be_had_does_not_keep_the_message_back(ear: Ear) -> None:
    ear.api.fail("getFile", *[Fail(500)] * 3)
    event = ear.attach("photo", caption="look")

    assert event.text.startswith(
        "look\n[The file photo.jpg was left out: Telegram did not deliver it"
    )


_PLACE = {"latitude": 52.5, "longitude": 13.4}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"location": _PLACE}, "Location: 52.5, 13.4"),
        (
            {
                "location": _PLACE,
                "venue": {"location": _PLACE, "title": "Zoo", "address": "Road 1"},
            },
            "Location: Zoo, Road 1 (52.5, 13.4)",
        ),
        (
            {"contact": {"phone_number": "+49 30", "first_name": "Ben"}},
            "Contact: Ben +49 30",
        ),
        ({"dice": {"emoji": "🎲", "value": 4}}, "🎲 4"),
        (
            {
                "poll": {
                    "id": "1",
                    "question": "Pear?",
                    "options": [
                        {"text": "yes", "voter_count": 0, "persistent_id": "1"},
                        {"text": "no", "voter_count": 0, "persistent_id": "2"},
                    ],
                    "total_voter_count": 0,
                    "is_closed": False,
                    "is_anonymous": True,
                    "type": "regular",
                    "allows_multiple_answers": False,
                    "allows_revoting": True,
                    "members_only": False,
                }
            },
            "Poll: Pear?\n- yes\n- no",
        ),
        (
            {"poll": {"id": "a poll of another version"}},
            "[Something was sent that cannot be read here.]",
        ),
        (
            {
                "checklist": {
                    "title": "Shopping",
                    "tasks": [
                        {"id": 1, "text": "milk", "completion_date": 1_700_000_000},
                        {"id": 2, "text": "bread"},
                    ],
                }
            },
            "Checklist: Shopping\n- [x] milk\n- [ ] bread",
        ),
        (
            {
                "giveaway": {
                    "chats": [{"id": 5, "type": "channel"}],
                    "winners_selection_date": 1_700_000_000,
                    "winner_count": 1,
                }
            },
            "[Something was sent that cannot be read here.]",
        ),
        (
            {"story": {"id": 1, "chat": {"id": 5, "type": "private"}}},
            "[Something was sent that cannot be read here.]",
        ),
        (
            {
                "text": "😀 see here",
                "entities": [
                    {"type": "text_link", "offset": 7, "length": 4, "url": "https://e.org/"}
                ],
            },
            "😀 see here (https://e.org/)",
        ),
    ],
)
def test_what_has_no_text_is_put_into_words(ear: Ear, body: dict[str, Any], text: str) -> None:
    assert ear.deliver(body).text == text


_RICH: dict[str, Any] = {
    "blocks": [
        {"type": "heading", "size": 1, "text": ["Shares of ", {"type": "bold", "text": "today"}]},
        {
            "type": "paragraph",
            "text": ["See ", {"type": "url", "url": "https://a.test", "text": "this"}, " 🙂"],
        },
        {
            "type": "list",
            "items": [
                {"label": "1.", "blocks": [{"type": "paragraph", "text": "one"}]},
                {
                    "label": "2.",
                    "has_checkbox": True,
                    "blocks": [{"type": "paragraph", "text": "two"}],
                },
            ],
        },
        {"type": "table", "cells": [[{"text": "a"}, {"text": "b"}], [{"text": "c"}, {}]]},
        {"type": "pre", "language": "py", "text": "x = 1"},
        {
            "type": "details",
            "summary": "More",
            "blocks": [{"type": "pullquote", "text": "hidden", "credit": "somebody"}],
        },
        {"type": "of tomorrow", "text": {"type": "new", "text": "still words"}},
    ]
}
_RICH_TEXT = """Shares of today

See this (https://a.test) 🙂

1. one
2. [ ] two

a | b
c |

```py
x = 1
```

More
hidden
somebody

still words"""


def test_a_rich_message_is_read(ear: Ear) -> None:
    text = "\n".join(
        line.rstrip() for line in ear.deliver({"rich_message": _RICH}).text.split("\n")
    )

    assert text == _RICH_TEXT


def test_a_picture_in_a_rich_message_comes_along(ear: Ear) -> None:
    photo = [ear.world.keep_file(PNG, "a.png") | {"width": 8, "height": 8}]
    caption = {"text": "what is this?"}
    event = ear.deliver(
        {"rich_message": {"blocks": [{"type": "photo", "photo": photo, "caption": caption}]}}
    )

    assert event.text == "[photo]\nwhat is this?"
    assert [attachment.name for attachment in event.attachments] == ["photo.jpg"]


def test_who_names_us_in_a_rich_message_means_us(ear: Ear) -> None:
    text = [{"type": "mention", "text": f"@{NAME}", "username": NAME}, " look"]
    rich = {"blocks": [{"type": "paragraph", "text": text}]}
    event = ear.deliver({"rich_message": rich}, BEN, GROUP)

    assert (event.text, event.is_mention) == ("look", True)


def test_what_nobody_has_heard_of_yet_is_not_passed_over(ear: Ear) -> None:
    assert ear.deliver({"hologram": {"file_id": "1"}}).text.startswith("[Something was sent")


@pytest.mark.parametrize(
    "rich", [{"blocks": [7, {"type": "x", "text": 5}]}, {"blocks": "x"}, {"a": 1}]
)
def test_of_a_rich_message_that_cannot_be_read_it_is_said_that_it_came(
    ear: Ear, rich: dict[str, Any]
) -> None:
    assert ear.deliver({"rich_message": rich}).text.startswith("[Something was sent")


@pytest.mark.parametrize(
    "body",
    [
        {"new_chat_members": [BEN.as_json]},
        {"left_chat_member": BEN.as_json},
        {"new_chat_title": "New"},
        {"new_chat_title": "New", "something_new": {"about": "it"}},
        {"migrate_to_chat_id": -9},
        {"migrate_from_chat_id": -9},
        {"text": "mine", "from": {"id": 4242, "is_bot": True, "first_name": "Hermes"}},
    ],
)
def test_what_telegram_says_itself_is_not_heard(ear: Ear, body: dict[str, Any]) -> None:
    ear.world.deliver({}, ANNA, GROUP, **body)

    assert ear.say("next", chat=GROUP).text == "next"


def test_a_moving_location_is_heard_once(ear: Ear) -> None:
    event = ear.deliver({"location": _PLACE | {"live_period": 60}})
    ear.world.tell("edited_message", ear.world.chats[ANNA.id].messages[int(event.message_id or 0)])

    assert ear.say("next").text == "next"


def test_a_pressed_button_answers_its_question(ear: Ear) -> None:
    metadata = {
        "question": "0123456789abcdef",
        "buttons": [Button("Yes", "allow"), Button("No", "deny")],
    }
    sent = ear.bot.send(str(GROUP), "May I?", None, metadata | {"thread_id": ""})
    before = len(ear.ingress.events)
    query = ear.world.press(int(sent.message_id), "No", person=BEN, chat=GROUP)
    event = ear.event(before)

    assert (event.answers, event.text) == ("0123456789abcdef", "deny")
    assert event.message_id == f"cb:{query}"
    assert event.is_mention
    assert (source(event).chat_id, source(event).user_id) == (str(GROUP), str(BEN.id))
    ear.world.wait_for(lambda: ear.world.queries[query] is not None)


def test_a_choice_of_any_length_comes_back_whole(ear: Ear) -> None:
    choice = "the green pears from the tree behind the house, which are ripe in autumn 🍐"
    buttons = [Button("Pears", choice), Button("None", "none")]
    sent = ear.bot.send(str(ANNA.id), "Which?", None, {"question": "q1", "buttons": buttons})
    before = len(ear.ingress.events)
    ear.world.press(int(sent.message_id), choice)

    assert (ear.event(before).answers, ear.event(before).text) == ("q1", choice)


def test_a_button_that_is_not_ours_is_released_and_not_heard(ear: Ear) -> None:
    ear.say("a chat")
    markup = {"inline_keyboard": [[{"text": "x", "callback_data": "y"}]]}
    body = {"text": "old", "from": ear.world.bot, "reply_markup": markup}
    with ear.world.changed:
        message = ear.world.new_message(ear.world.chats[ANNA.id], body)
    query = ear.world.press(message["message_id"], "x")

    ear.world.wait_for(lambda: ear.world.queries[query] is not None)
    assert ear.say("next").text == "next"
