"""The two modes of `hermes chat`: one question, and line by line."""

import io
import sys

from hermes_cli.chat.resources import ChatOptions, open_resources
from hermes_cli.commands.app import App
from hermes_core.errors import UsageError


def _replace_unsupported_characters() -> None:
    """Write a replacement for characters that the output encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def once(app: App, options: ChatOptions) -> int:
    """Ask once; return the exit status."""
    from hermes_cli.chat import one_shot  # noqa: PLC0415 -- only the mode in use is loaded

    _replace_unsupported_characters()
    text = one_shot.question_of(options.query)
    options.check()
    with app.store() as store:
        # A title would be asked for after the answer, when this process has ended.
        resources = open_resources(app, options, store, titles=False)
        return one_shot.OneShot(resources).run(text)


def interactive(app: App, options: ChatOptions) -> int:
    """Chat until the user quits; return the exit status."""
    from hermes_cli.chat import repl  # noqa: PLC0415 -- as above

    if app.as_json:
        raise UsageError("--json needs a question.", fix='Write: hermes chat --json -q "…".')
    _replace_unsupported_characters()
    options.check()
    with app.store() as store:
        return repl.Repl(open_resources(app, options, store)).run()
