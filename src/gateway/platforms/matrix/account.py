"""Logs in to the homeserver, as the same device after every restart."""

import hashlib
import logging
import secrets as randomness
from pathlib import Path

import msgspec
from nio.responses import LoginResponse, WhoamiResponse

from gateway.platforms.base import PlatformError
from gateway.platforms.matrix.client import KEYS, Client
from gateway.platforms.matrix.homeserver import RequestFailed, request
from gateway.platforms.matrix.manifest import MatrixSettings
from hermes_core import secrets
from hermes_core.paths import write_private

_log = logging.getLogger(__name__)
_WHERE = "[gateway.platforms.matrix] in config.toml"


class _Device(msgspec.Struct):
    """The device of an account with a password; its token is empty before the login."""

    homeserver: str
    user: str
    device_id: str
    access_token: str = ""
    tried: str = ""
    """A digest of the password that the token belongs to; a new password is tried first."""


async def log_in(client: Client, settings: MatrixSettings, folder: Path) -> None:
    """Make the client ours; raises PlatformError, fatal when the settings are at fault."""
    secrets.register(
        {"MATRIX_PASSWORD": settings.password, "MATRIX_ACCESS_TOKEN": settings.access_token}
    )
    try:
        if settings.access_token:
            await _with_token(client, settings.access_token)
        else:
            await _with_password(client, settings, folder / "device.json")
    except RequestFailed as error:
        raise _unusable(error, settings) from error


async def _with_token(client: Client, token: str) -> None:
    client.access_token = token
    identity = await request(WhoamiResponse, client.whoami())
    if not identity.device_id:
        raise PlatformError(
            "The access token of Matrix belongs to no device, so nothing can be encrypted.",
            fix=f"Use the token of a login, or set user and password under {_WHERE}.",
            is_fatal=True,
        )
    client.restore_login(identity.user_id, identity.device_id, token)


async def _with_password(client: Client, settings: MatrixSettings, path: Path) -> None:
    device, tried = _load(path, settings), _digest(settings)
    if device.access_token and device.tried == tried:
        try:
            await _with_token(client, device.access_token)
        except RequestFailed as error:
            if not error.is_logged_out:
                raise
            _log.warning("Matrix: the previous login has ended; logging in again.")
            client.access_token = ""
            if not error.is_device_kept:  # other clients no longer accept its keys
                device = _new_device(settings)
        else:
            return
    client.user, client.device_id = settings.user, device.device_id
    # The name of the device is on disk before it exists: a crash does not leave a second one.
    write_private(path, msgspec.json.encode(device).decode())
    login = client.login(settings.password, settings.device_name)
    answer = await request(LoginResponse, login)
    device.access_token, device.tried = answer.access_token, tried
    secrets.register({"MATRIX_ACCESS_TOKEN": device.access_token})
    write_private(path, msgspec.json.encode(device).decode())


def _load(path: Path, settings: MatrixSettings) -> _Device:
    try:
        device = msgspec.json.decode(path.read_bytes(), type=_Device)
    except FileNotFoundError:
        return _new_device(settings)
    except msgspec.DecodeError:
        _log.warning("Matrix: %s cannot be read; this is a new device.", path)
        return _new_device(settings)
    secrets.register({"MATRIX_ACCESS_TOKEN": device.access_token})
    is_same = (device.homeserver, device.user) == (settings.homeserver, settings.user)
    # A device that others know cannot return with other keys.
    has_keys = not device.access_token or path.with_name(KEYS).stat().st_size > 0
    return device if is_same and has_keys else _new_device(settings)


def _digest(settings: MatrixSettings) -> str:
    salt = f"{settings.user}|{settings.homeserver}".encode()
    return hashlib.scrypt(settings.password.encode(), salt=salt, n=2**14, r=8, p=1).hex()


def _new_device(settings: MatrixSettings) -> _Device:
    name = f"HERMES{randomness.token_hex(4).upper()}"
    return _Device(settings.homeserver, settings.user, name)


def _unusable(error: RequestFailed, settings: MatrixSettings) -> PlatformError:
    if error.is_transient and not error.is_logged_out:
        return PlatformError(
            f"Matrix cannot be reached at {settings.homeserver}: {error}",
            fix=f"Check the connection, and homeserver under {_WHERE}.",
        )
    what, name = (
        ("access token", "access_token (MATRIX_ACCESS_TOKEN)")
        if settings.access_token
        else ("user and password", "user and password (MATRIX_PASSWORD)")
    )
    return PlatformError(
        f"Matrix rejects our {what}. {error}",
        fix=f"Correct {name} under {_WHERE}.",
        is_fatal=True,
    )
