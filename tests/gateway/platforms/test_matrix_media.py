"""Files on a homeserver that gives them slowly, or not at all."""

import asyncio
from pathlib import Path

import pytest

from gateway.platforms.matrix import media
from gateway.platforms.matrix.client import Client
from gateway.platforms.matrix.homeserver import RequestFailed
from gateway.platforms.matrix.translate import Media

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"


async def _fetched(folder: Path, *parts: bytes) -> bytes:
    """A file from a server that gives these parts and then waits for the other side to hang up."""
    is_over = asyncio.Event()

    async def give(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for part in parts:
            writer.write(part)
            await writer.drain()
        await reader.read()
        writer.close()
        await writer.wait_closed()
        is_over.set()

    async with await asyncio.start_server(give, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        client = Client(f"http://127.0.0.1:{port}", folder)
        try:
            return await media.fetch(client, Media("mxc://far.away/file", "a.png"))
        finally:
            await client.close()
            await is_over.wait()


@pytest.mark.parametrize(
    "content", [b"", _HEAD, _HEAD + b"pa"], ids=["nothing", "a head", "a part"]
)
def test_a_file_of_which_nothing_more_comes_is_given_up_and_not_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setattr(media, "_PROGRESS_TIMEOUT_S", 0.1)
    with pytest.raises(RequestFailed, match="it took too long") as failed:
        asyncio.run(_fetched(tmp_path, content))
    assert not failed.value.is_transient


def test_a_file_that_comes_in_parts_is_fetched_whole(tmp_path: Path) -> None:
    assert asyncio.run(_fetched(tmp_path, _HEAD, b"who", b"le")) == b"whole"


def test_a_file_that_is_too_large_for_what_stands_before_the_server_is_not_sent_again(
    tmp_path: Path,
) -> None:
    is_over = asyncio.Event()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        page = b"<html><h1>413 Request Entity Too Large</h1></html>"
        head = (
            "HTTP/1.1 413 Request Entity Too Large\r\nContent-Type: text/html\r\nConnection: close"
        )
        writer.write(f"{head}\r\nContent-Length: {len(page)}\r\n\r\n".encode() + page)
        await reader.read()
        writer.close()
        await writer.wait_closed()
        is_over.set()

    async def upload() -> None:
        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            client = Client(f"http://127.0.0.1:{port}", tmp_path)
            client.access_token = "token"
            try:
                await media.upload(client, tmp_path / "film.mp4", encrypt=False)
            finally:
                await client.close()
                await is_over.wait()

    (tmp_path / "film.mp4").write_bytes(b"x" * 3_000_000)
    with pytest.raises(RequestFailed) as failed:
        asyncio.run(upload())
    assert not failed.value.is_transient, failed.value
