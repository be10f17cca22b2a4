"""`hermes attach`: a conversation that lives in a running server, on this terminal."""

import importlib
import os
from functools import partial
from typing import TYPE_CHECKING

import click
import msgspec

from hermes_cli import interface
from hermes_cli.commands.app import App, pass_app
from hermes_core.errors import ConfigError
from hermes_core.paths import Home

if TYPE_CHECKING:
    from hermes_tui.transport import Transport

_START = "Start one: hermes serve"
_NONE = (
    "No server is running. `hermes attach` reaches `hermes serve`; a conversation of"
    " `hermes gateway run` is opened by its id: hermes -r ID."
)


class Address(msgspec.Struct, frozen=True):
    """Where a running server is, and the word that opens it."""

    url: str
    token: str
    pid: int = 0


@click.command("attach")
@click.argument("name", metavar="[ID]", default="")
@pass_app
def command(app: App, name: str) -> int:
    """Open a conversation of a running server: by ID or title, else the one active last.

    Leaving does not end it; another terminal may have it open at the same time.
    """
    find(app.home)  # that there is none is told before the terminal is taken
    opening = importlib.import_module("hermes_tui.opening").Opening(live=name)
    return interface.run(app.home, partial(connect, app.home), opening)


async def connect(home: Home) -> "Transport":
    """A connection to the server that runs now; a new one has another address and another token.

    Raises ConnectionError when there is none.
    """
    transport = importlib.import_module("hermes_tui.websocket").WebSocketTransport
    try:
        address = find(home)
    except ConfigError as error:
        raise ConnectionError(str(error)) from error
    return await transport.connect(address.url, address.token)


def find(home: Home) -> Address:
    """The server that runs for this home; raises ConfigError when there is none."""
    path = home.root / "tui_gateway.json"
    try:
        address = msgspec.json.decode(path.read_bytes(), type=Address)
    except FileNotFoundError as error:
        raise ConfigError(_NONE, fix=_START) from error
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{path} cannot be used: {error}.", fix=_START) from error
    if not _is_alive(address.pid):
        raise ConfigError("The server that was running has ended.", fix=_START)
    return address


def _is_alive(pid: int) -> bool:
    """Return whether a process is there; one that is not ours counts."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
