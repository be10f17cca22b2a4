"""Preferences of the person, in `tui.json` in the home: theme, custom keys, notifications."""

import logging
from pathlib import Path

import msgspec

from hermes_core.errors import ConfigError
from hermes_core.paths import Home, write_private
from hermes_tui.attention import Notify

logger = logging.getLogger(__name__)


class Preferences(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Theme, custom keys, and how a person is called."""

    theme: str = ""
    keys: dict[str, str] = {}
    """Keys by the name of what they do (docs/guide/terminal.md lists the names)."""
    notify: Notify = "bell"
    """What happens when a turn ends or asks while the person looks elsewhere."""


def path(home: Home) -> Path:
    """Return the path of the file."""
    return home.root / "tui.json"


def load(home: Home) -> Preferences:
    """Read them; without a file everything is as it comes. Raises ConfigError for a broken file."""
    try:
        return msgspec.json.decode(path(home).read_bytes(), type=Preferences)
    except FileNotFoundError:
        return Preferences()
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(
            f"{path(home)} cannot be used: {error}.", fix="Correct it or remove it."
        ) from error


def save(home: Home, preferences: Preferences) -> None:
    """Write them; a disk that fails costs only this."""
    try:
        write_private(
            path(home), msgspec.json.format(msgspec.json.encode(preferences)).decode() + "\n"
        )
    except (OSError, ConfigError):
        logger.warning("%s cannot be written", path(home), exc_info=True)
