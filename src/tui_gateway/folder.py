"""The folder that a conversation works in: the one that a client names, or the server's own."""

from contextlib import suppress
from pathlib import Path

from hermes_protocol.errors import NO_FOLDER
from tui_gateway.protocol import RpcError

_MAX_CHARS = 200


def current() -> Path:
    """The folder of this process; its person's home when that has been removed."""
    try:
        return Path.cwd()
    except OSError:
        return Path.home()


def resolve(name: str) -> Path:
    """The folder of this name; raises RpcError when there is none."""
    with suppress(OSError, RuntimeError, ValueError):  # too long, a home of nobody, a null in it
        path = Path(name).expanduser().absolute()
        if path.is_dir():
            return path
    raise RpcError(
        NO_FOLDER, f"{name[:_MAX_CHARS]!r} is not a folder.", fix="Create it, or choose another."
    )
