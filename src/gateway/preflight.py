"""Checks before a start: which platforms are on, and whether a gateway can start with the settings."""

import logging
import subprocess
import sys
from collections.abc import Sequence

import msgspec

from gateway.config import GatewaySettings
from gateway.platforms import registry
from gateway.platforms.base import Manifest, PlatformError
from gateway.workspaces import Workspaces
from hermes_cli import plugins
from hermes_core import config
from hermes_core.errors import ConfigError
from hermes_core.paths import Home

logger = logging.getLogger(__name__)

_CHECK_TIMEOUT_S = 60.0


def configured(settings: GatewaySettings) -> list[Manifest]:
    """Return the platforms that the settings or the environment enable; raises ConfigError.

    A platform whose plugin fails is left out and logged, so that the others work.
    """
    names = [name for name, table in settings.platforms.items() if table.get("enabled", True)]
    names += [name for name in registry.in_environment() if name not in settings.platforms]
    left_out = registry.unusable()
    return [registry.find(name) for name in sorted(names) if name not in left_out]


def check_start(home: Home) -> None:
    """Raise ConfigError when no gateway can start with the settings as they are on disk now.

    Loads the plugins that are enabled there, as a start does: some platforms are theirs.
    """
    settings = config.load(home)
    plugins.load_enabled(home, settings)
    manifests = configured(settings.gateway)
    check_platforms(home, settings.gateway, manifests)
    Workspaces(home, settings)
    if not manifests:
        raise ConfigError(
            "No platform is configured.", fix="Add one with: hermes gateway setup telegram"
        )


def check_platforms(home: Home, settings: GatewaySettings, platforms: Sequence[Manifest]) -> None:
    """Raise ConfigError when a platform lacks a setting or has an invalid one.

    Other failures, as in a plugin, are logged: a gateway starts without that platform.
    """
    for manifest in platforms:
        values = registry.settings_of(manifest, settings.platforms.get(manifest.name, {}))
        try:
            registry.make(manifest, values, home).check()
        except PlatformError as error:
            raise ConfigError(f"{manifest.title}: {error.message}", fix=error.fix) from error
        except Exception:
            logger.warning("Platform %s cannot be created", manifest.name, exc_info=True)


def ask_for_start() -> None:
    """Run `check_start` in a new process, as this one has the plugins of its own start."""
    try:
        process = subprocess.run(
            [sys.executable, "-m", "hermes_cli.main", "gateway", "check", "--json"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_CHECK_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"Loading the settings and the plugins takes more than {_CHECK_TIMEOUT_S:g} seconds.",
            fix="Find out why with: hermes gateway check",
        ) from None
    if process.returncode:
        raise _error_in(process.stderr)


def _error_in(output: bytes) -> ConfigError:
    """Return the error that a command line reported in JSON."""
    try:
        error = msgspec.json.decode(output.splitlines()[-1], type=dict[str, dict[str, str]])
        return ConfigError(error["error"]["message"], fix=error["error"]["fix"])
    except (msgspec.MsgspecError, LookupError):
        return ConfigError("The settings cannot be used.", fix="See: hermes gateway check")
