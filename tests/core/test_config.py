"""Settings: which value wins, what an error says, and what a change to the file leaves alone."""

import re
import tomllib
from pathlib import Path

import pytest

from hermes_core import config
from hermes_core.errors import ConfigError
from hermes_core.paths import Home
from hermes_core.secrets import MASK, masked


def write(home: Home, text: str) -> None:
    home.create().config.write_text(text, "utf-8")


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_without_a_file_the_defaults_hold(home: Home) -> None:
    settings = config.load(home, environment={})
    assert settings == config.Settings()
    assert settings.sessions.retention_days == 90
    assert not home.root.exists(), "reading makes nothing"


def test_the_file_beats_the_default_the_environment_the_file_and_the_command_line_all(
    home: Home,
) -> None:
    def days(*overrides: str, **environment: str) -> int:
        settings = config.load(home, environment=environment, overrides=overrides)
        return settings.sessions.retention_days

    assert days() == 90
    write(home, "[sessions]\nretention_days = 7\n")
    assert days() == 7
    assert days(HERMES_SESSIONS_RETENTION_DAYS="8") == 8
    assert days("sessions.retention_days=9", HERMES_SESSIONS_RETENTION_DAYS="8") == 9


def test_a_value_in_the_environment_has_the_type_of_its_setting(home: Home) -> None:
    environment = {
        "HERMES_SESSIONS_RETENTION_DAYS": "12",
        "HERMES_STORE_BUSY_TIMEOUT_S": "2.5",
        "HERMES_PLUGINS_ENABLED": "a, b,",
        "HERMES_LOG_LEVEL": "debug",
    }
    settings = config.load(home, environment=environment)
    assert settings.sessions.retention_days == 12
    assert settings.store.busy_timeout_s == 2.5
    assert settings.plugins.enabled == ["a", "b"]
    assert settings.log.level == "debug"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[storage]\nx = 1", ["config.toml", "no section [storage]", "store, sessions"]),
        ("[log]\nlevle = 'info'", ["config.toml", "log.levle", "Remove it, or use one of: level"]),
        ("log = 3", ["config.toml", "log must be a table", "Write [log]"]),
        (
            "[sessions]\nretention_days = 'x'",
            ["config.toml", "sessions.retention_days", "an integer"],
        ),
        ("[sessions]\nretention_days = 0", ["config.toml", "sessions.retention_days", ">= 1"]),
        ("[log]\nlevel = 'loud'", ["config.toml", "log.level", "one of debug, info"]),
        ("[plugins]\nenabled = [1]", ["config.toml", "plugins.enabled", "a list of strings"]),
        (
            "[gateway]\nreset_hour = 99",
            ["gateway.reset_hour", "<= 23", "an integer, for example 4"],
        ),
        ("[gateway]\nreset_idle_minutes = 0", ["gateway.reset_idle_minutes", "for example 1440"]),
        (
            "[gateway.owners]\nx = [1001]",
            ["gateway.owners", 'quoted strings, such as ["1001"]'],
        ),
        ("[gateway.owners]\nx = '1001'", ["gateway.owners", "a table of lists"]),
        ("[log\n", ["config.toml", "not valid TOML", "line 1"]),
    ],
)
def test_a_mistake_in_the_file_is_named_with_file_key_and_fix(
    home: Home, text: str, says: list[str]
) -> None:
    write(home, text)
    with pytest.raises(ConfigError) as caught:
        config.load(home, environment={})
    for words in says:
        assert words in str(caught.value)


def test_a_mistake_outside_the_file_names_where_it_stands(home: Home) -> None:
    with pytest.raises(ConfigError, match="HERMES_SESSIONS_RETENTION_DAYS.*an integer"):
        config.load(home, environment={"HERMES_SESSIONS_RETENTION_DAYS": "many"})
    with pytest.raises(ConfigError, match="HERMES_STORE_BUSY_TIMEOUT_S.*store.busy_timeout_s"):
        config.load(home, environment={"HERMES_STORE_BUSY_TIMEOUT_S": "-1"})
    with pytest.raises(ConfigError, match="--set log.level"):
        config.load(home, environment={}, overrides=["log.level=loud"])
    with pytest.raises(ConfigError, match="Unknown setting log.colour"):
        config.load(home, environment={}, overrides=["log.colour=red"])
    with pytest.raises(ConfigError, match="no value"):
        config.load(home, environment={}, overrides=["log.level"])


def test_a_change_keeps_every_comment_and_every_other_line(home: Home) -> None:
    before = (
        "# größer\n[log]\nlevel = 'info'  # calm\n\n[plugins]\nenabled = [\n"
        '  "a", # needed\n  "b", # not needed\n]\n\n[plugins.settings.a]\nx = 1 # one\n'
    )
    write(home, before)
    config.change(home, "log.level", "debug")
    config.change(home, "plugins.enabled", ["a", "c"])
    after = home.config.read_text("utf-8")
    expected = before.replace("'info'", '"debug"').replace('  "b", # not needed\n', '  "c",\n')
    assert after == expected


def test_a_change_to_nothing_brings_the_default_back(home: Home) -> None:
    config.change(home, "sessions.retention_days", 3)
    assert config.load(home, environment={}).sessions.retention_days == 3
    config.change(home, "sessions.retention_days", None)
    assert config.load(home, environment={}).sessions.retention_days == 90


@pytest.mark.parametrize(("key", "value"), [("log.level", "loud"), ("log.colour", "red")])
def test_a_change_that_would_spoil_the_file_is_not_made(home: Home, key: str, value: str) -> None:
    write(home, "[log]\nlevel = 'info'\n")
    with pytest.raises(ConfigError):
        config.change(home, key, value)
    assert home.config.read_text() == "[log]\nlevel = 'info'\n"


def test_the_home_and_the_file_belong_to_their_owner_alone(home: Home) -> None:
    config.change(home, "log.level", "debug")
    assert mode(home.root) == 0o700
    assert mode(home.config) == 0o600


def test_the_home_is_the_variable_else_a_folder_of_the_user(tmp_path: Path) -> None:
    assert config.home({"HERMES_HOME": str(tmp_path)}).root == tmp_path
    assert config.home({}).root == Path.home() / ".hermes"
    assert config.home({"HERMES_HOME": ""}).root == Path.home() / ".hermes"
    assert config.home({"HERMES_HOME": "~/x"}).root == Path.home() / "x"


def test_every_setting_has_a_description_and_a_type_in_words() -> None:
    for option in config.options():
        assert option.description.endswith(".")
        assert "<" not in config.describe(option.type)


@pytest.mark.parametrize("folder", ["~nobody-of-this-name/x", "/tmp/\udcff"])
def test_a_home_that_cannot_be_one_is_told_in_words(folder: str) -> None:
    with pytest.raises(ConfigError, match="HERMES_HOME"):
        config.home({"HERMES_HOME": folder})


@pytest.mark.parametrize(
    ("text", "mode"),
    [("1", "allow"), ("yes", "allow"), ("false", "ask"), ("off", "ask"), ("", "ask")],
)
def test_everything_is_allowed_only_by_a_yes(home: Home, text: str, mode: str) -> None:
    assert config.load(home, environment={"HERMES_YOLO_MODE": text}).approvals.mode == mode


def test_a_yes_that_nobody_understands_is_refused(home: Home) -> None:
    with pytest.raises(ConfigError, match="HERMES_YOLO_MODE"):
        config.load(home, environment={"HERMES_YOLO_MODE": "perhaps"})


def test_a_relative_home_in_a_folder_that_is_gone_is_told_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = tmp_path / "gone"
    removed.mkdir()
    monkeypatch.chdir(removed)
    removed.rmdir()
    with pytest.raises(ConfigError, match="absolute path"):
        config.home({"HERMES_HOME": "home"})


def test_settings_that_cannot_be_read_say_what_to_do(home: Home) -> None:
    home.create().config.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="UTF-8"):
        config.load(home, environment={})
    home.config.unlink()
    home.config.mkdir()
    with pytest.raises(ConfigError, match="a file that you may read"):
        config.load(home, environment={})


def test_settings_behind_a_link_are_changed_where_they_are(home: Home, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "hermes.toml"
    real.parent.mkdir()
    real.write_text("# mine\n")
    home.create().config.symlink_to(real)
    config.change(home, "log.level", "debug")
    assert home.config.is_symlink()
    assert real.read_text().startswith("# mine\n") and "debug" in real.read_text()


def test_the_example_of_the_reference_is_a_file_with_every_default(home: Home) -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "config-example.md"
    example = page.read_text("utf-8").partition("```toml\n")[2].partition("```")[0]
    file = re.sub(r"(?m)^# (\w+ = )", r"\1", example)
    write(home, file)
    assert config.load(home, environment={}) == config.load(
        Home(home.root / "empty"), environment={}
    )
    written = {(table, key) for table, keys in tomllib.loads(file).items() for key in keys}
    assert {f"{table}.{key}" for table, key in written} == {o.key for o in config.options()}


def test_several_settings_change_together_or_not_at_all(home: Home) -> None:
    home.create()
    home.config.write_text("# mine\n[model]\nretries = 2\n")
    config.change_all(home, {"model.name": "a/b", "tools.sandbox": "host", "model.retries": None})
    assert "# mine" in home.config.read_text()
    settings = config.load(home, environment={})
    assert (settings.model.name, settings.tools.sandbox, settings.model.retries) == (
        "a/b",
        "host",
        4,
    )
    before = home.config.read_text()
    with pytest.raises(ConfigError):
        config.change_all(home, {"model.name": "c/d", "tools.sandbox": "nowhere"})
    assert home.config.read_text() == before


def test_stored_keys_are_secrets_by_their_provider(home: Home) -> None:
    config.change(home, "model.keys", {"openai": "any-key-of-openai"})
    settings = config.load(home, environment={})
    assert config.secrets(settings, {})["model.keys.openai"] == "any-key-of-openai"
    assert masked("model.keys", settings.model.keys) == {"openai": MASK}
