"""A group becomes a supergroup under another id: the whole gateway on the double of Telegram."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest

from hermes_agent.testing.scripted import Quiet, say, silence
from hermes_state.ledger import outbox
from hermes_state.values import OutboundPart
from tests.gateway.harness import TIMEOUT_S, Inside, World
from tests.gateway.servers.telegram import ANNA, NAME, BotApi

OLD, NEW = -77, -1_000_077
_TABLE = """
[gateway.platforms.telegram]
token = "{token}"
api_url = "{url}"
poll_s = 20
"""


class Gateway(Inside):
    """The gateway in this process, with Telegram beside the loopback platform."""

    def __init__(self, world: World, api: BotApi) -> None:
        super().__init__(world)
        self.api = api

    def __enter__(self) -> "Gateway":
        self._thread.start()
        assert self.call(self.runner.start()) == ["loopback", "telegram"]
        return self

    def ask(self, text: str, chat: int) -> int:
        """Anna asks for something in a group."""
        return self.api.world.write(f"@{NAME} {text}", chat=chat)

    def answers(self, chat: int, count: int) -> list[str]:
        """Wait until the chat has so many messages of ours; all of them."""
        self.api.world.wait_for(lambda: len(self.api.world.replies(chat)) >= count, TIMEOUT_S)
        return self.api.world.replies(chat)

    def wait_for_message(self, chat: int, text: str) -> int:
        """Wait until a message of the chat begins so; its number."""

        def found() -> list[int]:
            return [
                message.id
                for message in self.api.world.shown(chat)
                if message.text.startswith(text)
            ]

        self.api.world.wait_for(found, TIMEOUT_S)
        return found()[-1]

    def model_messages(self) -> list[str]:
        """The conversation that the model was shown last, without the system's part."""
        messages = self.world.model.requests[-1].json["messages"]
        return [str(message["content"]) for message in messages if message["role"] != "system"]

    def sessions(self) -> int:
        return self.store.session_count()


@pytest.fixture
def api(world: World) -> Iterator[BotApi]:
    with BotApi() as bot_api:
        bot_api.world.add_chat(OLD, "group", "Friends")
        configure(world, bot_api)
        yield bot_api


def configure(world: World, api: BotApi, *, streaming: bool = False) -> None:
    world.configure(more=_TABLE.format(token=api.token, url=api.url), streaming=streaming)
    owners = f'[gateway.owners]\ntelegram = ["{ANNA.id}"]'
    world.home.config.write_text(world.home.config.read_text().replace("[gateway.owners]", owners))


@contextmanager
def talking(world: World, api: BotApi) -> Generator[Gateway]:
    """A gateway that has answered one message of the group."""
    world.play(say("one"))
    with Gateway(world, api) as gateway:
        gateway.ask("first", OLD)
        assert gateway.answers(OLD, 1) == ["one"]
        yield gateway


def test_the_conversation_goes_on_in_the_new_chat(world: World, api: BotApi) -> None:
    with talking(world, api) as gateway:
        api.world.upgrade(OLD, NEW)
        world.play(say("two"))
        gateway.ask("second", NEW)
        assert gateway.answers(NEW, 1) == ["two"]
        assert gateway.model_messages() == ["first", "one", "second"]
        assert gateway.sessions() == 1
        assert api.world.shown(NEW)[-1].reply_to == api.world.shown(NEW)[-2].id
    assert api.world.replies(OLD) == ["one"]


@pytest.mark.parametrize("where", ["old", "new"])
def test_either_of_the_two_notices_is_enough(world: World, api: BotApi, where: str) -> None:
    with talking(world, api) as gateway:
        api.world.upgrade(OLD, NEW, is_told=False)
        api.world.tell_upgrade(OLD, "old" if where == "old" else "new")
        gateway.ask("second", NEW)
        gateway.answers(NEW, 1)
        assert gateway.model_messages() == ["first", "one", "second"]


def test_a_message_of_the_new_chat_is_not_taken_for_one_of_the_old_with_its_number(
    world: World, api: BotApi
) -> None:
    with talking(world, api) as gateway:
        api.world.upgrade(OLD, NEW)
        ids = {message.id for message in api.world.shown(OLD)}
        numbers = [gateway.ask(f"number {number}", NEW) for number in range(4)]
        replies = gateway.answers(NEW, 4)
        assert ids & set(numbers)
        assert all(f"number {number}" in text for number, text in enumerate(replies))


def test_a_reply_to_a_chat_that_moved_unnoticed_arrives_once_in_the_new_one(
    world: World, api: BotApi
) -> None:
    quiet = Quiet()
    with talking(world, api) as gateway:
        world.play(silence(quiet, then="late"))
        number = gateway.ask("second", OLD)
        assert quiet.started.wait(TIMEOUT_S)
        api.world.upgrade(OLD, NEW, is_told=False)
        while api.world.write("not for the bot, but with its number", chat=NEW) < number:
            pass
        quiet.release()
        assert gateway.answers(NEW, 1) == ["late"]
        assert api.world.shown(NEW)[-1].reply_to is None
        for where in ("old", "new"):
            api.world.tell_upgrade(OLD, where)
        gateway.ask("third", NEW)
        gateway.answers(NEW, 2)
        assert gateway.model_messages()[:4] == ["first", "one", "second", "late"]
        assert gateway.sessions() == 1
    assert api.world.replies(OLD) == ["one"]


def test_what_waits_to_be_sent_follows_in_its_order_also_after_a_restart(
    world: World, api: BotApi
) -> None:
    with talking(world, api) as gateway:
        api.go_offline()
        pieces = [OutboundPart("telegram", str(OLD), text) for text in ("two", "three")]
        gateway.store.write(outbox.add, pieces)
        api.world.upgrade(OLD, NEW, is_told=False)
    api.go_online()
    with Gateway(world, api) as gateway:
        assert gateway.answers(NEW, 2) == ["two", "three"]
        gateway.ask("second", NEW)
        gateway.answers(NEW, 3)
        assert gateway.model_messages() == ["first", "one", "second"]
    assert api.world.replies(OLD) == ["one"]


def test_the_home_chat_follows(world: World, api: BotApi) -> None:
    with talking(world, api) as gateway:
        api.world.write(f"/sethome@{NAME}", chat=OLD)
        gateway.answers(OLD, 2)
        api.world.upgrade(OLD, NEW)
        api.world.wait_for(lambda: not api.world.updates)
        assert gateway.services.admin_chats.send("Tea is ready.", "tea") == 1
        assert gateway.answers(NEW, 1) == ["Tea is ready."]


def test_a_restart_does_not_forget_that_a_chat_moved(world: World, api: BotApi) -> None:
    with talking(world, api):
        api.world.upgrade(OLD, NEW)
        api.world.wait_for(lambda: not api.world.updates)
    with Gateway(world, api) as gateway:
        gateway.ask("second", NEW)
        gateway.answers(NEW, 1)
        assert gateway.model_messages() == ["first", "one", "second"]
        assert gateway.sessions() == 1


@pytest.mark.parametrize("is_told", [True, False])
def test_a_reply_that_was_being_shown_is_sent_whole_and_changes_no_other_message(
    world: World, api: BotApi, is_told: bool
) -> None:
    configure(world, api, streaming=True)
    quiet, text = Quiet(), "This is the beginning of a long reply"
    with talking(world, api) as gateway:
        world.play(silence(quiet, after=text, then=" and its end."))
        gateway.ask("second", OLD)
        draft = gateway.wait_for_message(OLD, text)
        api.world.upgrade(OLD, NEW, is_told=is_told)
        api.world.wait_for(lambda: not api.world.updates)
        for number in range(draft):  # until one of ours has the number that the draft had
            gateway.store.write(
                outbox.add, [OutboundPart("telegram", str(OLD), f"another {number}")]
            )
            gateway.answers(NEW, number + 1)
        before = api.world.replies(NEW)
        quiet.release()
        assert gateway.answers(NEW, len(before) + 1) == [*before, f"{text} and its end."]


def test_who_spoke_in_the_new_chat_before_it_was_known_stays_in_that_conversation(
    world: World, api: BotApi
) -> None:
    with talking(world, api) as gateway:
        api.world.upgrade(OLD, NEW, is_told=False)
        world.play(say("two"), say("three"))
        gateway.ask("second", NEW)
        gateway.answers(NEW, 1)
        gateway.store.write(outbox.add, [OutboundPart("telegram", str(OLD), "late")])
        gateway.answers(NEW, 2)
        gateway.ask("third", NEW)
        assert gateway.answers(NEW, 3) == ["two", "late", "three"]
        assert gateway.model_messages() == ["second", "two", "third"]
