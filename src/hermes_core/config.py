"""Reader of the settings: defaults, then config.toml, then the environment, then the command line.

The only module that reads the environment. A setting is a field of a section in `settings`; its name in
the file is `section.field`, in the environment `HERMES_SECTION_FIELD`, on the command line
`--set section.field=value`.
"""

import os
import re
import types
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_origin

import msgspec

from hermes_core import own_commands
from hermes_core.command_environment import of_commands
from hermes_core.errors import ConfigError
from hermes_core.paths import Home, folder_lock, write_private
from hermes_core.secrets import holds_secret, secrets_in
from hermes_core.settings import Settings
from hermes_core.text import shell_quoted, similar, without_surrogates


class Option(msgspec.Struct, frozen=True):
    """One setting, as the documentation and error messages name it."""

    section: str
    field: str
    type: Any
    default: Any
    description: str

    @property
    def key(self) -> str:
        return f"{self.section}.{self.field}"

    @property
    def variable(self) -> str:
        return f"HERMES_{self.section}_{self.field}".upper()


_SHORT = {"HERMES_MODEL": "model.name"}
"""Short names of variables."""

_ASSIGNMENT = re.compile(r"""(?m)^[ \t]*([A-Za-z_]\w*)[ \t]*=[ \t]*(["']?)(.*?)\2[ \t\r]*$""")
"""A line of a file with variables; quotes around the value are not part of it."""
_ON = ("1", "true", "yes", "on")
_OFF = ("", "0", "false", "no", "off")


@cache
def options() -> tuple[Option, ...]:
    """Return every setting, in the order of the schema."""
    return tuple(
        Option(section.name, field.name, _kind(field), _default(field), _about(field))
        for section in msgspec.structs.fields(Settings)
        for field in msgspec.structs.fields(section.type)
    )


def _kind(field: msgspec.structs.FieldInfo) -> object:
    return get_args(field.type)[0]


def _default(field: msgspec.structs.FieldInfo) -> object:
    return field.default if field.default is not msgspec.NODEFAULT else field.default_factory()


def _about(field: msgspec.structs.FieldInfo) -> str:
    return get_args(field.type)[1].description


def home(environment: Mapping[str, str] | None = None) -> Home:
    """Return the home folder: HERMES_HOME, else ~/.hermes."""
    env = os.environ if environment is None else environment
    named = env.get("HERMES_HOME", "")
    try:
        folder = Path(named).expanduser().absolute() if named else Path.home() / ".hermes"
    except (RuntimeError, OSError) as error:  # no such user, or the working folder is gone
        raise ConfigError(
            f"Folder {named or '~'} not found: {error}", fix="Set HERMES_HOME to an absolute path."
        ) from error
    if without_surrogates(str(folder)) != str(folder):  # SQLite opens no files of such a name
        raise ConfigError(
            f"The name of the folder {str(folder)!r} is not UTF-8.",
            fix="Set HERMES_HOME to a folder with a UTF-8 name.",
        )
    return Home(folder)


def variable(name: str, environment: Mapping[str, str] | None = None) -> str:
    """Return a variable of a platform or a parent process; empty when unset."""
    env = os.environ if environment is None else environment
    return env.get(name, "").strip()


def variables(more: Iterable[str] = (), environment: Mapping[str, str] | None = None) -> list[str]:
    """Return the environment variables that belong to a setting or are in `more`."""
    env = os.environ if environment is None else environment
    names = (*_SHORT, *(option.variable for option in options()), *more)
    return [name for name in names if env.get(name)]


class Proxies(msgspec.Struct, frozen=True):
    """HTTP proxies from the environment."""

    http_proxy: str = ""
    https_proxy: str = ""
    all_proxy: str = ""
    no_proxy: str = ""


def proxies(environment: Mapping[str, str] | None = None) -> Proxies:
    """Return the HTTP proxies; lowercase names win, as in other programs."""
    env = os.environ if environment is None else environment
    names = [field.name for field in msgspec.structs.fields(Proxies)]
    return Proxies(**{name: env.get(name) or env.get(name.upper(), "") for name in names})


def secrets(settings: Settings, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the secrets of the settings and the environment, by name."""
    env = os.environ if environment is None else environment
    model, tools = settings.model, settings.tools
    found = {"model.api_key": model.api_key, "model.base_url": model.base_url}
    found["tools.search_url"] = tools.search_url
    sections = {
        "plugins.settings": settings.plugins.settings,
        "gateway.platforms": settings.gateway.platforms,
    }
    for section, tables in sections.items():
        for name, table in tables.items():
            found |= {f"{section}.{name}.{key}": str(value) for key, value in table.items()}
    keys = {f"model.keys.{name}": key for name, key in model.keys.items() if key}
    return {**secrets_in({**env, **found}), **keys}


def child_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for commands that a person types: ours without secrets."""
    env = os.environ if environment is None else environment
    return {name: value for name, value in env.items() if not holds_secret(name, value)}


def command_environment(
    settings: Settings, environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the environment for commands of the model: what is allowed, and the marker."""
    env = os.environ if environment is None else environment
    return of_commands(env, settings.tools.environment)


def refuse_in_command(action: str) -> None:
    """Raise ConfigError if this process is a command of the agent."""
    own_commands.refuse(action, os.environ)


def set_default(name: str, value: str) -> None:
    """Set a variable for a native library, unless the user has set it."""
    os.environ.setdefault(name, value)


def load_variables(file: Path) -> None:
    """Add the variables of a file to the environment: lines of NAME=value. The file may be missing."""
    try:
        text = file.read_text("utf-8", "replace")
    except OSError:
        return
    os.environ.update({found[1]: found[3] for found in _ASSIGNMENT.finditer(text)})


def is_dumb_terminal() -> bool:
    """Return whether the terminal cannot move its cursor."""
    return os.environ.get("TERM", "").lower() in ("dumb", "unknown")


def has_color() -> bool:
    """Return whether programs may print colors: NO_COLOR is not set."""
    return not os.environ.get("NO_COLOR")


def pass_on(overrides: Iterable[str]) -> None:
    """Pass `--set` values on to our child processes. Raises ConfigError."""
    for text in overrides:
        option, raw = _named(text)
        _parse(option, raw, f"--set {option.key}")
        os.environ[option.variable] = raw


def load(
    place: Home | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    overrides: Iterable[str] = (),
) -> Settings:
    """Read the settings. Raises ConfigError for an unknown key or a bad value."""
    env = os.environ if environment is None else environment
    place = place or home(env)
    values = _read_file(place.config)
    settings = _checked(values, str(place.config))
    named = [(_option(key), variable) for variable, key in _SHORT.items()]
    for option, variable in [*named, *((option, option.variable) for option in options())]:
        if variable in env:
            _check_stays(option, variable, env)
            _put(values, option, _parse(option, env[variable], variable))
            settings = _checked(values, f"the environment variable {variable}")
    if _is_on("HERMES_YOLO_MODE", env):
        _check_stays(_option("approvals.mode"), "HERMES_YOLO_MODE", env)
        _put(values, _option("approvals.mode"), "allow")
        settings = _checked(values, "the environment variable HERMES_YOLO_MODE")
    for text in overrides:
        option, raw = _named(text)
        _check_stays(option, "--set", env)
        _put(values, option, _parse(option, raw, f"--set {option.key}"))
        settings = _checked(values, f"--set {option.key}")
    return settings


_BOUNDARIES = ("approvals", "gateway", "plugins", "roles", "tools")
"""Sections that say what the agent may do."""


def _check_stays(option: Option, origin: str, environment: Mapping[str, str]) -> None:
    """Raise ConfigError if a command of the agent starts an agent that may do more."""
    if option.section in _BOUNDARIES:
        own_commands.refuse(f"change {option.key} by {origin}", environment)


def change(place: Home, key: str, value: object) -> None:
    """Write one setting to config.toml; comments and all other lines stay.

    None resets the setting to its default. In a table, only differences are written. Raises
    ConfigError and leaves the file unchanged when that is not possible.
    """
    update(place, key, lambda _old: value)


def update(place: Home, key: str, new: Callable[[Any], object]) -> None:
    """Change one setting as `change` does, to the result of a function of its value in config.toml.

    Holds a lock meanwhile, so that two processes can each add to a list.
    """
    option = _option(key)
    refuse_in_command(f"change {key}")
    place.create()
    with folder_lock(place.root):  # another process may change another setting
        settings = _checked(_read_file(place.config), str(place.config))
        old = getattr(getattr(settings, option.section), option.field)
        _change(place, (option, new(old)))


def change_all(place: Home, values: Mapping[str, object]) -> None:
    """Change several settings as `change` does: all of them, or none."""
    options_of = {key: _option(key) for key in values}
    refuse_in_command(f"change {', '.join(values)}")
    place.create()
    with folder_lock(place.root):
        _checked(_read_file(place.config), str(place.config))
        _change(place, *((options_of[key], value) for key, value in values.items()))


def _change(place: Home, *changes: tuple[Option, object]) -> None:
    from hermes_core import toml_text  # noqa: PLC0415 -- costs more than all other imports of a command

    old = _read_file(place.config)
    _checked(old, str(place.config))
    names = ", ".join(option.key for option, _ in changes)
    new = {section: dict(fields) for section, fields in old.items()}
    for option, value in changes:
        new.setdefault(option.section, {}).pop(option.field, None)
        if value is not None:
            new[option.section][option.field] = value
    settings = _checked(new, f"the value given for {names}")
    text = place.config.read_bytes().decode("utf-8-sig") if place.config.exists() else ""
    for section in dict.fromkeys(option.section for option, _ in changes):
        edits = toml_text.differences({section: old.get(section, {})}, {section: new[section]})
        text = toml_text.apply(text, edits)
    if not _yields(text, settings):
        raise ConfigError(
            f"{names} cannot be changed in {place.config} without changing other settings.",
            fix="Change it there with an editor.",
        )
    try:
        write_private(place.config, text)
    except OSError as error:
        raise ConfigError(
            f"{place.config} cannot be written: {error.strerror}.",
            fix="Make it and its folder writable, or set HERMES_HOME to another folder.",
        ) from error
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"The value given for {names} is not valid UTF-8.", fix="Use UTF-8."
        ) from error


def _yields(text: str, settings: Settings) -> bool:
    """Return whether a text of the file gives these settings."""
    try:
        return _checked(_toml(text, Path("config.toml")), "config.toml") == settings
    except ConfigError:
        return False


def parse_value(key: str, text: str) -> object:
    """Convert the text of a value to the type of its setting."""
    return _parse(_option(key), text, key)


def _read_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text("utf-8-sig")  # some editors begin a file with a mark
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as error:
        fix = "Save it as UTF-8."
        raise ConfigError(f"{path} cannot be read: {error}.", fix=fix) from error
    except OSError as error:
        is_shut = path.parent.is_dir() and not os.access(path.parent, os.X_OK)
        fix = (
            f"Run: chmod 700 {shell_quoted(path.parent)}"
            if is_shut
            else f"Make {path} a file that you may read."
        )
        raise ConfigError(f"{path} cannot be read: {error.strerror}.", fix=fix) from error
    return _toml(text, path)


def _toml(text: str, path: Path) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415 -- a home without settings does not pay for the parser

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"{path} is not valid TOML: {error}.", fix="Correct that line."
        ) from error


def _checked(values: dict[str, Any], origin: str) -> Settings:
    for section, fields in values.items():
        names = [o.field for o in options() if o.section == section]
        if not names:
            sections = ", ".join(s.name for s in msgspec.structs.fields(Settings))
            raise ConfigError(
                f"{origin}: there is no section [{section}].",
                fix=f"Remove it, or use one of: {sections}.",
            )
        if not isinstance(fields, dict):
            raise ConfigError(f"{origin}: {section} must be a table.", fix=f"Write [{section}].")
        for field in cast("dict[str, Any]", fields):
            if field not in names:
                raise ConfigError(
                    f"{origin}: there is no setting {section}.{field}.",
                    fix=f"Remove it, or use one of: {', '.join(names)}.",
                )
    try:
        return msgspec.convert(values, Settings)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at ")
        key = where.strip("`$.") or "value"
        raise ConfigError(f"{origin}: {key}: {what}.", fix=_expectation(key)) from error


def _expectation(key: str) -> str:
    for option in options():
        if key == option.key or key.startswith((f"{option.key}.", f"{option.key}[")):
            example = f", for example {option.default!r}" if option.default not in ({}, []) else ""
            return f"Use {describe(option.type)}{example}."
    return "Correct the value."


def describe(kind: object) -> str:
    """Describe the type of a setting."""
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(str(a) for a in get_args(kind))
    if get_origin(kind) is list:
        return "a list of strings"
    if get_origin(kind) is dict and get_origin(get_args(kind)[1]) is list:
        return 'a table of lists of quoted strings, such as ["1001"]'
    if get_origin(kind) in (dict, types.GenericAlias):
        return "a table"
    names = {bool: "true or false", int: "an integer", float: "a number", str: "a string"}
    return names.get(cast("type", kind), str(kind))


def _option(key: str) -> Option:
    for option in options():
        if option.key == key:
            return option
    raise ConfigError(f"Unknown setting {key}.", fix=_suggestion(key))


def _suggestion(key: str) -> str:
    keys = [option.key for option in options()]
    close = similar(key, keys, 3) or [
        name for name in keys if name.startswith(key.partition(".")[0] + ".")
    ]
    return f"Use one of: {', '.join(close or keys)}."


def _named(text: str) -> tuple[Option, str]:
    key, equals, raw = text.partition("=")
    if not equals:
        raise ConfigError(f"--set {text}: no value.", fix="Write --set section.field=value.")
    return _option(key.strip()), raw.strip()


def _parse(option: Option, raw: str, origin: str) -> object:
    if get_origin(option.type) is list:
        return [part.strip() for part in raw.split(",") if part.strip()]
    try:
        return msgspec.to_builtins(msgspec.convert(raw, option.type, strict=False))
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{origin}: {raw!r} is not valid.", fix=f"Use {describe(option.type)}."
        ) from error


def _is_on(variable: str, env: Mapping[str, str]) -> bool:
    """Return whether a switch is on. Raises ConfigError if it is neither on nor off."""
    raw = env.get(variable, "").strip().lower()
    if raw not in _ON + _OFF:
        raise ConfigError(f"{variable}: {raw!r} is not valid.", fix="Use 1 or 0.")
    return raw in _ON


def _put(values: dict[str, Any], option: Option, value: object) -> None:
    values.setdefault(option.section, {})[option.field] = value
