"""Detect how this copy of Hermes was installed, and name the commands to extend and remove it."""

import re
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import msgspec

NAME = "hermes-durable"
"""Of the distribution: another project owns the name `hermes` on the package index."""

_EXTRA = re.compile(r"""^(?P<name>[\w.-]+).*;.*\bextra\s*==\s*['"](?P<extra>[\w-]+)['"]""")


class Method(StrEnum):
    """Ways in which Hermes gets installed."""

    CLONE = "clone"
    UV = "uv"
    PIPX = "pipx"
    PIP = "pip"


class _Directory(msgspec.Struct):
    editable: bool = False


class _Origin(msgspec.Struct):
    """direct_url.json of an installed distribution."""

    dir_info: _Directory = msgspec.field(default_factory=_Directory)


def method(prefix: Path | None = None) -> Method:
    """Return the way Hermes got into the environment with this prefix, which is ours by default."""
    place = prefix or Path(sys.prefix)
    if _is_clone():
        return Method.CLONE
    if (place / "uv-receipt.toml").is_file():
        return Method.UV
    if (place / "pipx_metadata.json").is_file():
        return Method.PIPX
    return Method.PIP


def install_command(extra: str) -> str:
    """Return the command that installs an extra beside those that are installed."""
    how = method()
    if how is Method.CLONE:
        return f"pip install -e '.[{extra}]' (in the clone of Hermes)"
    names = ",".join(sorted({extra, *installed_extras()}))
    requirement = f"'{NAME}[{names}]'"
    if how is Method.UV:
        return f"uv tool install --force {requirement}"
    if how is Method.PIPX:
        return f"pipx install --force {requirement}"
    return f"{sys.executable} -m pip install {requirement}"


def uninstall_command() -> list[str]:
    """Return the command that removes the program; empty for a clone, which has no installer."""
    commands = {
        Method.CLONE: [],
        Method.UV: ["uv", "tool", "uninstall", NAME],
        Method.PIPX: ["pipx", "uninstall", NAME],
        Method.PIP: [sys.executable, "-m", "pip", "uninstall", "--yes", NAME],
    }
    return commands[method()]


def installed_extras() -> set[str]:
    """Return the extras all of whose distributions are installed."""
    from importlib import metadata  # noqa: PLC0415 -- slow to load, and only errors need it

    def is_installed(name: str) -> bool:
        try:
            metadata.distribution(name)
        except metadata.PackageNotFoundError:
            return False
        return True

    needs: dict[str, set[str]] = {}
    for name, extra in _requirements():
        needs.setdefault(extra, set()).add(name)
    return {extra for extra, names in needs.items() if all(map(is_installed, names))}


def _requirements() -> Iterator[tuple[str, str]]:
    """Yield the names of distributions that extras need, each with its extra."""
    from importlib import metadata  # noqa: PLC0415 -- slow to load, and only errors need it

    for line in metadata.requires(NAME) or ():
        if (match := _EXTRA.match(line)) and match["name"] != NAME:
            yield match["name"], match["extra"]


def _is_clone() -> bool:
    from importlib import metadata  # noqa: PLC0415 -- slow to load, and only errors need it

    try:
        origin = metadata.distribution(NAME).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return True  # started from the folder of its source
    return origin is not None and msgspec.json.decode(origin, type=_Origin).dir_info.editable
