"""Context of every command: home, settings, store, and output format."""

import contextlib
import os
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO

import click
import msgspec

from hermes_cli.commands import style
from hermes_core import config
from hermes_core.errors import ConfigError, StoreFullError
from hermes_core.paths import Home
from hermes_core.settings import Settings
from hermes_core.text import visible
from hermes_core.version import VERSION

if TYPE_CHECKING:  # the terminal UI leaves the store to its server
    import hermes_state


@dataclass
class App:
    """The context object of the command line."""

    overrides: tuple[str, ...] = ()
    as_json: bool = False
    output: TextIO | None = None
    """Stream for JSON output; None: stdout."""

    @cached_property
    def home(self) -> Home:
        return config.home()

    @cached_property
    def settings(self) -> Settings:
        return config.load(self.home, overrides=self.overrides)

    def fall_back_to_defaults(self) -> str:
        """Fall back to defaults if the settings are not valid; return the reason."""
        try:
            _ = self.settings
        except ConfigError as error:
            self.settings = Settings()
            return str(error)
        return ""

    @contextlib.contextmanager
    def store(self, *, read_only: bool = False) -> Generator["hermes_state.SessionDB"]:
        """Open the store within a block; read-only if its file is."""
        import hermes_state  # noqa: PLC0415 -- SQLite, which the first frame of the UI need not wait for

        self.home.create()
        store = hermes_state.SessionDB(
            self.home.database,
            read_only=read_only or self._may_only_read(),
            busy_timeout_s=self.settings.store.busy_timeout_s,
        )
        with contextlib.closing(store):
            yield store

    @contextlib.contextmanager
    def store_to_read(self) -> Generator["hermes_state.SessionDB"]:
        """Open the store for reading, even on a full disk."""
        with contextlib.ExitStack() as stack:
            try:
                store = stack.enter_context(self.store())
            except StoreFullError:
                store = stack.enter_context(self.store(read_only=True))
            yield store

    def _may_only_read(self) -> bool:
        """Return whether the home is read-only, as on a mounted backup."""
        database = self.home.database
        return os.access(database, os.F_OK) and not (
            os.access(database, os.W_OK) and os.access(database.parent, os.W_OK)
        )

    def keep_output(self, ctx: click.Context) -> None:
        """Send prints, such as those of plugins, to stderr, so that stdout holds only JSON."""
        if self.output is None:
            self.output = sys.stdout
            ctx.with_resource(contextlib.redirect_stdout(sys.stderr))

    def emit(self, value: object) -> None:
        """Print a value as JSON on one line."""
        click.echo(msgspec.json.encode(value), file=self.output)

    def print_version(self) -> None:
        if self.as_json:
            self.emit({"version": VERSION})
        self.say(f"hermes {VERSION}")

    def say(self, text: str) -> None:
        """Print text without control characters; nothing with --json."""
        if not self.as_json:
            click.echo(visible(text).replace("\r", ""))

    def heading(self, text: str) -> None:
        """Print a heading, in bold where that is possible; nothing with --json."""
        if not self.as_json:
            click.echo(style.heading(visible(text)))


pass_app = click.make_pass_decorator(App)


def json_option(command: Any) -> Any:  # noqa: ANN401 -- a decorator of whatever click accepts
    """Add --json, which also works before the command."""

    def remember(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
        app = ctx.ensure_object(App)
        app.as_json = app.as_json or value
        if app.as_json and ctx.parent is not None:  # a plugin's command may print by itself
            app.keep_output(ctx)

    return click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        callback=remember,
        help="Print JSON.",
    )(command)


@contextlib.contextmanager
def progress(length: int, label: str) -> Generator[Callable[[int], None]]:
    """Show a progress bar if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _more: None
        return
    with click.progressbar(length=length, label=label, file=sys.stderr) as bar:
        yield bar.update


def is_terminal() -> bool:
    """Return whether stdout is a terminal."""
    return sys.stdout.isatty()


def is_interactive() -> bool:
    """Return whether a person at a terminal can be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()
