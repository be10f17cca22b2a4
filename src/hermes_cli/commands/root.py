"""The table of commands, loaded lazily, and the last error boundary."""

import importlib
import logging
import shlex
import shutil
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
from hermes_core.secrets import without_passwords

logger = logging.getLogger(__name__)

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


COMMANDS: dict[str, Entry] = {
    "approvals": Entry("approvals", "Explain what the agent may do without a question."),
    "attach": Entry("attach", "Open a conversation of a running server."),
    "backup": Entry("backup", "Back up the home while Hermes runs.", "make"),
    "chat": Entry("chat", "Chat line by line, or ask one question."),
    "completion": Entry("completion", "Print the completion script for a shell."),
    "config": Entry("config", "Show and change settings."),
    "doctor": Entry("doctor", "Check the installation and repair it."),
    "gateway": Entry("gateway", "Run the agent in your messengers."),
    "help": Entry("about", "Show the help of a command.", "show_help"),
    "login": Entry("login", "Store the API key of a model provider.", "login"),
    "logout": Entry("login", "Remove a stored API key.", "logout"),
    "model": Entry("model", "Choose, show and download models."),
    "plugins": Entry("plugins", "List, enable, disable and create plugins."),
    "restore": Entry("backup", "Replace the home by a backup.", "restore"),
    "security": Entry("security", "Show what the agent may do now, and revoke what you allowed."),
    "serve": Entry("serve", "Run a server that terminals attach to."),
    "sessions": Entry("sessions", "List, search, export and clean up conversations."),
    "setup": Entry("setup", "Set up the model, the workspace and a messenger."),
    "skills": Entry("skills", "List, show and create skills (your own slash commands)."),
    "tui": Entry("tui", "Open the terminal UI."),
    "undo": Entry("undo", "Undo the last exchanges, and the changes of files they made."),
    "uninstall": Entry("uninstall", "Remove Hermes, and say what stays."),
    "update": Entry("update", "Update Hermes, or keep the version you have."),
    "version": Entry("about", "Show the version.", "show_version"),
}


def names() -> frozenset[str]:
    """Return the names of the built-in commands."""
    return frozenset(COMMANDS)


class CommandTable(LazyGroup):
    """The built-in commands, then those of plugins."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        ours = super().get_command(ctx, cmd_name)
        return ours if ours is not None else _plugin_command(ctx.ensure_object(App), cmd_name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read words in quotes as a question: `hermes "why is the sky blue?"`."""
        if not ctx.resilient_parsing:
            _, rest, _ = self.make_parser(ctx).parse_args(list(args))
            if rest and len(rest[0].split()) > 1:
                args = [*args[: len(args) - len(rest)], "-q", *rest]
        return super().parse_args(ctx, args)

    def advice(self, ctx: click.Context, name: str) -> str:
        return super().advice(ctx, name) or f" To ask a question: hermes -q {shlex.quote(name)}"


def _plugin_command(app: App, name: str) -> click.Command | None:
    plugins = importlib.import_module("hermes_cli.plugins")
    log.set_up(app.home.logs, app.settings.log.level)  # for tracebacks of plugins
    plugins.load_enabled(app.home, app.settings)
    return plugins.cli_commands().get(name)


@click.command(
    cls=CommandTable,
    entries=COMMANDS,
    invoke_without_command=True,
    subcommand_metavar='["QUESTION" | COMMAND [ARGS]...]',
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--set",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    help="Override a setting; may be repeated.",
)
@click.option("-V", "--version", "show_version", is_flag=True, help="Show the version and exit.")
@click.option("-q", "--query", metavar="TEXT", help="Ask once, print the answer and exit.")
@json_option
@tui.opening_options
@click.pass_context
def hermes(
    ctx: click.Context,
    overrides: tuple[str, ...],
    show_version: bool,
    query: str | None,
    **opening: object,
) -> int | None:
    """A personal AI agent whose conversations survive whatever happens to the process.

    Without a command: start chatting, in the terminal UI if this terminal can show it. With a question
    in quotes: print its answer.
    """
    app = ctx.ensure_object(App)
    app.overrides = overrides
    if show_version:
        app.print_version()
        ctx.exit()
    if ctx.invoked_subcommand is None:
        return _chat(ctx, query, opening)
    if query is not None or any(opening.values()):
        raise click.UsageError("Put these options after the command.", ctx)
    return None


def _chat(ctx: click.Context, query: str | None, opening: dict[str, object]) -> int:
    """Answer a question, or open the terminal UI; line mode without a terminal or without the UI."""
    app = ctx.ensure_object(App)
    if app.as_json:
        app.keep_output(ctx)
    if query is None and interface.is_possible() and not app.as_json:
        if interface.is_first_run() and not any(opening.values()):
            importlib.import_module("hermes_cli.commands.setup").offer(app)
        if interface.is_installed():
            return ctx.invoke(tui.command, **opening)
        click.echo(f"This is line mode. For the terminal UI: {interface.install_hint()}", err=True)
    chat = importlib.import_module("hermes_cli.commands.chat")
    return ctx.invoke(chat.command, query=query, **opening)


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
        app.as_json = app.as_json or "--json" in arguments  # it may come after the mistake
        _report(app, "usage", error.format_message(), _usage_hint(error))
        return error.exit_code
    except HermesError as error:
        _report(app, error.code, error.message, error.fix)
        return error.exit_status
    except BrokenPipeError:
        sys.stderr.close()
        return EXIT_FAILURE
    except (SystemExit, KeyboardInterrupt):
        raise
    except UnicodeEncodeError as error:  # an argument that is not text
        _report(app, "usage", f"{error.object!r} is not valid UTF-8.", "Use UTF-8.")
        return EXIT_USAGE
    except OSError as error:  # such as a read-only folder or a full disk
        _log(app, arguments, error)
        _report(app, "system", f"{_named(error)}.", "")
        return EXIT_FAILURE
    except BaseException as error:  # noqa: BLE001 -- last boundary: log, report, exit
        fix = _log(app, arguments, error)
        _report(app, "internal", f"Unexpected error: {describe_error(error)}.", fix)
        return EXIT_FAILURE
    return outcome if isinstance(outcome, int) else 0


def _named(error: OSError) -> str:
    """Return the reason of the system, and the file."""
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else reason


def _log(app: App, arguments: Sequence[str], error: BaseException) -> str:
    """Log the traceback; return where it is, or why logging failed."""
    try:
        log.set_up(app.home.logs, "info")
    except HermesError as failure:
        return f"Could not write the log. {failure}"
    logger.error("Unexpected error in: hermes %s", " ".join(arguments), exc_info=error)
    return f"See the traceback in {app.home.logs / log.FILE}."


def _usage_hint(error: click.ClickException) -> str:
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"Try '{error.ctx.command_path} --help'."
    return ""


def _report(app: App, code: str, message: str, fix: str) -> None:
    message = without_passwords(message)
    if app.as_json:
        error = {"error": {"code": code, "message": message, "fix": fix}}
        click.echo(msgspec.json.encode(error), err=True)
        return
    for text, indent in ((f"hermes: {message}", ""), (fix, "        ")):
        if text:
            click.echo(_wrapped(text, indent) if sys.stderr.isatty() else indent + text, err=True)


def _wrapped(text: str, indent: str) -> str:
    """Wrap at words; terminals wrap within them."""
    columns = shutil.get_terminal_size().columns - 1
    return click.wrap_text(text, columns, initial_indent=indent, subsequent_indent="        ")
