"""`hermes attach`: open a conversation of a running server on this terminal."""

import importlib
import os
from functools import partial
from typing import TYPE_CHECKING

import click
import msgspec

from hermes_cli import interface
from hermes_cli.commands.app import App, pass_app
from hermes_core import config
from hermes_core.errors import ConfigError
from hermes_core.paths import Home

if TYPE_CHECKING:
    from hermes_tui.transport import Transport

_START = "Start one with: hermes serve"
_NONE = (
    "No server is running. (A conversation of the gateway needs none: open it with `hermes -r ID`.)"
)


class Address(msgspec.Struct, frozen=True):
    """Address and token of a running server."""

    url: str
    token: str
    pid: int = 0


@click.command("attach")
@click.argument("name", metavar="[ID]", default="")
@pass_app
def command(app: App, name: str) -> int:
    """Open a conversation of `hermes serve`: by ID or title, or the last active one.

    Quitting does not end it; several terminals can have it open at the same time.
    """
    config.refuse_in_command("attach to a server")
    find(app.home)  # report a missing server before the UI starts
    opening = importlib.import_module("hermes_tui.opening").Opening(live=name)
    return interface.run(app.home, partial(connect, app.home), opening)


async def connect(home: Home) -> "Transport":
    """Connect to the current server, whose address and token change with each start.

    Raises ConnectionError when there is none.
    """
    transport = importlib.import_module("hermes_tui.websocket").WebSocketTransport
    try:
        address = find(home)
    except ConfigError as error:
        raise ConnectionError(str(error)) from error
    return await transport.connect(address.url, address.token)


def find(home: Home) -> Address:
    """Return the address of this home's server. Raises ConfigError when there is none."""
    path = home.root / "tui_gateway.json"
    try:
        address = msgspec.json.decode(path.read_bytes(), type=Address)
    except FileNotFoundError as error:
        raise ConfigError(_NONE, fix=_START) from error
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"Cannot read {path}: {error}.", fix=_START) from error
    if not _is_alive(address.pid):
        raise ConfigError("The server has ended.", fix=_START)
    return address


def _is_alive(pid: int) -> bool:
    """Return whether a process exists, also of another user."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
