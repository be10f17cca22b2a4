"""The head of a GGUF file: whether it is one, and what it says about the model inside."""

import struct
from pathlib import Path
from typing import BinaryIO

from hermes_core.errors import UsageError

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
_FORMATS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_MAX_ENTRIES = 100_000
_MAX_STRING = 64 * 1024 * 1024

Value = str | int | float | bool


def read(path: Path) -> dict[str, Value]:
    """Read the single values of the header, without lists; raise UsageError when it is not GGUF."""
    try:
        with path.open("rb") as file:
            return _read(file, path)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}.", fix="Give the path of a .gguf file."
        ) from error
    except (struct.error, UnicodeDecodeError, OverflowError, KeyError) as error:
        raise _no_gguf(path, "its head is damaged or cut off") from error


def check(path: Path) -> dict[str, Value]:
    """Read the head of a file that is to answer questions; raises UsageError when it cannot."""
    head = read(path)
    if int(head.get("split.count", 1)) > 1:
        raise UsageError(
            f"{path} is one of several parts of a model.",
            fix="Join the parts first: llama-gguf-split --merge FIRST_PART OUTPUT.",
        )
    if "general.architecture" not in head or "tokenizer.ggml.model" not in head:
        raise UsageError(
            f"{path} is a GGUF file but not a language model.",
            fix="Give the model itself, not an adapter, a projector or a vocabulary.",
        )
    return head


def context_length(head: dict[str, Value]) -> int:
    """The window the model was trained with; 0 when the head does not say."""
    return int(head.get(f"{head.get('general.architecture')}.context_length", 0))


def _read(file: BinaryIO, path: Path) -> dict[str, Value]:
    if file.read(4) != _MAGIC:
        raise _no_gguf(path, "it does not begin as one")
    version, _tensors, entries = struct.unpack("<IQQ", file.read(20))
    if version not in _VERSIONS or entries > _MAX_ENTRIES:
        raise _no_gguf(path, f"version {version} of the format is not known")
    head: dict[str, Value] = {}
    for _ in range(entries):
        key = _string(file)
        value = _value(file, _number(file, "I"))
        if value is not None:
            head[key] = value
    return head


def _value(file: BinaryIO, kind: int) -> Value | None:
    if kind == _STRING:
        return _string(file)
    if kind == _ARRAY:
        _pass_over(file, _number(file, "I"), _number(file, "Q"))
        return None
    return struct.unpack(f"<{_FORMATS[kind]}", file.read(struct.calcsize(_FORMATS[kind])))[0]


def _pass_over(file: BinaryIO, kind: int, count: int) -> None:
    if kind in _FORMATS:
        file.seek(count * struct.calcsize(_FORMATS[kind]), 1)
        return
    for _ in range(count):
        if kind == _STRING:
            file.seek(_number(file, "Q"), 1)
        else:
            _value(file, kind)


def _string(file: BinaryIO) -> str:
    length = _number(file, "Q")
    if length > _MAX_STRING:
        raise OverflowError(length)
    data = file.read(length)
    if len(data) < length:
        raise struct.error
    return data.decode("utf-8")


def _number(file: BinaryIO, form: str) -> int:
    return struct.unpack(f"<{form}", file.read(struct.calcsize(form)))[0]


def _no_gguf(path: Path, reason: str) -> UsageError:
    return UsageError(
        f"{path} is not a usable GGUF file: {reason}.",
        fix="Give the path of a .gguf file, complete and of version 2 or 3.",
    )
