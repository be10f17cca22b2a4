"""hermes-agent in an environment of its own, measured by a driver that runs there."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
HOME = ROOT / ".venv-peer"
_TIMEOUT_S = 600


class PeerError(RuntimeError):
    """The peer cannot be installed or cannot do what it is asked."""


def prepare(version: str) -> Callable[..., dict[str, Any]]:
    """Install that version if it is not there yet; returns what measures it."""
    python = HOME / "bin" / "python"
    if _installed(python) != version:
        print(f"installing hermes-agent {version} into {HOME.name}", file=sys.stderr)
        _run([sys.executable, "-m", "venv", str(HOME)])
        _run([str(python), "-m", "pip", "install", "-q", f"hermes-agent=={version}"])

    def measure(verb: str, **arguments: Any) -> dict[str, Any]:
        command = [str(python), "-m", "bench.peer_driver", verb, json.dumps(arguments)]
        home = Path(arguments["folder"]) / "home"
        home.mkdir(parents=True)
        done = _run(command, {"HERMES_HOME": str(home), "HOME": str(home)})
        return json.loads(done.strip().splitlines()[-1])

    return measure


def _installed(python: Path) -> str | None:
    if not python.exists():
        return None
    found = subprocess.run(
        [str(python), "-c", "from importlib.metadata import version as v; print(v('hermes-agent'))"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return found.stdout.strip() or None


def _run(command: list[str], extra: dict[str, str] | None = None) -> str:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HERMES_", "PYTHON"))}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env={**kept, **(extra or {})}, capture_output=True, text=True,
            timeout=_TIMEOUT_S if extra else None, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise PeerError(f"took longer than {_TIMEOUT_S} s") from error
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no message"]
        raise PeerError(said[-1])
    return done.stdout
