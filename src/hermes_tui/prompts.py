"""Prompts that were sent and not answered yet: shown, queued, or uncertain after a crash.

The server answers when a prompt is on disk. One that it did not answer to before it died is sent again
with the same key, so that it is taken exactly once.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Literal

from hermes_core.errors import HermesError
from hermes_protocol import events, results
from hermes_tui.entries import UserMessage
from hermes_tui.failures import ConnectionLostError
from hermes_tui.session import Session
from hermes_tui.transcript import Transcript

Origin = Literal["here", "before", "elsewhere"]
"""Who sent a prompt: this interface, nobody knows who before it came, or another terminal."""


class Delivery(Enum):
    """Progress of a prompt on its way to the server."""

    HELD = auto()
    """Not sent yet: there is no conversation to send it to."""
    SENT = auto()
    UNCERTAIN = auto()
    """Sent to a server that died before it answered."""
    ACCEPTED = auto()
    """On disk."""
    WITHDRAWN = auto()


class PromptPlace(Enum):
    """The part of the screen that shows a prompt."""

    TRANSCRIPT = auto()
    """There, or nowhere."""
    QUEUE = auto()
    """Above the composer."""
    LEAVING = auto()
    """Not in the queue any more, and its turn has not begun."""


@dataclass(eq=False)
class Prompt:
    """One prompt, and how far it got."""

    entry: UserMessage
    turn_id: str = ""
    origin: Origin = "here"
    delivery: Delivery = Delivery.HELD
    place: PromptPlace = PromptPlace.TRANSCRIPT
    key: str = field(default_factory=lambda: os.urandom(16).hex())
    """Sent along, so that the server takes it once, however often it is sent."""

    @property
    def is_over(self) -> bool:
        """Return whether it is settled: it stays in the transcript, or was canceled."""
        is_settled = self.delivery in (Delivery.ACCEPTED, Delivery.WITHDRAWN)
        return is_settled and self.place is PromptPlace.TRANSCRIPT

    def is_answered_by(self, event: events.Start) -> bool:
        if self.turn_id and event.turn_id:
            return self.turn_id == event.turn_id
        return self.entry.matches(event.user)


class Prompts:
    """The prompts whose turn has not begun, in the order in which they wait."""

    def __init__(
        self, session: Session, transcript: Transcript, tell: Callable[[list[str]], None]
    ) -> None:
        """`tell` is called with the texts of the queue whenever that changes."""
        self._session = session
        self._transcript = transcript
        self._tell = tell
        self._prompts: dict[str, Prompt] = {}
        """By their keys."""
        self._dropped: set[str] = set()
        """The turns that a stop has ended before they began; one may be told before its number is."""
        self._due = ""
        """The turn that is to begin at once, and has not begun yet."""
        self._started_turn = ""
        """The turn that has begun last."""

    def _at(self, place: PromptPlace) -> list[Prompt]:
        return [prompt for prompt in self._prompts.values() if prompt.place is place]

    def _with(self, delivery: Delivery) -> list[Prompt]:
        return [prompt for prompt in self._prompts.values() if prompt.delivery is delivery]

    @property
    def queued(self) -> list[Prompt]:
        """The queue of the running turn, the next one first."""
        return self._at(PromptPlace.QUEUE)

    @property
    def waiting(self) -> list[str]:
        """The texts of the queue."""
        return [prompt.entry.text for prompt in self.queued]

    @property
    def can_be_taken_back(self) -> bool:
        """Return whether any queued prompt can be moved back to the composer."""
        return bool(self._free)

    @property
    def _free(self) -> list[Prompt]:
        """The queue without what is on its way to the running turn."""
        return [item for item in self.queued if item.turn_id or item.delivery is Delivery.HELD]

    @property
    def are_under_way(self) -> bool:
        """Return whether a turn is about to start, so that there is something to stop."""
        return bool(self._with(Delivery.HELD) or self._with(Delivery.SENT) or self._due)

    async def send(self, message: UserMessage) -> bool:
        """Hand a prompt over; raises HermesError when it is refused, and then it is shown no more.

        False: somebody stopped everything before it had its turn.
        """
        prompt = Prompt(message)
        self._prompts[prompt.key] = prompt  # before it is drawn: it can be stopped from now on
        if self._session.conversation.is_running or not self._session.is_open:
            self._enqueue(prompt)
        else:
            await self._transcript.add(prompt.entry)
        return await self._submit(prompt)

    async def _submit(self, prompt: Prompt) -> bool:
        await self._session.opened()
        if prompt.delivery is not Delivery.HELD:  # taken back meanwhile
            await self._transcript.remove(prompt.entry)
            return True
        prompt.delivery = Delivery.SENT
        entry = prompt.entry
        try:
            answer = await self._session.say(
                entry.whole, prompt.key, entry.images, entry.mentions, entry.busy
            )
        except ConnectionLostError:
            prompt.delivery = Delivery.UNCERTAIN
            return True
        except HermesError:
            self._withdraw(prompt)
            await self._transcript.remove(prompt.entry)
            raise
        prompt.delivery = Delivery.ACCEPTED
        prompt.turn_id = str(answer.get("turn_id", ""))
        status = str(answer.get("status", ""))
        if status == "rejected" or prompt.turn_id in self._dropped:
            was_queued = prompt.place is PromptPlace.QUEUE
            self._dequeue(prompt)
            return not was_queued  # else it has been given back
        if answer.get("duplicate"):  # the conversation as it was opened has it already
            self._dequeue(prompt)
        else:
            await self._arrived(prompt, status)
        return True

    async def _arrived(self, prompt: Prompt, status: str) -> None:
        prompt.entry.is_sent = True
        if status == "streaming" and prompt.turn_id != self._started_turn:
            self._due = prompt.turn_id
        is_shown = prompt.entry in self._transcript.entries
        if status == "queued" and is_shown and self._session.conversation.is_running:
            await self._transcript.remove(prompt.entry)
            self._enqueue(prompt)
        elif status != "queued" and not is_shown:
            await self._show(prompt)
        else:
            self._tell(self.waiting)  # it can be taken back now
            await self._transcript.changed(prompt.entry)
        self._forget_if_over(prompt)

    def _enqueue(self, prompt: Prompt) -> None:
        """Put a prompt at the end of the queue."""
        self._prompts.pop(prompt.key, None)
        self._prompts[prompt.key] = prompt
        prompt.place = PromptPlace.QUEUE
        self._tell(self.waiting)

    def _dequeue(self, prompt: Prompt) -> None:
        was_queued, prompt.place = prompt.place is PromptPlace.QUEUE, PromptPlace.TRANSCRIPT
        self._forget_if_over(prompt)
        if was_queued:
            self._tell(self.waiting)

    def _withdraw(self, prompt: Prompt) -> None:
        prompt.delivery = Delivery.WITHDRAWN
        self._dequeue(prompt)

    def _forget_if_over(self, prompt: Prompt) -> None:
        if prompt.is_over:
            self._prompts.pop(prompt.key, None)

    async def _show(self, prompt: Prompt) -> None:
        self._dequeue(prompt)
        if prompt.entry not in self._transcript.entries:
            await self._transcript.add(prompt.entry)

    async def started(self, event: events.Start) -> None:
        """A turn begins: its prompt leaves the queue. One from elsewhere is shown as well."""
        self._started_turn, self._due = event.turn_id, ""
        queued, leaving = self.queued, self._at(PromptPlace.LEAVING)
        for prompt in leaving:
            self._dequeue(prompt)
        candidates = [*leaving, *queued, *self._with(Delivery.SENT)]
        answered = next((p for p in candidates if p.is_answered_by(event)), None)
        if answered is not None:
            await self._show(answered)
        elif (
            not (event.user or event.images) and queued
        ):  # a server that does not tell: the next one
            await self._show(queued[0])
        elif (event.user or event.images) and not event.is_recovered:
            await self._show_foreign(event.user, event.images or [])

    async def steered(self, text: str) -> None:
        """The running turn has heard a prompt."""
        candidates = [*self.queued, *self._with(Delivery.SENT)]
        steered_prompt = next((prompt for prompt in candidates if prompt.entry.matches(text)), None)
        if steered_prompt is not None:
            await self._show(steered_prompt)
        else:
            await self._show_foreign(text)

    async def _show_foreign(self, text: str, images: Sequence[str] = ()) -> None:
        last = next(
            (e for e in reversed(self._transcript.entries) if isinstance(e, UserMessage)), None
        )
        if last is None or not last.matches(text):
            await self._transcript.add(UserMessage(text, list(images)))

    async def take_back(self, place: int | None = None) -> UserMessage:
        """Take a queued prompt back, by default the last one that is free.

        Raises HermesError when it cannot be: it runs now, or it waits to be said to the running turn.
        """
        free = self._free
        found = free[-1:] if place is None else self.queued[place : place + 1]
        if not found or found[0] not in free:
            raise HermesError("It was already sent to the running turn and cannot be edited.")
        prompt = found[0]
        if prompt.delivery is not Delivery.HELD:
            await self._session.call("prompt.unqueue", turn_id=prompt.turn_id)
        self._withdraw(prompt)
        return prompt.entry

    def withdraw(self) -> list[UserMessage]:
        """Take back all that has not been sent."""
        held = self._with(Delivery.HELD)
        for prompt in held:
            self._withdraw(prompt)
        return [prompt.entry for prompt in held]

    def claim(self) -> None:
        """Treat the queue that was found as our own: its prompts are given back after a stop."""
        for prompt in self.queued:
            if prompt.origin == "before":
                prompt.origin = "here"

    def give_up(self) -> list[UserMessage]:
        """Empty the queue after everything was stopped; returns our own prompts of it."""
        queued = self.queued
        for prompt in queued:
            prompt.place = PromptPlace.TRANSCRIPT
            self._forget_if_over(prompt)
        self._due = ""
        self._tell([])
        return [prompt.entry for prompt in queued if prompt.origin == "here"]

    def load_queue(self, queued: Sequence[results.Queued]) -> None:
        """Take over the queue of a conversation that was opened, before any of its turns begins."""
        texts = {item.text for item in queued}
        under_way = [p for p in self._with(Delivery.SENT) if p.entry.whole not in texts]
        self._line_up(queued, "before", under_way)

    def update_queue(self, event: events.Queue) -> list[UserMessage]:
        """Take over a changed queue; returns what was sent from here and somebody else has stopped."""
        self._dropped.update(event.dropped)
        before, sent = [*self._at(PromptPlace.LEAVING), *self.queued], self._with(Delivery.SENT)
        returned = [p.entry for p in before if p.turn_id in event.dropped and p.origin == "here"]
        arrived = [
            item for item in event.queued if not any(p.entry.matches(item.text) for p in sent)
        ]
        self._line_up(arrived, "elsewhere", sent)
        for prompt in self._at(PromptPlace.LEAVING):
            if prompt.turn_id in self._dropped:
                self._dequeue(prompt)
        return returned

    def _line_up(
        self, queued: Sequence[results.Queued], origin: Origin, under_way: Sequence[Prompt]
    ) -> None:
        """Make the queue that of the server, and behind it those on their way to it."""
        before = [*self._at(PromptPlace.LEAVING), *self.queued]
        by_turn = {prompt.turn_id: prompt for prompt in before if prompt.turn_id}
        queue = [
            by_turn.get(item.turn_id)
            or Prompt(
                UserMessage.of(item.text, images=item.images or []),
                item.turn_id,
                origin,
                Delivery.ACCEPTED,
            )
            for item in queued
        ]
        queue += [p for p in self.queued if p.delivery is Delivery.HELD or p in under_way]
        for prompt in before:
            prompt.place = PromptPlace.LEAVING if prompt.turn_id else PromptPlace.TRANSCRIPT
        for prompt in queue:
            self._prompts.pop(prompt.key, None)
            self._prompts[prompt.key] = prompt
            prompt.place = PromptPlace.QUEUE
        self._tell(self.waiting)

    async def send_again(self) -> None:
        """Hand over once more what may not have arrived at a server that died."""
        uncertain = self._with(Delivery.UNCERTAIN)
        for prompt in uncertain:
            prompt.delivery = Delivery.HELD
            self._enqueue(prompt)
        for prompt in uncertain:
            await self._submit(prompt)
