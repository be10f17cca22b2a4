"""One question, one answer: to a terminal as it comes, to a pipe as a whole, to a program as JSON."""

import contextlib
import os
import stat
import sys
from functools import partial
from typing import Any

from hermes_agent import commands, skills
from hermes_cli import plugins
from hermes_cli.chat import leaving
from hermes_cli.chat.exchange import EXIT_FAILED, Exchange, status_of
from hermes_cli.chat.parts import SOURCE, Parts
from hermes_cli.chat.terminal import Leaving, Terminal
from hermes_cli.chat.view import View
from hermes_cli.chat.work import Attendant
from hermes_core.errors import UsageError


def question_of(query: str | None) -> str:
    """Return what is asked: the words of the command line, and what is piped in."""
    piped = "" if sys.stdin.isatty() else _piped(is_asked_for=query in (None, "-"))
    words = "" if query in (None, "-") else query or ""
    text = "\n\n".join(part for part in (words.strip(), piped.strip()) if part)
    if not text:
        raise UsageError("Nothing was asked.", fix='Write: hermes chat -q "your question".')
    return text


def _piped(*, is_asked_for: bool) -> str:
    """Return what stands in the pipe or file before us; a device that is no terminal holds nothing."""
    mode = os.fstat(sys.stdin.fileno()).st_mode
    if is_asked_for or stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode):
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    return ""


class OneShot:
    """Asks once. The turn runs in a thread; this one shows, asks and takes signals."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._is_streaming = sys.stdout.isatty() and not parts.app.as_json
        view = View(sys.stderr, sys.stdout if self._is_streaming else None)
        can_ask = sys.stdin.isatty() and sys.stderr.isatty()
        self._attendant = Attendant(view, Terminal(sys.stderr), can_ask=can_ask)

    def run(self, text: str) -> int:
        """Ask, print the answer, close the conversation; returns the exit status."""
        wanted = self._parts.wanted_session()
        attendant = self._attendant
        exchange = Exchange(self._parts, wanted, attendant.post, can_ask=attendant.can_ask)
        status = EXIT_FAILED
        with attendant.terminal:
            try:
                status = self._ask(exchange, text)
            except Leaving as wish:
                status = wish.status
                with contextlib.suppress(OSError):  # nobody may be there to see it
                    attendant.view.pause()
            finally:
                leaving.close(exchange, status)
        return status

    def _ask(self, exchange: Exchange, text: str) -> int:
        content = self._with_skill(text)
        answer = partial(exchange.engine.answer, by=SOURCE)
        result = self._attendant.attend(answer, lambda stop: exchange.answer(content, stop=stop))
        self._print(result)
        return status_of(result)

    def _with_skill(self, text: str) -> str:
        """Return what is asked; of all commands a script may use skills."""
        parsed = commands.parse(text)
        if parsed is None:
            return text
        found = skills.found(self._parts.app.home)
        skill = commands.skill_of(parsed.name, found, plugins.commands("line"))
        return skills.prompt(skill, parsed.argument) if skill is not None else text

    def _print(self, told: dict[str, Any]) -> None:
        if self._parts.app.as_json:
            self._parts.app.emit(told)
        elif told["failed"] and not self._attendant.has_ended:
            self._attendant.view.note(told["error"])
        elif told["completed"] and not self._is_streaming:
            sys.stdout.write(f"{told['final_response'] or ''}\n")
            sys.stdout.flush()
