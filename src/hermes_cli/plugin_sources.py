"""Discovery of plugins: in the home, in installed packages, and bundled with Hermes, in this order.

Discovery reads manifests and never runs code of plugins; `import_code` does.
"""

import importlib
import importlib.util
import logging
import re
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal

import msgspec

from hermes_core.errors import PluginError, describe_error
from hermes_core.paths import Home
from hermes_core.text import without_surrogates
from hermes_core.version import VERSION

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

logger = logging.getLogger(__name__)

GROUP = "hermes.plugins"
"""The entry-point group of installed packages."""

BUNDLED = Path(__file__).parent / "bundled"

Source = Literal["home", "package", "bundled", "missing"]

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
"""Names of plugins and of most registrations; safe as folder names."""

_PACKAGE = "hermes_plugins"
_CLAUSE = re.compile(r"(>=|<=|==|!=|>|<)\s*(\d{1,9}(?:\.\d{1,9})*)", re.ASCII)


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of plugin.toml."""

    name: str
    version: str
    description: str
    author: str = ""
    requires_hermes: str = ""
    """Versions of Hermes it works with, such as ">=0.1, <2"; empty for any."""


class Found(msgspec.Struct, frozen=True):
    """A discovered plugin, valid or not."""

    name: str
    source: Source
    location: str
    """Its folder, or the entry point of its package."""

    version: str = ""
    description: str = ""
    error: str = ""
    """The reason why its manifest is not valid, or an empty string."""

    hides: tuple[str, ...] = ()
    """Other places with a plugin of this name, which are ignored."""


def is_name(text: str) -> bool:
    """Return whether a text is a valid plugin name: a-z, digits, dashes, underscores."""
    return NAME.fullmatch(text) is not None


def discover(home: Home) -> dict[str, Found]:
    """Return every plugin by name, without running code of plugins."""
    plugins: dict[str, Found] = {}
    for found in (
        *_in_folder(home.plugins, "home"),
        *_installed(),
        *_in_folder(BUNDLED, "bundled"),
    ):
        first = plugins.get(found.name)
        if first is None:
            plugins[found.name] = found
        else:
            hidden = f"{found.source}: {found.location}"
            plugins[found.name] = msgspec.structs.replace(first, hides=(*first.hides, hidden))
    return dict(sorted(plugins.items()))


def find(home: Home, names: Collection[str]) -> dict[str, Found]:
    """Return the named plugins that exist; stops early, since metadata of packages is slow."""
    plugins: dict[str, Found] = {}
    for place in (
        _in_folder(home.plugins, "home", names),
        _installed(),
        _in_folder(BUNDLED, "bundled", names),
    ):
        if plugins.keys() >= set(names):
            break
        for found in place:
            plugins.setdefault(found.name, found)
    return {name: plugins[name] for name in names if name in plugins}


def at(folder: Path, source: Source = "home") -> Found:
    """Read the plugin in a folder."""
    if not is_name(folder.name):  # it may not even be UTF-8
        error = PluginError(
            f"Invalid plugin name {folder.name!r}.",
            fix="Use lower-case letters, digits, dashes and underscores.",
        )
        name = without_surrogates(folder.name)
        return Found(name, source, without_surrogates(str(folder)), error=str(error))
    found = Found(folder.name, source, str(folder))
    try:
        return _described(found, read_manifest(folder / "plugin.toml"))
    except PluginError as error:
        return msgspec.structs.replace(found, error=str(error))


def read_manifest(path: Path) -> Manifest:
    """Read plugin.toml. Raises PluginError."""
    if path.exists() and not path.is_file():  # a pipe would block
        raise PluginError(f"{path} is not a file.")
    import tomllib  # noqa: PLC0415 -- most homes have no plugins and do not pay for the parser

    try:
        return msgspec.convert(tomllib.loads(path.read_text("utf-8")), Manifest)
    except FileNotFoundError as error:
        raise PluginError(
            f"{path} is missing.", fix="Write one: name, version, description."
        ) from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PluginError(f"Cannot read {path}: {error}.") from error
    except RecursionError as error:
        raise PluginError(f"Cannot read {path}: it is nested too deeply.") from error
    except msgspec.ValidationError as error:
        raise PluginError(
            f"{path}: {error}.",
            fix="Required: name, version, description. Optional: author, requires_hermes.",
        ) from error


def import_code(found: Found) -> ModuleType | object:
    """Run the plugin's code; return the object that has its `register`."""
    if found.source == "package":
        module, _, attribute = found.location.partition(":")
        target: object = importlib.import_module(module.strip())
        for part in attribute.strip().split(".") if attribute else ():
            target = getattr(target, part)
        return target
    return _import_folder(found.name, Path(found.location))


def forget_code(found: Found) -> None:
    """Remove the modules of a folder plugin from sys.modules."""
    if found.source == "package":
        return
    module = f"{_PACKAGE}.{found.name}"
    for name in [n for n in sys.modules if n == module or n.startswith(f"{module}.")]:
        del sys.modules[name]


def _import_folder(name: str, folder: Path) -> ModuleType:
    """Import a folder as `hermes_plugins.<name>`, without changing sys.path."""
    start = folder / "__init__.py"
    if not start.is_file():
        raise PluginError(f"{start} is missing.", fix="Write one with a function register(ctx).")
    if _PACKAGE not in sys.modules:
        parent = ModuleType(_PACKAGE, "Plugins that were loaded from folders.")
        parent.__path__ = []
        sys.modules[_PACKAGE] = parent
    spec = importlib.util.spec_from_file_location(
        f"{_PACKAGE}.{name}", start, submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise PluginError(f"{start} cannot be imported.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _in_folder(
    folder: Path, source: Source, names: Collection[str] | None = None
) -> Iterator[Found]:
    if not folder.is_dir():
        return
    for entry in sorted(folder.iterdir()):
        is_hidden = entry.name.startswith((".", "__"))
        if (names is None or entry.name in names) and entry.is_dir() and not is_hidden:
            yield at(entry, source)


def _installed() -> Iterator[Found]:
    for point in _entry_points():
        place = point.value.partition("[")[0].strip()  # the rest would name extras
        found = Found(point.name, "package", place)
        try:
            yield _described(found, _manifest_of(point, place.partition(":")[0].strip()))
        except PluginError as error:
            yield msgspec.structs.replace(found, error=str(error))


def _entry_points() -> "Iterable[EntryPoint]":
    """Return the entry points of installed packages; skips packages with broken metadata."""
    from importlib import metadata  # noqa: PLC0415 -- slow, and often not needed

    try:
        return metadata.entry_points(group=GROUP)
    except Exception as error:  # noqa: BLE001 -- reading broken metadata may raise anything
        logger.debug(
            "the metadata of a package is broken: %s", describe_error(error)
        )  # which is told below
    usable: dict[str, list[EntryPoint]] = {}
    for package in metadata.distributions():  # each by itself: slower, and only then
        try:
            usable.setdefault(package.name, list(package.entry_points.select(group=GROUP)))
        except Exception as error:  # noqa: BLE001 -- as above
            place = getattr(package, "_path", package)  # the name itself may be broken
            logger.warning("Skipped package %s: %s", place, describe_error(error))
    return [point for points in usable.values() for point in points]


def _manifest_of(point: "EntryPoint", module: str) -> Manifest:
    if not is_name(point.name):
        raise PluginError(f"Invalid plugin name {point.name!r}.")
    if (path := _manifest_beside(module)) is not None:
        return read_manifest(path)
    about = point.dist.metadata.json if point.dist is not None else {}
    return Manifest(
        name=point.name,
        version=str(about.get("version", "")),
        description=str(about.get("summary", "")),
        author=str(about.get("author", "")),
    )


def _manifest_beside(module: str) -> Path | None:
    """Find the plugin.toml in a package's folder, without importing it.

    A top-level module has none: it shares its folder with other distributions.
    """
    top, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    for place in (spec and spec.submodule_search_locations) or ():
        inner = Path(place, *rest)
        folder = inner if not rest or inner.is_dir() else inner.parent
        if (folder / "plugin.toml").is_file():
            return folder / "plugin.toml"
    return None


def _described(found: Found, manifest: Manifest) -> Found:
    """Add the manifest to a plugin, or an error if it is for another name or version."""
    found = msgspec.structs.replace(
        found, version=manifest.version, description=manifest.description
    )
    if manifest.name != found.name:
        error = f"Its manifest has another name: {manifest.name!r}."
        return msgspec.structs.replace(found, error=error)
    if not _fits(manifest.requires_hermes, VERSION):
        error = f"It needs Hermes {manifest.requires_hermes}; this is {VERSION}."
        return msgspec.structs.replace(found, error=error)
    return found


def _fits(specifier: str, version: str) -> bool:
    """Return whether a version meets every clause of a specifier such as ">=0.1, <2"."""
    return all(_meets(clause.strip(), version) for clause in specifier.split(",") if clause.strip())


def _meets(clause: str, version: str) -> bool:
    match = _CLAUSE.fullmatch(clause)
    if match is None:
        raise PluginError(
            f"requires_hermes: {clause!r} is not valid.",
            fix="Write for example '>=0.1, <2'.",
        )
    ours, theirs = _padded(version), _padded(match[2])
    return {
        ">=": ours >= theirs,
        "<=": ours <= theirs,
        "==": ours == theirs,
        "!=": ours != theirs,
        ">": ours > theirs,
        "<": ours < theirs,
    }[match[1]]


def _padded(version: str) -> tuple[int, ...]:
    numbers = re.match(r"\d+(?:\.\d+)*", version)
    parts = [int(part) for part in numbers[0].split(".")] if numbers else []
    return tuple((parts + [0, 0, 0, 0])[:4])
