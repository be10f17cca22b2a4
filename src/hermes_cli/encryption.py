"""Encrypt a stream with a passphrase.

scrypt makes the key from the passphrase and a random salt. The stream is cut into chunks, each sealed by
ChaCha20-Poly1305 with its number as the nonce. The last chunk has a mark of its own, so that a file that
was cut short is detected.
"""

import io
import os
from typing import BinaryIO

from hermes_core.errors import ConfigError, UsageError
from hermes_core.installation import install_command

MAGIC = b"hermes-encrypted-1\n"
_SALT_BYTES = 16
_CHUNK_BYTES = 65_536
_TAG_BYTES = 16
_NUMBER_BYTES = 11
_SCRYPT_COST = 2**17
"""128 MB of memory and some tenths of a second for each guess."""


class EncryptingWriter(io.RawIOBase):
    """Encrypts what is written to it; closing it writes the last chunk and leaves the target open."""

    def __init__(self, target: BinaryIO, passphrase: str) -> None:
        salt = os.urandom(_SALT_BYTES)
        self._cipher = _Cipher(passphrase, salt)
        self._target = target
        self._pending = bytearray()
        target.write(MAGIC + salt)

    def writable(self) -> bool:
        return True

    def write(self, data: object, /) -> int:
        view = memoryview(data)  # type: ignore[arg-type]
        self._pending += view
        while len(self._pending) > _CHUNK_BYTES:  # the last chunk is written when we are closed
            chunk = bytes(self._pending[:_CHUNK_BYTES])
            del self._pending[:_CHUNK_BYTES]
            self._target.write(self._cipher.seal(chunk, is_last=False))
        return view.nbytes

    def finish(self) -> None:
        """Write the last chunk."""
        self._target.write(self._cipher.seal(bytes(self._pending), is_last=True))
        self._pending.clear()


class DecryptingReader(io.RawIOBase):
    """Reads a stream that EncryptingWriter wrote, from behind its magic.

    Raises UsageError for a wrong passphrase, and for data that was changed or cut short.
    """

    def __init__(self, source: BinaryIO, passphrase: str) -> None:
        self._cipher = _Cipher(passphrase, source.read(_SALT_BYTES))
        self._source = source
        self._next = source.read(_CHUNK_BYTES + _TAG_BYTES)
        self._plain = b""
        self._is_over = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object, /) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        while not self._plain and not self._is_over:
            chunk, self._next = self._next, self._source.read(_CHUNK_BYTES + _TAG_BYTES)
            self._is_over = not self._next
            self._plain = self._cipher.open(chunk, is_last=self._is_over)
        count = min(view.nbytes, len(self._plain))
        view[:count] = self._plain[:count]
        self._plain = self._plain[count:]
        return count


class _Cipher:
    """Seals and opens the chunks of one stream in their order."""

    def __init__(self, passphrase: str, salt: bytes) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import (  # noqa: PLC0415 -- an extra
                ChaCha20Poly1305,
            )
            from cryptography.hazmat.primitives.kdf.scrypt import Scrypt  # noqa: PLC0415
        except ImportError as error:
            raise ConfigError(
                f"Encryption needs a library that is not installed: {error}.",
                fix=f"Install it with: {install_command('backup')}.",
            ) from error
        kdf = Scrypt(salt=salt, length=32, n=_SCRYPT_COST, r=8, p=1)
        self._aead = ChaCha20Poly1305(kdf.derive(passphrase.encode("utf-8", "surrogateescape")))
        self._number = 0

    def seal(self, chunk: bytes, *, is_last: bool) -> bytes:
        return self._aead.encrypt(self._nonce(is_last), chunk, None)

    def open(self, chunk: bytes, *, is_last: bool) -> bytes:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 -- an extra

        is_first = self._number == 0
        try:
            return self._aead.decrypt(self._nonce(is_last), chunk, None)
        except InvalidTag:
            pass
        if is_first:
            raise UsageError(
                "The passphrase is wrong, or the backup was changed.", fix="Try again."
            )
        raise UsageError("The backup is damaged or was cut short.", fix="Use another copy of it.")

    def _nonce(self, is_last: bool) -> bytes:
        number, self._number = self._number, self._number + 1
        return number.to_bytes(_NUMBER_BYTES, "big") + bytes([is_last])
