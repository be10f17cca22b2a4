"""Telegram before it is loaded: its settings, and whose account they are."""

import subprocess
import sys

import msgspec
import pytest

from gateway.platforms.registry import find, make, settings_of
from gateway.platforms.telegram.manifest import MANIFEST, TelegramSettings
from hermes_core.errors import ConfigError
from hermes_core.paths import Home
from tests.gateway.servers.telegram import TOKEN


def test_the_account_is_the_part_of_the_token_that_is_no_secret() -> None:
    assert MANIFEST.identity(TelegramSettings(token=TOKEN)) == "4242"


def test_the_token_comes_from_the_environment_or_the_file(
    monkeypatch: pytest.MonkeyPatch, home: Home
) -> None:
    manifest = find("telegram")
    assert settings_of(manifest, {"token": "1:file"}).token == "1:file"
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN", TOKEN)
    settings = settings_of(manifest, {"token": "1:file"})

    assert settings.token == TOKEN
    assert make(manifest, settings, home).platform.value == "telegram"


@pytest.mark.parametrize("table", [{"tokn": "x"}, {"mode": "pigeon"}, {"poll_s": 51}])
def test_settings_that_do_not_exist_are_named(table: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="gateway.platforms.telegram"):
        settings_of(MANIFEST, table)


def test_every_setting_is_described() -> None:
    described = msgspec.json.schema(TelegramSettings)["$defs"]["TelegramSettings"]["properties"]

    assert all("description" in schema for schema in described.values())


def test_the_manifest_loads_no_library() -> None:
    code = "import sys, gateway.platforms.telegram.manifest; print('telegram' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"
