"""Pairing: a stranger is shown a code, and who gives it back lets them in."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from gateway.access import Access
from gateway.config import Platform
from gateway.pairing import ALPHABET, Pairing, described, role_named
from gateway.source import SessionSource
from hermes_cli.commands import gateway_pair
from hermes_cli.commands.app import App
from hermes_core import config
from hermes_core.errors import HermesError, UsageError
from hermes_core.paths import Home
from hermes_core.settings import GatewaySettings, Settings
from hermes_state import SessionDB
from hermes_state.ledger import outbox
from hermes_state.testing.rules.setup import still_clock
from hermes_state.values import Role


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SessionDB]:
    with SessionDB(tmp_path / "state.db") as opened:
        yield opened


def chat(user_id: str | None = "1", **more: Any) -> SessionSource:
    more.setdefault("platform", Platform.TELEGRAM)
    return SessionSource(chat_id=f"chat {user_id}", user_id=user_id, **more)


def create_pairing(store: SessionDB, **gateway: Any) -> Pairing:
    return Pairing(store, Settings(gateway=GatewaySettings(**gateway)))


def code_of(pairing: Pairing, source: SessionSource) -> str:
    code = pairing.request(source)
    assert code is not None
    return code


def test_a_stranger_with_the_right_code_is_in(store: SessionDB) -> None:
    pairing, access = create_pairing(store), Access(store, Settings())
    code = code_of(pairing, chat(user_name="Ann"))
    assert len(code) == 8 and set(code) <= set(ALPHABET)
    assert access.role_of(chat()) is None
    person = pairing.approve(code)
    assert described(person) == "Ann (1) on telegram"
    assert access.role_of(chat()) == "owner"
    assert pairing.people() == [person]


def test_codes_have_no_characters_that_look_alike() -> None:
    assert len(set(ALPHABET)) == len(ALPHABET) == 28
    for alike in ("0O", "1IL", "2Z", "5S", "8B"):
        assert len(set(alike) & set(ALPHABET)) <= 1


def test_a_code_may_be_typed_carelessly(store: SessionDB) -> None:
    pairing = create_pairing(store)
    code = code_of(pairing, chat())
    typed = code.lower().replace("z", "2").replace("s", "5").replace("b", "8")
    assert pairing.approve(f" {typed[:4]}-{typed[4:]} ").user_id == "1"


def test_who_is_told_nothing(store: SessionDB) -> None:
    pairing = create_pairing(store)
    assert pairing.request(chat(chat_type="group")) is None
    assert pairing.request(chat(is_bot=True)) is None
    assert pairing.request(chat(None)) is None
    assert create_pairing(store, strangers="ignore").request(chat()) is None
    assert pairing.request(chat()) is not None
    assert pairing.request(chat()) is None, "not again so soon"


def test_a_code_that_could_not_be_shown_can_be_asked_for_again(store: SessionDB) -> None:
    pairing = create_pairing(store)
    first = code_of(pairing, chat())
    pairing.withdraw(chat())
    second = code_of(pairing, chat())
    with pytest.raises(UsageError):
        pairing.approve(first)
    assert pairing.approve(second).role == "owner"


def test_the_first_person_is_the_owner_unless_the_settings_have_one(store: SessionDB) -> None:
    named = create_pairing(store, owners={"matrix": ["@me:example.org"]})
    assert named.approve(code_of(named, chat("1"))).role == "member"
    pairing = create_pairing(store)
    assert pairing.approve(code_of(pairing, chat("2"))).role == "owner"
    elsewhere = chat("3", platform=Platform.MATRIX)
    assert pairing.approve(code_of(pairing, elsewhere)).role == "member"
    assert pairing.approve(code_of(pairing, chat("4")), role="guest").role == "guest"


def test_wrong_codes_lock_and_the_message_says_until_when(store: SessionDB) -> None:
    pairing = create_pairing(store)
    with still_clock() as time:
        code = code_of(pairing, chat())
        for _ in range(4):
            with pytest.raises(UsageError, match="This code is not valid"):
                pairing.approve("AAAAAAAA")
        with pytest.raises(UsageError, match=r"until \d\d:\d\d"):
            pairing.approve("AAAAAAAA")
        with pytest.raises(UsageError, match=r"until \d\d:\d\d"):
            pairing.approve(code)
        time.now += 3600
        assert pairing.approve(code_of(pairing, chat())).user_id == "1"


def test_what_cannot_be_a_code_does_not_count_as_a_wrong_one(store: SessionDB) -> None:
    pairing = create_pairing(store)
    code = code_of(pairing, chat())
    for typed in ("", "telegram", "ABCD", "ABCDEFG0", "ABCDEFGHI", "ÄÖÜABCDE") * 2:
        with pytest.raises(UsageError, match="is not a code"):
            pairing.approve(typed)
    assert pairing.approve(code).user_id == "1"


def test_of_many_who_approve_at_once_one_lets_the_stranger_in(store: SessionDB) -> None:
    pairing = create_pairing(store)
    code = code_of(pairing, chat())
    start, came_out = threading.Barrier(8), list[str]()

    def approve() -> None:
        start.wait(30)
        try:
            pairing.approve(code)
            came_out.append("in")
        except UsageError:
            came_out.append("too late")

    threads = [threading.Thread(target=approve) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(came_out) == ["in"] + ["too late"] * 7


def test_who_is_let_in_is_told_so_once(store: SessionDB) -> None:
    pairing = create_pairing(store)
    pairing.approve(code_of(pairing, chat()))
    (piece,) = store.read(outbox.due)
    assert (piece["platform"], piece["chat_id"]) == ("telegram", "chat 1")
    assert "as owner" in piece["content"]


def test_an_owner_lets_people_in_from_a_chat(store: SessionDB) -> None:
    pairing = create_pairing(store)
    assert pairing.command("", "owner", "telegram:9") == "Nobody is waiting for access."
    code = code_of(pairing, chat(user_name="Ann"))
    assert "Ann (telegram)" in pairing.command("", "owner", "telegram:9")
    with pytest.raises(UsageError, match="is not a role"):
        pairing.command(f"{code} king", "owner", "telegram:9")
    for role in ("member", "guest"):
        with pytest.raises(UsageError, match="Only an owner"):
            pairing.command(code, role_named(role), "telegram:9")
    answer = pairing.command(f"{code} Guest", "owner", "telegram:9")
    assert answer == "Ann (1) on telegram has access now, as guest."
    assert pairing.people()[0].added_by == "telegram:9"
    other = code_of(pairing, chat("2"))
    assert pairing.command(other, "owner", "telegram:9").endswith("as member."), "never by accident"


def test_who_was_let_in_can_be_put_out(store: SessionDB) -> None:
    pairing = create_pairing(store, allow={"telegram": ["7"]})
    pairing.approve(code_of(pairing, chat()))
    pairing.revoke("telegram", "1")
    assert Access(store, Settings()).role_of(chat()) is None
    assert pairing.request(chat()) is not None, "a stranger again"
    with pytest.raises(UsageError, match="There is no user 1"):
        pairing.revoke("telegram", "1")
    with pytest.raises(UsageError, match=r"config\.toml"):
        pairing.revoke("telegram", "7")


def test_somebody_who_was_let_in_gets_another_role_at_once(store: SessionDB) -> None:
    pairing, access = create_pairing(store), Access(store, Settings())
    pairing.approve(code_of(pairing, chat(user_name="Ann")))
    before = pairing.people()[0]
    assert pairing.change_role("telegram", "1", "guest") == before._replace(role="guest")
    assert access.role_of(chat()) == "guest"
    assert not pairing.has_owner()
    pairing.change_role("telegram", "1", "owner")
    assert (access.role_of(chat()), pairing.has_owner()) == ("owner", True)


def test_nobody_gets_a_role_who_was_not_let_in(store: SessionDB) -> None:
    pairing = create_pairing(store)
    code_of(pairing, chat())
    with pytest.raises(UsageError, match=r"There is no user 1 .* on telegram.*gateway people"):
        pairing.change_role("telegram", "1", "owner")
    assert pairing.people() == []


@pytest.mark.parametrize(
    ("named", "role"),
    [
        ({"owners": {"telegram": ["1"]}}, "member"),
        ({"allow": {"telegram": ["1"]}}, "guest"),
        ({"allow": {"telegram": ["*"]}}, "guest"),
    ],
)
def test_a_role_that_the_settings_outdo_is_refused_with_the_place(
    store: SessionDB, named: dict[str, Any], role: Role
) -> None:
    pairing = create_pairing(store, **named)
    pairing.approve(code_of(pairing, chat()), role="owner")
    (setting,) = named
    with pytest.raises(UsageError, match=rf"config\.toml.*gateway\.{setting}\.telegram"):
        pairing.change_role("telegram", "1", role)
    assert pairing.people()[0].role == "owner"


def test_whom_the_settings_let_in_gets_another_role_there(store: SessionDB) -> None:
    pairing = create_pairing(store, allow={"telegram": ["7"]})
    with pytest.raises(UsageError, match=r"7 on telegram is let in by config\.toml"):
        pairing.change_role("telegram", "7", "owner")


# -- the command line ------------------------------------------------------------------------------


@click.group()
def gateway() -> None:
    """The group that the commands are added to."""


for command in (gateway_pair.pair, gateway_pair.people_, gateway_pair.role, gateway_pair.forget):
    gateway.add_command(command)


def shell(line: str) -> str:
    """Run a command line; what goes wrong is raised as it is."""
    run = CliRunner().invoke(gateway, line.split(), obj=App(), standalone_mode=False)
    if run.exception is not None:
        raise run.exception
    return run.output


def request(home: Home, source: SessionSource) -> str:
    with SessionDB(home.create().database) as store:
        return code_of(Pairing(store, config.load(home)), source)


def test_people_are_let_in_listed_and_put_out_from_the_shell(home: Home) -> None:
    assert shell("people") == "Nobody has access yet.\n"
    code = request(home, chat(user_name="Ann"))
    assert "Ann on telegram has a code, valid until" in shell("people")
    output = shell(f"pair {code}")
    assert "Ann (1) on telegram is now an owner." in output and "first person" in output
    other = request(home, chat("2"))
    assert shell(f"pair {other} --platform telegram --role guest") == (
        "2 on telegram is now a guest.\n"
    )
    listed = [line.split()[:3] for line in shell("people").splitlines()]
    assert listed[1:] == [["telegram", "1", "owner"], ["telegram", "2", "guest"]]
    assert "Revoked" in shell("forget telegram 2")
    with pytest.raises(HermesError, match="There is no user 2"):
        shell("forget telegram 2")
    with pytest.raises(HermesError, match="This code is not valid"):
        shell(f"pair {code}")


def test_a_role_is_changed_from_the_shell_and_the_last_owner_is_not_lost_silently(
    home: Home,
) -> None:
    shell(f"pair {request(home, chat(user_name='Ann'))}")
    shell(f"pair {request(home, chat('2'))}")
    assert shell("role telegram 2 owner") == "2 on telegram is now an owner.\n"
    assert shell("role telegram 1 Guest") == "Ann (1) on telegram is now a guest.\n"
    assert '"has_owner":false' in shell("role telegram 2 member --json")
    output = shell("role telegram 2 guest")
    assert "There is no owner now" in output and "--role" in output
    assert "There is no owner now" in shell("forget telegram 2")
    with pytest.raises(click.BadParameter, match="king"):
        shell("role telegram 1 king")
    with pytest.raises(HermesError, match="There is no user 2"):
        shell("role telegram 2 owner")


def test_programs_get_json(home: Home) -> None:
    (home.create().config).write_text('[gateway.owners]\nmatrix = ["@a:b"]\n', "utf-8")
    code = request(home, chat())
    assert '"role":"member"' in shell(f"pair {code} --json")
    listed = shell("people --json")
    assert '"user_id":"@a:b"' in listed and '"waiting":[]' in listed
    assert "config.toml" in shell("people")
