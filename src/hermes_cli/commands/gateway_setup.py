"""`hermes gateway setup` and `platforms`: configure a platform and test it."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Collection, Generator
from typing import Any, get_args
from uuid import uuid4

import click
import msgspec

from gateway.access import Access
from gateway.config import Platform
from gateway.locks import AccountLock, AccountUsedError
from gateway.platforms import registry
from gateway.platforms.base import (
    BasePlatformAdapter,
    Manifest,
    MessageEvent,
    PlatformError,
    Receipt,
    StoredTurn,
    TurnResult,
)
from gateway.source import SessionSource
from hermes_cli import plugins
from hermes_cli.commands import table
from hermes_cli.commands.app import App, json_option, pass_app
from hermes_core import config, log
from hermes_core.errors import HermesError, StoreError, UsageError
from hermes_core.secrets import is_secret_name
from hermes_state.values import Role

_MESSAGE_TIMEOUT_S = 300.0
_GREETING = "Hello, this is Hermes. The connection works."


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
    app.say(table.render(("Platform", "State", "Title", "After a crash while sending"), rows))


@click.command("setup")
@click.argument("platform", required=False)
@click.option(
    "--set",
    "assignments",
    metavar="KEY=VALUE",
    multiple=True,
    help="Set this instead of asking; may be repeated.",
)
@click.option("--greet/--no-greet", default=True, help="Wait for your first message and answer it.")
@pass_app
def setup(app: App, platform: str | None, assignments: tuple[str, ...], greet: bool) -> int:
    """Ask for the settings of PLATFORM, test the connection, and write them to config.toml."""
    plugins.load_enabled(app.home, app.settings)
    choices = click.Choice(sorted(registry.manifests()))
    name = platform or click.prompt("Platform", type=choices)
    manifest = registry.find(name)
    values = _values(manifest, dict(app.settings.gateway.platforms.get(name, {})), assignments)
    settings = registry.settings_of(manifest, values)
    values = _converted(values, settings)
    app.home.create()
    log.set_up(app.home.logs, app.settings.log.level)

    def write() -> None:
        tables = config.load(app.home).gateway.platforms  # may have changed meanwhile
        config.change(app.home, "gateway.platforms", {**tables, name: {**values, "enabled": True}})
        app.say(f"Wrote the settings of {manifest.title} to {app.home.config}.")

    with _account(manifest, settings):
        adapter = registry.make(manifest, settings, app.home)
        asyncio.run(_test(app, manifest, adapter, write, greet=greet))
    app.say("Start the gateway with: hermes gateway start")
    return 0


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


def _values(
    manifest: Manifest, values: dict[str, Any], assignments: tuple[str, ...]
) -> dict[str, Any]:
    """Collect the settings: from --set, from config.toml and the environment, and by asking."""
    for text in assignments:
        key, mark, value = text.partition("=")
        if not mark:
            raise UsageError(f"{text!r} is not KEY=VALUE.", fix="Write --set KEY=VALUE.")
        _check(manifest, key, value)
        _put(values, key.split("."), value)
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
                f"{key}: using {variables[key]} from the environment; not written to config.toml."
            )
            continue
        is_optional = _is_optional(manifest, field, {**values, **environment})
        if not is_optional and (answer := _prompt(field)) != "":
            values[key] = answer
    for key in manifest.tables:
        if not values.get(key):
            values[key] = _prompt_table(manifest, key, {*values, *environment})
    return values


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


def _prompt(field: msgspec.structs.FieldInfo) -> str:
    """Ask for a setting; an optional one may be empty, also when stdin is closed."""
    try:
        return click.prompt(
            _question(field.encode_name, field.type),
            default=None if field.required else "",
            show_default=False,
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


async def _test(
    app: App,
    manifest: Manifest,
    adapter: BasePlatformAdapter,
    write: Callable[[], None],
    *,
    greet: bool,
) -> None:
    """Connect, write the settings and greet the first sender. Raises PlatformError."""
    events: _Events = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def lost(error: PlatformError) -> None:
        loop.call_soon_threadsafe(events.put_nowait, error)

    adapter.set_ingress(_SetupIngress(events), lost)
    try:
        await adapter.connect()
        app.say(f"{manifest.title}: connected.")
        write()
        if address := adapter.address():
            app.say(f"{address}.")
        elif greet:
            source, message_id = await _first_message(app, events)
            await _greet(app, manifest, adapter, source, message_id)
    except TimeoutError:
        app.say("No message arrived. The settings are saved; write again when the gateway runs.")
    except _Skipped:
        app.say("Skipped.")
    finally:
        await adapter.disconnect()


async def _first_message(app: App, events: "_Events") -> tuple[SessionSource, str | None]:
    """Wait for the first message. Raises PlatformError, TimeoutError, and _Skipped after Ctrl-C."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, events.put_nowait, _Skipped())
    app.say("Send the bot a message now (Ctrl-C to skip) …")
    try:
        async with asyncio.timeout(_MESSAGE_TIMEOUT_S):
            while True:
                event = await events.get()
                if isinstance(event, Exception):
                    raise event
                if event.source is not None:
                    return event.source, event.message_id
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def _greet(
    app: App,
    manifest: Manifest,
    adapter: BasePlatformAdapter,
    source: SessionSource,
    message_id: str | None,
) -> None:
    sender = f"{source.user_name or source.user_id} ({source.user_id})"
    role = _role(app, manifest, source)
    if role is None and not manifest.greets_strangers:
        app.say(
            f"Got a message from {sender}. Hermes does not answer strangers there: add them to"
            " gateway.owners."
        )
        return
    sent = await adapter.send(source.chat_id, _GREETING, message_id, {"key": uuid4().hex})
    if not sent.success:
        raise PlatformError(f"Could not send the greeting: {sent.error}.")
    app.say(f"Got a message from {sender} and answered it.")
    if role is None:
        app.say(
            "When the gateway runs, it sends them a pairing code. Let them in with:"
            " hermes gateway pair CODE"
        )
    else:
        app.say(f"They already have access as {role}.")


def _role(app: App, manifest: Manifest, source: SessionSource) -> Role | None:
    """Return the role of a sender, or None without access."""
    with app.store() as store:
        trusted = [] if manifest.needs_pairing else [manifest.name]
        return Access(store, app.settings, trusted).role_of(source)


class _Skipped(Exception):
    """The user skips the test message."""


_Events = asyncio.Queue[MessageEvent | PlatformError | _Skipped]


class _SetupIngress:
    """An ingress that only reports messages and accepts none: the gateway gets them later."""

    def __init__(self, events: _Events) -> None:
        self._events = events

    async def accept(self, event: MessageEvent) -> Receipt:
        self._events.put_nowait(event)
        raise _rejection()

    async def moved(self, platform: Platform, old_chat: str, new_chat: str) -> None:
        del platform, old_chat, new_chat
        raise _rejection()

    def watch(self, turn_id: str) -> Any:  # noqa: ANN401 -- never called
        raise HermesError(f"There is no turn {turn_id}.")

    async def find_turn(self, turn_id: str, reader: SessionSource) -> StoredTurn:
        raise HermesError(f"There is no turn {turn_id}.")

    async def delete_turn(self, turn_id: str, reader: SessionSource) -> None:
        raise HermesError(f"There is no turn {turn_id}.")

    async def wait_for_result(self, turn_id: str) -> TurnResult:
        raise HermesError(f"There is no turn {turn_id}.")

    async def stop(self, turn_id: str) -> None:
        del turn_id

    async def may_invite(self, source: SessionSource) -> bool:
        del source
        return True  # the person at the terminal waits for this message

    async def check_health(self) -> None:
        """There is no store to check."""

    async def models(self) -> list[str]:
        return []


def _rejection() -> StoreError:
    """Return the error that keeps an adapter from acknowledging a message."""
    return StoreError("Setup accepts no messages; the gateway does when it runs.")
