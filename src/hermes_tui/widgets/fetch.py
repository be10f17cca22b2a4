"""The embedded model on its way: offered as a card, then a bar until it is there."""

import time
from dataclasses import dataclass

from textual import on, work
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from hermes_core.errors import HermesError
from hermes_core.text import human_size
from hermes_protocol import results
from hermes_protocol.events import Progress
from hermes_tui.entries import Note
from hermes_tui.failures import ConnectionLostError
from hermes_tui.tabs import Tabs
from hermes_tui.widgets.card import Card, Choice
from hermes_tui.widgets.composer import Composer
from hermes_tui.widgets.turn_view import TurnView

_BAR = 24
_YES, _SETUP, _NO = "yes", "setup", "no"
_MEANWHILE = "You can type now; your message is answered after the download. Ctrl+C cancels it."


@dataclass
class DownloadProgress:
    """Progress of a download, and its start."""

    offer: results.Offer
    began_at: float
    began_with: int = 0
    done: int = 0
    total: int = 0
    text: str = ""

    def update(self, event: Progress, now: float) -> None:
        """Take news in; another stretch, such as the checking, is timed anew."""
        if event.text != self.text:
            self.began_at, self.began_with = now, event.done
        self.text, self.done, self.total = event.text, event.done, event.total

    def lines(self, now: float) -> Content:
        """Describe the download and its progress."""
        doing = "Checking" if self.text == "checking" else "Fetching"
        title = Content.styled(f"{doing} {self.offer.title}", "bold")
        share = min(1.0, self.done / self.total) if self.total else 0.0
        full = round(share * _BAR)
        bar = Content.assemble(
            ("█" * full, "$text-primary"),
            ("░" * (_BAR - full), "dim"),
            f" {share:.0%}  {human_size(self.done)} of {human_size(self.offer.bytes)}",
            self._time_left(now),
        )
        return Content("\n").join([title, bar])

    def _time_left(self, now: float) -> str:
        passed, brought = now - self.began_at, self.done - self.began_with
        if passed < 2 or brought <= 0:
            return ""
        seconds = (self.total - self.done) * passed / brought
        return f"  {seconds / 60:.0f} min left" if seconds >= 90 else f"  {seconds:.0f} s left"


class OfferCard(Card):
    """Asks whether to fetch it; typing a letter begins a prompt."""

    def __init__(self, offer: results.Offer, *, can_set_up: bool) -> None:
        text = (
            f"{offer.title} runs on this machine and needs no key. It is small and can be"
            " wrong; a model of a provider, or of a local server such as Ollama, answers better."
        )
        choices = [Choice(_YES, f"Download it ({human_size(offer.bytes)})", "1")]
        if can_set_up:
            choices.append(Choice(_SETUP, "Enter an API key, or choose a server", "2"))
        choices.append(Choice(_NO, "Not now", str(len(choices) + 1)))
        super().__init__("", "There is no model yet", text, choices, marked=0)


class Fetch(Vertical):
    """Above the composer, while there is no model to ask and one can be fetched."""

    class Settled(Message):
        """The offer was answered."""

    class SetupRequested(Message):
        """The person wants to choose another model."""

    class Declined(Message):
        """Nothing is fetched, so nobody answers what was sent."""

    def __init__(self, tabs: Tabs, turn_view: TurnView, composer: Composer) -> None:
        super().__init__(id="fetch")
        self._composer = composer
        self._tabs = tabs
        self._tab = tabs.current
        """The conversation that is asked about, and that waits for the model."""
        self._turn_view = turn_view
        self._is_agreed = tabs.pulls
        self._is_declined = False
        self._download: DownloadProgress | None = None

    @property
    def card(self) -> Card | None:
        """The offer, while it waits for an answer."""
        return next(iter(self.query(Card)), None)

    @property
    def is_running(self) -> bool:
        return self._download is not None

    async def consider(self, *, again: bool = False) -> None:
        """Offer what can be fetched now; `again`: also when it was declined before."""
        offer = self._tabs.current.conversation.info.offer
        self._is_declined = self._is_declined and not again
        if not offer.name:
            await self._put_away()
        elif self.card is not None and again:
            self._composer.offer(self.card)
        elif not (self.is_running or self._is_declined or self.card):
            if self._is_agreed:
                self._run(offer)
            else:
                await self._ask(offer)

    async def _ask(self, offer: results.Offer) -> None:
        card = OfferCard(offer, can_set_up=self._tabs.is_ours)
        await self.mount(card)
        self._composer.offer(card)

    async def _put_away(self) -> None:
        for card in self.query(Card):
            self._composer.release(card)
            await card.remove()

    @on(Card.Answered)
    async def _answered(self, event: Card.Answered) -> None:
        event.stop()
        await self._put_away()
        self.post_message(self.Settled())
        if event.answer == _YES:
            self.download()
        elif event.answer == _SETUP:
            self.post_message(self.SetupRequested())
        else:
            self._decline()

    def download(self) -> None:
        """Download the model that is offered."""
        if not self.is_running:
            self._run(self._tabs.current.conversation.info.offer)

    def _decline(self) -> None:
        self._is_declined, self._is_agreed = True, False
        self.post_message(self.Declined())

    @work(exclusive=True)
    async def _run(self, offer: results.Offer) -> None:
        """Fetch it; after a crash of the server the download starts again by itself."""
        self._is_agreed, self._download = True, DownloadProgress(offer, time.monotonic())
        tab = self._tab = self._tabs.current
        await self.mount(Static("", classes="bar", markup=False))
        self._show()
        try:
            await tab.session.call("model.pull", name=offer.name)
            for other in self._tabs.all:
                other.conversation.learn({"offer": {}, "credential_warning": ""})
        except ConnectionLostError:
            return
        except HermesError as error:
            self._is_agreed = False
            if self._is_declined:
                await tab.add_note(error.message)
            else:
                await tab.add_error(error)
                await self._ask(offer)
        finally:
            self._download = None
            await self.query(".bar").remove()

    def progress(self, event: Progress) -> None:
        """The server tells how far it is."""
        if self._download is None:
            return
        if event.total:
            self._download.update(event, time.monotonic())
            self._show()
        else:
            self._turn_view.post_message(TurnView.NoteRequested(self._tab, Note(event.text)))

    def _show(self) -> None:
        if self._download is not None:
            lines = self._download.lines(time.monotonic())
            meanwhile = Content.styled(_MEANWHILE, "dim")
            self.query_one(".bar", Static).update(Content("\n").join([lines, meanwhile]))

    @work(group="stop")
    async def stop(self) -> None:
        """Fetch no further; what is there is kept."""
        self._decline()
        try:
            await self._tab.session.call("model.pull.stop")
        except HermesError as error:
            await self._tab.add_error(error)
