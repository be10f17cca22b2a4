"""`hermes gateway setup` and `platforms`: add a platform, try it, and say hello."""

import asyncio
from typing import Any, get_args

import click
import msgspec

from gateway.config import Platform
from gateway.platforms import registry
from gateway.platforms.base import (
    BasePlatformAdapter,
    Ended,
    Manifest,
    MessageEvent,
    PlatformError,
    Receipt,
)
from hermes_cli import plugins
from hermes_cli.commands import table
from hermes_cli.commands.app import App, json_option, pass_app
from hermes_core import config
from hermes_core.errors import HermesError, UsageError

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
    settings = registry.settings_of(manifest, {k: v for k, v in values.items() if k != "enabled"})
    app.home.create()
    adapter = registry.make(manifest, settings, app.home)
    asyncio.run(_try(app, manifest, adapter, greet=greet))
    tables = {**app.settings.gateway.platforms, name: {**values, "enabled": True}}
    config.change(app.home, "gateway.platforms", tables)
    app.say(f"{manifest.title} is in {app.home.config}. Start the gateway: hermes gateway start")
    return 0


def _values(manifest: Manifest, values: dict[str, Any], given: tuple[str, ...]) -> dict[str, Any]:
    """The settings of a platform: what was given, what is known, and what a person types."""
    for text in given:
        key, mark, value = text.partition("=")
        if not mark:
            raise UsageError(f"{text!r} is no setting.", fix="Write --set KEY=VALUE.")
        values[key] = value
    from_environment = {
        key: variable for variable, key in manifest.variables.items() if config.variable(variable)
    }
    for field in msgspec.structs.fields(manifest.settings):
        key = field.encode_name
        if key in values or not (field.required or key in manifest.variables.values()):
            continue
        if key in from_environment:
            click.echo(f"{key}: taken from {from_environment[key]}, and not written down.")
            continue
        typed = click.prompt(
            _question(key, field.type),
            default=None if field.required else "",
            show_default=False,
            hide_input=config.is_secret_name(key),
        )
        if typed != "":
            values[key] = typed
    return values


def _question(key: str, kind: Any) -> str:  # noqa: ANN401 -- a type
    says = next((one.description for one in get_args(kind)[1:] if hasattr(one, "description")), "")
    return f"{key} ({says.rstrip('.')})" if says else key


async def _try(app: App, manifest: Manifest, adapter: BasePlatformAdapter, *, greet: bool) -> None:
    """Connect; on request wait for the first message and answer it. Raises PlatformError."""
    heard: asyncio.Queue[MessageEvent] = asyncio.Queue()
    adapter.set_desk(_Listening(heard))
    try:
        await adapter.connect()
        app.say(f"{manifest.title}: connected.")
        if greet and not adapter.abilities.answers_in_place:
            app.say("Write something to the bot now (Ctrl-C skips this) …")
            async with asyncio.timeout(_PATIENCE_S):
                event = await heard.get()
            await _greet(app, adapter, event)
    except TimeoutError:
        app.say("Nothing came. That is all right; try again when the gateway runs.")
    finally:
        await adapter.disconnect()


async def _greet(app: App, adapter: BasePlatformAdapter, event: MessageEvent) -> None:
    if event.source is None:
        return
    sent = await adapter.send(event.source.chat_id, _GREETING, event.message_id)
    if not sent.success:
        raise PlatformError(f"The greeting could not be sent: {sent.error}.")
    who = event.source.user_name or event.source.user_id
    app.say(f"{who} ({event.source.user_id}) wrote, and was greeted.")
    app.say("When the gateway runs, they are shown a code: hermes gateway pair CODE")


class _Listening:
    """A desk that takes nothing in: it only tells that somebody wrote."""

    def __init__(self, heard: "asyncio.Queue[MessageEvent]") -> None:
        self._heard = heard

    async def accept(self, event: MessageEvent) -> Receipt:
        self._heard.put_nowait(event)
        return Receipt("ignored")

    async def moved(self, platform: Platform, old_chat: str, new_chat: str) -> None:
        del platform, old_chat, new_chat

    def watch(self, turn_id: str) -> Any:  # noqa: ANN401 -- nobody asks
        raise HermesError(f"There is no turn {turn_id}.")

    async def ended(self, turn_id: str) -> Ended:
        raise HermesError(f"There is no turn {turn_id}.")

    async def stop(self, turn_id: str) -> None:
        del turn_id

    async def models(self) -> list[str]:
        return []
