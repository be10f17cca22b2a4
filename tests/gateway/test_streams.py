"""Replies that are shown while they are written."""

import asyncio
import json
from collections.abc import Iterator

import pytest

from gateway.config import Platform, PlatformConfig
from gateway.platforms.base import Abilities, BasePlatformAdapter, SendMetadata, SendResult
from gateway.reply_target import ReplyTarget
from gateway.streams import Streams
from hermes_agent.testing.faults import Cut
from hermes_agent.testing.scripted import Quiet, call, say, silence, together
from hermes_agent.turn.events import TextDelta, TurnEnded
from hermes_cli import plugins
from hermes_state import SessionDB
from hermes_state.ledger import outbox, turns
from hermes_state.ledger import outbox as outbox_ledger
from tests.gateway.harness import Inside, Process, World
from tests.support.faults import eventually
from tests.support.loopback.adapter import LoopbackAdapter

_BEGINNING = "This is a beginning that is long enough to be shown. "


@pytest.fixture(autouse=True)
def streaming(world: World) -> Iterator[None]:
    world.configure(streaming=True)
    yield


def _drafts(store: SessionDB) -> int:
    return store.read(lambda c: c.value("SELECT count(*) FROM drafts"))


def test_a_draft_grows_and_becomes_the_reply(world: World) -> None:
    quiet = Quiet()
    world.play(silence(quiet, after=_BEGINNING, then="And the end."))
    with Inside(world) as inside:
        message_id = world.platform.say("a", "tell me")
        draft = world.wait_for_text("a", "beginning")
        assert draft.in_reply_to == message_id
        quiet.release()
        (message,) = world.platform.wait_for(
            "a", lambda message: message[0].text == _BEGINNING + "And the end."
        )
        assert message.message_id == draft.message_id
        assert all(text.endswith("▉") for text in message.edits)
        eventually(lambda: _drafts(inside.store) == 0)
        assert inside.services.streams._open == {}


def test_a_short_reply_is_no_draft(world: World) -> None:
    world.play(say("Yes."))
    with Inside(world):
        world.platform.say("a", "well?")
        (message,) = world.platform.wait_for("a", lambda message: bool(message))
        assert (message.text, message.edits) == ("Yes.", ())


def test_a_draft_is_shown_in_the_thread_that_was_written_in(world: World) -> None:
    quiet = Quiet()
    world.play(silence(quiet, after=_BEGINNING, then="End."))
    with Inside(world):
        world.platform.say("g", "hello", chat_type="group", thread="t9")
        assert world.wait_for_text("g", "beginning").thread == "t9"
        quiet.release()


def test_a_draft_that_waits_for_an_earlier_reply_is_shown_though_the_model_is_silent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet, is_open = Quiet(), iter([True, True])
    world.play(silence(quiet, after=_BEGINNING, then="End."))
    with Inside(world):
        monkeypatch.setattr(outbox, "is_open", lambda *_: next(is_open, False))
        world.platform.say("a", "tell me")
        assert world.wait_for_text("a", "beginning")
        assert next(is_open, None) is None, "it has waited"
        quiet.release()


def test_what_a_model_call_said_before_it_broke_is_void(world: World) -> None:
    world.play(Cut(after="Something that will be void, word for word. "), say("The whole reply."))
    with Inside(world):
        world.platform.say("a", "tell me")
        messages = world.platform.wait_for(
            "a", lambda messages: bool(messages) and messages[-1].text == "The whole reply."
        )
        assert len(messages) == 1


def test_tools_are_shown_while_they_run(world: World) -> None:
    quiet = Quiet()
    world.play(together(say(_BEGINNING), call("todo")), silence(quiet, then="All done now."))
    with Inside(world):
        world.platform.say("a", "plan it")
        world.wait_for_text("a", _BEGINNING.strip())
        quiet.release()
        (message,) = world.platform.wait_for(
            "a", lambda message: bool(message) and message[0].text == "All done now."
        )
        assert any(_BEGINNING.strip() in text for text in message.edits)


def test_of_a_long_reply_the_first_piece_is_the_draft(world: World) -> None:
    text = "\n\n".join(f"Paragraph {number}. " + "word " * 60 for number in range(40))
    quiet = Quiet()
    world.play(silence(quiet, after=text, then=" The very end."))
    with Inside(world):
        world.platform.say("a", "tell me a lot")
        world.wait_for_text("a", "Paragraph 0.")
        quiet.release()
        world.wait_for_text("a", "The very end.")
        messages = world.platform.shown("a")
        assert len(messages) > 1
        assert messages[0].edits
        assert all(len(message.text) <= 4000 for message in messages)
        assert [message.edits for message in messages[1:]] == [()] * (len(messages) - 1)
        joined = "".join(message.text for message in messages)
        assert all(joined.count(f"Paragraph {number}.") == 1 for number in range(40))


def test_edits_that_are_put_off_do_not_double_the_reply(world: World) -> None:
    quiet = Quiet()
    world.play(silence(quiet, after=_BEGINNING, then="And the end."))
    with Inside(world):
        world.platform.say("a", "tell me")
        world.wait_for_text("a", "beginning")
        world.platform.rate_limit(0.1, times=3)
        quiet.release()
        world.platform.wait_for(
            "a", lambda messages: messages[0].text == _BEGINNING + "And the end."
        )
        assert len(world.replies("a")) == 1


def test_a_first_message_that_is_put_off_leaves_the_reply_whole(world: World) -> None:
    world.platform.rate_limit(0.1)
    world.play(say(_BEGINNING + "And the end."))
    with Inside(world):
        world.platform.say("a", "tell me")
        world.wait_for_text("a", "And the end.")
        assert world.replies("a") == [_BEGINNING + "And the end."]


@pytest.mark.parametrize("resend", ["same", "checked", "marked"])
def test_a_draft_outlives_a_kill_and_becomes_the_reply(world: World, resend: str) -> None:
    world.configure(streaming=True, resend=resend)
    quiet = Quiet()
    world.play(silence(quiet, after=_BEGINNING))
    with Process(world) as gateway:
        gateway.wait_until_up()
        world.platform.say("a", "tell me")
        world.wait_for_text("a", "beginning")
        with SessionDB(world.home.database, read_only=True) as store:
            eventually(lambda: _named_drafts(store) == 1)
        gateway.kill()
    world.play(say("Here is all of it, from the start to the end."))
    with Process(world) as gateway:
        gateway.wait_until_up()
        world.wait_for_text("a", "Here is all of it")
        world.platform.say("a", "more")
        world.wait_for_text("a", "You said: more")
        assert len(world.replies("a")) == 2


def _named_drafts(store: SessionDB) -> int:
    sql = "SELECT count(*) FROM drafts WHERE message_id IS NOT NULL"
    return store.read(lambda c: c.value(sql))


@pytest.mark.parametrize("resend", ["same", "checked", "marked"])
def test_a_draft_that_nobody_was_told_of_is_not_a_second_reply(world: World, resend: str) -> None:
    world.configure(streaming=True, resend=resend)
    quiet = Quiet()
    world.play(silence(quiet, after=_BEGINNING, then="And the end."))
    world.platform.lose_answers(1)
    with Inside(world) as inside:
        world.platform.say("a", "tell me")
        world.wait_for_text("a", "beginning")
        eventually(
            lambda: inside.services.connections.connected() == {} or _drafts(inside.store) == 1
        )
        quiet.release()
        messages = world.platform.wait_for(
            "a", lambda messages: messages[-1].text.endswith(_BEGINNING + "And the end.")
        )
        if resend == "marked":
            assert messages[-1].text.startswith("(This may be a repeat.)")
        else:
            assert [message.text for message in messages] == [_BEGINNING + "And the end."]


def test_a_draft_that_is_there_though_the_network_failed_becomes_the_reply_where_its_key_folds_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = LoopbackAdapter.send

    async def fail_after(
        self: LoopbackAdapter,
        chat_id: str,
        content: str,
        reply_to: str | None = None,
        metadata: SendMetadata | None = None,
    ) -> SendResult:
        monkeypatch.setattr(LoopbackAdapter, "send", send)
        await send(self, chat_id, content, reply_to, metadata)
        return SendResult(success=False, error="502 Bad Gateway", error_kind="network")

    monkeypatch.setattr(LoopbackAdapter, "send", fail_after)
    quiet = Quiet()
    world.play(silence(quiet, after=_BEGINNING, then="And the end."))
    with Inside(world):
        world.platform.say("a", "tell me")
        world.wait_for_text("a", "beginning")
        quiet.release()
        world.platform.wait_for(
            "a", lambda messages: messages[-1].text == _BEGINNING + "And the end."
        )
        assert world.replies("a") == [_BEGINNING + "And the end."]


def test_a_draft_of_a_stopped_turn_loses_its_cursor(world: World) -> None:
    quiet = Quiet()
    world.play(together(say(_BEGINNING), call("todo")), silence(quiet))
    with Inside(world) as inside:
        world.platform.say("a", "plan it")
        assert quiet.started.wait(10)
        world.wait_for_text("a", "beginning")
        world.platform.say("a", "/stop")
        world.wait_for_text("a", "Stopping")
        messages = world.platform.wait_for(
            "a", lambda messages: not any("▉" in message.text for message in messages)
        )
        assert _BEGINNING.strip() in messages[0].text
        eventually(lambda: _drafts(inside.store) == 0)


def _kill_while_a_draft_is_shown(world: World) -> None:
    world.play(silence(Quiet(), after=_BEGINNING))
    with Process(world) as gateway:
        gateway.wait_until_up()
        world.platform.say("a", "tell me")
        world.wait_for_text("a", "beginning")
        with SessionDB(world.home.database, read_only=True) as store:
            eventually(lambda: _named_drafts(store) == 1)
        gateway.kill()


def test_a_draft_of_a_turn_that_is_stopped_after_a_kill_loses_its_cursor(world: World) -> None:
    _kill_while_a_draft_is_shown(world)
    world.play(call("clarify", question="Which one?"))
    with Inside(world) as inside:
        world.wait_for_text("a", "Which one?")
        world.platform.say("a", "/stop")
        world.platform.wait_for("a", lambda messages: messages[0].text == "⏹ Stopped.")
        eventually(lambda: _drafts(inside.store) == 0)


def test_so_does_one_whose_turn_went_on_before_its_platform_was_there(world: World) -> None:
    _kill_while_a_draft_is_shown(world)
    world.play(call("clarify", question="Which one?"))
    world.platform.stop()
    with Process(world) as gateway, SessionDB(world.home.database, read_only=True) as store:
        gateway.wait_until_up()
        eventually(lambda: bool(store.read(outbox_ledger.waiting)), "the question")
        world.platform.start()
        world.wait_for_text("a", "Which one?")
        world.platform.say("a", "/stop")
        world.platform.wait_for("a", lambda messages: messages[0].text == "⏹ Stopped.")
        eventually(lambda: _drafts(store) == 0)


def test_a_draft_whose_turn_was_stopped_right_before_a_kill_loses_its_cursor(world: World) -> None:
    _kill_while_a_draft_is_shown(world)
    with SessionDB(world.home.database) as store:
        (turn,) = store.read(turns.all_open)
        store.write(turns.finish, turn["id"], "interrupted", reason="stopped by the user")
    with Inside(world) as inside:
        world.platform.wait_for("a", lambda messages: messages[0].text == "⏹ Stopped.")
        eventually(lambda: _drafts(inside.store) == 0)


def test_a_cursor_that_cannot_be_taken_off_at_once_is_taken_off_soon(world: World) -> None:
    quiet = Quiet()
    world.play(together(say(_BEGINNING), call("todo")), silence(quiet))
    with Inside(world):
        world.platform.say("a", "plan it")
        assert quiet.started.wait(10)
        world.wait_for_text("a", "✓ todo")
        world.platform.rate_limit(0.05, times=2)
        world.platform.say("a", "/stop")
        world.platform.wait_for(
            "a", lambda messages: not any("▉" in message.text for message in messages)
        )


def test_nothing_is_shown_early_when_a_plugin_wants_a_say(world: World) -> None:
    with Inside(world):
        plugins.register_hook(
            "pre_send",
            lambda text: {"action": "rewrite", "text": text.replace("secret", "******")},
        )
        world.play(say("The secret is out, and it is long enough to be shown."))
        world.platform.say("a", "tell me")
        (message,) = world.platform.wait_for("a", lambda message: bool(message))
        assert message.text.startswith("The ****** is out")
        assert message.edits == ()
        assert "secret" not in json.dumps([attempt.text for attempt in world.platform.attempts])


def test_typing_is_shown_while_a_turn_runs(world: World) -> None:
    quiet = Quiet()
    world.play(silence(quiet, then="done"))
    with Inside(world):
        world.platform.say("a", "think")
        world.platform.wait_until(lambda: world.platform.typed["a"] > 0)
        quiet.release()
        world.wait_for_replies("a", 1)


# -- typing alone ------------------------------------------------------------------------------------


class _Typing(BasePlatformAdapter):
    """A platform that shows who types; to stop it takes as long as the gate is shut."""

    def __init__(self, abilities: Abilities) -> None:
        super().__init__(PlatformConfig(), Platform.register("typing"))
        self.abilities = abilities  # type: ignore[misc]
        self.typed = asyncio.Semaphore(0)
        self.stops = 0
        self.stopping = asyncio.Event()
        self.gate = asyncio.Event()

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        return True

    async def disconnect(self) -> None: ...

    async def send(
        self,
        chat_id: str,
        content: str,
        reply_to: str | None = None,
        metadata: SendMetadata | None = None,
    ) -> SendResult:
        raise AssertionError("Nothing is shown early here.")

    async def send_typing(self, chat_id: str, metadata: SendMetadata | None = None) -> None:
        self.typed.release()

    async def stop_typing(self, chat_id: str, metadata: SendMetadata | None = None) -> None:
        self.stops += 1
        self.stopping.set()
        await self.gate.wait()


def _streams(store: SessionDB, abilities: Abilities, *, is_on: bool) -> tuple[Streams, _Typing]:
    adapter = _Typing(abilities)
    return Streams(store, lambda: {"typing": adapter}, is_on=is_on), adapter


_FROM = ReplyTarget({"platform": "typing", "chat_id": "c"}, message_id="m")


@pytest.mark.parametrize(("is_on", "can_edit"), [(True, False), (False, True)])
def test_a_turn_of_which_nothing_can_be_shown_has_no_stream(is_on: bool, can_edit: bool) -> None:
    async def go() -> None:
        with SessionDB.in_memory() as store:
            abilities = Abilities(text_limit=100, can_edit=can_edit)
            streams, _ = _streams(store, abilities, is_on=is_on)
            loop = asyncio.get_running_loop()
            streams.begin("t", _FROM, loop)
            assert streams._open == {}
            streams.report("t", TextDelta(_BEGINNING))
            streams.end("t", loop)
            await streams.closed("t")

    asyncio.run(go())


def test_typing_is_repeated_until_the_end_and_ended_before_the_reply() -> None:
    async def go() -> None:
        with SessionDB.in_memory() as store:
            abilities = Abilities(text_limit=100, has_typing=True, typing_every_s=0.001)
            streams, adapter = _streams(store, abilities, is_on=False)
            loop = asyncio.get_running_loop()
            streams.begin("t", _FROM, loop)
            for _ in range(3):
                await adapter.typed.acquire()
            streams.report("t", TurnEnded("answered", "", ""))
            streams.end("t", loop)
            reply = asyncio.create_task(streams.closed("t"))
            await adapter.stopping.wait()
            assert not reply.done()
            adapter.gate.set()
            await reply
            assert (adapter.stops, streams._open) == (1, {})

    asyncio.run(asyncio.wait_for(go(), 20))


def test_a_turn_that_ends_without_a_reply_leaves_no_stream_behind() -> None:
    async def go() -> None:
        with SessionDB.in_memory() as store:
            abilities = Abilities(text_limit=100, has_typing=True, typing_every_s=3600.0)
            streams, adapter = _streams(store, abilities, is_on=False)
            loop = asyncio.get_running_loop()
            streams.begin("t", _FROM, loop)
            await adapter.typed.acquire()
            adapter.gate.set()
            streams.end("t", loop)
            await adapter.stopping.wait()
            await asyncio.sleep(0)  # the call that was waited for ends, and what follows from it
            await asyncio.sleep(0)
            assert (adapter.stops, streams._open) == (1, {})

    asyncio.run(asyncio.wait_for(go(), 20))
