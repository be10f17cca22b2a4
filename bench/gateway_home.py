"""A home whose gateway speaks with a scripted model, on the platforms that a row wants."""

import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.gateway.servers.telegram import TOKEN as BOT

from bench.gateway_process import TOKEN
from hermes_core.paths import Home

_PLUGIN = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from tests.support.loopback.manifest import MANIFEST


def register(ctx):
    ctx.platform("loopback", lambda: MANIFEST)
"""
_SETTINGS = """
[model]
name = "scripted"
base_url = "{model}/v1"
api_key = "scripted-key"

[agent]
titles = false

[plugins]
enabled = ["loopback"]

[gateway]
streaming = {streaming}
health_port = {health}
drain_s = 1.0

[gateway.owners]
loopback = ["u1"]
telegram = ["1001"]
"""


def configure(
    home: Path,
    model: str,
    platforms: Mapping[str, Mapping[str, str | int]],
    *,
    streaming: bool = True,
    health: int = 0,
) -> Home:
    """Write the settings of a home; it is made when it is not there."""
    made = Home(home)
    made.create()
    folder = made.plugins / "loopback"
    folder.mkdir(parents=True, exist_ok=True)
    about = 'name = "loopback"\nversion = "1"\ndescription = "A platform to measure with."\n'
    (folder / "plugin.toml").write_text(about)
    (folder / "__init__.py").write_text(_PLUGIN)
    text = _SETTINGS.format(model=model, streaming=str(streaming).lower(), health=health)
    for name, table in platforms.items():
        lines = (f"{key} = {value!r}" for key, value in table.items())
        text += "\n".join([f"\n[gateway.platforms.{name}]", *lines, ""])
    made.config.write_text(text)
    return made


def api(port: int) -> dict[str, dict[str, str | int]]:
    """The HTTP API, on a port."""
    return {"api_server": {"token": TOKEN, "port": port}}


def telegram(url: str) -> dict[str, dict[str, str | int]]:
    """Telegram, on its double."""
    return {"telegram": {"token": BOT, "api_url": url}}


def loopback(address: str) -> dict[str, dict[str, str | int]]:
    """The loopback platform, on its server."""
    return {"loopback": {"address": address}}


@contextmanager
def running(module: str, *arguments: str) -> Generator[str]:
    """A server in a process of its own, whose work is not counted as ours; gives its address.

    It stands for another machine, so it does not take the processor from what is measured.
    """
    command = ["nice", "-n", "19", sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().split()[-1]
        finally:
            server.terminate()
