"""The line editor of a chat: several lines, history, completion of commands; knows prompt_toolkit."""

import contextlib
import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input.typeahead import clear_typeahead, get_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import create_output
from prompt_toolkit.shortcuts import CompleteStyle

from hermes_cli.chat.lines import GOES_ON, PROMPT
from hermes_cli.chat.signals import EXIT_HANGUP, Leaving, Signalled, is_hung_up
from hermes_core.errors import ConfigError
from hermes_core.paths import touch_private
from hermes_core.secrets import redact

logger = logging.getLogger(__name__)


class _Moot(Exception):
    """Nobody needs the answer any more."""


class _History(FileHistory):
    """What was typed before, in a private file, without secrets; a disk that fails costs only this."""

    def __init__(self, path: Path) -> None:
        try:
            touch_private(path)
        except (OSError, ConfigError):
            logger.warning("the history %s cannot be made", path, exc_info=True)
        super().__init__(str(path))

    def load_history_strings(self) -> Iterable[str]:
        try:
            return list(super().load_history_strings())
        except OSError:
            logger.warning("the history cannot be read", exc_info=True)
            return []

    def store_string(self, string: str) -> None:
        try:
            super().store_string(redact(string))
        except OSError:
            logger.warning("the history cannot be written", exc_info=True)


class _Commands(Completer):
    """Completes the name of a command at the beginning of a message."""

    def __init__(self, names: Callable[[], Sequence[str]]) -> None:
        self._names = names

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        del complete_event
        typed = document.text_before_cursor
        if typed.startswith("/") and " " not in typed and "\n" not in typed:
            for name in self._names():
                if name.startswith(typed[1:]):
                    yield Completion(f"/{name} ", start_position=-len(typed))


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter")
    def send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    @bindings.add("c-c")
    def clear(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt())

    @bindings.add("escape", "enter")
    def break_line(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    return bindings


class Editor:
    """Asks the person for a message or an answer; both may be cut short from outside."""

    def __init__(self, history: Path, commands: Callable[[], Sequence[str]]) -> None:
        output = create_output(sys.stdout, always_prefer_tty=True)
        self._messages: PromptSession[str] = PromptSession(
            output=output,
            history=_History(history),
            completer=_Commands(commands),
            complete_style=CompleteStyle.READLINE_LIKE,
            complete_while_typing=False,
            key_bindings=_bindings(),
            multiline=True,
            prompt_continuation=GOES_ON,
            enable_suspend=True,
        )
        self._answers: PromptSession[str] = PromptSession(output=output)
        self._open: PromptSession[str] | None = None
        self._is_moot: Callable[[], bool] = _never
        self._leaving: Leaving | None = None

    def read(self, default: str = "") -> str:
        """The next message; raises Leaving, and KeyboardInterrupt for Ctrl-C on an empty line."""
        return self._prompt(self._messages, f"\n{PROMPT}", default)

    def ask(self, prompt: str, is_moot: Callable[[], bool]) -> str | None:
        """A short answer, or None when it became moot; raises Leaving, KeyboardInterrupt."""
        self._is_moot = is_moot
        try:
            return self._prompt(self._answers, prompt, "")
        except _Moot:
            return None
        finally:
            self._is_moot = _never

    def early_keys(self) -> str:
        """What was typed after the last message was sent and before anybody asked again."""
        source = self._messages.input
        typed = "".join(press.data for press in get_typeahead(source))
        clear_typeahead(source)
        return typed

    def hear(self, signalled: Signalled) -> None:
        """End the open prompt, or the next one, when a signal asks the program to end."""
        try:
            signalled.check()
        except Leaving as leaving:
            self._leaving = leaving
            self.wake()

    def wake(self) -> None:
        """Look again whether the open prompt is to end; from any thread, and from signal handlers."""
        session = self._open
        if session is not None and (loop := session.app.loop) is not None:
            with contextlib.suppress(RuntimeError):  # the prompt has just ended
                loop.call_soon_threadsafe(self._look)

    def _prompt(self, session: PromptSession[str], prompt: str, default: str) -> str:
        self._open = session
        try:
            return session.prompt(prompt, default=default, pre_run=self._look)
        except EOFError:
            raise Leaving(EXIT_HANGUP if is_hung_up(sys.stdin.fileno()) else 0) from None
        except OSError:  # the terminal is gone
            raise Leaving(EXIT_HANGUP) from None
        finally:
            self._open = None

    def _look(self) -> None:
        app = self._open.app if self._open is not None else None
        reason = self._leaving or (_Moot() if self._is_moot() else None)
        if app is None or reason is None or app.future is None or app.future.done():
            return
        app.exit(exception=reason)


def _never() -> bool:
    return False
