"""Finding platforms: a manifest each, from a folder here or a plugin; libraries are loaded when used."""

import importlib
import logging
import pkgutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, cast

import msgspec

import gateway.platforms
from gateway.config import Platform, PlatformConfig
from gateway.platforms.base import BasePlatformAdapter, Manifest, PlatformError
from hermes_cli import plugins
from hermes_cli.plugin_calls import contained
from hermes_cli.plugins import FactoryRecord
from hermes_core import config, secrets
from hermes_core.errors import ConfigError, PluginError, in_words
from hermes_core.paths import Home, make_folder

logger = logging.getLogger(__name__)

_SURFACES = {"cli", "local", "tui"}


@cache
def built_in() -> Mapping[str, Manifest]:
    """The manifests in this package, by name."""
    found: dict[str, Manifest] = {}
    for module in pkgutil.iter_modules(gateway.platforms.__path__):
        if module.ispkg and module.name != "testing":
            name = f"gateway.platforms.{module.name}.manifest"
            manifest: Manifest = importlib.import_module(name).MANIFEST
            found[manifest.name] = manifest
    return found


def names() -> frozenset[str]:
    """Return the names of the platforms that come with Hermes, and of its own surfaces."""
    packages = pkgutil.iter_modules(gateway.platforms.__path__)
    ours = {module.name for module in packages if module.ispkg and module.name != "testing"}
    return frozenset(ours | _SURFACES)


def manifests() -> dict[str, Manifest]:
    """Every platform there is, those of plugins too; one whose plugin fails is told in the log."""
    usable, unusable = _of_plugins()
    for reason in unusable.values():
        logger.error(reason)
    return {**built_in(), **usable}


def unusable() -> Collection[str]:
    """The platforms whose plugin fails to describe them."""
    return _of_plugins()[1].keys()


def _of_plugins() -> tuple[dict[str, Manifest], dict[str, str]]:
    """The platforms of plugins, and why others of them cannot be used."""
    usable: dict[str, Manifest] = {}
    unusable: dict[str, str] = {}
    for name, provider in plugins.platforms().items():
        try:
            usable[name] = _made(provider)
        except Exception as error:
            logger.debug("the platform %s of %s failed", name, provider.plugin, exc_info=True)
            said = f"The plugin {provider.plugin} fails to give its platform {name}."
            unusable[name] = f"{said} {in_words(error)}"
    return usable, unusable


def _made(provider: FactoryRecord) -> Manifest:
    """The manifest that a plugin gives, with an adapter whose making harms only itself."""
    made = provider.factory()
    if not isinstance(made, Manifest) or made.name != provider.name:
        raise PluginError(f"Its factory has to return a Manifest whose name is {provider.name!r}.")
    for field, is_fit, needed in _FIELDS:
        if not is_fit(getattr(made, field)):
            raise PluginError(f"The field {field} of its Manifest has to be {needed}.")
    msgspec.json.Decoder(made.settings)  # a type that no setting can have is told now
    what = f"the platform {provider.name}"
    return replace(
        made,
        make=contained(provider.plugin, what, made.make),
        identity=contained(provider.plugin, what, made.identity),
    )


def _are_texts(value: object) -> bool:
    is_sequence = isinstance(value, Sequence) and not isinstance(value, str)
    return is_sequence and all(isinstance(one, str) for one in cast("Sequence[object]", value))


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
    ("extra", _is_text, "text"),
    ("needs_pairing", _is_yes_or_no, "True or False"),
    ("greets_strangers", _is_yes_or_no, "True or False"),
    ("guarantee", _is_text, "text"),
)
"""What a Manifest of a plugin has to hold: nobody else has looked at it."""


def find(name: str) -> Manifest:
    """The manifest of a platform; raises ConfigError."""
    usable, unusable = _of_plugins()
    known = {**built_in(), **usable}
    if name in unusable:
        raise ConfigError(unusable[name], fix="hermes plugins disable switches it off.")
    if name not in known:
        raise ConfigError(
            f"There is no platform {name!r}.",
            fix=f"Known are {', '.join(sorted(known))}; see [gateway.platforms] in config.toml.",
        )
    return known[name]


def given() -> list[str]:
    """The platforms for which the environment alone gives all that they need."""
    named = [one for one in manifests().values() if any(map(config.variable, one.variables))]
    return [one.name for one in named if _is_enough(one)]


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
    """What a platform cannot do without and was not given, with the variables it may come from."""
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
    """The account that settings speak for; raises PlatformError when a platform cannot say it."""
    try:
        account = manifest.identity(settings)
    except Exception as error:
        said = f"{manifest.title} fails to name its account. {in_words(error)}"
        raise PlatformError(said, is_fatal=True) from error
    if not isinstance(account, str):  # pyright: ignore[reportUnnecessaryIsInstance] -- a plugin's
        raise PlatformError(f"{manifest.title} names no text as its account.", is_fatal=True)
    return account


def make(manifest: Manifest, settings: Any, home: Home) -> BasePlatformAdapter:  # noqa: ANN401 -- see above
    """The adapter of a platform; raises PlatformError when its library is not there."""
    secrets.register(
        {f"{manifest.name}.{name}": one for name, one in _secret_values(settings).items()}
    )
    folder = make_folder(home.gateway / manifest.name)
    try:
        return manifest.make(PlatformConfig(enabled=True), settings, folder)
    except ImportError as error:
        extra = f"pip install 'hermes[{manifest.extra}]'"
        raise PlatformError(
            f"{manifest.title} needs a library that is not installed: {error}.",
            fix=f"Install it with: {extra}." if manifest.extra else "Its plugin says which.",
            is_fatal=True,
        ) from error


def _secret_values(settings: Any) -> dict[str, str]:  # noqa: ANN401 -- the platform's own
    values = msgspec.to_builtins(settings)
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, str) and config.is_secret_name(name) and len(value) >= 8
    }


def platform_of(manifest: Manifest) -> Platform:
    """The platform as messages name it."""
    return Platform.register(manifest.name)
