"""The websocket: the same protocol for clients that come and go, on this machine and with a token.

A client that can read the private file with the token may connect; a page in a browser is not, whatever
name it has made this address look like.
"""

import argparse
import hmac
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec
from websockets.datastructures import MultipleValuesError
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import Server, ServerConnection, serve

from hermes_core import clock, config
from hermes_core import secrets as hidden
from hermes_core.errors import UsageError
from hermes_core.locks import LockFile, LockHeldError
from hermes_core.paths import make_folder
from tui_gateway import protocol, server
from tui_gateway.transport import MAX_LINE_BYTES, MAX_QUEUED_BYTES, QueuedTransport, Transport

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"
REAP_AFTER_S = 20.0
_REAP_EVERY_S = 5.0
_STALLED_S = 10.0
"""How long a client may leave a message unread that is being sent."""
_NAMES = (HOST, "localhost", "[::1]")


class Address(msgspec.Struct, frozen=True):
    """The content of the private file: where the server is, and the token that opens it."""

    url: str
    token: str
    pid: int


Tell = Callable[[Address, Path], None]
"""Says where a server listens, and in which file that stands."""


def token_file() -> Path:
    """The private file of the home in which a running server is found."""
    return config.home().root / "tui_gateway.json"


def print_greeting(address: Address, file: Path) -> None:
    """Greet the program that started the server, in the protocol's own words."""
    line = msgspec.json.encode(protocol.ready(url=address.url, token_file=str(file)))
    os.write(1, line + b"\n")


def open_service(arguments: Sequence[str]) -> "Service":
    """Read the command line and listen as it says; raises UsageError."""
    parser = argparse.ArgumentParser(prog="python -m tui_gateway.entry")
    parser.add_argument("--ws", action="store_true", help="serve a websocket on this machine")
    parser.add_argument("--port", type=int, default=0, help="the port; 0: any free port")
    parser.add_argument("--token-file", type=Path, help="the file to write address and token to")
    options = parser.parse_args(arguments)
    if not options.ws:
        parser.error("without --ws there is nothing to set: the server uses its pipes")
    return Service(options.port, options.token_file or token_file())


class _AddressFile:
    """The file with the address, locked by the server that it tells of for as long as that lives."""

    def __init__(self, path: Path) -> None:
        """Take the file, also from a server that is gone; raises UsageError while one has it."""
        self.path = path
        try:
            make_folder(path.parent)
            self._lock = LockFile(path)
            self._lock.acquire()
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}.") from error
        except LockHeldError as held:
            raise UsageError(
                f"A server is running already: {_described(path, held.record)}.",
                fix="`hermes attach` opens it. To start another one, stop it first.",
            ) from held

    def write(self, address: Address) -> None:
        """Say where the server is."""
        self._lock.write(msgspec.json.encode(address))

    def release(self) -> None:
        """Remove the file, unless it is another server's by now."""
        self._lock.release(remove=True)


def _described(path: Path, record: bytes) -> str:
    try:
        address = msgspec.json.decode(record, type=Address)
    except msgspec.DecodeError:
        return f"it holds {path}"  # and has not said yet where it listens
    return f"process {address.pid} at {address.url}"


class Service:
    """A listening socket and the clients that it has."""

    def __init__(
        self,
        port: int,
        file: Path,
        *,
        limit_bytes: int = MAX_QUEUED_BYTES,
        tell: Tell = print_greeting,
    ) -> None:
        """`file` gets the address; `limit_bytes` may wait for a client before it is dropped.

        Raises UsageError when another server has the file, or the port cannot be had.
        """
        self._limit_bytes = limit_bytes
        self._tell = tell
        self._token = secrets.token_urlsafe(32)
        hidden.register({"token of the websocket": self._token})
        self._claim = _AddressFile(file)
        self._server = self._listen(port)
        self.port: int = self._server.socket.getsockname()[1]
        self.address = Address(f"ws://{HOST}:{self.port}/", self._token, os.getpid())
        self._sending: dict[ServerConnection, float] = {}
        self._is_over = threading.Event()

    def _listen(self, port: int) -> Server:
        try:
            return serve(
                self._serve_client,
                HOST,
                port,
                process_request=self._admit,
                max_size=MAX_LINE_BYTES,
                compression=None,
                server_header=None,
            )
        except (OSError, OverflowError) as error:
            self._claim.release()
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"Port {port} cannot be used: {reason}.") from error

    def start(self) -> None:
        """Serve beside, and say where."""
        self._claim.write(self.address)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        threading.Thread(target=self._reap, daemon=True).start()
        self._tell(self.address, self._claim.path)

    def close(self) -> None:
        """Take no more clients, and let nobody look for them here."""
        self._is_over.set()
        self._claim.release()
        self._server.shutdown()

    def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        """Let in who knows the token, and speaks to us by our own name."""
        try:
            return self._refusal(connection, request)
        except MultipleValuesError as error:
            text = f"There may be one header {error.args[0]}.\n"
            return connection.respond(HTTPStatus.BAD_REQUEST, text)

    def _refusal(self, connection: ServerConnection, request: Request) -> Response | None:
        host = (request.headers.get("Host") or "").rpartition(":")[0]
        origin = request.headers.get("Origin")
        is_near = origin is None or (urlsplit(origin).hostname or "") in ("127.0.0.1", "localhost")
        if host not in _NAMES or not is_near:
            return connection.respond(
                HTTPStatus.FORBIDDEN, "Connections are accepted from this machine only.\n"
            )
        if not hmac.compare_digest(_token_of(request).encode(), self._token.encode()):
            return connection.respond(HTTPStatus.UNAUTHORIZED, "The token is missing or wrong.\n")
        return None

    def _serve_client(self, connection: ServerConnection) -> None:
        """Serve one client until it goes away. The boundary of a client."""

        def send(data: bytes) -> None:
            self._sending[connection] = time.monotonic()
            try:
                connection.send(data.decode())
            except ConnectionClosed as error:
                raise ConnectionError(str(error)) from error
            finally:
                self._sending.pop(connection, None)

        def give_up(reason: str) -> None:
            logger.info("Dropped a client: %s", reason)
            _cut(connection)

        transport = QueuedTransport(send, give_up, ending=b"", limit_bytes=self._limit_bytes)
        transport.write(protocol.ready())
        try:
            for message in connection:
                server.receive(message, transport)
        except ConnectionClosed as error:
            logger.debug("a client disconnected: %s", error)
        except Exception:
            logger.exception("a client broke its connection; the others continue")
        finally:
            self._disconnect(transport)

    def _disconnect(self, transport: Transport) -> None:
        assert isinstance(transport, QueuedTransport)
        transport.close()
        server.detach(transport, clock.now())

    def _reap(self) -> None:
        while not self._is_over.wait(_REAP_EVERY_S):
            self._cut_stalled()
            for sid in server.end_abandoned(clock.now(), REAP_AFTER_S):
                logger.info("session %s had no client for a while; closed it", sid)

    def _cut_stalled(self) -> None:
        """Drop who takes nothing: while we wait for them to read, we do not read from them either."""
        oldest = time.monotonic() - _STALLED_S
        for connection, since in list(self._sending.items()):
            if since < oldest:
                logger.info("dropped a client that has not read for %s s", _STALLED_S)
                _cut(connection)


def _token_of(request: Request) -> str:
    header = request.headers.get("Authorization") or ""
    if header.startswith("Bearer "):
        return header.removeprefix("Bearer ").strip()
    return parse_qs(urlsplit(request.path).query).get("token", [""])[0]


def _cut(connection: ServerConnection) -> None:
    """End a connection at once, also one whose other side does not read."""
    try:
        connection.socket.shutdown(socket.SHUT_RDWR)
    except OSError:
        logger.debug("the connection had ended by itself", exc_info=True)
