"""`hermes gateway setup` and `platforms`: configure a platform and test it."""

import contextlib
from collections.abc import Collection, Generator
from typing import Any, get_args

import click
import msgspec

from gateway import status
from gateway.locks import AccountLock, AccountUsedError
from gateway.platforms import registry
from gateway.platforms.base import Manifest, PlatformError
from hermes_cli import plugins
from hermes_cli.commands import gateway, gateway_service, table
from hermes_cli.commands.app import App, is_interactive, json_option, pass_app
from hermes_cli.commands.gateway_connect import connect
from hermes_cli.commands.table import Column
from hermes_core import config, log
from hermes_core.errors import ConfigError, HermesError, UsageError
from hermes_core.secrets import is_secret_name

_STARTS = ("service", "background", "no")


@click.command("platforms")
@json_option
@pass_app
def platforms(app: App) -> None:
    """List the platforms, whether each is on, and its delivery guarantee."""
    plugins.load_enabled(app.home, app.settings)
    on = app.settings.gateway.platforms
    rows = [
        (
            manifest.name,
            "on" if on.get(manifest.name, {"enabled": False}).get("enabled", True) else "off",
            manifest.title,
            manifest.guarantee,
        )
        for _, manifest in sorted(registry.manifests().items())
    ]
    if app.as_json:
        keys = ("name", "state", "title", "guarantee")
        app.emit([dict(zip(keys, row, strict=True)) for row in rows])
        return
    columns = ("PLATFORM", "STATE", Column("TITLE", wraps=True), "AFTER A CRASH WHILE SENDING")
    table.show(app, columns, rows)


@click.command("setup")
@click.argument("platform", required=False)
@click.option(
    "--set",
    "assignments",
    metavar="KEY=VALUE",
    multiple=True,
    help="Set this instead of asking; may be repeated.",
)
@click.option(
    "--greet/--no-greet",
    default=True,
    help="Wait for your first message, answer it, and make you the owner.",
)
@click.option(
    "--start",
    type=click.Choice(_STARTS),
    help="Start the gateway afterwards; without a terminal, the default is no.",
)
@click.pass_context
def setup(
    ctx: click.Context,
    platform: str | None,
    assignments: tuple[str, ...],
    greet: bool,
    start: str | None,
) -> int:
    """Set up PLATFORM: ask for its settings, test them, and let you in.

    The settings are written to config.toml once the connection works. Send the bot the code that is
    shown, and you are its owner.
    """
    app = ctx.ensure_object(App)
    plugins.load_enabled(app.home, app.settings)
    manifest = registry.find(platform or _choose_platform(app))
    app.home.create()
    log.set_up(app.home.logs, app.settings.log.level)
    answers = _Answers(app, manifest, assignments)
    while True:
        values = answers.collect()
        try:
            settings = registry.settings_of(manifest, values)
        except ConfigError as error:
            answers.forget_after(error)
            continue
        try:
            _connect(app, manifest, values, settings, greet=greet)
            break
        except PlatformError as error:
            if not error.is_fatal:
                raise
            answers.forget_after(error)
    return _start(ctx, app, manifest, start)


def _choose_platform(app: App) -> str:
    manifests = registry.manifests()
    if not is_interactive():
        raise UsageError(
            "Name the platform to set up.", fix=f"Use one of: {', '.join(sorted(manifests))}."
        )
    rows = [(name, manifest.title) for name, manifest in sorted(manifests.items())]
    table.show(app, ("PLATFORM", "TITLE"), rows)
    return click.prompt("Platform", type=click.Choice(sorted(manifests)), default="telegram")


def _connect(
    app: App,
    manifest: Manifest,
    values: dict[str, Any],
    settings: Any,  # noqa: ANN401 -- the platform's own
    *,
    greet: bool,
) -> None:
    """Test the settings, write them, and let in the person at the terminal."""
    values = _converted(values, settings)

    def write() -> None:
        tables = config.load(app.home).gateway.platforms  # may have changed meanwhile
        entry = {**values, "enabled": True}
        config.change(app.home, "gateway.platforms", {**tables, manifest.name: entry})
        app.say(f"Wrote the settings of {manifest.title} to {app.home.config}.")

    with _account(manifest, settings):
        adapter = registry.make(manifest, settings, app.home)
        connect(app, manifest, adapter, write, greet=greet, can_ask=is_interactive())


def _start(ctx: click.Context, app: App, manifest: Manifest, choice: str | None) -> int:
    """Start the gateway, or have it started with the session, as the person chooses."""
    running = status.get_running_pid()
    if choice is None and is_interactive():
        choice = _ask_restart(manifest) if running else _ask_start(app)
    if choice in (None, "no"):
        app.say(f"Start the gateway with: hermes gateway {'restart' if running else 'start'}")
        return 0
    if choice == "service":
        try:
            return ctx.invoke(gateway_service.install)
        except UsageError as error:
            app.say(f"{error.message} It is started in the background instead.")
    return ctx.invoke(gateway.restart if running else gateway.start)


def _ask_start(app: App) -> str:
    app.say("\nThe gateway answers messages while it runs. Start it now?")
    if gateway_service.is_available():
        app.say("  service      now, and whenever you log in (systemd)")
    app.say("  background   now, until the machine restarts\n  no           later")
    default = "service" if gateway_service.is_available() else "background"
    return click.prompt("Start", type=click.Choice(_STARTS), default=default, show_choices=False)


def _ask_restart(manifest: Manifest) -> str:
    question = f"The gateway is running. Restart it, so that it uses {manifest.title}?"
    return "background" if click.confirm(question, default=True) else "no"


@contextlib.contextmanager
def _account(manifest: Manifest, settings: Any) -> Generator[None]:  # noqa: ANN401 -- the platform's own
    """Lock the account: two listeners would take messages away from each other."""
    lock = AccountLock(manifest.name, registry.account_of(manifest, settings), "setup")
    try:
        lock.take()
    except AccountUsedError as error:
        raise PlatformError(
            f"{error.message} Nothing was tested or written.",
            fix="Stop it with hermes gateway stop in its home, then run setup again.",
        ) from None
    try:
        yield
    finally:
        lock.release()


class _Answers:
    """The settings of a platform: from --set, config.toml and the environment, and by asking."""

    def __init__(self, app: App, manifest: Manifest, assignments: tuple[str, ...]) -> None:
        self._app = app
        self._manifest = manifest
        self._values = dict(app.settings.gateway.platforms.get(manifest.name, {}))
        for text in assignments:
            key, mark, value = text.partition("=")
            if not mark:
                raise UsageError(f"{text!r} is not KEY=VALUE.", fix="Write --set KEY=VALUE.")
            _check(manifest, key, value)
            _put(self._values, key.split("."), value)
        self._typed: dict[str, str] = {}
        """What was typed last, by setting; a secret is typed anew when it is wrong."""
        self._is_guided = False

    def forget_after(self, error: HermesError) -> None:
        """Ask again for what was typed; raise the error when that cannot help."""
        if not (self._typed and is_interactive()):
            raise error
        self._app.say(f"\n{error.message} Try again, or press Ctrl+C to stop.\n")
        for key in self._typed:
            self._values.pop(key, None)

    def collect(self) -> dict[str, Any]:
        """Return the settings, after asking for those that are missing."""
        manifest, values = self._manifest, self._values
        variables = {key: variable for variable, key in manifest.variables.items()}
        environment = {
            key: value for key, name in variables.items() if (value := config.variable(name))
        }
        for field in msgspec.structs.fields(manifest.settings):
            key = field.encode_name
            if key in values or not (field.required or key in variables):
                continue
            if key in environment:
                click.echo(
                    f"{key}: using {variables[key]} from the environment; not written to"
                    " config.toml."
                )
                continue
            if not _is_optional(manifest, field, {**values, **environment}):
                self._ask(field)
        for key in manifest.tables:
            if not values.get(key):
                values[key] = _prompt_table(manifest, key, {*values, *environment})
        return values

    def _ask(self, field: msgspec.structs.FieldInfo) -> None:
        if not self._is_guided and is_interactive():
            self._is_guided = True
            for line in self._manifest.guide:
                self._app.say(line)
        key = field.encode_name
        default = "" if is_secret_name(key) else self._typed.get(key, "")
        if (answer := _prompt(field, default)) != "":
            self._values[key] = self._typed[key] = answer


def _check(manifest: Manifest, key: str, value: str) -> None:
    """Reject an unknown setting or a value of the wrong type."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(manifest.settings)}
    first, _, rest = key.partition(".")
    if first not in fields:
        raise UsageError(
            f"{manifest.title} has no setting {first!r}.", fix=f"Use one of: {', '.join(fields)}."
        )
    try:
        if not rest:
            msgspec.convert(value, fields[first].type, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"Invalid value {value!r} for {first}: {error}.",
            fix=_question(first, fields[first].type),
        ) from None


def _is_optional(
    manifest: Manifest, field: msgspec.structs.FieldInfo, values: dict[str, Any]
) -> bool:
    """Return whether another credential replaces this one, such as a token the password."""
    fields = msgspec.structs.fields(manifest.settings)
    names = {other.encode_name for other in fields if other.required}
    required = {key: value for key, value in values.items() if key in names}
    is_alternative = not field.required and not _is_complete(manifest, required)
    return is_alternative and _is_complete(manifest, values)


def _is_complete(manifest: Manifest, values: dict[str, Any]) -> bool:
    own = {key: value for key, value in values.items() if key != "enabled"}
    try:
        msgspec.convert(own, manifest.settings, strict=False)
    except msgspec.ValidationError:
        return False
    return True


def _put(values: dict[str, Any], path: list[str], value: str) -> None:
    """Set a value, in nested tables if the path has several keys."""
    *tables, key = path
    for name in tables:
        values[name] = dict(values.get(name, {}))
        values = values[name]
    values[key] = value


def _prompt_table(
    manifest: Manifest, key: str, present: Collection[str]
) -> dict[str, dict[str, Any]]:
    """Ask for the first of several tables, such as a hook: its name and required settings.

    A secret that the platform itself has is not asked for again.
    """
    field = next(f for f in msgspec.structs.fields(manifest.settings) if f.encode_name == key)
    name = click.prompt(f"Name of the first of: {_question(key, field.type)}")
    (_, kind) = get_args(get_args(field.type)[0])
    answers = {
        inner.encode_name: _prompt(inner)
        for inner in msgspec.structs.fields(kind)
        if inner.required
        or (is_secret_name(inner.encode_name) and inner.encode_name not in present)
    }
    return {name: {key: answer for key, answer in answers.items() if answer != ""}}


def _prompt(field: msgspec.structs.FieldInfo, default: str = "") -> str:
    """Ask for a setting; an optional one may be empty, also when stdin is closed."""
    try:
        return click.prompt(
            _question(field.encode_name, field.type),
            default=default or (None if field.required else ""),
            show_default=bool(default),
            hide_input=is_secret_name(field.encode_name),
        )
    except click.Abort as stop:
        if not isinstance(stop.__context__, EOFError):
            raise  # Ctrl-C
        click.echo()
        if field.required:
            raise UsageError(
                f"{field.encode_name} is required, and there is no terminal to ask for it.",
                fix=f"Add --set {field.encode_name}=VALUE.",
            ) from None
        return ""


def _converted(values: dict[str, Any], settings: Any) -> dict[str, Any]:  # noqa: ANN401 -- as above
    """Convert typed text to numbers and booleans."""
    parsed: dict[str, Any] = msgspec.to_builtins(settings, enc_hook=str)
    return {
        key: parsed[key] if isinstance(parsed.get(key), bool | int | float) else value
        for key, value in values.items()
    }


def _question(key: str, kind: Any) -> str:  # noqa: ANN401 -- a type
    about = next((m.description for m in get_args(kind)[1:] if hasattr(m, "description")), "")
    return f"{key} ({about.rstrip('.')})" if about else key
