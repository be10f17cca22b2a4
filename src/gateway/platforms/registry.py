"""Finds platforms. Plugins register them; those in this package are plugins that come with Hermes."""

import logging
import pkgutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

import gateway.platforms
from gateway.config import PlatformConfig
from gateway.platforms.base import BasePlatformAdapter, Manifest, PlatformError
from hermes_cli import plugins
from hermes_cli.plugin_calls import guarded
from hermes_cli.plugin_context import FactoryRecord
from hermes_core import config, secrets
from hermes_core.errors import ConfigError, PluginError, describe_error
from hermes_core.installation import install_command
from hermes_core.paths import Home, make_folder

logger = logging.getLogger(__name__)

_SURFACES = {"cli", "local", "tui"}


class _Found(NamedTuple):
    """The platforms that are registered, by name."""

    usable: dict[str, Manifest]
    unusable: dict[str, str]
    """Why a platform cannot be used."""


@cache
def built_in() -> Mapping[str, FactoryRecord]:
    """Load the platforms in this package as plugins, into a host of their own."""
    host = plugins.PluginHost(is_bundled=True)
    for folder in pkgutil.iter_modules(gateway.platforms.__path__):
        if folder.ispkg and folder.name != "testing":
            plugin = plugins.Found(folder.name, "package", f"gateway.platforms.{folder.name}")
            host.load(plugin, Home(Path()), {})
    return host.registered.platforms


def names() -> frozenset[str]:
    """Return the names of the platforms that come with Hermes, and of its own surfaces."""
    return frozenset(built_in().keys() | _SURFACES)


def manifests() -> dict[str, Manifest]:
    """Return every platform that can be used, by name; log why others cannot."""
    found = _find_all()
    for reason in found.unusable.values():
        logger.error(reason)
    return found.usable


def unusable() -> Collection[str]:
    """Return the platforms whose plugin fails to describe them."""
    return _find_all().unusable.keys()


def _find_all() -> _Found:
    found = _Found({}, {})
    for name, record in {**built_in(), **plugins.platforms()}.items():
        manifest = _load(record)
        if isinstance(manifest, str):
            found.unusable[name] = manifest
        else:
            found.usable[name] = manifest
    return found


@lru_cache(maxsize=256)
def _load(record: FactoryRecord) -> Manifest | str:
    """Call a factory, once per registration; returns its manifest, or why there is none."""
    try:
        return _checked(record)
    except Exception as error:
        logger.debug("Platform %s of plugin %s failed", record.name, record.plugin, exc_info=True)
        what = f"The plugin {record.plugin} fails to create its platform {record.name}."
        return f"{what} {describe_error(error)}"


def _checked(record: FactoryRecord) -> Manifest:
    """Return the manifest of a factory, with an adapter that harms only itself when it fails."""
    manifest = record.factory()
    if not isinstance(manifest, Manifest) or manifest.name != record.name:
        raise PluginError(f"Its factory has to return a Manifest whose name is {record.name!r}.")
    for field, is_fit, needed in _FIELDS:
        if not is_fit(getattr(manifest, field)):
            raise PluginError(f"The field {field} of its Manifest has to be {needed}.")
    msgspec.json.Decoder(manifest.settings)  # raises for a type that no setting can have
    what = f"the platform {record.name}"
    return replace(
        manifest,
        make=guarded(record.plugin, what, manifest.make),
        identity=guarded(record.plugin, what, manifest.identity),
    )


def _are_texts(value: object) -> bool:
    is_sequence = isinstance(value, Sequence) and not isinstance(value, str)
    return is_sequence and all(isinstance(item, str) for item in cast("Sequence[object]", value))


def _is_table_of_texts(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    table = cast("Mapping[object, object]", value)
    return _are_texts([*table.keys(), *table.values()])


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_yes_or_no(value: object) -> bool:
    return isinstance(value, bool)


def _is_schema(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, msgspec.Struct)


_FIELDS: Sequence[tuple[str, Callable[[object], bool], str]] = (
    ("title", _is_text, "text"),
    ("settings", _is_schema, "a msgspec.Struct"),
    ("make", callable, "a function"),
    ("identity", callable, "a function"),
    ("variables", _is_table_of_texts, "a table of texts"),
    ("tables", _are_texts, "a list of texts"),
    ("guide", _are_texts, "a list of texts"),
    ("extra", _is_text, "text"),
    ("needs_pairing", _is_yes_or_no, "True or False"),
    ("greets_strangers", _is_yes_or_no, "True or False"),
    ("carries_outside_text", _is_yes_or_no, "True or False"),
    ("guarantee", _is_text, "text"),
)
"""What a Manifest of a plugin has to hold: nobody else has looked at it."""


def find(name: str) -> Manifest:
    """Return the manifest of a platform; raises ConfigError."""
    found = _find_all()
    if name in found.unusable:
        raise ConfigError(found.unusable[name], fix="hermes plugins disable switches it off.")
    if name not in found.usable:
        usable = ", ".join(sorted(found.usable))
        raise ConfigError(
            f"There is no platform {name!r}.",
            fix=f"Known are {usable}; see [gateway.platforms] in config.toml.",
        )
    return found.usable[name]


def in_environment() -> list[str]:
    """Return the platforms whose settings the environment gives completely."""
    named = [m for m in manifests().values() if any(map(config.variable, m.variables))]
    return [manifest.name for manifest in named if _is_enough(manifest)]


def _is_enough(manifest: Manifest) -> bool:
    try:
        settings_of(manifest, {})
    except ConfigError:
        return False
    return True


def settings_of(manifest: Manifest, table: Mapping[str, Any]) -> Any:  # noqa: ANN401 -- the platform's own
    """A platform's settings: its table, with what the environment adds; raises ConfigError."""
    values = {key: value for key, value in table.items() if key != "enabled"}
    for variable, key in manifest.variables.items():
        if value := config.variable(variable):
            values[key] = value
    try:
        return msgspec.convert(values, manifest.settings, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"[gateway.platforms.{manifest.name}] in config.toml: {error}.",
            fix=_missing(manifest, values) + f"It takes {', '.join(_fields(manifest))}.",
        ) from error


def _missing(manifest: Manifest, values: Mapping[str, Any]) -> str:
    """Name the settings that a platform needs and lacks, with the variables that give them."""
    variables = {key: variable for variable, key in manifest.variables.items()}
    missing = [
        f"{field.encode_name} (or {variables[field.encode_name]} in the environment)"
        if field.encode_name in variables
        else field.encode_name
        for field in msgspec.structs.fields(manifest.settings)
        if field.required and field.encode_name not in values
    ]
    return f"Set {', '.join(missing)}. " if missing else ""


def _fields(manifest: Manifest) -> list[str]:
    return ["enabled", *(field.encode_name for field in msgspec.structs.fields(manifest.settings))]


def account_of(manifest: Manifest, settings: Any) -> str:  # noqa: ANN401 -- see above
    """Return the account that settings are for; raises PlatformError."""
    try:
        account = manifest.identity(settings)
    except Exception as error:
        text = f"{manifest.title} fails to name its account. {describe_error(error)}"
        raise PlatformError(text, is_fatal=True) from error
    if not isinstance(account, str):  # pyright: ignore[reportUnnecessaryIsInstance] -- a plugin's
        raise PlatformError(f"{manifest.title} names no text as its account.", is_fatal=True)
    return account


def make(manifest: Manifest, settings: Any, home: Home) -> BasePlatformAdapter:  # noqa: ANN401 -- see above
    """Make the adapter of a platform; raises PlatformError when its library is missing."""
    secrets.register(
        {f"{manifest.name}.{name}": value for name, value in _secret_values(settings).items()}
    )
    folder = make_folder(home.gateway / manifest.name)
    try:
        return manifest.make(PlatformConfig(enabled=True), settings, folder)
    except ImportError as error:
        raise PlatformError(
            f"{manifest.title} needs a library that is not installed: {error}.",
            fix=f"Install it with: {install_command(manifest.extra)}."
            if manifest.extra
            else "Its plugin says which.",
            is_fatal=True,
        ) from error


def _secret_values(settings: Any) -> dict[str, str]:  # noqa: ANN401 -- the platform's own
    values = msgspec.to_builtins(settings)
    return secrets.secrets_in(
        {name: value for name, value in values.items() if isinstance(value, str)}
    )
