"""`hermes doctor`, driven as from a shell."""

import contextlib
import fcntl
import io
import json
import os
from pathlib import Path

import apsw
import pytest

from hermes_agent.sandbox import detect
from hermes_agent.testing.faults import wrong_key
from hermes_agent.testing.server import ScriptedServer
from hermes_cli.commands import root
from hermes_core.paths import Home
from hermes_state import SessionDB
from hermes_state.ledger import messages
from tests.cli.conftest import Shell
from tests.state.test_faults import NOBODY_UID, as_somebody_else, damage, reachable

__all__ = ["reachable"]

pytestmark = pytest.mark.usefixtures("can_answer")


def states(findings: list[dict[str, str]]) -> dict[str, str]:
    return {finding["what"]: finding["state"] for finding in findings}


def test_an_empty_home_is_well(shell: Shell) -> None:
    findings = shell.json("doctor")
    assert set(states(findings).values()) == {"ok"}
    assert "none yet" in shell.run("doctor")


def test_a_home_in_use_is_well(home: Home, shell: Shell) -> None:
    with SessionDB(home.database) as store:
        store.create_session("a", "cli")
        store.append_message("a", "user", "hello")
        found = states(shell.json("doctor"))
    assert found["store"] == found["integrity"] == found["search"] == "ok"


def test_open_permissions_are_a_problem_that_fix_mends(home: Home, shell: Shell) -> None:
    SessionDB(home.database).close()
    home.database.chmod(0o644)
    assert states(shell.json("doctor", status=1))["permissions"] == "problem"
    assert states(shell.json("doctor --fix"))["permissions"] == "fixed"
    assert home.database.stat().st_mode & 0o777 == 0o600
    shell.json("doctor")


def test_a_damaged_store_is_found_and_repaired(home: Home, shell: Shell) -> None:
    with SessionDB(home.database) as store:
        store.create_session("a", "cli")
        for number in range(300):
            store.append_message("a", "user", f"{number} " + "x" * 500)
    damage(home.database)
    output = shell.run("doctor", status=1)
    assert "hermes doctor --fix" in output
    findings = shell.json("doctor --fix")
    assert states(findings)["integrity"] in ("fixed", "warning")
    assert any(".damaged-" in finding["detail"] for finding in findings)
    assert states(shell.json("doctor"))["integrity"] == "ok"
    with SessionDB(home.database) as store:
        assert 280 <= store.read(messages.count, "a") < 300


def test_what_is_no_store_is_told_and_left_alone(home: Home, shell: Shell) -> None:
    home.create()
    home.database.write_text("not a database, but somebody's notes" * 10)
    home.database.chmod(0o600)
    before = home.database.read_bytes()
    assert states(shell.json("doctor --fix", status=1))["store"] == "problem"
    assert home.database.read_bytes() == before


def test_a_wrong_setting_is_told(home: Home, shell: Shell) -> None:
    home.create()
    home.config.write_text("[store]\nbusy_timeout_s = -1\n")
    home.config.chmod(0o600)
    findings = shell.json("doctor", status=1)
    detail = next(f["detail"] for f in findings if f["what"] == "config")
    assert "store.busy_timeout_s" in detail


def test_the_sandbox_in_use_is_told(home: Home, shell: Shell) -> None:
    def finding() -> dict[str, str]:
        return next(f for f in shell.json("doctor") if f["what"] == "sandbox")

    names = ("bubblewrap", "landlock", "seatbelt", "container", "none")
    assert finding()["detail"].startswith(names)
    home.create()
    home.config.write_text('[tools]\nsandbox = "host"\n')
    home.config.chmod(0o600)
    assert finding()["detail"].startswith("host (chosen in the settings)")
    assert finding()["state"] == "warning"


def test_a_sandbox_without_a_network_and_approvals_that_are_off_are_told(
    home: Home, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detect, "_landlock_problem", lambda: "")
    home.create()
    home.config.write_text('[tools]\nsandbox = "landlock"\n[approvals]\nmode = "allow"\n')
    home.config.chmod(0o600)
    found = {finding["what"]: finding for finding in shell.json("doctor")}
    assert found["network"]["state"] == found["approvals"]["state"] == "warning"
    assert "bubblewrap" in found["network"]["detail"]
    assert "nothing is asked" in found["approvals"]["detail"]


def test_a_sandbox_that_cannot_be_had_is_a_problem(home: Home, shell: Shell) -> None:
    home.create()
    home.config.write_text('[tools]\nsandbox = "container"\ncontainer_command = "no-engine"\n')
    home.config.chmod(0o600)
    findings = shell.json("doctor", status=1)
    detail = next(f["detail"] for f in findings if f["what"] == "sandbox")
    assert "no-engine is not installed" in detail


def filled(home: Home) -> None:
    with SessionDB(home.database) as store:
        store.create_session("a", "cli")
        for number in range(300):
            store.append_message("a", "user", f"{number} " + "x" * 500)


def test_a_store_that_was_cut_short_is_repaired(home: Home, shell: Shell) -> None:
    filled(home)
    home.database.write_bytes(home.database.read_bytes()[:-4096])
    assert "hermes doctor --fix" in shell.run("doctor", status=1)
    findings = shell.json("doctor --fix")
    assert any("rows of messages" in f["detail"] for f in findings if f["state"] == "warning")
    assert states(shell.json("doctor"))["integrity"] == "ok"


def test_a_store_whose_schema_is_garbled_is_repaired(home: Home, shell: Shell) -> None:
    filled(home)
    data = home.database.read_bytes()
    home.database.write_bytes(data.replace(b"CREATE INDEX usage_time", b"CRXATE INDEX usage_time"))
    assert states(shell.json("doctor --fix"))["integrity"] == "fixed"
    assert states(shell.json("doctor"))["integrity"] == "ok"
    with SessionDB(home.database) as store:
        assert store.read(messages.count, "a") == 300


def test_a_damaged_store_in_use_is_left_alone(home: Home, shell: Shell) -> None:
    filled(home)
    damage(home.database)
    before = home.database.read_bytes()
    with SessionDB(home.database):
        findings = shell.json("doctor --fix", status=1)
        detail = next(f["detail"] for f in findings if f["what"] == "integrity")
        assert "in use, so nothing was changed" in detail
        assert "damaged page" in detail
    assert home.database.read_bytes() == before
    assert states(shell.json("doctor --fix"))["integrity"] in ("fixed", "warning")


def test_links_in_the_home_are_left_as_they_are(home: Home, shell: Shell, tmp_path: Path) -> None:
    home.create()
    shared = tmp_path / "shared.txt"
    shared.write_text("for everybody")
    shared.chmod(0o644)
    (home.root / "shared").symlink_to(shared)
    (home.root / "dangling").symlink_to(tmp_path / "nowhere")
    assert "permissions" not in states(shell.json("doctor --fix"))
    assert shared.stat().st_mode & 0o777 == 0o644


def test_a_file_whose_mode_cannot_be_changed_is_told(
    home: Home, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.create()
    (home.root / "theirs").write_text("")
    (home.root / "theirs").chmod(0o644)

    def refuse(_path: Path, _mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refuse)
    findings = shell.json("doctor --fix", status=1)
    detail = next(f["detail"] for f in findings if f["what"] == "permissions")
    assert "chmod failed: Operation not permitted" in detail


def test_a_home_that_is_a_file_is_told(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "file"))
    findings = shell.json("doctor", status=1)
    assert "Not a directory" in next(f["detail"] for f in findings if f["what"] == "home")


@pytest.mark.parametrize(
    "part", [slice(0, 4096), slice(0, 16), slice(16, 100), slice(60, 64), slice(68, 72)]
)
@pytest.mark.parametrize("byte", [b"\0", b"\xa5"])
def test_a_store_whose_head_is_damaged_is_repaired(
    home: Home, shell: Shell, part: slice, byte: bytes
) -> None:
    with SessionDB(home.database) as store:
        store.create_session("a", "cli")
        for number in range(50):
            store.append_message("a", "user", f"{number} hello")
    data = bytearray(home.database.read_bytes())
    data[part] = byte * (part.stop - part.start)
    home.database.write_bytes(data)
    assert states(shell.json("doctor", status=1))["integrity"] == "problem"
    assert states(shell.json("doctor --fix"))["integrity"] in ("fixed", "warning")
    with SessionDB(home.database) as store:
        assert store.read(messages.count) == 50


def test_doctor_waits_for_a_store_as_long_as_the_settings_say(home: Home, shell: Shell) -> None:
    SessionDB(home.database).close()
    home.config.write_text("[store]\nbusy_timeout_s = 0.1\n")
    with home.database.with_name("state.db-open").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "being repaired" in shell.run("doctor", status=1)


@pytest.mark.parametrize("mode", [0o000, 0o600, 0o100])
def test_a_home_that_may_not_be_entered_is_told_and_repaired(reachable: Path, mode: int) -> None:
    _give_away(reachable)
    reachable.chmod(mode)

    def look() -> None:
        os.environ["HERMES_HOME"] = str(reachable)
        found = _doctor("doctor --json")
        assert ("permissions", "problem") in [
            (finding["what"], finding["state"]) for finding in found
        ]
        assert f"chmod 700 {reachable}" in str(found)
        fixed = _doctor("doctor --fix --json")
        assert ("permissions", "fixed") in [
            (finding["what"], finding["state"]) for finding in fixed
        ]
        assert "1 conversation," in str(fixed)

    assert as_somebody_else(look) is None


def test_a_store_that_may_only_be_read_is_a_problem_that_can_be_mended(reachable: Path) -> None:
    _give_away(reachable)
    (reachable / "state.db").chmod(0o400)

    def look() -> None:
        os.environ["HERMES_HOME"] = str(reachable)
        assert "state.db has mode 0400 and is not writable: chmod 600" in str(
            _doctor("doctor --json")
        )
        _doctor("doctor --fix --json")
        assert os.access(reachable / "state.db", os.W_OK)

    assert as_somebody_else(look) is None


def _give_away(folder: Path) -> None:
    """Have everything belong to the user that `as_somebody_else` is."""
    if os.getuid() == 0:
        for path in (folder, *folder.iterdir()):
            os.chown(path, NOBODY_UID, NOBODY_UID)


def _doctor(line: str) -> list[dict[str, str]]:
    printed = io.TextIOWrapper(io.BytesIO(), "utf-8")
    with contextlib.redirect_stdout(printed):
        root.run(line.split())
    printed.seek(0)
    return json.load(printed)


def test_a_bad_byte_in_a_text_is_fixed_while_the_store_is_in_use(home: Home, shell: Shell) -> None:
    filled(home)
    conn = apsw.Connection(str(home.database))
    conn.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    conn.execute("UPDATE messages SET content = CAST(? AS TEXT) WHERE id = 7", (b"caf\xff",))
    conn.close()
    with SessionDB(home.database) as user:
        findings = shell.json("doctor", status=1)
        detail = next(f["detail"] for f in findings if f["what"] == "integrity")
        assert detail == "row 7 of messages has text that is not valid UTF-8 (content)"
        assert states(shell.json("doctor --fix"))["integrity"] == "fixed"
        assert states(shell.json("doctor"))["integrity"] == "ok"
        assert user.read(messages.of_session, "a")[6]["content"] == "caf\ufffd"
    assert not list(home.root.glob("*.damaged-*"))


def test_the_folder_that_chats_work_in_is_told(home: Home, shell: Shell) -> None:
    def findings_of(settings: str, status: int = 0) -> list[str]:
        home.create()
        home.config.write_text(f'{settings}\n[gateway.platforms.telegram]\ntoken = "1:a"\n')
        home.config.chmod(0o600)
        findings = shell.json("doctor", status=status)
        return [f"{f['state']}: {f['detail']}" for f in findings if f["what"] == "workspace"]

    assert findings_of("") == [f"ok: Chats work in {home.workspace} (gateway.workspace)."]
    (refused,) = findings_of('[gateway]\nworkspace = "/"', status=1)
    assert refused.startswith("problem: gateway.workspace is /, which contains your home folder")
    (_, allowed) = findings_of('[gateway]\nworkspace = "/"\nbroad_workspace = true')
    assert allowed.startswith("warning: chats may change everything in / without approval")


def finding(findings: list[dict[str, str]], what: str) -> dict[str, str]:
    return next(finding for finding in findings if finding["what"] == what)


def test_a_machine_where_nothing_can_answer_is_a_problem(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    model = finding(shell.json("doctor", status=1), "model")
    assert model["state"] == "problem"
    assert "hermes setup" in model["fix"]
    assert "hermes setup" in shell.run("doctor", status=1)


def test_a_model_is_asked_only_online(
    shell: Shell, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.add("ready")
    monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
    assert "its server answers" in finding(shell.json("doctor"), "model")["detail"]
    assert server.model_requests == []
    assert "answered in" in finding(shell.json("doctor --online"), "model")["detail"]
    assert "OPENAI_API_KEY" in finding(shell.json("doctor"), "keys")["detail"]


def test_a_model_that_does_not_answer_is_a_problem_with_its_fix(
    shell: Shell, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.add(wrong_key())
    monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
    model = finding(shell.json("doctor --online", status=1), "model")
    assert "does not accept the key" in model["detail"]
    assert "OPENAI_API_KEY" in model["fix"]
    server.close()
    assert finding(shell.json("doctor", status=1), "model")["state"] == "problem"


def test_a_fallback_and_a_platform_that_cannot_work_are_named(home: Home, shell: Shell) -> None:
    shell.run("config set model.fallbacks anthropic/claude-sonnet-5-5")
    assert "hermes login anthropic" in finding(shell.json("doctor"), "fallback")["fix"]
    with home.config.open("a") as file:
        file.write('[gateway.platforms.email]\naddress = "me@example.org"\n')
    findings = shell.json("doctor", status=1)
    assert "password" in finding(findings, "platform")["fix"]
    assert finding(findings, "gateway")["fix"] == "Run: hermes gateway start"
