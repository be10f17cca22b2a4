"""Prompts on their way: shown at once, waiting for the running turn, or in doubt after a crash.

The server answers when a prompt is on disk. One that it did not answer to before it died is sent again
with the same key, so that it is taken exactly once.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from hermes_core.errors import HermesError
from hermes_tui import messages as m
from hermes_tui import wire
from hermes_tui.entries import Said
from hermes_tui.failures import ConnectionLostError
from hermes_tui.session import Session
from hermes_tui.widgets.transcript import Transcript

Origin = Literal["here", "before", "elsewhere"]
"""Who sent a prompt: this interface, nobody knows who before it came, or another terminal."""


@dataclass(eq=False)
class Prompt:
    """One of them."""

    entry: Said
    turn_id: str = ""
    origin: Origin = "here"
    key: str = field(default_factory=lambda: os.urandom(16).hex())
    """Sent along, so that the server takes it once, however often it is sent."""

    def is_answered_by(self, event: m.TurnStarted) -> bool:
        if self.turn_id and event.turn_id:
            return self.turn_id == event.turn_id
        return self.entry.says(event.user)


class Prompts:
    """Everything that was sent and has not been answered yet."""

    def __init__(
        self, session: Session, transcript: Transcript, tell: Callable[[list[str]], None]
    ) -> None:
        """`tell` is called with what waits whenever that changes."""
        self._session = session
        self._transcript = transcript
        self._tell = tell
        self._waiting: list[Prompt] = []
        """Shown above the composer, not in the transcript."""
        self._leaving: list[Prompt] = []
        """Not waiting any more, and not begun yet either."""
        self._dropped: set[str] = set()
        """The turns that a stop has ended before they began; one may be told before its number is."""
        self._held: list[Prompt] = []
        """Not sent yet: there is no conversation to send them to."""
        self._flying: list[Prompt] = []
        """Sent, and not answered by the server yet."""
        self._doubtful: list[Prompt] = []
        """Sent to a server that died before it answered."""
        self._due = ""
        """The turn that is to begin at once, and has not begun yet."""
        self._begun = ""
        """The turn that has begun last."""

    @property
    def waiting(self) -> list[str]:
        """What waits for the running turn, the next one first."""
        return [prompt.entry.text for prompt in self._waiting]

    @property
    def can_be_taken_back(self) -> bool:
        """Whether any of that can be had in the composer again."""
        return bool(self._free)

    @property
    def _free(self) -> list[Prompt]:
        """What waits and is not on its way to the running turn."""
        return [prompt for prompt in self._waiting if prompt.turn_id or prompt in self._held]

    @property
    def are_under_way(self) -> bool:
        """Whether a turn is to begin, so that there is something to stop."""
        return bool(self._held or self._flying or self._due)

    async def send(self, said: Said) -> bool:
        """Hand a prompt over; raises HermesError when it is refused, and then it is shown no more.

        False: somebody stopped everything before it had its turn.
        """
        prompt = Prompt(said)
        self._held.append(prompt)  # before it is drawn: it can be stopped from now on
        if self._session.conversation.is_running or not self._session.is_open:
            self._wait(prompt)
        else:
            await self._transcript.add(prompt.entry)
        return await self._submit(prompt)

    async def _submit(self, prompt: Prompt) -> bool:
        await self._session.opened()
        if prompt not in self._held:  # taken back meanwhile
            await self._transcript.remove_entry(prompt.entry)
            return True
        self._held.remove(prompt)
        self._flying.append(prompt)
        try:
            entry = prompt.entry
            told = await self._session.say(entry.whole, prompt.key, [*entry.images], entry.busy)
        except ConnectionLostError:
            self._doubtful.append(prompt)
            return True
        except HermesError:
            self._wait_no_more(prompt)
            await self._transcript.remove_entry(prompt.entry)
            raise
        finally:
            self._flying.remove(prompt)
        prompt.turn_id = str(told.get("turn_id", ""))
        status = str(told.get("status", ""))
        if status == "rejected" or prompt.turn_id in self._dropped:
            was_waiting = prompt in self._waiting
            self._wait_no_more(prompt)
            return not was_waiting  # else it has been given back
        if told.get("duplicate"):  # the conversation as it was opened has it already
            self._wait_no_more(prompt)
        else:
            await self._arrived(prompt, status)
        return True

    async def _arrived(self, prompt: Prompt, status: str) -> None:
        prompt.entry.is_sent = True
        if status == "streaming" and prompt.turn_id != self._begun:
            self._due = prompt.turn_id
        is_shown = prompt.entry in self._transcript.entries
        if status == "queued" and is_shown and self._session.conversation.is_running:
            await self._transcript.remove_entry(prompt.entry)
            self._wait(prompt)
        elif status != "queued" and not is_shown:
            await self._show(prompt)
        else:
            self._tell(self.waiting)  # it can be taken back now
            await self._transcript.changed(prompt.entry)

    def _wait(self, prompt: Prompt) -> None:
        self._waiting.append(prompt)
        self._tell(self.waiting)

    def _wait_no_more(self, prompt: Prompt) -> None:
        if prompt in self._waiting:
            self._waiting.remove(prompt)
            self._tell(self.waiting)

    async def _show(self, prompt: Prompt) -> None:
        self._wait_no_more(prompt)
        if prompt.entry not in self._transcript.entries:
            await self._transcript.add(prompt.entry)

    async def started(self, event: m.TurnStarted) -> None:
        """A turn begins: what it answers waits no more. What was said elsewhere is shown as well."""
        self._begun, self._due = event.turn_id, ""
        candidates = [*self._leaving, *self._waiting, *self._flying]
        self._leaving = []
        answered = next((p for p in candidates if p.is_answered_by(event)), None)
        if answered is not None:
            await self._show(answered)
        elif not event.is_told and self._waiting:  # a server that does not tell: the next one
            await self._show(self._waiting[0])
        elif event.is_told and not event.is_recovered:
            await self._show_foreign(event.user, event.images)

    async def steered(self, text: str) -> None:
        """The running turn has heard something."""
        candidates = [*self._waiting, *self._flying]
        heard = next((prompt for prompt in candidates if prompt.entry.says(text)), None)
        if heard is not None:
            await self._show(heard)
        else:
            await self._show_foreign(text)

    async def _show_foreign(self, text: str, images: Sequence[str] = ()) -> None:
        last = next((e for e in reversed(self._transcript.entries) if isinstance(e, Said)), None)
        if last is None or not last.says(text):
            await self._transcript.add(Said(text, list(images)))

    async def take_back(self, place: int | None = None) -> Said:
        """Take a waiting prompt back, the last one that can be unless told.

        Raises HermesError when it cannot be: it runs now, or it waits to be said to the running turn.
        """
        free = self._free
        wanted = free[-1:] if place is None else self._waiting[place : place + 1]
        if not wanted or wanted[0] not in free:
            raise HermesError("It is on its way to the running turn, and cannot be taken back.")
        prompt = wanted[0]
        if prompt in self._held:
            self._held.remove(prompt)
        else:
            await self._session.call("prompt.unqueue", turn_id=prompt.turn_id)
        self._wait_no_more(prompt)
        return prompt.entry

    def withdraw(self) -> list[Said]:
        """Take back all that has not been sent."""
        held, self._held = self._held, []
        for prompt in held:
            self._wait_no_more(prompt)
        return [prompt.entry for prompt in held]

    def claim(self) -> None:
        """Whoever stops everything also gets back what waited before they came."""
        for prompt in self._waiting:
            if prompt.origin == "before":
                prompt.origin = "here"

    def give_up(self) -> list[Said]:
        """Everything was stopped: what waited is not answered any more."""
        given_up = [prompt.entry for prompt in self._waiting if prompt.origin == "here"]
        self._waiting.clear()
        self._due = ""
        self._tell([])
        return given_up

    def know(self, queued: Sequence[wire.Queued]) -> None:
        """A conversation was opened: what waits in it is known before any of its turns begins."""
        told = {one.text for one in queued}
        under_way = [p for p in self._flying if p.entry.whole not in told]
        self._line_up(queued, "before", under_way)

    def keep(self, event: m.QueueChanged) -> list[Said]:
        """Others wait now; returns what was sent from here and somebody else has stopped."""
        self._dropped.update(event.dropped)
        known = (*self._leaving, *self._waiting)
        returned = [p.entry for p in known if p.turn_id in event.dropped and p.origin == "here"]
        arrived = [
            one for one in event.queued if not any(p.entry.says(one.text) for p in self._flying)
        ]
        self._line_up(arrived, "elsewhere", self._flying)
        self._leaving = [p for p in self._leaving if p.turn_id not in self._dropped]
        return returned

    def _line_up(
        self, queued: Sequence[wire.Queued], origin: Origin, under_way: Sequence[Prompt]
    ) -> None:
        """Have those wait that the server has in line, and behind them those on their way to it."""
        before = {p.turn_id: p for p in (*self._leaving, *self._waiting) if p.turn_id}
        known = [
            before.get(one.turn_id)
            or Prompt(Said.of(one.text, images=one.images), one.turn_id, origin)
            for one in queued
        ]
        waiting = known + [p for p in self._waiting if p in (*self._held, *under_way)]
        self._leaving = [p for p in before.values() if p not in waiting]
        self._waiting = waiting
        self._tell(self.waiting)

    async def send_again(self) -> None:
        """Hand over once more what may not have arrived at a server that died."""
        doubtful, self._doubtful = self._doubtful, []
        for prompt in doubtful:
            self._wait(prompt)
            self._held.append(prompt)
            await self._submit(prompt)
