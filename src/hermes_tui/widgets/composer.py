"""The text field: several lines, history, completion, long pastes as attachments.

Everything is typed here, what answers a card too: one field gets every key in its order, so that nothing
that appears can take the rest of a sentence.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from textual import events
from textual.binding import Binding
from textual.message import Message
from textual.widgets import TextArea

from hermes_tui import commands, wire
from hermes_tui.history import InputHistory
from hermes_tui.widgets.card import Card
from hermes_tui.widgets.completion import CompletionList

_LONG_LINES = 8
_LONG_CHARACTERS = 1200
_MAX_SHOWN = 50_000
"""Characters that the field shows of what is given back."""
_NEWLINES = ("shift+enter", "shift+\r", "\r", "ctrl+j", "alt+enter", "ctrl+enter")
"""Several names, because terminals have several ways to tell Enter from Enter with another key."""
_EDITS = {
    key.strip(): binding.action
    for binding in TextArea.BINDINGS
    if isinstance(binding, Binding)
    for key in binding.key.split(",")
}
"""What keys do in every text field; done here, because the application gets to it after later keys."""
_PLACEHOLDER = "Ask anything.  / commands  @ files  F1 help"


class Composer(TextArea):
    """A text field that sends on Enter."""

    @dataclass
    class Submitted(Message):
        """Something is to be sent: with attachments as they are shown, and in full."""

        visible: str
        whole: str
        pastes: dict[str, str]

    @dataclass
    class CompletionRequested(Message):
        """Something can be completed: a command, or the path after an @."""

        kind: str
        text: str
        start: int

    @dataclass
    class PastedPath(Message):
        """The pasted text looks like the name of a file; it may be a picture."""

        text: str

    class BackspaceAtStart(Message):
        """Backspace was pressed before the first letter."""

    @dataclass
    class Answering(Message):
        """A card is to be answered, after the keys that were pressed before."""

        card: Card

    class HelpRequested(Message):
        """Somebody wants to know the keys."""

    class QuitRequested(Message):
        """Somebody wants to leave."""

    def __init__(self, history: InputHistory, completions: CompletionList) -> None:
        super().__init__(
            id="composer",
            soft_wrap=True,
            show_line_numbers=False,
            highlight_cursor_line=False,
            placeholder=_PLACEHOLDER,
        )
        self._history = history
        self._completions = completions
        self._pastes: dict[str, str] = {}
        self._paste_count = 0
        """Never counted anew: what is given back is known by its number."""
        self._is_recalling = False
        self._is_completing = False
        """Whether Tab was pressed last, and has completed nothing yet."""
        self._listed = ""
        """The text before the cursor that the list is for."""
        self.may_be_empty = False
        """Whether there is an attachment that needs no text, such as a picture."""
        self.answering: Card | None = None
        """The card that is answered by what is typed."""
        self._aside = ""
        """What was being written before that."""
        self._unanswered = ""
        """The request that what is typed was to answer when its card went away."""

    # -- sending -----------------------------------------------------------------------------

    def send(self) -> None:
        """Hand over what is typed and start anew."""
        self._unanswered = ""
        visible = self.text.strip()
        if not (visible or self.may_be_empty):
            return
        whole = self.expanded()
        self._history.add(whole, visible)
        pastes = {name: text for name, text in self._pastes.items() if name in visible}
        self.empty()
        self.post_message(self.Submitted(visible, whole, pastes))

    def empty(self) -> None:
        """Start anew."""
        self._completions.hide()
        self._pastes = {name: text for name, text in self._pastes.items() if name in self._aside}
        self.load_text("")

    def clear_text(self) -> bool:
        """Remove the text, which the history keeps; return whether there was any."""
        if not self.text.strip():
            return False
        self._history.add(self.expanded(), self.text)
        self.empty()
        return True

    def expanded(self) -> str:
        """Return the typed text, with every attachment in full."""
        return self._expanded(self.text)

    def _expanded(self, text: str) -> str:
        return _with_pastes(text, self._pastes)

    def give_back(self, text: str, pastes: Mapping[str, str]) -> None:
        """Put back a text that was not accepted; what was typed meanwhile stays after it.

        What cannot be shown as it is comes back as an attachment, so that it is sent as it was.
        """
        self.write()
        self._pastes.update(pastes)
        if len(text) > _MAX_SHOWN or text != wire.clean(text):
            text = self._placeholder_of(self._expanded(text))
        self._put_before(text)

    def _put_before(self, text: str) -> None:
        typed = self.text
        self._load(f"{text}\n{typed}" if typed.strip() else text)

    def take_draft(self) -> tuple[str, dict[str, str]]:
        """Empty the field; returns what was typed for the conversation, with its attachments."""
        self.write()
        draft = self.text, dict(self._pastes)
        self.empty()
        return draft

    def put_draft(self, text: str, pastes: Mapping[str, str]) -> None:
        """Continue a draft."""
        self._pastes = dict(pastes)
        self.recall(text)

    def recall(self, text: str) -> None:
        """Put a text into the field and the cursor to its end; it was not typed to answer a card."""
        self.write()
        self._unanswered = ""
        self._load(text)

    def _load(self, text: str) -> None:
        self._is_recalling = True
        self.load_text(text)
        self.move_cursor(self.document.end)
        self._completions.hide()

    def _placeholder_of(self, text: str) -> str:
        """Something that stands for a longer text."""
        self._paste_count += 1
        lines = text.count("\n") + 1
        placeholder = f"[Pasted text #{self._paste_count}: {lines} line{'s' * (lines > 1)}]"
        self._pastes[placeholder] = text
        return placeholder

    def _removes_attachment(self, key: str) -> bool:
        """Take an attachment off: a picture before the first letter, a paste as a whole."""
        if key == "backspace" and self.cursor_location == (0, 0):
            self.post_message(self.BackspaceAtStart())
            return True
        text, place = self.text, len(self._before_cursor()) - (key == "backspace")
        for placeholder in self._pastes:
            start = text.find(placeholder)
            if start >= 0 and start <= place < start + len(placeholder):
                end = self._location(text, start + len(placeholder))
                self.delete(self._location(text, start), end)
                return True
        return False

    def take_out(self, text: str) -> bool:
        """Remove a text that was pasted; False when it is not here any more."""
        before, found, after = self.text.rpartition(text)
        if found:
            start, end = self._location(self.text, len(before)), len(before) + len(text)
            self.delete(start, self._location(before + found + after, end))
        return bool(found)

    # -- answering ---------------------------------------------------------------------------

    def offer(self, card: Card) -> None:
        """Answer a card with what is typed next, unless there is a draft."""
        if self.answering not in (None, card):
            return
        is_meant = self._unanswered and self._unanswered == card.request_id
        is_free = not (self.text or self._aside)
        if is_free or (is_meant and card.choice_of(self.text) is None):
            self._direct_keys_to(card, is_sudden=True)

    def answer(self, card: Card) -> None:
        """Answer a card with what is typed next; the draft is set aside until then."""
        if self.answering is not card:
            self.write()
            self._aside = self.text
            self._load("")
        self._direct_keys_to(card, is_sudden=False)

    def release(self, card: Card) -> None:
        """A card goes away: what is typed stays, for the conversation or until it is asked again."""
        if self.answering is card:
            self.write()
            self._unanswered = card.request_id if self.text else ""

    def write(self) -> None:
        """Stop answering a card, and restore the draft that was set aside."""
        card, self.answering = self.answering, None
        if card is None:
            return
        card.release_keys()
        self.placeholder, self.border_subtitle = _PLACEHOLDER, ""
        aside, self._aside = self._aside, ""
        if aside:
            self._put_before(aside)

    def _direct_keys_to(self, card: Card, *, is_sudden: bool) -> None:
        self.answering, self._unanswered = card, ""
        card.take_focus_keys(is_sudden=is_sudden)
        self.placeholder = card.words or _PLACEHOLDER
        self.border_subtitle = f"answers: {card.border_title}" if card.words else ""
        self.screen.set_focus(self)

    def on_composer_answering(self, event: Answering) -> None:
        event.stop()
        if not event.card.is_answered:
            self.answer(event.card)

    def _answers(self, event: events.Key) -> bool:
        """Choose by a key; only before the first letter, and not by one pressed too early."""
        if self.answering is not None and self.answering.is_answered:
            self.release(self.answering)
        card = self.answering
        if card is None or self.text:
            return False
        if not card.has_been_seen(event):
            if event.is_printable:
                self.write()
            return event.key in ("enter", "up", "down")
        if event.is_printable:
            card.forget_mark()
            if not card.words and card.choice_of(event.character or "") is None:
                self.write()
            return False
        is_taken = card.takes(event.key)
        if card.is_answered:
            self.write()
        return is_taken

    def _answer(self, card: Card) -> None:
        """Answer with what is typed: a choice when it is the key of one, else words."""
        whole = self.expanded()
        if (number := card.choice_of(self.text)) is not None:
            if not card.is_armed:
                return
            card.pick(number)
        elif whole and card.words and commands.parse(whole) is None:
            self._history.add(whole, self.text.strip())
            card.say(whole)
        else:
            self.send()
            return
        self.empty()
        self.write()

    def keep(self) -> None:
        """Put all that is typed into the history."""
        for text in (self._aside, self.text):
            self._history.add(self._expanded(text), text)

    def keep_draft(self, text: str, pastes: Mapping[str, str]) -> None:
        """Put a draft of another conversation into the history."""
        self._history.add(_with_pastes(text, pastes), text)

    # -- keys --------------------------------------------------------------------------------

    async def _on_key(self, event: events.Key) -> None:
        self._is_completing = event.key == "tab"
        is_taken = self._answers(event) or self._takes(event.key)
        if not is_taken and event.key in _EDITS:
            await self.run_action(_EDITS[event.key])
            is_taken = True
        if is_taken:
            event.stop()
            event.prevent_default()

    def _takes(self, key: str) -> bool:
        """Deal with a key that means something else here than in other text fields."""
        if self._chooses(key):
            return True
        match key:
            case "enter":
                self._enter()
            case "up" if self.cursor_at_first_line:
                self._remember(self._history.back(self.text))
            case "down" if self.cursor_at_last_line:
                self._remember(self._history.forward())
            case "backspace" | "delete" if not self.selected_text:
                return self._removes_attachment(key)
            case "escape" if self.answering is not None:
                self.write()
            case "question_mark" if not self.text and self.answering is None:
                self.post_message(self.HelpRequested())
            case "ctrl+d" if not self.text:
                self.post_message(self.QuitRequested())
            case _ if key in _NEWLINES:
                self.insert("\n")
            case _:
                return False
        return True

    def _chooses(self, key: str) -> bool:
        """Deal with a key for the list of what completes the text; Tab does not wait for it."""
        match key:
            case "tab" if not self._is_listed:
                self._look_up()
            case _ if not self._completions.is_shown:
                return False
            case "up":
                self._completions.move(-1)
            case "down":
                self._completions.move(1)
            case "tab":
                self.complete()
            case "escape":
                self._completions.hide()
            case "enter" if self._is_listed and not self._is_complete():
                self.complete()
            case _:
                return False
        return True

    def _enter(self) -> None:
        before = self._before_cursor()
        if before.endswith("\\"):
            row, column = self.cursor_location
            self.replace("\n", (row, column - 1), (row, column))
        elif self.answering is not None:
            self._answer(self.answering)
        else:
            self.send()

    def _remember(self, text: str | None) -> None:
        if text is not None:
            self.recall(wire.clean(text))

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        if self.answering is not None and not self.answering.has_been_seen(event):
            self.write()
        self.paste(event.text)

    def paste(self, text: str) -> None:
        """Take what was pasted; terminals end its lines in several ways."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        is_long = text.count("\n") >= _LONG_LINES or len(text) > _LONG_CHARACTERS
        if is_long or text != wire.clean(text):
            self._paste(self._placeholder_of(text))
            return
        self._paste(text)
        if _looks_like_a_path(text):
            self.post_message(self.PastedPath(text))

    def _paste(self, text: str) -> None:
        self.replace(text, *self.selection, maintain_selection_offset=False)

    # -- completion --------------------------------------------------------------------------

    def on_text_area_changed(self) -> None:
        if self.answering is not None:
            self.answering.show_typed(self.text)
        if self._is_recalling:
            self._is_recalling = False
            return
        self._history.rest()
        self._look_up()

    def _look_up(self) -> None:
        """Request completions for the text before the cursor, if there can be any."""
        before = self._before_cursor()
        start = max(before.rfind(blank) for blank in (" ", "\n")) + 1
        if before.startswith("/") and "\n" not in before:
            self.post_message(self.CompletionRequested("slash", before, 0))
        elif before[start:].startswith("@"):
            self.post_message(self.CompletionRequested("path", before[start:], start))
        else:
            self._completions.hide()

    def listed(self) -> None:
        """The list is there: who has pressed Tab before it came and nothing since, wants it used."""
        self._listed = self._before_cursor()
        if self._is_completing:
            self.complete()

    @property
    def _is_listed(self) -> bool:
        """Return whether the list is for the present text, which may have grown meanwhile."""
        return self._completions.is_shown and self._listed == self._before_cursor()

    def complete(self) -> None:
        """Replace what is typed by what is highlighted."""
        self._is_completing = False
        item, before = self._completions.item, self._before_cursor()
        if item is None:
            return
        self._completions.hide()
        start = self._location(before, self._completions.start)
        is_open = item.text.endswith(("/", ":", " "))
        self.replace(item.text if is_open else f"{item.text} ", start, self.cursor_location)

    def _is_complete(self) -> bool:
        """Return whether the highlighted item is typed in full already."""
        item, typed = self._completions.item, self._before_cursor()[self._completions.start :]
        return item is None or item.text.strip() == typed.strip()

    def _before_cursor(self) -> str:
        return self.get_text_range((0, 0), self.cursor_location)

    @staticmethod
    def _location(text: str, position: int) -> tuple[int, int]:
        before = text[:position]
        return before.count("\n"), position - (before.rfind("\n") + 1)


def _with_pastes(text: str, pastes: Mapping[str, str]) -> str:
    """Put every attachment in full in the place of what stands for it."""
    text = text.strip()
    for placeholder, pasted in pastes.items():
        text = text.replace(placeholder, pasted)
    return text


def _looks_like_a_path(text: str) -> bool:
    text = text.strip().strip("'\"")
    return "\n" not in text and text.startswith(("/", "~/", "file://")) and "." in text
