"""A question with choices that are picked by a key, by the arrows or by the mouse, or answered in words.

A card that has just appeared takes no key for a moment: what was typed before it was seen is no answer.
Nor is the first letter of a sentence: a choice that allows something takes its key and Enter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static

from hermes_tui import keymap

_ARMING_S = 0.4


class Choice(NamedTuple):
    """One answer: what the server is told, what a person reads, which key picks it."""

    value: str
    label: str
    key: str
    takes_enter: bool = False
    """Whether its key only marks it, for Enter to pick it."""


class Words(Input):
    """A line for an answer in own words."""

    DEFAULT_CSS = """
    Words, Words:focus {
        border: none;
        border-left: outer $primary;
        height: 1;
        padding: 0 1;
        background: $panel;
    }
    """


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


class Card(Vertical, can_focus=True):
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
        &:focus, &:focus-within {
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
        }
    }
    """

    @dataclass
    class Answered(Message):
        """The answer; the card has done its work."""

        card: "Card"
        answer: str

    def __init__(
        self,
        request_id: str,
        title: str,
        text: Content | str,
        choices: Sequence[Choice],
        note: str = "",
        words: str = "",
    ) -> None:
        """A long `text` is scrolled; the `note` and the choices are always in sight.

        With `words`, which say what they are for, it can be answered in one's own.
        """
        super().__init__(classes="card")
        self.request_id = request_id
        self.session_id = ""
        self.border_title = title
        self.more = 0
        """How many cards wait behind this one."""
        self._text = text
        self._note = note
        self._words = words
        self._choices = list(choices)
        self._place = 0
        self._begun = ""
        """The key of a choice that waits for Enter; with another letter after it, it begins a word."""
        self.is_armed = False
        self._is_answered = False

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="card-text", can_focus=False):
            yield Static(self._text, markup=False)
        with Vertical(classes="card-answers"):
            if self._note:
                yield Static(self._note, classes="card-note", markup=False)
            yield from self.answers()

    def answers(self) -> ComposeResult:
        """What can be answered; always in sight, however long the text is."""
        with Vertical(classes="choices"):
            for number, choice in enumerate(self._choices):
                yield ChoiceLine(number, choice)
        if self._words:
            yield Words(placeholder=self._words, select_on_focus=False)

    def on_mount(self) -> None:
        self._highlight(0)
        self._arm_soon()

    def take_keys(self) -> None:
        """Have the keys without being asked to: what was just typed is no answer."""
        self._arm_soon()
        self.focus()

    def _arm_soon(self) -> None:
        self.is_armed = False
        self.tell_keys()
        self.set_timer(_ARMING_S, self.arm)

    def arm(self) -> None:
        """Take keys from now on."""
        self.is_armed = True
        self.tell_keys()

    def tell_keys(self) -> None:
        """Say which keys answer; without the focus, which one leads here."""
        told = [f"{self.more} more after this"] if self.more else []
        if not self.has_focus_within:
            told.append(f"{keymap.keys_of('answer')} to answer")
        elif self.is_armed:
            told += ["PgDn shows more"] if self.text.max_scroll_y else []
            told.append(self._how())
        self.border_subtitle = " · ".join(told)

    def _how(self) -> str:
        if not self.has_focus:
            return "↑ choices, Enter answers" if self._choices else "Enter answers"
        takes_enter = any(choice.takes_enter for choice in self._choices)
        return "↑↓ or a key, then Enter" if takes_enter else "↑↓ Enter, or a key"

    @property
    def text(self) -> VerticalScroll:
        """What is asked, which may be longer than the card."""
        return self.query_one(".card-text", VerticalScroll)

    @on(events.Focus)
    @on(events.Blur)
    @on(events.DescendantFocus)
    @on(events.DescendantBlur)
    @on(events.Resize)
    def _moved(self) -> None:
        self.call_after_refresh(self.tell_keys)

    def _highlight(self, place: int) -> None:
        self._begun = ""
        if self._choices:
            self._place = place % len(self._choices)
        for line in self.query(ChoiceLine):
            line.tell(is_highlighted=line.number == self._place)

    def on_key(self, event: events.Key) -> None:
        if self._takes(event):
            event.stop()
            event.prevent_default()

    def _takes(self, event: events.Key) -> bool:
        """Do what a key means here; False: nothing."""
        if not self.has_focus:
            return self._leaves_words(event.key)
        if event.key == "enter":
            self._pick(self._place)
        elif event.key in ("up", "down"):
            self._move(1 if event.key == "down" else -1)
        else:
            return self.is_armed and self._typed(event)
        return True

    def _move(self, step: int) -> None:
        if self._words and self._place + step == len(self._choices):
            self.open_words().focus()
        else:
            self._highlight(self._place + step)

    def open_words(self) -> Words:
        """The line for own words, in sight."""
        words = self.query_one(Words)
        words.display = True
        return words

    def _leaves_words(self, key: str) -> bool:
        if key != "up" or not self._choices:
            return False
        self.focus()
        return True

    def _typed(self, event: events.Key) -> bool:
        """The key of a choice, or words; False: neither."""
        number = None if self._begun else self._number_of(event)
        if number is None:
            return self._write(event)
        if not self._choices[number].takes_enter:
            self._pick(number)
        else:
            self._highlight(number)
            self._begun = event.character or ""
        return True

    def _number_of(self, event: events.Key) -> int | None:
        """Which choice a key stands for, by its letter or its number."""
        for number, choice in enumerate(self._choices):
            if choice.key in (event.key, event.character) or str(number + 1) == event.character:
                return number
        return None

    def _write(self, event: events.Key) -> bool:
        """What is no key of a choice is a word, together with a key that was taken for one."""
        if not (self._words and event.is_printable and event.character):
            return False
        words = self.open_words()
        words.insert_text_at_cursor(self._begun + event.character)
        self._begun = ""
        words.focus()
        return True

    @on(Input.Submitted)
    def _written(self, event: Input.Submitted) -> None:
        event.stop()
        if self.is_armed and event.value.strip():
            self.answer(event.value.strip())

    @on(ChoiceLine.Picked)
    def _clicked(self, event: ChoiceLine.Picked) -> None:
        event.stop()
        self._pick(event.number)

    def _pick(self, number: int) -> None:
        if self.is_armed and 0 <= number < len(self._choices):
            self.answer(self._choices[number].value)

    def reply(self, answer: str) -> tuple[str, dict[str, str]]:
        """The call that tells the server the answer, and what it takes beside the session."""
        raise NotImplementedError

    def answer(self, value: str) -> None:
        """Give the answer; a second one does not count."""
        if not self._is_answered:
            self._is_answered = True
            self.post_message(self.Answered(self, value))
