"""`hermes gateway setup` and `platforms`: add a platform, try it, and say hello."""

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
from hermes_state.values import Role

_PATIENCE_S = 300.0
_GREETING = "Hello. This is Hermes; I can hear and answer you here."


@click.command("platforms")
@json_option
@pass_app
def platforms(app: App) -> None:
    """Show the platforms there are, which are on, and what each one guarantees."""
    plugins.load_enabled(app.home, app.settings)
    on = app.settings.gateway.platforms
    rows = [
        (
            one.name,
            "on" if on.get(one.name, {"enabled": False}).get("enabled", True) else "off",
            one.title,
            one.guarantee,
        )
        for one in sorted(registry.manifests().values(), key=lambda one: one.name)
    ]
    if app.as_json:
        keys = ("name", "state", "title", "guarantee")
        app.emit([dict(zip(keys, row, strict=True)) for row in rows])
        return
    app.say(
        table.render(("Platform", "State", "Title", "If the process dies while it sends"), rows)
    )


@click.command("setup")
@click.argument("platform", required=False)
@click.option(
    "--set", "given", metavar="KEY=VALUE", multiple=True, help="A setting; others are asked for."
)
@click.option("--greet/--no-greet", default=True, help="Wait for a message and say hello.")
@pass_app
def setup(app: App, platform: str | None, given: tuple[str, ...], greet: bool) -> int:
    """Ask for what PLATFORM needs, try it, write it to config.toml, and say hello to you."""
    plugins.load_enabled(app.home, app.settings)
    known = registry.manifests()
    name = platform or click.prompt("Platform", type=click.Choice(sorted(known)))
    manifest = registry.find(name)
    values = _values(manifest, dict(app.settings.gateway.platforms.get(name, {})), given)
    settings = registry.settings_of(manifest, values)
    values = _typed(values, settings)
    app.home.create()
    log.set_up(app.home.logs, app.settings.log.level)

    def write() -> None:
        tables = config.load(app.home).gateway.platforms  # others may have written meanwhile
        config.change(app.home, "gateway.platforms", {**tables, name: {**values, "enabled": True}})
        app.say(f"{manifest.title} is in {app.home.config}.")

    with _account(manifest, settings):
        adapter = registry.make(manifest, settings, app.home)
        asyncio.run(_try(app, manifest, adapter, write, greet=greet))
    app.say("Start the gateway: hermes gateway start")
    return 0


@contextlib.contextmanager
def _account(manifest: Manifest, settings: Any) -> Generator[None]:  # noqa: ANN401 -- the platform's own
    """Have the account to ourselves: two that listen take messages away from each other."""
    lock = AccountLock(manifest.name, registry.account_of(manifest, settings), "setup")
    try:
        lock.take()
    except AccountUsedError as error:
        raise PlatformError(
            f"{error.message} It is not tried, and nothing is written, while that one runs.",
            fix="End it with hermes gateway stop in its home, then set up again.",
        ) from None
    try:
        yield
    finally:
        lock.release()


def _values(manifest: Manifest, values: dict[str, Any], given: tuple[str, ...]) -> dict[str, Any]:
    """The settings of a platform: what was given, what is known, and what a person types."""
    for text in given:
        key, mark, value = text.partition("=")
        if not mark:
            raise UsageError(f"{text!r} is no setting.", fix="Write --set KEY=VALUE.")
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
            click.echo(f"{key}: taken from {variables[key]}, and not written down.")
            continue
        is_spared = _is_spared(manifest, field, {**values, **environment})
        if not is_spared and (typed := _asked(field)) != "":
            values[key] = typed
    for key in manifest.tables:
        if not values.get(key):
            values[key] = _first_table(manifest, key, {*values, *environment})
    return values


def _check(manifest: Manifest, key: str, value: str) -> None:
    """Refuse a setting that the platform does not have, or that is none of its kind."""
    fields = {one.encode_name: one for one in msgspec.structs.fields(manifest.settings)}
    first, _, rest = key.partition(".")
    if first not in fields:
        raise UsageError(
            f"{manifest.title} has no setting {first!r}.", fix=f"It takes {', '.join(fields)}."
        )
    try:
        if not rest:
            msgspec.convert(value, fields[first].type, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{first} cannot be {value!r}: {error}.", fix=_question(first, fields[first].type)
        ) from None


def _is_spared(
    manifest: Manifest, field: msgspec.structs.FieldInfo, values: dict[str, Any]
) -> bool:
    """Return whether a setting may be skipped, since another credential is given: a token or a password,
    for example.
    """
    fields = msgspec.structs.fields(manifest.settings)
    needed = {one.encode_name for one in fields if one.required}
    least = {key: value for key, value in values.items() if key in needed}
    is_one_of_several = not field.required and not _is_enough(manifest, least)
    return is_one_of_several and _is_enough(manifest, values)


def _is_enough(manifest: Manifest, values: dict[str, Any]) -> bool:
    own = {key: value for key, value in values.items() if key != "enabled"}
    try:
        msgspec.convert(own, manifest.settings, strict=False)
    except msgspec.ValidationError:
        return False
    return True


def _put(values: dict[str, Any], path: list[str], value: str) -> None:
    """Set a value; a key with dots stands in a table of a table."""
    *tables, key = path
    for name in tables:
        values[name] = dict(values.get(name, {}))
        values = values[name]
    values[key] = value


def _first_table(manifest: Manifest, key: str, known: Collection[str]) -> dict[str, dict[str, Any]]:
    """The first of the tables of which a platform must have one: its name, and what it cannot do
    without. A secret that the platform itself has need not be said again.
    """
    field = next(f for f in msgspec.structs.fields(manifest.settings) if f.encode_name == key)
    name = click.prompt(f"Name of the first of the {_question(key, field.type)}")
    (_, kind) = get_args(get_args(field.type)[0])
    needed = [
        one
        for one in msgspec.structs.fields(kind)
        if one.required or (config.is_secret_name(one.encode_name) and one.encode_name not in known)
    ]
    asked = {one.encode_name: _asked(one) for one in needed}
    return {name: {key: typed for key, typed in asked.items() if typed != ""}}


def _asked(field: msgspec.structs.FieldInfo) -> str:
    """Return what a person types for a setting; empty where it is not needed or nobody is there."""
    try:
        return click.prompt(
            _question(field.encode_name, field.type),
            default=None if field.required else "",
            show_default=False,
            hide_input=config.is_secret_name(field.encode_name),
        )
    except click.Abort as stop:
        if not isinstance(stop.__context__, EOFError):
            raise  # Ctrl-C
        click.echo()
        if field.required:
            raise UsageError(
                f"{field.encode_name} is needed, and nobody is there to type it.",
                fix=f"Give --set {field.encode_name}=VALUE.",
            ) from None
        return ""


def _typed(values: dict[str, Any], settings: Any) -> dict[str, Any]:  # noqa: ANN401 -- as above
    """Numbers and switches as such, though they were typed as text."""
    read: dict[str, Any] = msgspec.to_builtins(settings, enc_hook=str)
    return {
        key: read[key] if isinstance(read.get(key), bool | int | float) else value
        for key, value in values.items()
    }


def _question(key: str, kind: Any) -> str:  # noqa: ANN401 -- a type
    says = next((one.description for one in get_args(kind)[1:] if hasattr(one, "description")), "")
    return f"{key} ({says.rstrip('.')})" if says else key


async def _try(
    app: App,
    manifest: Manifest,
    adapter: BasePlatformAdapter,
    write: Callable[[], None],
    *,
    greet: bool,
) -> None:
    """Connect and write the settings; on request greet who writes first. Raises PlatformError."""
    news: _News = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def lost(error: PlatformError) -> None:
        loop.call_soon_threadsafe(news.put_nowait, error)

    adapter.set_ingress(_Listening(news), lost)
    try:
        await adapter.connect()
        app.say(f"{manifest.title}: connected.")
        write()
        if address := adapter.address():
            app.say(f"{address}.")
        elif greet:
            source, message_id = await _first(app, news)
            await _greet(app, manifest, adapter, source, message_id)
    except TimeoutError:
        app.say("Nothing came. That is all right; try again when the gateway runs.")
    except _Skipped:
        app.say("Skipped.")
    finally:
        await adapter.disconnect()


async def _first(app: App, news: "_News") -> tuple[SessionSource, str | None]:
    """The first message that comes; raises PlatformError, TimeoutError and, after Ctrl-C, _Skipped."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, news.put_nowait, _Skipped())
    app.say("Write something to the bot now (Ctrl-C skips this) …")
    try:
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                heard = await news.get()
                if isinstance(heard, Exception):
                    raise heard
                if heard.source is not None:
                    return heard.source, heard.message_id
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def _greet(
    app: App,
    manifest: Manifest,
    adapter: BasePlatformAdapter,
    source: SessionSource,
    message_id: str | None,
) -> None:
    who = f"{source.user_name or source.user_id} ({source.user_id})"
    role = _role(app, manifest, source)
    if role is None and not manifest.greets_strangers:
        app.say(f"{who} wrote. Strangers are not answered there: name them in gateway.owners.")
        return
    sent = await adapter.send(source.chat_id, _GREETING, message_id, {"key": uuid4().hex})
    if not sent.success:
        raise PlatformError(f"The greeting could not be sent: {sent.error}.")
    app.say(f"{who} wrote, and was greeted. The gateway answers the message when it runs.")
    if role is None:
        app.say("They are shown a code then: hermes gateway pair CODE")
    else:
        app.say(f"They are let in already, as {role}.")


def _role(app: App, manifest: Manifest, source: SessionSource) -> Role | None:
    """As what somebody may write to the agent; None: they have to be let in first."""
    with app.store() as store:
        trusted = [] if manifest.needs_pairing else [manifest.name]
        return Access(store, app.settings, trusted).role_of(source)


class _Skipped(Exception):
    """Nobody wants to wait any longer."""


_News = asyncio.Queue[MessageEvent | PlatformError | _Skipped]


class _Listening:
    """An ingress that takes nothing in: it only tells that somebody wrote, and their message stays."""

    def __init__(self, news: _News) -> None:
        self._news = news

    async def accept(self, event: MessageEvent) -> Receipt:
        self._news.put_nowait(event)
        raise _only_looking()

    async def moved(self, platform: Platform, old_chat: str, new_chat: str) -> None:
        del platform, old_chat, new_chat
        raise _only_looking()

    def watch(self, turn_id: str) -> Any:  # noqa: ANN401 -- nobody asks
        raise HermesError(f"There is no turn {turn_id}.")

    async def find_turn(self, turn_id: str, reader: SessionSource) -> StoredTurn:
        raise HermesError(f"There is no turn {turn_id}.")

    async def delete_turn(self, turn_id: str, reader: SessionSource) -> None:
        raise HermesError(f"There is no turn {turn_id}.")

    async def wait_for_result(self, turn_id: str) -> TurnResult:
        raise HermesError(f"There is no turn {turn_id}.")

    async def stop(self, turn_id: str) -> None:
        del turn_id

    async def check_health(self) -> None:
        """There is no store to check."""

    async def models(self) -> list[str]:
        return []


def _only_looking() -> StoreError:
    """Return what keeps an adapter from acknowledging a message."""
    return StoreError("A setup only looks; the gateway takes it in when it runs.")
