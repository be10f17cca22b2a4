"""The table of commands, loaded one by one, and how an error becomes words and an exit status."""

import importlib
import logging
import sys
from collections.abc import Sequence

import click
import msgspec

from hermes_cli import interface
from hermes_cli.commands import tui
from hermes_cli.commands.app import App, json_option
from hermes_cli.commands.group import Entry, LazyGroup
from hermes_core import log
from hermes_core.errors import HermesError, describe_error
from hermes_core.version import VERSION

logger = logging.getLogger(__name__)

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


COMMANDS: dict[str, Entry] = {
    "attach": Entry("attach", "Open a conversation that lives in a running server."),
    "chat": Entry("chat", "Talk with the agent."),
    "completion": Entry("completion", "Print the completion script of a shell."),
    "config": Entry("config", "Show and change settings."),
    "doctor": Entry("doctor", "Check the installation and repair it."),
    "gateway": Entry("gateway", "Talk with the agent in your messengers."),
    "model": Entry("model", "Show which model answers and why, and switch."),
    "plugins": Entry("plugins", "List, enable, disable and make plugins."),
    "serve": Entry("serve", "Keep a server running, for terminals to attach to."),
    "sessions": Entry("sessions", "List, search, export and clean up conversations."),
    "skills": Entry("skills", "List, show and make skills: instructions that are slash commands."),
    "tui": Entry("tui", "Talk with the agent on the whole terminal."),
}


def names() -> frozenset[str]:
    """Return the names of our sub-commands."""
    return frozenset(COMMANDS)


class CommandTable(LazyGroup):
    """Our commands, and after them those of plugins."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        ours = super().get_command(ctx, cmd_name)
        return ours if ours is not None else _plugin_command(ctx.ensure_object(App), cmd_name)


def _plugin_command(app: App, name: str) -> click.Command | None:
    plugins = importlib.import_module("hermes_cli.plugins")
    log.set_up(app.home.logs, app.settings.log.level)  # a plugin that fails says so there
    plugins.load_enabled(app.home, app.settings)
    return plugins.cli_commands().get(name)


@click.command(cls=CommandTable, entries=COMMANDS, invoke_without_command=True)
@click.option(
    "--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Use this value for one setting."
)
@click.option("--version", "show_version", is_flag=True, help="Show the version and exit.")
@json_option
@tui.opening_options
@click.pass_context
def hermes(
    ctx: click.Context, overrides: tuple[str, ...], show_version: bool, **opening: object
) -> int | None:
    """A personal AI agent whose conversations survive whatever happens to the process.

    Without a command: talk with it, on the whole terminal where that is possible.
    """
    app = ctx.ensure_object(App)
    app.overrides = overrides
    if show_version:
        _tell_version(app)
        ctx.exit()
    if ctx.invoked_subcommand is None:
        return _talk(ctx, opening)
    if any(opening.values()):
        raise click.UsageError("What is to be opened goes after the command.", ctx)
    return None


def _tell_version(app: App) -> None:
    if app.as_json:
        app.emit({"version": VERSION})
    app.say(f"hermes {VERSION}")


def _talk(ctx: click.Context, opening: dict[str, object]) -> int:
    """The terminal UI; line mode where there is no terminal for it, or it is not installed."""
    app = ctx.ensure_object(App)
    if app.as_json:
        app.keep_output(ctx)
    is_wanted = interface.is_possible() and not app.as_json
    if is_wanted and interface.is_installed():
        return ctx.invoke(tui.command, **opening)
    if is_wanted:
        click.echo(f"This is line mode. For the terminal UI: {interface.INSTALL}", err=True)
    chat = importlib.import_module("hermes_cli.commands.chat")
    return ctx.invoke(chat.command, **{**opening, "resume": opening["resume"] or None})


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit status."""
    app = App()
    try:
        outcome = hermes.main(list(arguments), prog_name="hermes", obj=app, standalone_mode=False)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.Abort:
        click.echo("Stopped.", err=True)
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        app.as_json = app.as_json or "--json" in arguments  # it may stand behind what is wrong
        _tell(app, "usage", error.format_message(), _usage_hint(error))
        return error.exit_code
    except HermesError as error:
        _tell(app, error.code, error.message, error.fix)
        return error.exit_status
    except BrokenPipeError:
        sys.stderr.close()
        return EXIT_FAILURE
    except (SystemExit, KeyboardInterrupt):
        raise
    except UnicodeEncodeError as error:  # bytes of an argument that are no text
        _tell(app, "usage", f"{error.object!r} is not made of whole characters.", "Use UTF-8.")
        return EXIT_USAGE
    except OSError as error:  # a folder that may not be written, a full disk
        _log(app, arguments, error)
        _tell(app, "system", f"{_named(error)}.", "")
        return EXIT_FAILURE
    except BaseException as error:  # noqa: BLE001 -- the last boundary, also for a plugin's: log, tell, exit
        where = _log(app, arguments, error)
        _tell(app, "internal", f"Unexpected error: {describe_error(error)}.", where)
        return EXIT_FAILURE
    return outcome if isinstance(outcome, int) else 0


def _named(error: OSError) -> str:
    """Return what the system refused, and to which file."""
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else reason


def _log(app: App, arguments: Sequence[str], error: BaseException) -> str:
    """Keep the details of an error; says where they are, or why they are not."""
    try:
        log.set_up(app.home.logs, "info")
    except HermesError as hindrance:
        return f"The details could not be kept. {hindrance}"
    logger.error("unexpected error in: hermes %s", " ".join(arguments), exc_info=error)
    return f"The details are in {app.home.logs / log.FILE}."


def _usage_hint(error: click.ClickException) -> str:
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"Try '{error.ctx.command_path} --help'."
    return ""


def _tell(app: App, code: str, message: str, fix: str) -> None:
    if app.as_json:
        error = {"error": {"code": code, "message": message, "fix": fix}}
        click.echo(msgspec.json.encode(error), err=True)
        return
    click.echo(f"hermes: {message}", err=True)
    if fix:
        click.echo(f"        {fix}", err=True)
