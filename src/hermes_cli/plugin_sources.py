"""Where plugins come from: the home, installed packages, and those shipped with Hermes.

Finding a plugin reads its manifest and never runs its code; `import_code` runs it. A name that is
in several places is taken from the home first, then from a package, then from the shipped ones.
"""

import importlib
import importlib.util
import logging
import re
import sys
import tomllib
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
"""Names of plugins and of most things they register; none of them can lead out of a folder."""

_PACKAGE = "hermes_plugins"
_CLAUSE = re.compile(r"(>=|<=|==|!=|>|<)\s*(\d{1,9}(?:\.\d{1,9})*)", re.ASCII)


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What plugin.toml says."""

    name: str
    version: str
    description: str
    author: str = ""
    requires_hermes: str = ""
    """Versions of Hermes it works with, such as ">=0.1, <2"; empty for any."""


class Found(msgspec.Struct, frozen=True):
    """A plugin that was found, whether or not it can be used."""

    name: str
    source: Source
    location: str
    """Its folder, or the object its package names as the entry point."""

    version: str = ""
    description: str = ""
    error: str = ""
    """Why its manifest cannot be used; empty when it can."""

    hides: tuple[str, ...] = ()
    """Other places that have a plugin of this name, which is not used."""


def is_name(text: str) -> bool:
    """Return whether a plugin may be called so: lower-case letters, digits, dashes, underscores."""
    return NAME.fullmatch(text) is not None


def discover(home: Home) -> dict[str, Found]:
    """Every known plugin by its name; no plugin's code runs."""
    known: dict[str, Found] = {}
    for found in (
        *_in_folder(home.plugins, "home"),
        *_installed(),
        *_in_folder(BUNDLED, "bundled"),
    ):
        first = known.get(found.name)
        if first is None:
            known[found.name] = found
        else:
            hidden = f"{found.source}: {found.location}"
            known[found.name] = msgspec.structs.replace(first, hides=(*first.hides, hidden))
    return dict(sorted(known.items()))


def find(home: Home, names: Collection[str]) -> dict[str, Found]:
    """The named plugins that exist; looks no further than it must, for metadata is slow to read."""
    known: dict[str, Found] = {}
    for place in (
        _in_folder(home.plugins, "home", names),
        _installed(),
        _in_folder(BUNDLED, "bundled", names),
    ):
        if known.keys() >= set(names):
            break
        for found in place:
            known.setdefault(found.name, found)
    return {name: known[name] for name in names if name in known}


def at(folder: Path, source: Source = "home") -> Found:
    """The plugin that lies in this folder."""
    if not is_name(folder.name):  # it may hold anything, also what no terminal and no JSON takes
        error = PluginError(
            f"{folder.name!r} is no name for a plugin.",
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
    """Read plugin.toml; a missing, unknown or wrong key raises PluginError."""
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise PluginError(f"{path} is no file.")
    try:
        return msgspec.convert(tomllib.loads(path.read_text("utf-8")), Manifest)
    except FileNotFoundError as error:
        raise PluginError(
            f"{path} is missing.", fix="Write one: name, version, description."
        ) from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PluginError(f"{path} cannot be read: {error}.") from error
    except RecursionError as error:
        raise PluginError(f"{path} cannot be read: its values are nested too deep.") from error
    except msgspec.ValidationError as error:
        raise PluginError(
            f"{path}: {error}.",
            fix="It has the texts name, version and description, and may have author and "
            "requires_hermes.",
        ) from error


def import_code(found: Found) -> ModuleType | object:
    """Run the plugin's code and return what holds its `register`."""
    if found.source == "package":
        module, _, attribute = found.location.partition(":")
        held: object = importlib.import_module(module.strip())
        for part in attribute.strip().split(".") if attribute else ():
            held = getattr(held, part)
        return held
    return _import_folder(found.name, Path(found.location))


def forget_code(found: Found) -> None:
    """Take the modules of a folder plugin out of the interpreter, so that it can be loaded anew."""
    if found.source == "package":
        return
    module = f"{_PACKAGE}.{found.name}"
    for name in [n for n in sys.modules if n == module or n.startswith(f"{module}.")]:
        del sys.modules[name]


def _import_folder(name: str, folder: Path) -> ModuleType:
    """Import a folder as `hermes_plugins.<name>`, so that sys.path stays as it is."""
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
        wanted = names is None or entry.name in names
        if wanted and entry.is_dir() and not entry.name.startswith((".", "__")):
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
    """Return what installed packages offer; a package whose metadata is broken is passed over."""
    from importlib import metadata  # noqa: PLC0415 -- slow, and often not needed

    try:
        return metadata.entry_points(group=GROUP)
    except Exception as error:  # noqa: BLE001 -- the reader of a broken file may raise anything
        logger.debug(
            "the metadata of a package is broken: %s", describe_error(error)
        )  # which is told below
    usable: dict[str, list[EntryPoint]] = {}
    for package in metadata.distributions():  # each by itself: slower, and only then
        try:
            usable.setdefault(package.name, list(package.entry_points.select(group=GROUP)))
        except Exception as error:  # noqa: BLE001 -- as above
            place = getattr(package, "_path", package)  # its name may be what is broken
            logger.warning("a package is passed over: %s: %s", place, describe_error(error))
    return [point for points in usable.values() for point in points]


def _manifest_of(point: "EntryPoint", module: str) -> Manifest:
    if not is_name(point.name):
        raise PluginError(f"{point.name!r} is no name for a plugin.")
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
    """The plugin.toml in the folder of a package's module, found without importing anything.

    A module outside a package shares its folder with every other distribution, so it has none.
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
    """Take over what the manifest says, if it belongs to this plugin and to this Hermes."""
    found = msgspec.structs.replace(
        found, version=manifest.version, description=manifest.description
    )
    if manifest.name != found.name:
        error = f"Its manifest says that it is called {manifest.name!r}; both must agree."
        return msgspec.structs.replace(found, error=error)
    if not _fits(manifest.requires_hermes, VERSION):
        error = f"It needs Hermes {manifest.requires_hermes}; this is {VERSION}."
        return msgspec.structs.replace(found, error=error)
    return found


def _fits(wanted: str, version: str) -> bool:
    """Return whether a version meets every clause of a specifier such as ">=0.1, <2"."""
    return all(_meets(clause.strip(), version) for clause in wanted.split(",") if clause.strip())


def _meets(clause: str, version: str) -> bool:
    match = _CLAUSE.fullmatch(clause)
    if match is None:
        raise PluginError(
            f"requires_hermes: {clause!r} is not understood.",
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
