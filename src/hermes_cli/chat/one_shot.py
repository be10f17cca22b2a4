"""One-shot mode: ask once; stream the answer to a terminal, print it to a pipe, or print JSON."""

import contextlib
import os
import stat
import sys
from functools import partial
from typing import Any

from hermes_agent import commands, skills
from hermes_cli import plugins
from hermes_cli.chat import shutdown
from hermes_cli.chat.main_loop import MainLoop
from hermes_cli.chat.resources import SOURCE, ChatResources
from hermes_cli.chat.surface import EXIT_FAILED, ChatSurface, status_of
from hermes_cli.chat.terminal import ExitRequested, Terminal
from hermes_cli.chat.view import View
from hermes_core.errors import UsageError


def question_of(query: str | None) -> str:
    """Return the question: the text of the command line and of stdin."""
    piped = "" if sys.stdin.isatty() else _piped(is_asked_for=query in (None, "-"))
    words = "" if query in (None, "-") else query or ""
    text = "\n\n".join(part for part in (words.strip(), piped.strip()) if part)
    if not text:
        raise UsageError("There is no question.", fix='Write: hermes chat -q "your question".')
    return text


def _piped(*, is_asked_for: bool) -> str:
    """Read stdin if it is a pipe, a socket or a file; other devices hold nothing."""
    mode = os.fstat(sys.stdin.fileno()).st_mode
    if is_asked_for or stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode):
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    return ""


class OneShot:
    """Asks once. The turn runs in a thread; the main thread shows events and takes signals."""

    def __init__(self, resources: ChatResources) -> None:
        self._resources = resources
        self._is_streaming = sys.stdout.isatty() and not resources.app.as_json
        view = View(sys.stderr, sys.stdout if self._is_streaming else None)
        can_ask = sys.stdin.isatty() and sys.stderr.isatty()
        self._main_loop = MainLoop(view, Terminal(sys.stderr), can_ask=can_ask)

    def run(self, text: str) -> int:
        """Ask, print the answer, close the conversation; returns the exit status."""
        session_id = self._resources.session_to_open()
        main_loop = self._main_loop
        surface = ChatSurface(
            self._resources, session_id, main_loop.post, can_ask=main_loop.can_ask
        )
        status = EXIT_FAILED
        with main_loop.terminal:
            try:
                status = self._ask(surface, text)
            except ExitRequested as request:
                status = request.status
                with contextlib.suppress(OSError):  # the terminal may be gone
                    main_loop.view.pause()
            finally:
                shutdown.close(surface, status)
        return status

    def _ask(self, surface: ChatSurface, text: str) -> int:
        content = self._with_skill(text)
        answer = partial(surface.engine.answer, by=SOURCE)
        result = self._main_loop.run(answer, lambda stop: surface.answer(content, stop=stop))
        self._print(result)
        return status_of(result)

    def _with_skill(self, text: str) -> str:
        """Return the prompt of a skill if the text is one; other commands are text here."""
        parsed = commands.parse(text)
        if parsed is None:
            return text
        found = skills.load(self._resources.app.home)
        skill = skills.find(parsed.name, found, commands.names(plugins.commands("line")))
        return skills.prompt(skill, parsed.argument) if skill is not None else text

    def _print(self, result: dict[str, Any]) -> None:
        if self._resources.app.as_json:
            self._resources.app.emit(result)
        elif result["failed"] and not self._main_loop.has_ended:
            self._main_loop.view.note(result["error"])
        elif result["completed"] and not self._is_streaming:
            sys.stdout.write(f"{result['final_response'] or ''}\n")
            sys.stdout.flush()
