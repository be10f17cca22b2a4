"""A change to config.toml, whatever the file looks like: only what was meant differs."""

import threading
import tomllib
from collections import Counter
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hermes_core import config
from hermes_core.errors import ConfigError
from hermes_core.paths import Home

Table = dict[str, Any]

_TABLES = (
    '[gateway.platforms.telegram] # mine\ntoken = "1:a" # from @BotFather\n# by day\nenabled = true\n',
    "[gateway]\n\nhealth_port = 18080 # for the monitor\ndrain_s = 4.5\n",
    "[gateway.owners] # who may\ntelegram = [\n  '1001', # Anna\n  # Ben comes later\n]\n",
    '[gateway.platforms.webhook]\nport = 18087\nsecret = """\n[gateway]\n# no comment\n"""\n',
    '[ plugins . "settings" . "a.b" ]\n"x = y" = 1 # odd\nz.deep = { one = 1, two = [ 2 ] } # braces\n',
    "[plugins] # few\nenabled = [ 'a', 'b' ]\n",
    "[log]\nlevel = 'info' # calm\n",
    "[[gateway.platforms.email.rules]]\nfrom = 'x'\n\n[[gateway.platforms.email.rules]]\nfrom = 'y'\n",
    "[gateway.platforms.matrix]\n",
)
_DOTTED = (
    "[gateway]\nbusy = 'queue'\nplatforms.telegram.token = '1:a' # dots\nplatforms.x = {a = 1}\n"
)
_BRACED = "gateway = { busy = 'queue', platforms = { telegram = { token = '1:a' } } } # short\n"
_GAPS = ("", "\n", "# a word\n", "\n  # two = 2\n\n# [words]\n\n")
_REVIEWED = "".join(_TABLES[place] for place in (0, 1, 2, 3))

_files = st.one_of(
    st.permutations(_TABLES)
    .flatmap(lambda tables: st.tuples(*(st.sampled_from((table, "")) for table in tables)))
    .flatmap(lambda tables: st.tuples(*(st.tuples(st.sampled_from(_GAPS), st.just(t)) for t in tables)))
    .map(lambda parts: "".join(gap + table for gap, table in parts)),
    st.permutations((_DOTTED, _TABLES[5], _TABLES[6])).map("".join),
    st.permutations(_TABLES[5:7]).map(lambda tables: _BRACED + "".join(tables)),
)  # fmt: skip
_texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=6)
_values = st.one_of(_texts, st.booleans(), st.integers(0, 9), st.floats(0, 1), st.lists(_texts))
_added = st.dictionaries(_texts.filter(bool) | st.sampled_from("ab"), _values, max_size=3)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("homes") / "home").create()


def _lines(text: str) -> Counter[str]:
    return Counter(line for line in text.splitlines() if line.strip())


def _in_order(few: str, many: str) -> bool:
    """Whether all lines of a text are in another one, in their order."""
    rest = iter(many.splitlines())
    return all(line in rest for line in few.splitlines())


def _changed(place: Home, before: str, key: str, value: object) -> str:
    """Change a file, check that it says what was meant, and return it."""
    section, field = key.split(".")
    expected: Table = deepcopy(tomllib.loads(before))
    expected.setdefault(section, {})[field] = value
    place.config.write_bytes(before.encode())
    config.change(place, key, value)
    after = place.config.read_bytes().decode()
    assert tomllib.loads(after) == expected
    return after


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(before=_files, table=_added)
@example(before=_REVIEWED, table={"port": 18095, "enabled": True})
@example(before="", table={})
@example(before=_DOTTED, table={"\x7f \u2028 = '\"\\": "\x7f"})
def test_a_platform_is_added_and_every_line_stays(place: Home, before: str, table: Table) -> None:
    platforms = tomllib.loads(before).get("gateway", {}).get("platforms", {})
    after = _changed(place, before, "gateway.platforms", {**platforms, "api_server": table})
    if before.startswith(_BRACED):
        assert _in_order(before.removeprefix(_BRACED), after)
        assert "# short" in after
    else:
        assert _in_order(before, after)


@settings(deadline=None)
@given(before=_files, port=st.integers(1, 9))
def test_a_value_in_a_table_is_changed_and_every_other_line_stays(
    place: Home, before: str, port: int
) -> None:
    platforms = tomllib.loads(before).get("gateway", {}).get("platforms", {})
    webhook = {**platforms.get("webhook", {}), "port": port}
    after = _changed(place, before, "gateway.platforms", {**platforms, "webhook": webhook})
    removed = _lines(before) - _lines(after)
    assert removed <= Counter(["port = 18087", _BRACED.strip()])


@settings(deadline=None)
@given(before=_files, busy=st.sampled_from(["steer", "interrupt"]))
def test_a_plain_setting_is_changed_and_every_other_line_stays(
    place: Home, before: str, busy: str
) -> None:
    after = _changed(place, before, "gateway.busy", busy)
    removed = _lines(before) - _lines(after)
    assert removed <= Counter(["busy = 'queue'", _BRACED.strip()])
    assert len(_lines(after)) <= len(_lines(before)) + 2


@settings(deadline=None)
@given(before=_files)
def test_a_table_is_taken_out_and_every_comment_on_a_line_of_its_own_stays(
    place: Home, before: str
) -> None:
    old = tomllib.loads(before)
    place.config.write_text(before)
    config.change(place, "gateway.platforms", None)
    after = place.config.read_text()
    old.get("gateway", {}).pop("platforms", None)
    assert {"gateway": {}} | tomllib.loads(after) == {"gateway": {}} | old
    removed = _lines(before) - _lines(after)
    assert not [line for line in removed if line.startswith("#") and line != "# no comment"]


def test_lines_end_as_they_did(home: Home) -> None:
    home.create().config.write_bytes(b"[log] # one\r\nlevel = 'info'\r\n# two\r\n[gateway]")
    config.change(home, "gateway.drain_s", 2.0)
    text = b"[log] # one\r\nlevel = 'info'\r\n# two\r\n[gateway]\ndrain_s = 2.0\n"
    assert home.config.read_bytes() == text


def test_a_change_that_cannot_be_made_alone_is_refused_and_the_file_stays(home: Home) -> None:
    before = "[[gateway.platforms.email.rules]]\nfrom = 'x'\n"
    home.create().config.write_text(before)
    with pytest.raises(ConfigError, match="without changing other settings.*editor"):
        config.change(home, "gateway.platforms", {"email": {"rules": []}})
    assert home.config.read_text() == before


def test_several_who_change_settings_at_the_same_time_lose_nothing(home: Home) -> None:
    home.create()
    home.config.write_text("# mine\n[terminal]\nbusy = 'steer'\n")
    expected = {"agent.max_steps": 7, "gateway.busy": "interrupt", "log.level": "debug"}
    begin = threading.Barrier(len(expected))

    def change(key: str) -> None:
        begin.wait()
        for _ in range(20):
            config.change(home, key, None)
            config.change(home, key, expected[key])

    threads = [threading.Thread(target=change, args=(key,)) for key in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    settings = config.load(home, environment={})
    assert (settings.agent.max_steps, settings.gateway.busy) == (7, "interrupt")
    assert (settings.log.level, settings.terminal.busy) == ("debug", "steer")
    assert home.config.read_text().startswith("# mine\n")
    assert list(home.root.glob("*.new")) == []
