"""A plugin of a person, written and enabled for a test."""

import tomllib
from pathlib import Path

from hermes_core import config
from hermes_core.paths import Home

DEADLY = """
import os
from pathlib import Path

def register(ctx):
    @ctx.hook("on_session_start")
    def began(session_id):
        with Path({path!r}).open("a") as file:
            file.write(session_id + "\\n")
        if len(Path({path!r}).read_text().split()) == 1:
            os._exit(9)
"""
"""The code of one that ends its process when it hears of the first conversation; `path` tells which."""


def enable(home: Home, name: str, code: str) -> Path:
    """Write a plugin, enable it besides the others, and return its folder."""
    folder = home.plugins / name
    folder.mkdir(parents=True)
    (folder / "plugin.toml").write_text(f'name = "{name}"\nversion = "1"\ndescription = "x"\n')
    (folder / "__init__.py").write_text(code)
    settings = tomllib.loads(home.config.read_text()) if home.config.exists() else {}
    config.change(home, "plugins.enabled", [*settings.get("plugins", {}).get("enabled", ()), name])
    return folder
