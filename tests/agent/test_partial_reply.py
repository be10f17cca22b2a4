"""Partial replies: what is streamed is stored while it comes, by a thread that ends when idle."""

import threading

from hermes_agent.testing.scripted import TIMEOUT_S
from hermes_agent.turn.events import TextDelta
from hermes_agent.turn.partial_reply import PartialReply, Writer
from tests.support.faults import eventually, no_threads


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "partial replies"]


def test_the_thread_ends_when_nothing_is_streamed_and_starts_again() -> None:
    before, writer = set(_threads()), Writer(idle_timeout_s=0.01)
    for text in ("Half of", "the next"):
        reply, stored, is_stored = PartialReply(), list[str](), threading.Event()

        def store(
            written: str, stored: list[str] = stored, event: threading.Event = is_stored
        ) -> None:
            stored.append(written)
            event.set()

        writer.add(reply, store)
        reply.receive(TextDelta(text))
        assert is_stored.wait(TIMEOUT_S)
        writer.remove(reply)
        eventually(lambda: not set(_threads()) - before, "the end of the thread")
        assert stored == [text]


def test_a_reply_is_stored_after_no_thread_could_start_for_the_one_before() -> None:
    writer, stored = Writer(idle_timeout_s=0.01), list[str]()
    with no_threads("partial replies"):
        writer.add(PartialReply(), lambda _text: None)
    reply = PartialReply()
    writer.add(reply, stored.append)
    reply.receive(TextDelta("Half of"))
    eventually(lambda: stored == ["Half of"], "the stored text")
    writer.remove(reply)


def test_a_delta_is_received_without_copying_the_text_before_it() -> None:
    class Piece(str):
        __slots__ = ()

        def __radd__(self, before: str) -> str:
            raise AssertionError(f"{len(before)} characters were copied")

    reply = PartialReply()
    for _ in range(3):
        reply.receive(TextDelta(Piece("word ")))
    assert reply.text == "word word word "
    reply.clear()
    assert reply.text == ""
