"""The card that asks whether to allow a dangerous call."""

import re
from collections.abc import Iterator

from textual.app import ComposeResult
from textual.content import Content

from hermes_protocol.events import Approval
from hermes_tui.widgets.card import Card, Choice
from hermes_tui.widgets.diff import DiffView, is_diff
from hermes_tui.widgets.plain import Plain

_CHOICES = {
    "once": Choice("once", "Allow once", "y"),
    "session": Choice("session", "Allow for this conversation", "s"),
    "always": Choice("always", "Always allow", "a"),
    "deny": Choice("deny", "Deny (or type a reason)", "n"),
}


_BULLET = "• "
_NAME = re.compile(r"[^\s,;()\"']*[/~@.][^\s,;()\"']*")
"""A path or a host in a reason."""
_SHORTEST_NAME = 3
_PROGRAMS = re.compile(
    r"(?<![\w./-])(?:sudo|doas|rm|rmdir|shred|dd|mkfs[\w.]*|truncate|chmod|chown|kill|pkill|killall"
    r"|shutdown|reboot|systemctl|crontab|eval|exec|curl|wget|nc|ncat|ssh|scp|rsync|sftp|ftp)"
    r"(?:\s+-[\w-]+)*(?![\w./-])"
)
"""Programs that delete, send or change the system, with their options."""
_INTO_SHELL = re.compile(r"\|\s*(?:\S*/)?(?:ba|da|z|k)?sh\b|\|\s*python[\d.]*\b")
_REDIRECTION = re.compile(r"(?<!<U\+[0-9A-F]{4})(?<!<U\+[0-9A-F]{5})\d?>{1,2}\s*[^\s&>][^\s;|&]*")
_INVISIBLE = re.compile(r"<U\+[0-9A-F]{4,6}>")
_DANGEROUS = "bold $text-error"


class ApprovalCard(Card):
    """Shows why a call is dangerous, all of the command or diff, what a yes covers, and the choices."""

    DEFAULT_CSS = """
    ApprovalCard .card-note {
        max-height: 100%;
    }
    """

    def __init__(self, request: Approval) -> None:
        values = request.choices or ["once", "session", "always", "deny"]
        if not request.allow_permanent:
            values = [choice for choice in values if choice != "always"]
        choices = [
            _CHOICES.get(value, Choice(value, value.capitalize(), str(number)))
            for number, value in enumerate(values, 1)
        ]
        self._request = request
        title = "Allow this change?" if is_diff(request.command) else "Allow this command?"
        words = "Press a key and Enter, or type what to do instead …"
        super().__init__(
            request.request_id, title, request.command, choices, request.remembers, words
        )
        self.add_class("approval")
        self._values = {"deny", *values, *_CHOICES}

    def parts(self) -> ComposeResult:
        request = self._request
        if reasons := request.description.strip():
            yield Plain(_as_list(reasons), classes="reasons")
        if is_diff(request.command):
            yield DiffView(request.command, names_file=True)
        else:
            yield Plain(highlighted(request.command, reasons))

    def say(self, words: str) -> None:
        """Words are a no, also those that the server knows as a yes."""
        self.answer(f'"{words}"' if words in self._values else words)

    def reply(self, answer: str) -> tuple[str, dict[str, str]]:
        return "approval.respond", {"choice": answer, "request_id": self.request_id}


def _as_list(reasons: str) -> Content:
    """The reasons, each with a bullet; what a yes gives beside them has none."""
    first, *others = reasons.split("\n")
    if not first.startswith(_BULLET):
        first = _BULLET + first
    lines = [
        Content.styled(line, "$text-warning" * line.startswith(_BULLET))
        for line in (first, *others)
    ]
    return Content("\n").join(lines)


def highlighted(command: str, reasons: str) -> Content:
    """Highlight in a command what makes it dangerous: what the reasons name, and certain programs."""
    content = Content.styled(command, "bold $foreground")
    for start, end in _dangers(command, reasons):
        content = content.stylize(_DANGEROUS, start, end)
    for found in _INVISIBLE.finditer(command):
        content = content.stylize("reverse", *found.span())
    return content


def _dangers(command: str, reasons: str) -> Iterator[tuple[int, int]]:
    """Find the dangerous parts of a command."""
    for pattern in (_PROGRAMS, _INTO_SHELL, _REDIRECTION, _INVISIBLE):
        yield from (found.span() for found in pattern.finditer(command))
    for name in {name.rstrip(".:") for name in _NAME.findall(reasons)}:
        if len(name) >= _SHORTEST_NAME:
            yield from (found.span() for found in re.finditer(re.escape(name), command))
