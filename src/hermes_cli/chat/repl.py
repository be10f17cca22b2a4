"""Line mode: read a line, answer it or run it as a command, repeat until the user quits."""

import logging
import sys
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, TypeVar

from hermes_agent import commands, skills
from hermes_agent.agent import Agent
from hermes_agent.skills import Skill
from hermes_agent.turn.stop import Stop
from hermes_cli import plugins
from hermes_cli.chat import greeting, shutdown
from hermes_cli.chat.main_loop import MainLoop
from hermes_cli.chat.resources import SOURCE, ChatResources
from hermes_cli.chat.surface import EXIT_FAILED, ChatSurface
from hermes_cli.chat.terminal import EXIT_HANGUP, EXIT_INTERRUPTED, ExitRequested, Terminal
from hermes_cli.chat.view import View
from hermes_core.errors import HermesError
from hermes_state.ledger import sessions

logger = logging.getLogger(__name__)

T = TypeVar("T")

_AGAIN = "Press Ctrl-C once more to quit, or Ctrl-D."


class Repl:
    """Chats at a terminal; also the context of its slash commands."""

    is_running = False
    """Lines are only read between turns."""
    background_sessions: Collection[str] = ()
    permissions = None
    """A user of this machine may see everything."""

    def __init__(self, resources: ChatResources) -> None:
        self._resources = resources
        self._view = View(sys.stdout, sys.stdout)
        self._terminal = Terminal(sys.stdout)
        self._main_loop = MainLoop(self._view, self._terminal, can_ask=True)
        self._surface = ChatSurface(
            resources, resources.session_to_open(), self._main_loop.post, can_ask=True
        )
        self._next: Callable[[Stop], dict[str, Any]] | None = None
        """The turn that a command asked for."""
        self._has_shown_position = False
        """Whether the person has been result where they are."""
        self._is_leaving = False
        self._was_interrupted = False
        """Whether Ctrl-C was the last key."""

    # -- context of slash commands ---------------------------------------------------------------------

    @property
    def agent(self) -> Agent:
        return self._surface.agent

    @property
    def conversation(self) -> Agent:
        return self._surface.agent

    @property
    def stop(self) -> Stop:
        return self._main_loop.stop

    @property
    def plugins(self) -> Mapping[str, commands.PluginCommand]:
        return plugins.commands("line")

    @property
    def skills(self) -> Mapping[str, Skill]:
        return skills.load(self._resources.app.home)

    def open(self, session_id: str | None, end_reason: str) -> None:
        self._surface.close_conversation(end_reason, completed=True, interrupted=False)
        self._surface.open(session_id)
        self._has_shown_position = session_id is None

    def send(self, content: Any, replaces: int | None = None) -> None:  # noqa: ANN401 -- text or parts
        self._next = lambda stop: self._surface.answer(content, replaces, stop=stop)

    def models(self) -> str:
        return "\n".join(f"  {found.label}: {found.reason}" for found in self._resources.findings)

    def use_model(self, name: str) -> str:
        agent = self._surface.agent
        agent.model = self._resources.use_model(name)
        if self._resources.store.read(sessions.find, agent.session_id) is not None:
            self._resources.store.write(
                sessions.change_model, agent.session_id, agent.model.facts.name
            )
        return agent.model.facts.name

    def leave(self) -> None:
        self._is_leaving = True

    # -- the loop ------------------------------------------------------------------------------

    def run(self) -> int:
        """Chat until the user quits; return the exit status."""
        status = EXIT_FAILED
        with self._terminal:
            try:
                self._terminal.edit(
                    self._resources.app.home.history,
                    lambda: commands.names(self.plugins, self.skills),
                )
                status = self._chat()
            finally:
                shutdown.close(self._surface, status)
        return status

    def _chat(self) -> int:
        try:
            greeting.greet(self._view, self._resources, self._surface.agent)
            while not self._is_leaving:
                self._step()
        except ExitRequested as request:
            return request.status
        except OSError as error:  # the terminal is gone, and writing to it is the first to notice
            logger.info("Terminal lost: %s", error)
            return EXIT_HANGUP
        return 0

    def _step(self) -> None:
        if not self._has_shown_position:
            self._show_position()
        if self._next is not None:
            answer, self._next = self._next, None
            self._show_exchange(answer)
            return
        line = self._read()
        if line.strip():
            self._handle(line)

    def _show_position(self) -> None:
        """Show title and last exchange, and complete an unfinished turn."""
        self._has_shown_position = True
        greeting.show_last_exchange(self._view, self._resources, self._surface.agent)
        if self._surface.is_unfinished():
            self._view.note("Answering the message that has no answer yet.")
            self._view.begin()
            self._attempt(self._surface.recover)
            self._view.summary()

    def _read(self) -> str:
        try:
            line = self._terminal.read()
        except KeyboardInterrupt:
            if self._was_interrupted:
                raise ExitRequested(EXIT_INTERRUPTED) from None
            self._was_interrupted = True
            self._view.note(_AGAIN)
            return ""
        self._was_interrupted = False
        return line

    def _handle(self, line: str) -> None:
        parsed = commands.parse(line)
        if parsed is None:
            self._show_exchange(lambda stop: self._surface.answer(line.strip(), stop=stop))
            return
        self._view.begin()
        output = self._attempt(lambda _stop: commands.run(self, parsed))
        if output:
            self._view.write(output)

    def _show_exchange(self, work: Callable[[Stop], dict[str, Any]]) -> None:
        self._view.begin()
        result = self._attempt(work)
        if result is None:
            return
        if result["failed"] and not self._main_loop.has_ended:
            self._view.note(result["error"])
        self._view.summary()

    def _attempt(self, work: Callable[[Stop], T]) -> T | None:
        """Run a function in a thread; show its errors instead of raising them."""
        try:
            answer = partial(self._surface.engine.answer, by=SOURCE)
            return self._main_loop.run(answer, work)
        except (ExitRequested, OSError):
            raise
        except HermesError as error:
            self._view.note(str(error))
        except Exception as error:
            logger.exception("A command or a turn failed")
            self._view.note(f"Internal error: {error!r}")
        finally:
            self._view.pause()
            self._was_interrupted = self._main_loop.stop.is_set
        return None
