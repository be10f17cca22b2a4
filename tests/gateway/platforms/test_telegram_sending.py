"""What a send comes to on Telegram: shown once, or told apart by whether it may have arrived."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.platforms.base import Button, PlatformError, SendMetadata
from gateway.platforms.telegram import wire
from gateway.platforms.telegram.adapter import TEXT_LIMIT, TelegramAdapter, formatted
from gateway.platforms.telegram.keyboard import keyboard
from gateway.platforms.telegram.markdown import utf16
from gateway.replies import Replies, decode
from gateway.reply_attachments import ReplyAttachments
from gateway.reply_target import ReplyTarget
from gateway.source import SessionSource
from gateway.workspaces import Workspaces
from hermes_agent.permissions import Permissions
from hermes_agent.turn.events import QuestionAsked
from hermes_core.errors import StoreBusyError
from hermes_core.paths import Home
from hermes_core.settings import Settings
from hermes_state import SessionDB
from tests.gateway.platforms.telegram_bot import Ingress, Running, running
from tests.gateway.servers.telegram import ANNA, BotApi, Cut, Fail, Flood, Hold
from tests.support.examples import examples

CHAT = str(ANNA.id)
FORUM = -1002
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[BotApi, Running]]:
    with BotApi() as api:
        ingress = Ingress()
        with running(api, ingress) as bot:
            yield api, bot


@pytest.fixture
def api(served: tuple[BotApi, Running]) -> BotApi:
    """The double, with an empty chat with Anna."""
    api, _ = served
    api.flood = None
    api.world.chats.pop(ANNA.id, None)
    api.world.write("hello")
    api.world.calls.clear()
    return api


@pytest.fixture
def bot(served: tuple[BotApi, Running], api: BotApi) -> Running:
    del api
    return served[1]


@pytest.fixture
def ingress(bot: Running) -> Iterator[Ingress]:
    ingress = bot.adapter.ingress
    assert isinstance(ingress, Ingress)
    ingress.moves.clear()
    yield ingress
    ingress.error = None


def test_a_text_is_shown_with_its_looks(api: BotApi, bot: Running) -> None:
    result = bot.send(CHAT, "**Hello** `x`!")

    message = api.world.shown()[-1]
    assert result.success and result.message_id == str(message.id)
    assert (message.text, [entity["type"] for entity in message.entities]) == (
        "Hello x!",
        ["bold", "code"],
    )


def test_a_reply_refers_to_its_message_also_to_an_edited_one(api: BotApi, bot: Running) -> None:
    bot.send(CHAT, "a", "1")
    bot.send(CHAT, "b", "1:e700000009")
    bot.send(CHAT, "c", "cb:9000001")
    bot.send(CHAT, "d", "999")

    assert [message.reply_to for message in api.world.shown()[1:]] == [1, 1, None, None]


def test_a_topic_gets_what_belongs_to_it(api: BotApi, bot: Running) -> None:
    api.world.add_chat(FORUM, "supergroup", topics={7: "Plans"})
    for thread in ("7", "1", ""):
        assert bot.send(str(FORUM), f"to {thread}", None, SendMetadata(thread_id=thread)).success

    assert [message.thread for message in api.world.shown(FORUM)] == [7, None, None]
    result = bot.send(str(FORUM), "to 8", None, SendMetadata(thread_id="8"))
    assert result.error_kind == "refused"


def test_buttons_are_shown_and_go_with_an_edit(api: BotApi, bot: Running) -> None:
    buttons = [Button("Yes", "yes"), Button("No", "no")]
    metadata = SendMetadata(question="q", buttons=buttons)
    sent = bot.send(CHAT, "May I?", None, metadata)
    assert api.world.shown()[-1].buttons == ("Yes", "No")

    assert bot.edit(CHAT, sent.message_id, "May I, please?", metadata).success
    assert api.world.shown()[-1].buttons == ("Yes", "No")
    assert bot.edit(CHAT, sent.message_id, "Allowed.").success
    assert (api.world.shown()[-1].text, api.world.shown()[-1].buttons) == ("Allowed.", ())


def test_an_edit_that_changes_nothing_is_a_success(api: BotApi, bot: Running) -> None:
    sent = bot.send(CHAT, "**same**")

    result = bot.edit(CHAT, sent.message_id, "**same**")
    assert (result.success, result.message_id) == (True, sent.message_id)
    assert api.world.replies() == ["same"]


def test_a_reply_to_what_the_library_cannot_read_is_a_success(api: BotApi, bot: Running) -> None:
    odd = api.world.deliver({"poll": {"id": "1", "question": "a poll without its newer fields"}})

    result = bot.send(CHAT, "answer", str(odd))
    message = api.world.shown()[-1]
    assert (result.success, result.message_id) == (True, str(message.id))
    assert message.reply_to == odd
    assert bot.edit(CHAT, result.message_id, "better answer").success
    assert api.world.replies() == ["better answer"]


@pytest.mark.parametrize(
    ("fault", "kind", "times"),
    [
        (Fail(429, "Too Many Requests", retry_after=7), "rate_limited", 0),
        (Fail(500), "unsure", 0),
        (Fail(502, "Bad Gateway"), "unsure", 0),
        (Cut("before"), "unsure", 0),
        (Cut("after"), "unsure", 1),
        (Fail(401, "Unauthorized"), "network", 0),
        (Fail(403, "Forbidden: bot was kicked from the group chat"), "refused", 0),
        (Fail(400, "Bad Request: not enough rights to send text messages"), "refused", 0),
    ],
)
def test_a_send_that_fails_says_whether_it_may_have_arrived(
    api: BotApi, bot: Running, fault: Fail | Cut, kind: str, times: int
) -> None:
    api.fail("sendMessage", fault)
    result = bot.send(CHAT, "hello")

    assert (result.success, result.error_kind) == (False, kind)
    assert result.retry_after == (7 if kind == "rate_limited" else None)
    assert api.count("sendMessage") == times == len(api.world.replies())


def test_an_edit_whose_fate_is_unknown_may_be_made_again(api: BotApi, bot: Running) -> None:
    sent = bot.send(CHAT, "one")
    api.fail("editMessageText", Cut("after"))

    assert bot.edit(CHAT, sent.message_id, "two").retryable
    assert bot.edit(CHAT, sent.message_id, "two").success
    assert api.world.replies() == ["two"]


def test_a_server_that_is_silent_leaves_it_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wire, "_READ_TIMEOUT_S", 2.0)
    answer = threading.Event()
    with BotApi() as api, running(api, Ingress()) as bot:
        api.world.write("hello")
        api.fail("sendMessage", Hold(answer))
        result = bot.send(CHAT, "hello")
        answer.set()

        assert result.error_kind == "unsure"
        assert api.world.replies() == ["hello"]


def test_without_a_server_it_surely_did_not_arrive() -> None:
    with BotApi() as api, running(api, Ingress()) as bot:
        api.world.write("hello")
        api.go_offline()
        assert bot.send(CHAT, "hello").error_kind == "network"
        bot.disconnect()
        assert bot.send(CHAT, "hello").error_kind == "network"
        assert api.count("sendMessage") == 0


def test_a_flood_limit_says_how_long_to_wait(api: BotApi, bot: Running) -> None:
    api.flood = Flood(messages=2, seconds=60)
    results = [bot.send(CHAT, str(number)) for number in range(3)]

    assert [result.success for result in results] == [True, True, False]
    assert results[2].error_kind == "rate_limited"
    assert 0 < results[2].retry_after <= 60
    assert api.world.replies() == ["0", "1"]


def test_who_blocked_the_bot_or_never_wrote_gets_nothing(api: BotApi, bot: Running) -> None:
    api.world.block()
    assert bot.send(CHAT, "hello").error_kind == "refused"
    assert bot.send("555", "hello").error_kind == "refused"
    assert bot.send("@nobody", "hello").error_kind == "refused"


def test_of_a_group_that_moved_the_desk_is_told_and_nothing_is_sent_yet(
    api: BotApi, bot: Running, ingress: Ingress
) -> None:
    api.world.add_chat(-77, "group", "Friends")
    assert bot.send("-77", "before").success
    api.world.upgrade(-77, -1077, is_told=False)

    results = [bot.send("-77", "after"), bot.edit("-77", "1", "edited")]
    assert [(result.error_kind, result.retry_after) for result in results] == [("network", 0.0)] * 2
    assert ingress.moves == [("-77", "-1077")] * 2
    assert (api.world.replies(-77), api.world.replies(-1077)) == (["before"], [])


def test_a_move_that_cannot_be_noted_is_left_to_the_next_attempt(
    api: BotApi, bot: Running, ingress: Ingress
) -> None:
    api.world.add_chat(-78, "group", "Friends")
    api.world.upgrade(-78, -1078, is_told=False)
    ingress.error = StoreBusyError("The store is locked.")

    result = bot.send("-78", "hello")
    assert (result.error_kind, result.retry_after) == ("network", None)


def test_a_file_follows_when_the_group_moves_after_its_text(
    api: BotApi, bot: Running, files: list[str]
) -> None:
    api.world.add_chat(-79, "group", "Friends")
    answer = threading.Event()
    api.fail("sendMessage", Hold(answer))
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(bot.send, "-79", "Here:", None, SendMetadata(files=files[:1]))
        api.world.wait_for(lambda: api.world.replies(-79))
        api.world.upgrade(-79, -1079, is_told=False)
        answer.set()
        assert sent.result().success
    assert [message.file for message in api.world.shown(-1079)] == [PNG]


def test_a_text_is_measured_as_telegram_does(api: BotApi, bot: Running) -> None:
    fits = "😀" * (TEXT_LIMIT // 2)
    assert TelegramAdapter.abilities.measure(fits) == TEXT_LIMIT
    assert bot.send(CHAT, fits).success
    assert bot.send(CHAT, fits + "x").error_kind == "too_long"
    assert api.count("sendMessage") == 1
    api.fail("sendMessage", Fail(400, "Bad Request: message is too long"))
    assert bot.send(CHAT, "x").error_kind == "too_long"


def test_a_text_that_its_looks_would_make_too_long_is_sent_as_it_stands(
    api: BotApi, bot: Running
) -> None:
    table = "|a|b|\n|-|-|\n" + "|" + "x" * 300 + "|y|\n" + "|1|2|\n" * 100
    assert utf16(table) <= TEXT_LIMIT
    assert bot.send(CHAT, table).success

    assert api.world.shown()[-1].text == table.strip()


def test_a_text_that_would_be_nothing_is_sent_as_it_stands(api: BotApi, bot: Running) -> None:
    assert bot.send(CHAT, "[](<>)").success
    assert api.world.replies() == ["[](<>)"]
    assert bot.send(CHAT, "   ").error_kind == "refused"


def test_a_text_with_more_looks_than_telegram_takes_is_sent_as_it_stands(
    api: BotApi, bot: Running
) -> None:
    text = "See [1]. " * 120 + f"\n\n[1]: https://hermes.test/{'x' * 200}"
    sent = bot.send(CHAT, text)
    assert sent.success
    assert api.world.replies() == [text]

    first = bot.send(CHAT, "See")
    assert bot.loop.run(bot.adapter.edit_message(CHAT, first.message_id, text)).success
    assert api.world.replies() == [text, text]


def test_nothing_that_is_sent_raises(bot: Running) -> None:
    metadata = SendMetadata(question="q", buttons=[Button("\ud800", "\udfff")], thread_id="²")

    assert bot.send(CHAT, "half \ud83d", "³", metadata).success
    assert bot.send("²", "hello").error_kind == "refused"
    assert bot.edit(CHAT, "cb:1", "hello").error_kind == "refused"


def test_typing_is_shown_and_never_fails(api: BotApi, bot: Running) -> None:
    bot.loop.run(bot.adapter.send_typing(CHAT))
    assert api.world.actions[-1] == (ANNA.id, "typing")
    api.world.block()
    bot.loop.run(bot.adapter.send_typing(CHAT))


def test_commands_are_announced_as_far_as_telegram_takes_them(api: BotApi, bot: Running) -> None:
    commands = [
        ("new", "Start afresh"),
        ("my-skill", "?"),
        ("stop", "x" * 300),
        ("help", ""),
        ("ä", "no"),
    ]
    bot.loop.run(bot.adapter.announce_commands(commands))

    assert [command["command"] for command in api.world.commands] == [
        "new",
        "my_skill",
        "stop",
        "help",
    ]
    api.fail("setMyCommands", Fail(500))
    with pytest.raises(PlatformError, match="could not be announced"):
        bot.loop.run(bot.adapter.announce_commands(commands))


def test_a_menu_of_many_commands_is_taken_with_shorter_descriptions(
    api: BotApi, bot: Running
) -> None:
    skills = [(f"skill-{number}", "What this skill is good for. " * 9) for number in range(120)]
    bot.loop.run(bot.adapter.announce_commands([("new", "Start afresh"), *skills]))

    assert len(api.world.commands) == 100
    assert api.world.commands[0] == {"command": "new", "description": "Start afresh"}
    assert api.world.commands[99]["description"].startswith("What this skill is")


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "a.png").write_bytes(PNG)
    (tmp_path / "b.pdf").write_bytes(bytes(range(256)) * 40)
    return [str(tmp_path / "a.png"), str(tmp_path / "b.pdf")]


def test_files_follow_their_text(api: BotApi, bot: Running, files: list[str]) -> None:
    result = bot.send(CHAT, "Here:", "1", SendMetadata(files=files))

    messages = api.world.shown()[1:]
    assert [message.text for message in messages] == ["Here:", "", ""]
    assert [message.file for message in messages[1:]] == [PNG, Path(files[1]).read_bytes()]
    assert (api.count("sendPhoto"), api.count("sendDocument")) == (1, 1)
    assert [result.message_id, *result.continuation_message_ids] == [
        str(message.id) for message in messages
    ]


def test_files_go_without_a_text(api: BotApi, bot: Running, files: list[str]) -> None:
    result = bot.send(CHAT, "", None, SendMetadata(files=files[:1]))

    assert result.success and api.world.shown()[-1].file == PNG
    api.fail("sendDocument", Fail(429, "Too Many Requests", retry_after=3))
    failed = bot.send(CHAT, "", None, SendMetadata(files=files[1:]))
    assert (failed.error_kind, failed.retry_after) == ("rate_limited", 3)


def test_a_file_that_fails_does_not_repeat_its_text(
    api: BotApi, bot: Running, files: list[str]
) -> None:
    api.fail("sendPhoto", Fail(429, "Too Many Requests", retry_after=1))
    assert bot.send(CHAT, "One", None, SendMetadata(files=files[:1])).success
    assert api.world.shown()[-1].file == PNG

    assert bot.send(CHAT, "Two", None, SendMetadata(files=[files[0] + "x"])).success
    assert api.world.replies()[2] == "Two"
    assert api.world.replies()[3].startswith("The file a.pngx could not be sent")


def test_a_picture_that_telegram_does_not_show_is_sent_as_a_file(
    api: BotApi, bot: Running, tmp_path: Path
) -> None:
    sides = (900).to_bytes(4) + (20_000).to_bytes(4)
    picture = b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR" + sides + bytes(40)
    (tmp_path / "page.png").write_bytes(picture)

    assert bot.send(CHAT, "", None, SendMetadata(files=[str(tmp_path / "page.png")])).success

    assert [message.file for message in api.world.shown() if message.is_bot] == [picture]


def test_of_a_file_that_is_too_large_for_telegram_the_chat_is_told(
    api: BotApi, bot: Running, files: list[str]
) -> None:
    api.fail("sendDocument", Fail(413, "Request Entity Too Large"))

    assert bot.send(CHAT, "", None, SendMetadata(files=files[1:])).success

    (reply,) = api.world.replies()
    assert reply.startswith("The file b.pdf could not be sent")


_ANY = st.text(st.characters(exclude_categories=()), max_size=80)
"""Half characters too."""


@given(_ANY, _ANY.filter(str.strip))
def test_every_choice_fits_on_its_button(label: str, choice: str) -> None:
    keys = keyboard("0123456789abcdef", [Button(label, choice)])
    assert keys is not None
    data = keys.inline_keyboard[0][0].callback_data

    assert isinstance(data, str) and 1 <= len(data.encode()) <= 64


@settings(max_examples=examples(50))
@given(st.text(st.characters(exclude_categories=()), max_size=6000))
def test_what_is_sent_is_never_longer_than_both_the_text_and_the_limit(content: str) -> None:
    assert utf16(formatted(content).text) <= max(TEXT_LIMIT, utf16(content))


def test_requests_hold_what_telegram_asks_for(api: BotApi, bot: Running) -> None:
    bot.send(CHAT, "see https://e.org", "1")

    request = [params for method, params in api.requests if method == "sendMessage"][-1]
    assert json.loads(request["link_preview_options"]) == {"is_disabled": True}
    assert json.loads(request["reply_parameters"])["allow_sending_without_reply"] is True


@pytest.mark.parametrize("size", [300, 15_000, 60_000])
def test_a_question_is_shown_whole_before_its_buttons(
    api: BotApi, bot: Running, home: Home, size: int
) -> None:
    change = "\n".join(["--- a", *(f"+line {number:>8}" for number in range(size // 15))])
    question = QuestionAsked("q", "approval", "patch", "Changes a", change, ["once", "deny"])
    attachments = ReplyAttachments(home, 0, _no_permissions, Workspaces(home, Settings()))
    with SessionDB.in_memory() as store:
        replies = Replies(store, lambda _: TelegramAdapter.abilities, attachments)
        parts = replies.question(ReplyTarget({"platform": "telegram", "chat_id": CHAT}), question)
    for part in parts:
        extra = decode(part.extra)
        metadata = SendMetadata(files=extra.files, whole=extra.is_whole)
        if part.buttons:
            metadata["question"] = "q"
            metadata["buttons"] = [Button("Allow once", "once")]
        assert bot.send(CHAT, part.content, None, metadata).success
    messages = [message for message in api.world.shown() if message.is_bot]
    assert [bool(message.buttons) for message in messages] == [*[False] * (len(messages) - 1), True]
    drawn = "\n".join([(message.file or b"").decode() or message.text for message in messages])
    assert [line for line in drawn.splitlines() if line in ("--- a",) or line.startswith("+")] == (
        change.splitlines()
    )
    assert len(messages) <= 5


def test_a_file_that_must_arrive_fails_its_part(
    api: BotApi, bot: Running, files: list[str]
) -> None:
    api.fail("sendDocument", Fail(413, "Request Entity Too Large"))

    failed = bot.send(CHAT, "", None, SendMetadata(files=files[1:], whole=True))

    assert (failed.success, failed.error_kind) == (False, "refused")
    assert api.world.replies() == []


def _no_permissions(_place: SessionSource) -> Permissions:
    raise AssertionError("nobody is asked about files")
