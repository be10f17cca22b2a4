"""Messages that their sender changed: nothing is answered twice, nothing loses its place."""

import json
import threading
from typing import Any

import pytest

from gateway.config import Platform
from gateway.platforms.base import IncomingFile, MessageEvent, at_hand
from gateway.source import SessionSource
from hermes_agent.testing.scripted import Quiet, call, silence
from hermes_cli import plugins
from hermes_state import SessionDB
from hermes_state.ledger import questions, turns
from hermes_state.ledger import titles as title_ledger
from tests.gateway.harness import Inside, Process, World
from tests.support.faults import eventually

_TIMEOUT_S = 10
_CORRECTED = "I corrected my message. It now says:\n"
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8"
    "cfc0000003010100c9fe92ef0000000049454e44ae426082"
)


def _event(
    text: str, message_id: str, *, files: tuple[bytes, ...] = (), **more: Any
) -> MessageEvent:
    source = SessionSource(Platform("loopback"), "a", user_id="u1")
    incoming = [IncomingFile("dot.png", at_hand(content)) for content in files]
    return MessageEvent(text, source=source, message_id=message_id, files=incoming, **more)


def _prompts(world: World) -> list[str]:
    """What the model was asked, request by request: the last thing that was said."""
    return [str(request.json["messages"][-1]["content"]) for request in world.model.model_requests]


@pytest.mark.parametrize(
    "sides",
    [
        {},
        {"files": (PNG,)},
        {"reply_to_message_id": "0", "reply_to_text": "what somebody else said"},
    ],
    ids=["words", "a picture", "a reply"],
)
def test_a_message_that_did_not_really_change_is_not_answered_again(
    world: World, sides: dict[str, Any]
) -> None:
    with Inside(world) as inside:
        inside.call(inside.services.ingress.accept(_event("see https://example.org", "1", **sides)))
        world.wait_for_text("a", "see https://example.org")
        again = _event("see https://example.org", "1:e2", edits="1", **sides)
        assert inside.call(inside.services.ingress.accept(again)).outcome == "ignored"
        changed = _event("see https://example.com", "1:e3", edits="1", **sides)
        assert inside.call(inside.services.ingress.accept(changed)).outcome == "turn"
        world.wait_for_text("a", "I corrected my message.")
        unchanged = _event("see https://example.com", "1:e4", edits="1", **sides)
        assert inside.call(inside.services.ingress.accept(unchanged)).outcome == "ignored"
        assert len(_prompts(world)) == 2


def test_a_command_that_did_not_really_change_is_not_done_again(world: World) -> None:
    with Inside(world) as inside:
        command_text = "/background read https://example.org"
        inside.call(inside.services.ingress.accept(_event(command_text, "1")))
        world.wait_for_text("a", "You said: read https://example.org")
        again = inside.call(inside.services.ingress.accept(_event(command_text, "1:e2", edits="1")))
        assert again.outcome == "ignored"


def test_the_new_version_of_a_message_that_waits_keeps_its_place(world: World) -> None:
    quiet = Quiet()
    world.play(silence(quiet, then="first"))
    with Inside(world) as inside:
        world.platform.say("a", "one")
        assert quiet.started.wait(_TIMEOUT_S)
        waiting = world.platform.say("a", "tow")
        world.platform.say("a", "three")
        world.platform.edit("a", waiting, "twi")
        world.platform.edit("a", waiting, "two")
        world.platform.wait_until(lambda: not world.platform.unacknowledged())
        quiet.release()
        world.wait_for_replies("a", 3)
        assert _prompts(world) == ["one", "two", "three"]
        to_two, to_three = (
            json.dumps(request.json["messages"]) for request in world.model.model_requests[1:]
        )
        assert "three" not in to_two
        assert "You said: two" in to_three
        assert "tow" not in to_three
        assert "twi" not in to_three
        eventually(lambda: inside.open_turns() == set())
        assert inside.store.read(turns.unfinished) == []
        assert inside.store.check() == []


def test_it_keeps_its_place_over_a_kill(world: World) -> None:
    quiet = Quiet()
    world.play(silence(quiet))
    with Process(world) as gateway:
        gateway.wait_until_up()
        world.platform.say("a", "one")
        assert quiet.started.wait(_TIMEOUT_S)
        waiting = world.platform.say("a", "tow")
        world.platform.say("a", "three")
        world.platform.edit("a", waiting, "two")
        world.platform.wait_until(lambda: not world.platform.unacknowledged())
        gateway.kill()
    with Process(world) as gateway:
        gateway.wait_until_up()
        world.wait_for_replies("a", 3)
    assert _prompts(world)[1:] == ["one", "two", "three"]
    with SessionDB(world.home.database) as store:
        assert store.check() == []


def test_what_is_steered_is_said_in_its_last_version(world: World) -> None:
    world.configure(busy="steer")
    world.play(call("clarify", question="Which one?", choices=["this one", "that one"]))
    with Inside(world):
        world.platform.say("a", "one")
        message = world.wait_for_text("a", "Which one?")
        steered = world.platform.say("a", "/steer make it bleu")
        world.platform.edit("a", steered, "make it blue")
        world.platform.wait_until(lambda: not world.platform.unacknowledged())
        assert message.question is not None
        world.platform.press("a", message.question, "this one")
        world.wait_for_text("a", "make it blue")
        assert "bleu" not in json.dumps(world.model.model_requests[-1].json)


def test_the_new_words_of_an_album_are_a_correction_without_its_pictures(world: World) -> None:
    album: dict[str, Any] = {"files": (PNG, PNG + b"1"), "parts": ["1", "2"]}
    with Inside(world) as inside:
        inside.call(inside.services.ingress.accept(_event("my albun", "1-2", **album)))
        world.wait_for_text("a", "my albun")
        assert _prompts(world)[-1].count("[Attached image: ") == 2
        inside.call(
            inside.services.ingress.accept(_event("my album", "1:e3", edits="1", files=(PNG,)))
        )
        world.wait_for_text("a", "my album")
        assert _prompts(world)[-1] == f"{_CORRECTED}my album"
        same = _event("my album", "1:e4", edits="1", files=(PNG,))
        assert inside.call(inside.services.ingress.accept(same)).outcome == "ignored"
        other = _event("my album", "1:e5", edits="1", files=(PNG + b"2",))
        inside.call(inside.services.ingress.accept(other))
        eventually(lambda: len(world.model.model_requests) == 3)
        assert _prompts(world)[-1].count("[Attached image: ") == 1


def test_an_edit_of_one_part_of_a_text_keeps_the_others(world: World) -> None:
    quiet = Quiet()
    world.play(silence(quiet, then="Well."))
    with Inside(world) as inside:
        inside.call(inside.services.ingress.accept(_event("first", "1")))
        assert quiet.started.wait(_TIMEOUT_S)
        cut: dict[str, Any] = {"parts": ["2", "3"], "part_sizes": [4, 3]}
        inside.call(inside.services.ingress.accept(_event("one\ntwo", "2-3", **cut)))
        for version, edits, text in (("2:e4", "2", "eins"), ("3:e5", "3", "zwei")):
            inside.call(inside.services.ingress.accept(_event(text, version, edits=edits)))
        same = _event("eins", "2:e6", edits="2")
        assert inside.call(inside.services.ingress.accept(same)).outcome == "ignored"
        quiet.release()
        world.wait_for_text("a", "eins\nzwei")
        assert _prompts(world)[-1] == "eins\nzwei"
        assert len(_prompts(world)) == 2


def test_an_album_that_waits_keeps_its_pictures_with_its_new_words(world: World) -> None:
    quiet = Quiet()
    world.play(silence(quiet, then="first"))
    with Inside(world) as inside:
        world.platform.say("a", "one")
        assert quiet.started.wait(_TIMEOUT_S)
        album = _event("my albun", "1-2", files=(PNG, PNG + b"1"), parts=["1", "2"])
        inside.call(inside.services.ingress.accept(album))
        inside.call(
            inside.services.ingress.accept(_event("my album", "1:e3", edits="1", files=(PNG,)))
        )
        quiet.release()
        world.wait_for_text("a", "my album")
        assert _prompts(world)[-1].startswith("my album\n")
        assert _prompts(world)[-1].count("[Attached image: ") == 2


def test_a_command_that_there_is_not_becomes_words(world: World) -> None:
    with Inside(world):
        typo = world.platform.say("a", "/statsu")
        world.wait_for_text("a", "Unknown command /statsu.")
        world.platform.edit("a", typo, "how are you?")
        world.wait_for_text("a", "You said: how are you?")
        assert _prompts(world) == ["how are you?"]


def test_what_was_not_meant_for_us_is_answered_when_it_is(world: World) -> None:
    with Inside(world) as inside:
        source = SessionSource(Platform("loopback"), "g", chat_type="group", user_id="u1")
        event = MessageEvent("what is it?", source=source, message_id="1")
        assert inside.call(inside.services.ingress.accept(event)).outcome == "ignored"
        named = MessageEvent(
            "bot, what is it?", source=source, message_id="1:e2", edits="1", is_mention=True
        )
        assert inside.call(inside.services.ingress.accept(named)).outcome == "turn"
        world.wait_for_text("g", "You said: bot, what is it?")


def test_a_new_version_of_what_was_asked_is_no_answer_to_a_question(world: World) -> None:
    world.play(call("clarify", question="Which one?"))
    with Inside(world) as inside:
        first = world.platform.say("a", "chose one")
        world.wait_for_text("a", "Which one?")
        world.platform.edit("a", first, "choose one")
        world.platform.wait_until(lambda: not world.platform.unacknowledged())
        assert len(inside.store.read(questions.pending)) == 1
        answer = world.platform.say("a", "the bleu one")
        world.wait_for_text("a", "The tool says: the bleu one")
        world.platform.edit("a", answer, "the blue one")
        world.wait_for_text("a", "the blue one")
        assert _prompts(world)[-1] == f"{_CORRECTED}the blue one"


def _in_a_thread(text: str, message_id: str, user: str, **more: Any) -> MessageEvent:
    source = SessionSource(
        Platform("loopback"), "g", chat_type="group", user_id=user, thread_id="t"
    )
    return MessageEvent(text, source=source, message_id=message_id, is_mention=True, **more)


def test_nobody_changes_what_somebody_else_wrote(world: World) -> None:
    quiet = Quiet()
    world.play(silence(quiet, then="first"))
    with Inside(world) as inside:
        inside.call(inside.services.ingress.accept(_in_a_thread("one", "1", "u1")))
        assert quiet.started.wait(_TIMEOUT_S)
        inside.call(inside.services.ingress.accept(_in_a_thread("tow", "2", "u1")))
        forged = _in_a_thread("forged", "3", "u2", edits="2")
        assert inside.call(inside.services.ingress.accept(forged)).outcome == "ignored"
        corrected = _in_a_thread("two", "4", "u1", edits="2")
        assert inside.call(inside.services.ingress.accept(corrected)).outcome == "turn"
        quiet.release()
        world.wait_for_text("g", "You said: [u1] two")
        late = _in_a_thread("forged", "5", "u2", edits="2")
        assert inside.call(inside.services.ingress.accept(late)).outcome == "ignored"
        assert _prompts(world) == ["[u1] one", "[u1] two"]


def test_what_another_made_of_a_message_does_not_keep_its_sender_from_changing_it(
    world: World,
) -> None:
    with Inside(world) as inside:
        event = _in_a_thread("what is it?", "1", "u1")
        event.is_mention = False
        assert inside.call(inside.services.ingress.accept(event)).outcome == "ignored"
        inside.call(inside.services.ingress.accept(_in_a_thread("forged", "2", "u2", edits="1")))
        world.wait_for_text("g", "You said: [u2] forged")
        named = _in_a_thread("bot, what is it?", "3", "u1", edits="1")
        assert inside.call(inside.services.ingress.accept(named)).outcome == "turn"
        world.wait_for_text("g", "You said: [u1] bot, what is it?")


def test_a_new_version_that_does_not_name_us_any_more_still_counts(world: World) -> None:
    quiet = Quiet()
    world.play(silence(quiet, then="first"))
    with Inside(world) as inside:
        inside.call(inside.services.ingress.accept(_in_a_thread("one", "1", "u1")))
        assert quiet.started.wait(_TIMEOUT_S)
        inside.call(inside.services.ingress.accept(_in_a_thread("bot, tow", "2", "u1")))
        corrected = _in_a_thread("two", "3", "u1", edits="2")
        corrected.is_mention = False
        assert inside.call(inside.services.ingress.accept(corrected)).outcome == "turn"
        quiet.release()
        world.wait_for_text("g", "You said: [u1] two")
        assert _prompts(world) == ["[u1] one", "[u1] two"]


@pytest.mark.parametrize("busy", ["queue", "steer"])
@pytest.mark.parametrize(
    ("command", "expected"),
    [("/status", "A turn is running."), ("/stop", "⏹ Stopping."), ("/nonsense", "Unknown command")],
)
def test_words_that_became_a_command_while_they_waited_are_not_answered(
    world: World, busy: str, command: str, expected: str
) -> None:
    world.configure(busy=busy)
    quiet = Quiet()
    world.play(silence(quiet, then="first"))
    with Inside(world) as inside:
        world.platform.say("a", "one")
        assert quiet.started.wait(_TIMEOUT_S)
        waiting = world.platform.say("a", "taken back")
        world.platform.edit("a", waiting, command)
        world.wait_for_text("a", expected)
        quiet.release()
        world.platform.say("a", "last")
        world.wait_for_text("a", "You said: last")
        assert "taken back" not in json.dumps(
            [request.json for request in world.model.model_requests]
        )
        eventually(lambda: inside.open_turns() == set())
        assert inside.store.read(turns.unfinished) == []
        assert inside.store.check() == []


def test_a_command_that_became_words_again_is_answered_once(world: World) -> None:
    quiet = Quiet()
    world.play(silence(quiet, then="first"))
    with Inside(world):
        world.platform.say("a", "one")
        assert quiet.started.wait(_TIMEOUT_S)
        waiting = world.platform.say("a", "two")
        world.platform.edit("a", waiting, "/status")
        world.wait_for_text("a", "A turn is running.")
        world.platform.edit("a", waiting, "three")
        world.platform.wait_until(lambda: not world.platform.unacknowledged())
        quiet.release()
        world.wait_for_text("a", "You said: three")
        assert _prompts(world) == ["one", "three"]


@pytest.mark.parametrize("busy", ["queue", "steer", "interrupt"])
def test_what_was_queued_is_answered_in_its_last_version_in_its_place(
    world: World, busy: str
) -> None:
    world.configure(busy=busy)
    quiet = Quiet()
    world.play(silence(quiet, then="first"))
    with Inside(world) as inside:
        world.platform.say("a", "one")
        assert quiet.started.wait(_TIMEOUT_S)
        waiting = world.platform.say("a", "/queue tow")
        world.platform.say("a", "/queue three")
        world.platform.edit("a", waiting, "/q twi")
        world.platform.edit("a", waiting, "/queue two")
        world.platform.wait_until(lambda: not world.platform.unacknowledged())
        quiet.release()
        world.wait_for_text("a", "You said: three")
        assert _prompts(world) == ["one", "two", "three"]
        eventually(lambda: inside.open_turns() == set())
        assert inside.store.check() == []


def test_what_was_queued_and_read_is_corrected(world: World) -> None:
    with Inside(world):
        queued = world.platform.say("a", "/queue tow")
        world.wait_for_text("a", "You said: tow")
        world.platform.edit("a", queued, "/queue two")
        world.wait_for_text("a", "It now says:\ntwo")
        assert _prompts(world)[-1] == f"{_CORRECTED}two"


def test_a_job_that_runs_is_stopped_for_its_new_version(world: World) -> None:
    quiet = Quiet()
    world.play(silence(quiet, then="the first job is done"))
    with Inside(world) as inside:
        job = world.platform.say("a", "/bg job one")
        assert quiet.started.wait(_TIMEOUT_S)
        world.platform.edit("a", job, "/background job two")
        world.wait_for_text("a", "You said: job two")
        eventually(lambda: inside.open_turns() == set())
        quiet.release()
        assert _prompts(world) == ["job one", "job two"]
        assert not any("the first job is done" in reply for reply in world.replies("a"))


@pytest.mark.parametrize("new", ["job two", "/queue job two"])
def test_a_job_that_becomes_words_is_stopped_and_the_words_correct_nothing(
    world: World, new: str
) -> None:
    quiet = Quiet()
    world.play(silence(quiet, then="the first job is done"))
    with Inside(world) as inside:
        job = world.platform.say("a", "/bg job one")
        assert quiet.started.wait(_TIMEOUT_S)
        world.platform.edit("a", job, new)
        world.wait_for_text("a", "You said: job two")
        eventually(lambda: inside.open_turns() == set())
        quiet.release()
        assert _prompts(world) == ["job one", "job two"]
        assert not any("the first job is done" in reply for reply in world.replies("a"))


@pytest.mark.parametrize("new", ["job two", "/background job two"])
def test_a_job_that_is_changed_before_it_has_asked_its_model_says_nothing_of_its_end(
    world: World, new: str
) -> None:
    is_begun, may_go_on = threading.Event(), threading.Event()

    def hold_the_first(user_message: str) -> None:
        if user_message == "job one":
            is_begun.set()
            may_go_on.wait(_TIMEOUT_S)

    plugins.register_hook("on_turn_start", hold_the_first)
    with Inside(world) as inside:
        job = world.platform.say("a", "/bg job one")
        assert is_begun.wait(_TIMEOUT_S)
        world.platform.edit("a", job, new)
        world.wait_for_text("a", "You said: job two")
        may_go_on.set()
        eventually(lambda: inside.open_turns() == set())
        assert _prompts(world) == ["job two"]
        assert not any("send it again" in reply for reply in world.replies("a"))


def test_editing_new_starts_no_other_conversation(world: World) -> None:
    with Inside(world) as inside:
        opened = world.platform.say("a", "/new Titl")
        world.wait_for_text("a", "'Titl'")
        world.platform.say("a", "in it")
        world.wait_for_text("a", "You said: in it")
        (before,) = inside.runner.session_store.list_sessions()
        world.platform.edit("a", opened, "/new Title")
        world.wait_for_text("a", "Editing a message does not run /new again.")
        (after,) = inside.runner.session_store.list_sessions()
        assert after.session_id == before.session_id
        assert inside.store.read(title_ledger.title_of, before.session_id) == "Titl"


def test_what_was_steered_and_read_is_corrected(world: World) -> None:
    with Inside(world):
        steered = world.platform.say("a", "/steer tow")
        world.wait_for_text("a", "You said: tow")
        world.platform.edit("a", steered, "/steer two")
        world.wait_for_text("a", "It now says:\ntwo")
        assert _prompts(world)[-1] == f"{_CORRECTED}two"


@pytest.mark.parametrize(
    ("first", "changed"), [("/undo", "/undo 2"), ("/retry", "/undo"), ("/branch A", "/fork B")]
)
def test_a_command_that_takes_back_or_repeats_is_not_done_again_when_it_is_changed(
    world: World, first: str, changed: str
) -> None:
    with Inside(world) as inside:
        for number, words in enumerate(("one", "two", "three"), 1):
            world.platform.say("a", words)
            world.wait_for_replies("a", number)
        message_id = world.platform.say("a", first)
        world.wait_for_replies("a", 4)
        eventually(lambda: inside.open_turns() == set())
        before = [(row["id"], row["message_count"]) for row in inside.store.list_sessions_rich()]
        world.platform.edit("a", message_id, changed)
        world.wait_for_text("a", "Send it as a new message")
        after = [(row["id"], row["message_count"]) for row in inside.store.list_sessions_rich()]
        assert after == before


def test_words_that_become_such_a_command_do_it(world: World) -> None:
    with Inside(world):
        world.platform.say("a", "one")
        world.wait_for_replies("a", 1)
        typo = world.platform.say("a", "/udno")
        world.wait_for_text("a", "Unknown command /udno.")
        world.platform.edit("a", typo, "/undo")
        world.wait_for_replies("a", 3)
        assert "Send it as a new message" not in world.replies("a")[-1]


@pytest.mark.parametrize("command", ["/steer", "/queue"])
def test_a_correction_without_words_is_none(world: World, command: str) -> None:
    with Inside(world):
        message_id = world.platform.say("a", f"{command} one")
        world.wait_for_text("a", "You said: one")
        world.platform.edit("a", message_id, command)
        world.wait_for_text("a", f"{command} needs a text.")
        assert _prompts(world) == ["one"]
