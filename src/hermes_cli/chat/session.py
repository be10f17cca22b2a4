"""The two ways to chat, from the command line to the exit status."""

import io
import sys

from hermes_cli.chat.parts import Wishes, gather
from hermes_cli.commands.app import App
from hermes_core.errors import UsageError


def _write_what_can_be_written() -> None:
    """Have a terminal that lacks a character show another one instead of failing."""
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
        return repl.Repl(gather(app, wishes, store)).run()
