"""What Matrix asks for before it is loaded, and what it says when that is missing."""

import asyncio
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gateway.config import Platform, PlatformConfig
from gateway.platforms.matrix.manifest import MANIFEST, MatrixSettings

SERVER = "https://example.org"


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ({}, "homeserver"),
        ({"homeserver": "example.org", "access_token": "t"}, "https://"),
        ({"homeserver": SERVER}, "access_token"),
        ({"homeserver": SERVER, "user": "@h:example.org"}, "password"),
        ({"homeserver": SERVER, "access_token": "t", "paswort": "x"}, "paswort"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(table: dict[str, str], named: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=named):
        msgspec.convert(table, MatrixSettings)


def test_the_account_is_named_without_its_secret() -> None:
    with_password = MatrixSettings(SERVER, user="@h:example.org", password="secret")
    with_token = MatrixSettings(SERVER + "/", access_token="secret")
    assert MANIFEST.identity(with_password) == "@h:example.org|https://example.org"
    assert "secret" not in MANIFEST.identity(with_token)
    assert MANIFEST.identity(with_token).endswith("|https://example.org")


def test_the_manifest_makes_an_adapter_whose_pieces_may_be_sent_again(tmp_path: Path) -> None:
    settings = MatrixSettings(SERVER, access_token="secret")
    adapter = MANIFEST.make(PlatformConfig(enabled=True), settings, tmp_path)
    assert adapter.platform is Platform.MATRIX
    assert adapter.abilities.resend == "same"
    assert list(tmp_path.iterdir()) == []


def test_what_is_sent_without_a_connection_may_be_sent_again(tmp_path: Path) -> None:
    settings = MatrixSettings(SERVER, access_token="secret")
    adapter = MANIFEST.make(PlatformConfig(enabled=True), settings, tmp_path)
    result = asyncio.run(adapter.send("!room:example.org", "hello"))
    assert (result.success, result.error_kind) == (False, "network")
    asyncio.run(adapter.disconnect())


def test_the_manifest_loads_no_library() -> None:
    code = (
        "import sys, gateway.platforms.matrix.manifest;"
        "sys.exit(bool({'nio', 'aiohttp', 'markdown_it'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
