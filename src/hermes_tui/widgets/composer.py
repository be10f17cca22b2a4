"""Where a person writes: several lines, history, completion, long pastes as attachments."""

from dataclasses import dataclass

from textual import events
from textual.message import Message
from textual.widgets import TextArea

from hermes_tui.history import InputHistory
from hermes_tui.widgets.completion import CompletionList

_LONG_LINES = 8
_LONG_CHARACTERS = 1200
_NEWLINES = ("shift+enter", "shift+\r", "ctrl+j", "alt+enter", "ctrl+enter")
"""Several names, because terminals have several ways to tell Enter from Enter with another key."""


class Composer(TextArea):
    """A text field that sends on Enter."""

    @dataclass
    class Sent(Message):
        """Something is to be sent: with attachments as they are shown, and in full."""

        shown: str
        whole: str

    @dataclass
    class Completing(Message):
        """Something can be completed: a command, or the path after an @."""

        kind: str
        text: str
        start: int

    @dataclass
    class PastedMuch(Message):
        """More was pasted than is pleasant to look at."""

        text: str

    @dataclass
    class PastedPath(Message):
        """What was pasted looks like the name of a file."""

        text: str

    class Erasing(Message):
        """Backspace was pressed before the first letter."""

    class Helpless(Message):
        """Somebody wants to know the keys."""

    class Leaving(Message):
        """Somebody wants to leave."""

    def __init__(self, history: InputHistory, completions: CompletionList) -> None:
        super().__init__(
            id="composer",
            soft_wrap=True,
            show_line_numbers=False,
            highlight_cursor_line=False,
            placeholder="Ask anything.  / commands  @ files  F1 help",
        )
        self._history = history
        self._completions = completions
        self._pastes: dict[str, str] = {}
        self._is_recalling = False
        self.may_be_empty = False
        """Whether something goes along that needs no words, such as a picture."""

    # -- sending -----------------------------------------------------------------------------

    def send(self) -> None:
        """Hand over what is typed and start anew."""
        shown = self.text.strip()
        if not (shown or self.may_be_empty):
            return
        whole = self.expanded()
        self._history.add(whole)
        self.empty()
        self.post_message(self.Sent(shown, whole))

    def empty(self) -> None:
        """Start anew."""
        self._completions.hide()
        self._pastes.clear()
        self.load_text("")

    def expanded(self) -> str:
        """What is typed, with every attachment in full."""
        whole = self.text.strip()
        for placeholder, text in self._pastes.items():
            whole = whole.replace(placeholder, text)
        return whole

    def give_back(self, text: str) -> None:
        """Have a text in the field that was not taken; what was typed meanwhile stays after it."""
        typed = self.text
        self.recall(f"{text}\n{typed}" if typed.strip() else text)

    def recall(self, text: str) -> None:
        """Put a text into the field and the cursor to its end."""
        self._is_recalling = True
        self.load_text(text)
        self.move_cursor(self.document.end)
        self._completions.hide()

    def attach(self, placeholder: str, text: str) -> None:
        """Insert something that stands for a longer text."""
        self._pastes[placeholder] = text
        self.insert(placeholder)

    @property
    def paste_count(self) -> int:
        return len(self._pastes)

    # -- keys --------------------------------------------------------------------------------

    async def _on_key(self, event: events.Key) -> None:
        if self._takes(event.key):
            event.stop()
            event.prevent_default()

    def _takes(self, key: str) -> bool:
        """Deal with a key that means something else here than in other text fields."""
        if self._completions.is_shown and self._chooses(key):
            return True
        match key:
            case "enter":
                self._enter()
            case "up" if self.cursor_at_first_line:
                self._remember(self._history.back(self.text))
            case "down" if self.cursor_at_last_line:
                self._remember(self._history.forward())
            case "backspace" if self.cursor_location == (0, 0) and not self.selected_text:
                self.post_message(self.Erasing())
            case "question_mark" if not self.text:
                self.post_message(self.Helpless())
            case "ctrl+d" if not self.text:
                self.post_message(self.Leaving())
            case _ if key in _NEWLINES:
                self.insert("\n")
            case _:
                return False
        return True

    def _chooses(self, key: str) -> bool:
        match key:
            case "up":
                self._completions.move(-1)
            case "down":
                self._completions.move(1)
            case "tab":
                self.complete()
            case "escape":
                self._completions.hide()
            case "enter" if not self._is_complete():
                self.complete()
            case _:
                return False
        return True

    def _enter(self) -> None:
        before = self._before_cursor()
        if before.endswith("\\"):
            row, column = self.cursor_location
            self.replace("\n", (row, column - 1), (row, column))
        else:
            self.send()

    def _remember(self, text: str | None) -> None:
        if text is not None:
            self.recall(text)

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self.paste(event.text)

    def paste(self, text: str) -> None:
        """Take what was pasted; terminals end its lines in several ways."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        if text.count("\n") >= _LONG_LINES or len(text) > _LONG_CHARACTERS:
            self.post_message(self.PastedMuch(text))
        elif _looks_like_a_path(text):
            self.post_message(self.PastedPath(text))
        else:
            self.replace(text, *self.selection, maintain_selection_offset=False)

    # -- completion --------------------------------------------------------------------------

    def on_text_area_changed(self) -> None:
        if self._is_recalling:
            self._is_recalling = False
            return
        self._history.rest()
        before = self._before_cursor()
        word_start = max(before.rfind(blank) for blank in (" ", "\n")) + 1
        if before.startswith("/") and "\n" not in before:
            self.post_message(self.Completing("slash", before, 0))
        elif before[word_start:].startswith("@"):
            self.post_message(self.Completing("path", before[word_start:], word_start))
        else:
            self._completions.hide()

    def complete(self) -> None:
        """Replace what is typed by what is highlighted."""
        item, before = self._completions.item, self._before_cursor()
        if item is None:
            return
        self._completions.hide()
        start = self._location(before, self._completions.start)
        is_open = item.text.endswith(("/", ":", " "))
        self.replace(item.text if is_open else f"{item.text} ", start, self.cursor_location)

    def _is_complete(self) -> bool:
        """Whether what is typed is what is highlighted already."""
        item, typed = self._completions.item, self._before_cursor()[self._completions.start :]
        return item is None or item.text.strip() == typed.strip()

    def _before_cursor(self) -> str:
        return self.get_text_range((0, 0), self.cursor_location)

    @staticmethod
    def _location(text: str, position: int) -> tuple[int, int]:
        before = text[:position]
        return before.count("\n"), position - (before.rfind("\n") + 1)


def _looks_like_a_path(text: str) -> bool:
    text = text.strip().strip("'\"")
    return "\n" not in text and text.startswith(("/", "~/", "file://")) and "." in text
