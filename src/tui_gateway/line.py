"""The line of prompts that wait in a session, and telling every client of it."""

from collections.abc import Iterable
from typing import NotRequired, TypedDict

from tui_gateway.projection import without_images
from tui_gateway.runtime import Live, Runtime, Waiting


class Prompt(TypedDict):
    """A prompt that waits: its words, and the files of the pictures that go along."""

    turn_id: str
    text: str
    images: NotRequired[list[str]]


def queued(live: Live) -> list[Prompt]:
    """The prompts that wait, the next one first."""
    with live.lock:
        waiting = list(live.queue)
    return [prompt(one) for one in waiting]


def prompt(waiting: Waiting) -> Prompt:
    """A prompt as its person gave it."""
    given: Prompt = {"turn_id": waiting.turn_id, "text": waiting.text}
    if not isinstance(waiting.content, str):  # parts, or what another process took in
        given["text"], images = without_images(waiting.text)
        if images:
            given["images"] = images
    return given


def tell(rt: Runtime, live: Live, dropped: Iterable[Waiting] = ()) -> None:
    """Tell the clients when others wait than they were told last, and which of them a stop ended.

    Not to be called with the lock of the session: a client may be slow to listen.
    """
    with live.telling:  # what is told last is how it is
        now = queued(live)
        turns, ended = [one["turn_id"] for one in now], [one.turn_id for one in dropped]
        if turns == live.told and not ended:
            return
        live.told = turns
        rt.emit("prompt.queue", live.sid, {"queued": now, "dropped": ended})
