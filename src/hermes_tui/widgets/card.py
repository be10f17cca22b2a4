"""A question with choices, above the composer: an answer is typed there, and given with Enter.

The key of a choice and nothing beside it is that choice, all else are words. So no letter of a sentence
picks anything, in whichever pieces it arrives and whatever appears meanwhile.
A card that has just appeared takes no key for a moment: keys typed before it was seen do not answer it.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Static

from hermes_core.text import width
from hermes_tui import keymap
from hermes_tui.messages import Event
from hermes_tui.widgets.plain import Plain

_ARMING_S = 0.4
_TEXT_SHARE = 3
_FEWEST_CHOICES = 4
"""Lines that choices have in any case: an approval has so many."""
_MIN_TEXT = 4
"""Lines of the text and the margin that a note must leave."""
_HOW = "↑↓ or a key, then Enter"


class Choice(NamedTuple):
    """One answer: what the server is told, what a person reads, which key stands for it."""

    value: str
    label: str
    key: str


class ChoiceLine(Static):
    """A choice that can be clicked."""

    DEFAULT_CSS = """
    ChoiceLine {
        height: auto;
        max-height: 3;
        &.highlighted {
            text-style: bold;
        }
        &:hover {
            background: $panel;
        }
    }
    """

    ALLOW_SELECT = False

    @dataclass
    class Picked(Message):
        """Somebody clicked it."""

        number: int

    def __init__(self, number: int, choice: Choice) -> None:
        super().__init__(markup=False, classes="choice")
        self.number, self.choice = number, choice

    def tell(self, *, is_highlighted: bool) -> None:
        """Show whether Enter picks this one."""
        self.set_class(is_highlighted, "highlighted")
        mark = "▸ " if is_highlighted else "  "
        self.update(
            Content.assemble(mark, (f" {self.choice.key} ", "reverse"), f" {self.choice.label}")
        )

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.post_message(self.Picked(self.number))


class Card(Vertical):
    """Something that waits for an answer."""

    DEFAULT_CSS = """
    Card {
        height: auto;
        max-height: 100%;
        margin: 0 0;
        padding: 0 1;
        border: round $warning 60%;
        border-title-color: $text-warning;
        border-title-style: bold;
        border-subtitle-color: $text-muted;
        background: $surface;
        &.-has-keys {
            border: round $warning;
        }
        .card-text {
            height: auto;
            max-height: 100%;
            scrollbar-size-vertical: 1;
            Static {
                height: auto;
            }
        }
        .card-answers {
            dock: bottom;
            height: auto;
        }
        .card-note {
            height: auto;
            max-height: 3;
        }
        .choices {
            height: auto;
            margin: 1 0 0 0;
            scrollbar-size-vertical: 1;
        }
    }
    """

    @dataclass
    class Answered(Message):
        """The answer; the card has done its work."""

        card: "Card"
        answer: str

    class AnswerRequested(Message):
        """Somebody wants to answer it."""

    def __init__(
        self,
        request_id: str,
        title: str,
        text: Content | str,
        choices: Sequence[Choice],
        note: str = "",
        words: str = "",
        marked: int | None = None,
    ) -> None:
        """A long `text` is scrolled, and so are many choices; the one that Enter picks is in sight.

        With `words`, which say what they are for, it can be answered in one's own. Enter picks the
        choice that is `marked`, which is none until a person marks one.
        """
        super().__init__(classes="card")
        self.request_id = request_id
        self.question: Event[Any] | None = None
        """The event that asked."""
        self.border_title = title
        self.more = 0
        """How many cards wait behind this one."""
        self.words = words
        self.has_keys = False
        """Whether it is answered by what is typed now."""
        self._text = text
        self._note = note
        self._choices = list(choices)
        self._first = self._marked = marked
        self._arming: Timer | None = None
        self._armed_at: float | None = None
        self._is_pressed = False
        """Whether somebody pressed Enter without having chosen."""
        self._is_answered = False

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="card-text", can_focus=False):
            yield from self.parts()
            if self._note:
                yield Plain(f"\n{self._note}", classes="card-note-below")
        with Vertical(classes="card-answers"):
            if self._note:
                yield Plain(self._note, classes="card-note")
            with VerticalScroll(classes="choices", can_focus=False):
                for number, choice in enumerate(self._choices):
                    yield ChoiceLine(number, choice)

    def parts(self) -> ComposeResult:
        """Compose what is asked about."""
        yield Plain(self._text)

    def on_mount(self) -> None:
        self._mark(self._marked)
        if self._armed_at is None:
            self._arm_soon()

    # -- having the keys ---------------------------------------------------------------------

    def take_focus_keys(self, *, is_sudden: bool) -> None:
        """Answer with what is typed next; if it appeared suddenly, not with keys just typed."""
        self.has_keys, self._marked = True, self._first
        self.add_class("-has-keys")
        self._mark(self._marked)
        if is_sudden:
            self._arm_soon()
        else:
            self.arm()

    def release_keys(self) -> None:
        """Be answered no more by what is typed."""
        self.has_keys, self._marked = False, self._first
        self.remove_class("-has-keys")
        self._mark(self._marked)

    def _arm_soon(self) -> None:
        self._armed_at = None
        self.tell_keys()
        self._stop_arming()
        self._arming = self.set_timer(_ARMING_S, self.arm)

    def _stop_arming(self) -> None:
        if self._arming is not None:
            self._arming.stop()

    def arm(self) -> None:
        """Take keys from now on."""
        self._stop_arming()
        self._armed_at = time.monotonic()
        self.tell_keys()

    @property
    def is_armed(self) -> bool:
        return self._armed_at is not None

    def has_been_seen(self, event: events.Event) -> bool:
        """Return whether the person could have read this before the key or the paste."""
        return self._armed_at is not None and event.time >= self._armed_at

    def tell_keys(self) -> None:
        """Say which keys answer; without them, which one leads here."""
        hints = [f"{self.more} more after this"] if self.more else []
        if not self.has_keys:
            hints.append(f"{keymap.keys_of('answer')} to answer")
        elif self.is_armed:
            hints += ["PgDn shows more"] if self.text and self.text.max_scroll_y else []
            hints.append(self._how())
        self.border_subtitle = " · ".join(hints)

    def _how(self) -> str:
        if not self._choices:
            return "Enter answers"
        return f"Nothing is chosen: {_HOW}" if self._is_pressed else _HOW

    @property
    def text(self) -> VerticalScroll | None:
        """Return the view of the text, which may scroll; None before and after its life."""
        return next(iter(self.query(".card-text").results(VerticalScroll)), None)

    @on(events.Resize)
    def _resized(self) -> None:
        self.call_after_refresh(self._settle)

    def _settle(self) -> None:
        """Leave a third of the room to what is asked, or as much of it as that takes."""
        if (text := self.text) is None or not self.is_attached:
            return
        note = self._place_note()
        lines = min(text.virtual_size.height, max(1, self._room // _TEXT_SHARE))
        for choices in self.query(".choices"):
            margin = choices.styles.margin.height
            choices.styles.max_height = max(_FEWEST_CHOICES, self._room - note - lines - margin)
        self._keep_in_sight()
        self.tell_keys()

    def _place_note(self) -> int:
        """Show the note above the choices, or below the text where that leaves none of it in sight.

        Return the lines that it takes above the choices.
        """
        lines = -(-width(self._note) // max(1, self.content_size.width))
        is_below = self._room < _FEWEST_CHOICES + lines + _MIN_TEXT
        for note in self.query(".card-note"):
            note.display = not is_below
        for note in self.query(".card-note-below"):
            note.display = is_below
        return 0 if is_below else lines

    @property
    def _room(self) -> int:
        """Return the number of lines that fit inside."""
        most = self.parent.styles.max_height if isinstance(self.parent, Widget) else None
        share = most.value / 100 if most is not None else 1.0
        return int(self.screen.size.height * share) - self.gutter.height

    def _keep_in_sight(self) -> None:
        for line in self.query(".highlighted"):
            line.scroll_visible(animate=False)

    # -- choosing ----------------------------------------------------------------------------

    def choice_of(self, text: str) -> int | None:
        """Find the choice that a text stands for: exactly its key or its number."""
        for number, choice in enumerate(self._choices):
            if text in (choice.key, str(number + 1)):
                return number
        return None

    def show_typed(self, text: str) -> None:
        """Mark the choice that Enter picks with what is typed now."""
        self._mark(self.choice_of(text) if text else self._marked)

    def takes(self, key: str) -> bool:
        """Deal with a key when nothing is typed; False when that means nothing here."""
        if key == "enter":
            self.pick(self._marked)
        elif key in ("up", "down") and self._choices:
            self._move(1 if key == "down" else -1)
        else:
            return False
        return True

    def forget_mark(self) -> None:
        """Forget what the arrows have marked, when a person begins to type."""
        self._marked = None

    def _move(self, step: int) -> None:
        start = -1 if self._marked is None and step > 0 else self._marked or 0
        self._marked = (start + step) % len(self._choices)
        self._mark(self._marked)

    def _mark(self, place: int | None) -> None:
        self._is_pressed = self._is_pressed and place is None
        for line in self.query(ChoiceLine):
            line.tell(is_highlighted=line.number == place)
        self._keep_in_sight()
        self.tell_keys()

    @on(ChoiceLine.Picked)
    def _clicked(self, event: ChoiceLine.Picked) -> None:
        event.stop()
        if self.is_armed:
            self.pick(event.number)

    def on_click(self) -> None:
        self.post_message(self.AnswerRequested())

    def pick(self, number: int | None) -> None:
        """Answer with a choice; without one say that none was made."""
        if number is not None:
            self.answer(self._choices[number].value)
        elif self._choices:
            self._is_pressed = True
            self.tell_keys()

    def say(self, words: str) -> None:
        """Answer in own words."""
        self.answer(words)

    def reply(self, answer: str) -> tuple[str, dict[str, str]]:
        """The call that tells the server the answer, and what it takes beside the session."""
        raise NotImplementedError

    def answer(self, value: str) -> None:
        """Give the answer; a second one does not count."""
        if not self._is_answered:
            self._is_answered = True
            self.post_message(self.Answered(self, value))

    @property
    def is_answered(self) -> bool:
        return self._is_answered
