"""The two ways to chat, from the command line to the exit status."""

import io
import sys

from hermes_cli.chat.mailbox import Mailbox
from hermes_cli.chat.parts import Wishes, gather
from hermes_cli.chat.plain import PlainView
from hermes_cli.chat.questions import Reader
from hermes_cli.chat.work import View
from hermes_cli.commands.app import App
from hermes_core.errors import UsageError


def _write_what_can_be_written() -> None:
    """A terminal that lacks a character gets another one, and not an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def once(app: App, wishes: Wishes) -> int:
    """Ask once; returns the exit status."""
    from hermes_cli.chat import one_shot  # noqa: PLC0415 -- one of the two ways is loaded

    _write_what_can_be_written()
    text = one_shot.question_of(wishes.query)
    wishes.check()
    with app.store() as store:
        # A title would be asked for after the answer, when this process has ended.
        parts = gather(app, wishes, store, titles=False)
        return one_shot.OneShot(parts).run(text)


def interactive(app: App, wishes: Wishes) -> int:
    """Chat until the person leaves; returns the exit status."""
    from hermes_cli.chat import repl  # noqa: PLC0415 -- as above

    if app.as_json:
        raise UsageError("--json needs a question.", fix='Write: hermes chat --json -q "…".')
    _write_what_can_be_written()
    wishes.check()
    with app.store() as store:
        parts = gather(app, wishes, store)
        mailbox = Mailbox()
        view, reader = _face(app, mailbox)
        return repl.Repl(parts, view, reader, mailbox).run()


def _face(app: App, mailbox: Mailbox) -> tuple[View, Reader]:
    """How the chat looks and reads: with a line editor where the terminal can."""
    # what edits lines and paints Markdown is heavy, and only a terminal needs it
    from hermes_agent import commands, skills  # noqa: PLC0415
    from hermes_cli import plugins  # noqa: PLC0415
    from hermes_cli.chat.render import TerminalView  # noqa: PLC0415

    if not TerminalView.is_possible(sys.stdout):
        from hermes_cli.chat.lines import LineReader  # noqa: PLC0415

        return PlainView(sys.stdout, sys.stdout), LineReader(mailbox, sys.stdin, sys.stdout)
    from hermes_cli.chat.editor import Editor  # noqa: PLC0415

    def names() -> list[str]:
        return commands.names(plugins.commands("line"), skills.found(app.home))

    editor = Editor(app.home.history, names)
    return TerminalView(sys.stdout), editor
