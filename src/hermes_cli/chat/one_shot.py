"""One question, one answer: to a terminal as it comes, to a pipe as a whole, to a program as JSON."""

import contextlib
import os
import stat
import sys
from typing import Any

from hermes_agent import commands, skills
from hermes_agent.agent import Agent
from hermes_cli import plugins
from hermes_cli.chat import exchange, leaving
from hermes_cli.chat.parts import Parts
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
        """Ask, print the answer, let go of the conversation; returns the exit status."""
        parts = self._parts
        agent = parts.agent(
            parts.wanted_session(), sink=self._attendant.post, can_ask=self._attendant.can_ask
        )
        status = exchange.EXIT_FAILED
        with self._attendant.terminal:
            try:
                status = self._ask(agent, text)
            except Leaving as wish:
                status = wish.status
                with contextlib.suppress(OSError):  # nobody may be there to see it
                    self._attendant.view.pause()
            finally:
                leaving.let_go(agent, parts, status)
        return status

    def _ask(self, agent: Agent, text: str) -> int:
        said = self._with_skill(text)
        told = self._attendant.attend(
            lambda: agent, lambda stop: exchange.answer(agent, said, stop=stop)
        )
        self._print(told)
        return exchange.status_of(told)

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
