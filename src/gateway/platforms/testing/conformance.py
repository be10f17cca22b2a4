"""The rules for every platform, as tests that any adapter can run.

Subclass `PlatformConformance` in a test module and give the tests a fresh `world`, for instance with a
fixture of that name; `docs/guide/platforms/writing-one.md` shows it. No test framework is needed.
"""

import re
import tempfile
import threading
from pathlib import Path
from unittest import SkipTest

from gateway.platforms.base import Button, PlatformError, SendMetadata
from gateway.platforms.testing.host import Host, identity
from gateway.platforms.testing.world import World
from gateway.splitting import split

PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360f8cf500f0003860180e7a35e860000000049454e44ae426082"
)
_LONG = 20_000


class PlatformConformance:
    """The scenarios; each gets a world of its own."""

    # Messages come in.

    def test_a_message_is_handed_in_with_its_text_its_chat_and_who_wrote_it(self, world: World):
        with Host(world) as host:
            world.write("hello there")
            event = host.ingress.wait_for("hello there")
            assert event.text == "hello there"
            assert event.source and event.source.chat_id == world.chat
            assert event.source.platform is host.adapter.platform
            assert event.source.person, "Nobody can be let in who has no id."
            assert event.attachments == []

    def test_messages_are_handed_in_once_and_in_order(self, world: World):
        texts = [f"message {number}" for number in range(10)]
        with Host(world) as host:
            for text in texts:
                world.write(text)
            host.ingress.wait_for(texts[-1])
            assert host.ingress.texts() == texts

    def test_every_message_has_a_name_of_its_own(self, world: World):
        with Host(world) as host:
            world.write("the same")
            world.write("the same")
            host.ingress.wait_for("the same", deliveries=2)
            assert len(host.ingress.accepted) == 2

    def test_a_message_that_could_not_be_stored_comes_again_under_the_same_name(self, world: World):
        with Host(world) as host:
            host.ingress.refuse(2)
            world.write("insist")
            host.ingress.wait_for("insist", deliveries=3)
            assert len({identity(event) for event in host.ingress.deliveries}) == 1
            assert host.ingress.texts() == ["insist"]

    def test_the_order_holds_when_a_message_could_not_be_stored(self, world: World):
        texts = [f"ordered {number}" for number in range(4)]
        with Host(world) as host:
            host.ingress.refuse(2)
            for text in texts:
                world.write(text)
            host.ingress.wait_for(texts[-1])
            assert host.ingress.texts() == texts

    def test_a_second_delivery_has_the_name_of_the_first(self, world: World):
        with Host(world) as host:
            name = world.write("twice")
            host.ingress.wait_for("twice")
            world.deliver_again(name)
            world.write("afterwards")
            host.ingress.wait_for("afterwards")
            assert host.ingress.texts() == ["twice", "afterwards"]

    def test_messages_that_are_delivered_out_of_order_all_arrive(self, world: World):
        texts = [f"mixed {number}" for number in range(4)]
        with Host(world) as host:
            world.write_out_of_order(texts)
            for text in texts:
                host.ingress.wait_for(text)
            assert sorted(host.ingress.texts()) == texts

    def test_an_edit_says_what_it_is_a_new_version_of(self, world: World):
        with Host(world) as host:
            name = world.write("a first version")
            first = host.ingress.wait_for("a first version")
            world.edit(name, "another version")
            second = host.ingress.wait_for("another version")
            assert second.edits == first.message_id
            assert identity(second) != identity(first)

    def test_a_file_comes_as_an_attachment(self, world: World):
        with Host(world) as host:
            world.attach(PICTURE, "../picture.png", "look at this")
            event = host.ingress.wait_for("look at this")
            (file,) = event.attachments
            assert file.kind == "image/png"
            assert file.path.read_bytes() == PICTURE

    def test_a_file_that_is_too_large_does_not_stop_its_message(self, world: World):
        with Host(world) as host:
            world.attach(PICTURE + b"\x00" * 6 * 1024 * 1024, "large.png", "what about this")
            event = host.ingress.wait_for("what about this")
            assert event.attachments == []

    def test_a_strangers_file_is_neither_fetched_nor_kept(self, world: World):
        with Host(world) as host:
            host.ingress.turn_away()
            before = world.fetched()
            world.attach(PICTURE, "picture.png", "let me in")
            event = host.ingress.wait_for("let me in")
            assert len(event.files) == 1, "It can be fetched, by the ingress."
            assert (event.attachments, host.ingress.stored_files()) == ([], [])
            assert world.fetched() == before

    def test_odd_content_does_not_stop_what_follows(self, world: World):
        with Host(world) as host:
            world.write_odd()
            world.write("still here")
            host.ingress.wait_for("still here")

    def test_texts_arrive_as_they_were_written(self, world: World):
        text = "Ünïcödé 漢字 👨‍👩‍👧 <b>&amp;</b> *stars* _lines_ `ticks` \\ back"
        with Host(world) as host:
            world.write(text)
            assert host.ingress.wait_for("Ünïcödé").text == text

    # Processes and connections end.

    def test_what_was_written_meanwhile_is_there_after_a_restart(self, world: World):
        with Host(world) as host:
            world.write("before")
            host.ingress.wait_for("before")
            host.stop()
            world.write("meanwhile")
            world.write("and more")
            host.start()
            world.write("after")
            host.ingress.wait_for("after")
            assert host.ingress.texts() == ["before", "meanwhile", "and more", "after"]

    def test_a_crash_before_the_acknowledgement_brings_the_message_again(self, world: World):
        with Host(world) as host:
            host.ingress.hold()
            world.write("in the middle")
            host.ingress.wait_for("in the middle")
            host.crash()
            host.ingress.hold(is_on=False)
            host.start()
            host.ingress.wait_for("in the middle", deliveries=2)
            world.write("afterwards")
            host.ingress.wait_for("afterwards")
            assert host.ingress.texts() == ["in the middle", "afterwards"]

    def test_a_crash_while_the_store_refuses_loses_nothing(self, world: World):
        texts = [f"refused {number}" for number in range(3)]
        with Host(world) as host:
            host.ingress.refuse(1000)
            for text in texts:
                world.write(text)
            host.ingress.wait_for(texts[0])
            host.crash()
            host.ingress.refuse(0)
            host.start()
            host.ingress.wait_for(texts[-1])
            assert host.ingress.texts() == texts

    def test_a_network_that_comes_back_brings_what_was_written(self, world: World):
        with Host(world) as host:
            world.write("before")
            host.ingress.wait_for("before")
            world.cut()
            world.write("meanwhile")
            host.wait_for_loss()
            world.heal()
            host.ingress.wait_for("meanwhile")
            world.write("after")
            host.ingress.wait_for("after")
            assert host.ingress.texts() == ["before", "meanwhile", "after"]

    def test_a_server_that_restarts_is_found_again(self, world: World):
        with Host(world) as host:
            world.write("before")
            host.ingress.wait_for("before")
            world.restart()
            world.write("after")
            host.ingress.wait_for("after")
            assert host.ingress.texts() == ["before", "after"]
            assert host.send_when_connected("an answer", "k").success

    def test_a_platform_that_cannot_be_reached_is_told_as_such(self, world: World):
        with Host(world) as host:
            host.stop()
            world.cut()
            try:
                host.start()
            except PlatformError as error:
                assert not error.is_fatal, "It comes back by itself."
            else:
                raise AssertionError("It connected to nothing.")
            finally:
                world.heal()

    def test_disconnecting_ends_everything_and_may_be_repeated(self, world: World):
        before = _threads()
        with Host(world) as host:
            world.write("hello")
            host.ingress.wait_for("hello")
            adapter = host.adapter
            host.stop()
            host.run(adapter.disconnect())
            assert host.tasks() == set()
            result = host.run(adapter.send(world.chat, "too late", None, {"key": "late"}))
            assert (result.success, result.error_kind) == (False, "network")
        host.until(lambda: _threads() <= before, "The end of all threads")

    def test_an_adapter_that_was_never_connected_can_be_disconnected(self, world: World):
        with Host(world) as host:
            host.stop()
            host.run(world.make().disconnect())

    # Replies go out.

    def test_a_reply_is_shown_and_has_an_id(self, world: World):
        with Host(world) as host:
            self._meet(world, host)
            result = host.send("an answer")
            assert result.success
            assert result.message_id
            host.until(lambda: _has(world, "an answer"), "The reply")

    def test_a_plain_text_is_shown_as_it_stands(self, world: World):
        text = "*stars* _lines_ `ticks` [words](https://hermes.test) ~~gone~~"
        with Host(world) as host:
            self._meet(world, host)
            assert host.send(text, {"plain": True}).success
            host.until(lambda: _has(world, text), "The text as it stands")

    def test_a_long_text_arrives_whole_and_in_order(self, world: World):
        with Host(world) as host:
            self._meet(world, host)
            abilities = host.adapter.abilities
            size = min(3 * abilities.text_limit, _LONG)
            text = _document(size)
            pieces = split(text, min(abilities.text_limit, size // 3), abilities.measure)
            for number, piece in enumerate(pieces):
                result = host.send_when_connected(piece, f"piece{number}")
                assert result.success, result.error
            expected = re.findall(r"w\d+", text)
            host.until(lambda: _words(world) == expected, "The whole text")

    def test_a_piece_that_fills_the_limit_is_taken(self, world: World):
        with Host(world) as host:
            self._meet(world, host)
            limit = host.adapter.abilities.text_limit
            text = ("word " * (min(limit, _LONG) // 5 + 1))[: min(limit, _LONG) - 1] + "."
            assert host.send(text).success

    def test_a_limited_send_says_when_to_try_again(self, world: World):
        with Host(world) as host:
            self._meet(world, host)
            world.limit_next_send()
            result = host.send("patience", {"key": "patience"})
            assert (result.success, result.error_kind) == (False, "rate_limited")
            assert result.retry_after is not None
            assert result.retry_after > 0
            assert host.send_when_connected("patience", "patience").success
            host.until(lambda: _count(world, "patience") == 1, "One reply")

    def test_a_send_without_a_network_is_no_success(self, world: World):
        with Host(world) as host:
            self._meet(world, host)
            world.cut()
            result = host.send("into the void")
            assert not result.success
            assert result.error_kind in ("network", "unsure")
            world.heal()
            assert host.send_when_connected("afterwards", "afterwards").success
            host.until(lambda: _has(world, "afterwards"), "The reply")
            assert not _has(world, "into the void")

    def test_a_send_whose_answer_is_lost_is_unsure_and_can_be_settled(self, world: World):
        with Host(world) as host:
            self._meet(world, host)
            world.lose_next_answer()
            result = host.send("perhaps", {"key": "perhaps1"})
            if host.adapter.abilities.resend != "same":
                assert (result.success, result.error_kind) == (False, "unsure"), result
            host.until(lambda: _has(world, "perhaps"), "The reply")
            self._settle(world, host)

    def _settle(self, world: World, host: Host) -> None:
        """Do what the gateway does after a send that it is unsure of.

        Where two sends under one key are one, it does not matter what the first was taken for.
        """
        abilities = host.adapter.abilities
        if abilities.resend == "checked":
            host.until(
                lambda: _finds(world, host, "perhaps1"),
                "That the reply is found by its key",
            )
        elif abilities.resend == "same":
            assert host.send_when_connected("perhaps", "perhaps1").success
        assert host.send_when_connected("the end", "end").success
        host.until(lambda: _has(world, "the end"), "The last reply")
        assert _count(world, "perhaps") == 1

    def test_a_reply_that_is_sent_again_after_a_restart_is_not_doubled(self, world: World):
        with Host(world) as host:
            self._meet(world, host)
            _needs(host.adapter.abilities.resend != "marked", "way to know its own messages")
            assert host.send("only once", {"key": "once"}).success
            host.stop()
            host.start()
            if host.adapter.abilities.resend == "checked":
                assert host.run(host.adapter.find_sent(world.chat, "once"))
            else:
                assert host.send_when_connected("only once", "once").success
            assert host.send("the end").success
            host.until(lambda: _has(world, "the end"), "The last reply")
            assert _count(world, "only once") == 1

    def test_what_was_never_sent_is_not_found(self, world: World):
        with Host(world) as host:
            assert host.run(host.adapter.find_sent(world.chat, "never")) is None

    def test_a_platform_that_cannot_be_asked_is_not_taken_for_one_that_has_nothing(
        self, world: World
    ):
        with Host(world) as host:
            _needs(host.adapter.abilities.resend == "checked", "way to look for what was sent")
            self._meet(world, host)
            assert host.send("already there", {"key": "there"}).success
            world.cut()
            try:
                found = host.run(host.adapter.find_sent(world.chat, "there"))
            except PlatformError:
                found = "nobody knows"
            finally:
                world.heal()
            assert found, "The gateway would send it again."

    def test_a_closed_chat_refuses_for_good(self, world: World):
        with Host(world) as host:
            result = host.send("hello?", chat=world.closed_chat())
            assert (result.success, result.error_kind) == (False, "refused")
            assert result.error

    # Abilities are honest.

    def test_an_edit_replaces_the_text_where_that_is_possible(self, world: World):
        with Host(world) as host:
            self._meet(world, host)
            sent = host.send("a draft")
            assert sent.message_id
            edit = host.adapter.edit_message(world.chat, sent.message_id, "the final text")
            result = host.run(edit)
            if not host.adapter.abilities.can_edit:
                assert not result.success
                return
            assert result.success, result.error
            host.until(lambda: _has(world, "the final text"), "The edit")
            assert not _has(world, "a draft")

    def test_an_edit_without_a_network_is_no_success(self, world: World):
        with Host(world) as host:
            _needs(host.adapter.abilities.can_edit, "edits")
            self._meet(world, host)
            sent = host.send("a draft")
            world.cut()
            edit = host.adapter.edit_message(world.chat, sent.message_id or "", "into the void")
            result = host.run(edit)
            world.heal()
            assert not result.success
            assert result.error_kind in ("network", "unsure")

    def test_the_same_edit_twice_is_no_failure(self, world: World):
        with Host(world) as host:
            _needs(host.adapter.abilities.can_edit, "edits")
            self._meet(world, host)
            sent = host.send("a draft")
            for _ in range(2):
                edit = host.adapter.edit_message(world.chat, sent.message_id or "", "the same")
                assert host.run(edit).success

    def test_typing_is_shown_where_that_is_possible(self, world: World):
        with Host(world) as host:
            _needs(host.adapter.abilities.has_typing, "signs of typing")
            self._meet(world, host)
            host.run(host.adapter.send_typing(world.chat))
            host.until(lambda: world.typed() > 0, "The sign of typing")
            host.run(host.adapter.stop_typing(world.chat))

    def test_a_pressed_button_answers_its_question(self, world: World):
        with Host(world) as host:
            _needs(host.adapter.abilities.has_buttons, "buttons")
            self._meet(world, host)
            buttons = [Button("Yes, do it", "approve"), Button("No", "deny")]
            options: SendMetadata = {"question": "q-17", "buttons": buttons}
            assert host.send("May I?", options).success
            host.until(lambda: _has(world, "May I?"), "The question")
            world.press("Yes, do it")
            event = host.ingress.wait_for("approve")
            assert (event.answers, event.text) == ("q-17", "approve")
            assert event.source and event.source.chat_id == world.chat

    def test_a_file_is_sent_where_that_is_possible(self, world: World):
        with Host(world) as host, tempfile.TemporaryDirectory() as folder:
            _needs(host.adapter.abilities.can_send_files, "files")
            self._meet(world, host)
            path = Path(folder) / "result.png"
            path.write_bytes(PICTURE)
            assert host.send("here it is", {"files": [str(path)]}).success
            host.until(lambda: PICTURE in world.files(), "The file")
            host.until(lambda: _has(world, "here it is"), "The text that goes along")

    def test_a_file_that_is_missing_does_not_raise(self, world: World):
        with Host(world) as host:
            _needs(host.adapter.abilities.can_send_files, "files")
            self._meet(world, host)
            host.send("here it is", {"files": ["no/such/file.png"]})
            assert host.send("still here").success

    def _meet(self, world: World, host: Host) -> None:
        """Some platforms let nobody write who was not written to."""
        world.write("let us begin")
        host.ingress.wait_for("let us begin")


def _finds(world: World, host: Host, key: str) -> bool:
    """Return whether a piece is found by its key; repeats while the platform is unreachable."""
    try:
        return host.run(host.adapter.find_sent(world.chat, key)) is not None
    except PlatformError:
        return False


def _needs(ability: object, what: str) -> None:
    if not ability:
        raise SkipTest(f"The platform has no {what}.")


def _threads() -> set[threading.Thread]:
    """The threads that would keep a process alive."""
    return {thread for thread in threading.enumerate() if not thread.daemon}


def _document(size: int) -> str:
    """A long text with everything in it that is hard to cut; each word has a number."""
    parts: list[str] = []
    number = 0
    while sum(map(len, parts)) < size:
        words = [f"w{index}" for index in range(number, number + 24)]
        number += len(words)
        parts.append(" ".join(words[:10]) + ".")
        parts.append(f"**{' '.join(words[10:14])}** and `{words[14]}`.")
        parts.append("```python\n" + "\n".join(words[15:20]) + "\n```")
        parts.append("\n".join(f"- {word}" for word in words[20:]))
    return "\n\n".join(parts)


def _words(world: World) -> list[str]:
    return re.findall(r"w\d+", "\n".join(world.visible_texts()))


def _count(world: World, text: str) -> int:
    return sum(text in message for message in world.visible_texts())


def _has(world: World, text: str) -> bool:
    return _count(world, text) > 0
