"""Line mode: read a line, answer it or run it as a command, repeat; and every way out of it."""

import logging
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from hermes_agent import commands, skills
from hermes_agent.agent import Agent
from hermes_agent.skills import Skill
from hermes_agent.turn.stop import Stop
from hermes_cli import plugins
from hermes_cli.chat import greeting, leaving
from hermes_cli.chat.exchange import EXIT_FAILED, Exchange
from hermes_cli.chat.parts import SOURCE, Parts
from hermes_cli.chat.terminal import EXIT_HANGUP, EXIT_INTERRUPTED, Leaving, Terminal
from hermes_cli.chat.view import View
from hermes_cli.chat.work import Attendant
from hermes_core.errors import HermesError
from hermes_state.ledger import sessions

logger = logging.getLogger(__name__)

T = TypeVar("T")

_AGAIN = "Press Ctrl-C once more to quit, or Ctrl-D."


class Repl:
    """A chat at a terminal. It is the context of slash commands."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._view = View(sys.stdout, sys.stdout)
        self._terminal = Terminal(sys.stdout)
        self._attendant = Attendant(self._view, self._terminal, can_ask=True)
        self._exchange = Exchange(parts, parts.wanted_session(), self._attendant.post, can_ask=True)
        self._next: Callable[[Stop], dict[str, Any]] | None = None
        """What a command wants answered next."""
        self._has_arrived = False
        """Whether the person has been told where they are."""
        self._is_leaving = False
        self._was_interrupted = False
        """Whether the last thing the person did was Ctrl-C."""

    # -- what commands see ---------------------------------------------------------------------

    @property
    def agent(self) -> Agent:
        return self._exchange.agent

    @property
    def conversation(self) -> Agent:
        return self._exchange.agent

    @property
    def is_running(self) -> bool:
        """Lines are only read between turns."""
        return False

    @property
    def stop(self) -> Stop:
        return self._attendant.stop

    @property
    def beside(self) -> tuple[str, ...]:
        return ()

    @property
    def permissions(self) -> None:
        """Return who is at the machine may see everything."""

    @property
    def plugins(self) -> Mapping[str, commands.PluginCommand]:
        return plugins.commands("line")

    @property
    def skills(self) -> Mapping[str, Skill]:
        return skills.found(self._parts.app.home)

    def open(self, session_id: str | None, end_reason: str) -> None:
        self._exchange.close_conversation(end_reason, completed=True, interrupted=False)
        self._exchange.open(session_id)
        self._has_arrived = session_id is None

    def send(self, content: Any, replaces: int | None = None) -> None:  # noqa: ANN401 -- text or parts
        self._next = lambda stop: self._exchange.answer(content, replaces, stop=stop)

    def models(self) -> str:
        return "\n".join(f"  {found.label}: {found.reason}" for found in self._parts.findings)

    def use_model(self, name: str) -> str:
        agent = self._exchange.agent
        agent.model = self._parts.use_model(name)
        if self._parts.store.read(sessions.find, agent.session_id) is not None:
            self._parts.store.write(sessions.change_model, agent.session_id, agent.model.facts.name)
        return agent.model.facts.name

    def leave(self) -> None:
        self._is_leaving = True

    # -- the loop ------------------------------------------------------------------------------

    def run(self) -> int:
        """Chat until the person leaves; returns the exit status."""
        status = EXIT_FAILED
        with self._terminal:
            try:
                self._terminal.edit(self._parts.app.home.history, self._names)
                status = self._chat()
            finally:
                leaving.close(self._exchange, status)
        return status

    def _names(self) -> list[str]:
        return commands.names(self.plugins, self.skills)

    def _chat(self) -> int:
        try:
            greeting.greet(self._view, self._parts, self._exchange.agent)
            while not self._is_leaving:
                self._step()
        except Leaving as wish:
            return wish.status
        except OSError as error:  # the terminal is gone, and writing to it is the first to notice
            logger.info("the terminal is gone: %s", error)
            return EXIT_HANGUP
        return 0

    def _step(self) -> None:
        if not self._has_arrived:
            self._arrive()
        if self._next is not None:
            answer, self._next = self._next, None
            self._show_exchange(answer)
            return
        line = self._read()
        if line.strip():
            self._take(line)

    def _arrive(self) -> None:
        """Tell the person where they are, and finish what was left unfinished here."""
        self._has_arrived = True
        greeting.recall(self._view, self._parts, self._exchange.agent)
        if self._exchange.is_unfinished():
            self._view.note("Continuing with the message that has no answer yet.")
            self._view.begin()
            self._attempt(self._exchange.recover)
            self._view.summary()

    def _read(self) -> str:
        try:
            line = self._terminal.read()
        except KeyboardInterrupt:
            if self._was_interrupted:
                raise Leaving(EXIT_INTERRUPTED) from None
            self._was_interrupted = True
            self._view.note(_AGAIN)
            return ""
        self._was_interrupted = False
        return line

    def _take(self, line: str) -> None:
        parsed = commands.parse(line)
        if parsed is None:
            self._show_exchange(lambda stop: self._exchange.answer(line.strip(), stop=stop))
            return
        self._view.begin()
        said = self._attempt(lambda _stop: commands.run(self, parsed))
        if said:
            self._view.plain(said)

    def _show_exchange(self, work: Callable[[Stop], dict[str, Any]]) -> None:
        self._view.begin()
        told = self._attempt(work)
        if told is None:
            return
        if told["failed"] and not self._attendant.has_ended:
            self._view.note(told["error"])
        self._view.summary()

    def _attempt(self, work: Callable[[Stop], T]) -> T | None:
        """Run something in a thread; report what goes wrong, and go on."""
        try:
            answer = partial(self._exchange.engine.answer, by=SOURCE)
            return self._attendant.attend(answer, work)
        except (Leaving, OSError):
            raise
        except HermesError as error:
            self._view.note(str(error))
        except Exception as error:
            logger.exception("a command or a turn failed")
            self._view.note(f"Something went wrong inside Hermes: {error!r}")
        finally:
            self._view.pause()
            self._was_interrupted = self._attendant.stop.is_set
        return None
