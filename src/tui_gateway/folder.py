"""The folder that a client names for a conversation to work in."""

from contextlib import suppress
from pathlib import Path

from tui_gateway.protocol import NO_FOLDER, RpcError

_SHOWN = 200


def named(name: str) -> Path:
    """The folder of this name; raises RpcError when there is none."""
    with suppress(OSError, RuntimeError, ValueError):  # too long, a home of nobody, a null in it
        path = Path(name).expanduser().absolute()
        if path.is_dir():
            return path
    raise RpcError(NO_FOLDER, f"{name[:_SHOWN]!r} is no folder.", fix="Make it, or name another.")
