"""Questions that are waiting for an answer: cards above the composer, the first in full."""

import importlib
from typing import Any, cast

from textual import on, work
from textual.containers import Vertical
from textual.message import Message

from hermes_tui import messages as m
from hermes_tui.failures import ConnectionLostError
from hermes_tui.session import Session
from hermes_tui.tabs import Tabs
from hermes_tui.widgets.card import Card
from hermes_tui.widgets.composer import Composer

_KINDS: dict[type[m.Event[Any]], tuple[str, str]] = {
    m.ApprovalAsked: ("approval", "ApprovalCard"),
    m.QuestionAsked: ("question", "QuestionCard"),
}


class Cards(Vertical):
    """The cards, one after the other, and how the server hears the answers."""

    class Settled(Message):
        """A card was put away."""

    def __init__(self, tabs: Tabs, composer: Composer) -> None:
        """Answers are typed into the `composer`."""
        super().__init__(id="cards")
        self._tabs = tabs
        self._composer = composer

    @property
    def current(self) -> Card | None:
        """The card that can be answered now."""
        return next(iter(self.query(Card)), None)

    async def update_cards(self) -> None:
        """Show the questions of the conversation that is shown, and no others."""
        for card in list(self.query(Card)):
            if card.is_attached and card.question not in self._tabs.current.questions:
                await self._put_away(card)
        for question in list(self._tabs.current.questions):
            is_wanted = question in self._tabs.current.questions
            if is_wanted and all(card.question is not question for card in self.query(Card)):
                await self._ask(question)

    async def _ask(self, question: m.Event[Any]) -> None:
        """Show a question; it gets the keys only when nothing is being typed."""
        module, name = _KINDS[type(question)]
        # By name: most conversations never see one.
        kind = getattr(importlib.import_module(f"hermes_tui.widgets.{module}"), name)
        card = cast("Card", kind(question.payload))
        card.question = question
        await self.mount(card)
        self._arrange()
        if self.current is card:
            self._composer.offer(card)

    async def _put_away(self, card: Card) -> None:
        self._composer.release(card)
        await card.remove()
        self._arrange()
        if self.current is not None and not self.current.has_keys:
            self._composer.offer(self.current)
        self.post_message(self.Settled())

    def _arrange(self) -> None:
        cards = list(self.query(Card))
        for number, card in enumerate(cards):
            card.display = number == 0
        self.screen.set_class(bool(cards), "-asking")
        if cards:
            cards[0].more = len(cards) - 1
            cards[0].tell_keys()

    @on(Card.Answered)
    async def _answered(self, event: Card.Answered) -> None:
        event.stop()
        card = event.card
        tab = card.question and self._tabs.find(card.question.session_id)
        if tab:
            tab.settle(card.request_id)
            self._answer(tab.session, *card.reply(event.answer))
        await self._put_away(card)

    @work(group="answers")
    async def _answer(self, session: Session, method: str, params: dict[str, str]) -> None:
        try:
            is_taken = await session.answer(method, **params)
        except ConnectionLostError:
            return  # the server asks again when it is back
        if not is_taken:
            self.notify("That question was already answered.", severity="warning")
