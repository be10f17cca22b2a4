"""Facts about models by their names: window, longest output, prices, vision.

The table is `known.json`. What a server says about itself comes before it, and the user before both.
"""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from hermes_agent.models.base import Facts
from hermes_agent.models.providers import KnownModel, Provider
from hermes_core.settings import ModelSettings

UNKNOWN_LOCAL_WINDOW = 8192
UNKNOWN_HOSTED_WINDOW = 128_000
_SMALL_BILLIONS = 3.0
"""Models up to this size are weak at tools."""
_MAX_OUTPUT_SHARE = 4
"""A reply may take at most one of so many parts of the window."""
_MIN_OUTPUT = 512


class Prices(NamedTuple):
    """USD per million tokens."""

    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0


class ServerFacts(msgspec.Struct, frozen=True):
    """The facts that a server states about a model; 0 and None where it is silent."""

    window: int = 0
    max_output: int = 0
    images: bool | None = None
    tools: bool | None = None
    billions: float = 0.0
    """Parameters."""
    prices: Prices | None = None
    note: str = ""
    """Where the window is from, when that needs a word."""


class _Table(msgspec.Struct, frozen=True):
    note: str
    models: list[KnownModel]


@cache
def _table() -> _Table:
    return msgspec.json.decode(Path(__file__).with_name("known.json").read_bytes(), type=_Table)


@cache
def _by_length() -> list[tuple[str, KnownModel]]:
    return _longest_first(_table().models)


def _longest_first(rows: Iterable[KnownModel]) -> list[tuple[str, KnownModel]]:
    return sorted(((_plain(row.match), row) for row in rows), key=lambda row: -len(row[0]))


def find_row(name: str, provider: Provider | None = None) -> KnownModel | None:
    """Return the row whose match is the longest beginning of the name: the provider's, or any."""
    plain = _plain(name.rpartition("/")[2])
    own = _longest_first(provider.models) if provider is not None else []
    return next((row for match, row in (*own, *_by_length()) if plain.startswith(match)), None)


def _plain(name: str) -> str:
    """Names differ in dots, dashes and cases from server to server."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower())


def billions_in(name: str) -> float:
    """The size that a name tells, in billions of parameters; 0 when it tells none."""
    found = re.findall(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)(b|m)(?![a-z0-9])", name.lower())
    if not found:
        return 0.0
    number, unit = found[0]  # of a mixture, `30b-a3b`, the whole comes first
    return float(number) / (1000 if unit == "m" else 1)


def facts_for(
    name: str, provider: Provider, settings: ModelSettings, served: ServerFacts | None = None
) -> Facts:
    """All that is known about a model: from the user, from its server, from the table, or a guess."""
    served = served or ServerFacts()
    row = find_row(name, provider)
    is_local = provider.is_local and not (row and row.hosted_only)
    window = settings.context_window or served.window or _guess(row, is_local)
    most = served.max_output or (row.max_output if row else window // _MAX_OUTPUT_SHARE)
    prices = Prices() if is_local or provider.is_free else served.prices or _prices(row)
    return Facts(
        name=name,
        provider=provider.name,
        window=window,
        max_output=settings.max_output_tokens or _output_limit(most, window),
        input_price=prices.input,
        output_price=prices.output,
        cache_read_price=prices.cache_read,
        cache_write_price=prices.cache_write,
        is_free=is_local or provider.is_free or served.prices == Prices(),
        is_small=_is_small(name, settings, is_local, served),
        takes_images=_takes_images(settings, served, row, is_local),
        is_window_guessed=not (settings.context_window or served.window)
        and (row is None or is_local),
    )


def _guess(row: KnownModel | None, is_local: bool) -> int:
    """A local server has often less room than its model was made for, and cuts without a word."""
    if is_local:
        return min(row.window, UNKNOWN_LOCAL_WINDOW) if row else UNKNOWN_LOCAL_WINDOW
    return row.window if row else UNKNOWN_HOSTED_WINDOW


def _output_limit(most: int, window: int) -> int:
    return max(min(most, window // _MAX_OUTPUT_SHARE), min(_MIN_OUTPUT, window))


def _prices(row: KnownModel | None) -> Prices:
    return Prices(row.input, row.output, row.cache_read, row.cache_write) if row else Prices()


def _takes_images(
    settings: ModelSettings, served: ServerFacts, row: KnownModel | None, is_local: bool
) -> bool:
    """A model that nobody knows is taken to see when it is hosted: its server says if it does not."""
    if settings.images != "auto":
        return settings.images == "on"
    if served.images is not None:
        return served.images
    return row.images if row else not is_local


def _is_small(name: str, settings: ModelSettings, is_local: bool, served: ServerFacts) -> bool:
    if settings.small != "auto":
        return settings.small == "on"
    if not is_local:
        return False
    size = served.billions or billions_in(name)
    return served.tools is False or 0 < size <= _SMALL_BILLIONS
