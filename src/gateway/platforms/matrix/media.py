"""Downloads and uploads files; in encrypted rooms the server cannot read them."""

import asyncio
import io
import mimetypes
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from aiohttp import ClientError, ClientResponse
from nio.crypto import decrypt_attachment
from nio.exceptions import EncryptionError
from nio.responses import UploadResponse

from gateway.platforms.matrix import content
from gateway.platforms.matrix.client import Client
from gateway.platforms.matrix.homeserver import RequestFailed, request
from gateway.platforms.matrix.translate import Json, Media

_MAX_BYTES = 200 * 1024 * 1024
"""The limit in memory; the ingress has a limit of its own."""
_TIMEOUT_S = 600.0
_PROGRESS_TIMEOUT_S = 60.0
"""How long a download may stall: all rooms wait for it, and its server may be away."""
_CHUNK = 64 * 1024
TOO_LONG = "timeout"


async def fetch(client: Client, media: Media) -> bytes:
    """Download and decrypt a file; raises RequestFailed."""
    where = urlsplit(media.url)
    path = (
        f"/_matrix/client/v1/media/download/{where.netloc}/{quote(where.path.strip('/'), safe='')}"
    )
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            headers = {"Authorization": f"Bearer {client.access_token}"}
            async with asyncio.timeout(_PROGRESS_TIMEOUT_S):
                response = await client.send("GET", path, headers=headers)
            async with response:
                data = await _read(response)
    except TimeoutError as error:
        raise RequestFailed("refused", "it took too long", code=TOO_LONG) from error
    except (ClientError, OSError) as error:
        raise RequestFailed("network", f"The file was not fetched: {error}.") from error
    return _decrypted(data, media.secret) if media.secret else data


async def upload(client: Client, path: Path, *, encrypt: bool) -> dict[str, Any]:
    """Upload a file and return the content of its message; raises RequestFailed."""
    try:
        data = await asyncio.to_thread(path.read_bytes)
    except OSError as error:
        raise RequestFailed("refused", f"{path.name} cannot be read: {error.strerror}.") from error
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    uploaded, keys = await _upload(client, data, kind, None if encrypt else path.name)
    where = {"file": keys | {"url": uploaded}} if encrypt else {"url": uploaded}
    return content.file(path.name, kind, len(data), where)


async def _upload(
    client: Client, data: bytes, kind: str, name: str | None
) -> tuple[str, dict[str, Any]]:
    """Upload under its name, or encrypted and without one."""
    keys: dict[str, Any] = {}

    async def send() -> object:
        response, found = await client.upload(
            io.BytesIO(data), kind, name, encrypt=name is None, filesize=len(data)
        )
        keys.update(found or {})
        return response

    response = await request(UploadResponse, send(), timeout_s=_TIMEOUT_S)
    return response.content_uri, keys


async def _read(response: ClientResponse) -> bytes:
    if response.status != 200:
        is_transient = response.status >= 500 or response.status == 429
        raise RequestFailed(
            "network" if is_transient else "refused",
            f"the server did not deliver it ({response.status})",
            code="M_UNKNOWN_TOKEN" if response.status == 401 else f"{response.status}",
        )
    data = bytearray()
    while chunk := await _next(response):
        data += chunk
        if len(data) > _MAX_BYTES:
            raise RequestFailed("too_long", "it is too large")
    return bytes(data)


async def _next(response: ClientResponse) -> bytes:
    async with asyncio.timeout(_PROGRESS_TIMEOUT_S):
        return await response.content.read(_CHUNK)


def _decrypted(data: bytes, secret: Json) -> bytes:
    try:
        return decrypt_attachment(
            data, secret["key"]["k"], secret["hashes"]["sha256"], secret["iv"]
        )
    except (EncryptionError, KeyError, TypeError, ValueError) as error:
        raise RequestFailed("refused", "it cannot be decrypted") from error
