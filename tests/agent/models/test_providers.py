"""The table of providers, and one that a plugin adds: it is found, asked and priced like ours."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.models.providers import OURS, Providers, from_facts
from hermes_agent.testing.scripted import TIMEOUT_S
from hermes_agent.testing.server import ScriptedServer
from hermes_core.errors import PluginError
from hermes_core.paths import Home

PLUGIN = """
def register(ctx):
    ctx.provider(
        "acme",
        base_url="{url}",
        key_variable="ACME_API_KEY",
        default_model="rocket-1",
        models=[{{"match": "rocket", "window": 50000, "max_output": 4000, "input": 3, "output": 9}}],
    )
"""
KEY = "sk-of-acme-123"


@pytest.fixture
def acme(tmp_path: Path, home: Home) -> Any:
    """A home with a plugin for a provider, and the server of that provider."""
    with ScriptedServer(["Lift-off."], key=KEY) as server:
        folder = home.plugins / "acme"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(PLUGIN.format(url=server.openai_url))
        (folder / "plugin.toml").write_text(
            'name = "acme"\nversion = "1"\ndescription = "Adds the provider acme."\n'
        )
        home.config.write_text('[plugins]\nenabled = ["acme"]\n[agent]\ntitles = false\n')
        yield server


def hermes(home: Home, *arguments: str, **variables: str) -> str:
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(
        [Path(sys.executable).with_name("hermes"), *arguments],
        env={**environment, "HERMES_HOME": str(home.root), **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_provider_of_a_plugin_is_found_asked_and_priced(acme: ScriptedServer, home: Home) -> None:
    document = json.loads(hermes(home, "model", "--json", ACME_API_KEY=KEY))
    assert document["used"]["name"] == "acme/rocket-1"
    assert document["used"]["reason"] == "ACME_API_KEY is set"
    facts = document["used"]["facts"]
    assert (facts["window"], facts["input_price"]) == (50_000, 3)
    assert "Lift-off." in hermes(home, "chat", "-q", "Go.", ACME_API_KEY=KEY)
    [request] = acme.model_requests
    assert request.json["model"] == "rocket-1"
    assert request.headers["authorization"] == f"Bearer {KEY}"


def test_a_model_of_a_plugins_provider_can_be_named(acme: ScriptedServer, home: Home) -> None:
    document = json.loads(
        hermes(home, "--set", "model.name=acme/rocket-2", "model", "--json", ACME_API_KEY=KEY)
    )
    assert document["used"]["name"] == "acme/rocket-2"


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"base_url": "ftp://x"}, "base_url"),
        ({"base_url": "https://x.test", "adapter": "embedded"}, "adapter"),
        ({"base_url": "https://x.test", "adaptor": "openai"}, "adaptor"),
        ({"base_url": "https://x.test", "model_pattern": "("}, "not described correctly"),
        ({"base_url": "https://x.test", "models": [{"match": "m"}]}, "window"),
    ],
)
def test_a_provider_that_is_not_described_correctly_is_refused(
    facts: dict[str, Any], why: str
) -> None:
    with pytest.raises(PluginError, match=why):
        from_facts("acme", facts)


def test_a_provider_of_a_plugin_comes_behind_ours_and_before_local_servers() -> None:
    acme = from_facts("acme", {"base_url": "https://api.acme.test/v1", "key_variable": "ACME_KEY"})
    table = Providers([acme])
    assert [p.name for p in table.hosted] == [*(p.name for p in OURS.hosted), "acme"]
    assert table.at("https://api.acme.test/other") == "acme"
    assert table.credentials({"ACME_KEY": "k", "OTHER_KEY": "x"}) == {"ACME_KEY": "k"}
    assert "ACME_KEY" in table.step_up()
