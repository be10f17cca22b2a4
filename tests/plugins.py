"""A plugin of a person, written and enabled for a test."""

import tomllib
from pathlib import Path

from hermes_core import config
from hermes_core.paths import Home


def enable(home: Home, name: str, code: str) -> Path:
    """Write a plugin, enable it besides the others, and return its folder."""
    folder = home.plugins / name
    folder.mkdir(parents=True)
    (folder / "plugin.toml").write_text(f'name = "{name}"\nversion = "1"\ndescription = "x"\n')
    (folder / "__init__.py").write_text(code)
    known = tomllib.loads(home.config.read_text()) if home.config.exists() else {}
    config.change(home, "plugins.enabled", [*known.get("plugins", {}).get("enabled", ()), name])
    return folder
