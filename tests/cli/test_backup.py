"""`hermes backup` and `hermes restore`: a restore drill, attacks on archives, and kills."""

import contextlib
import gzip
import io
import os
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

import pytest

from hermes_cli.encryption import MAGIC
from hermes_core import own_commands
from hermes_core.paths import Home, make_folder
from hermes_state import SessionDB
from tests.cli.conftest import Shell

SESSION = "20261101_100000_aaaaaa"
TIMEOUT_S = 20.0


@pytest.fixture
def filled(home: Home) -> Home:
    """A home with a conversation, settings, a skill, a workspace with links, and files to leave out."""
    with SessionDB(home.database) as store:
        store.create_session(SESSION, "cli")
        store.append_message(SESSION, "user", "Remember the blue house.")
    home.config.write_text("[agent]\nmax_steps = 7\n", "utf-8")
    make_folder(home.skills / "report").joinpath("SKILL.md").write_text("# Report\n", "utf-8")
    work = make_folder(home.workspace)
    (work / "run.sh").write_text("#!/bin/sh\n", "utf-8")
    (work / "run.sh").chmod(0o700)
    (work / "python").symlink_to("/usr/bin/python3")
    (work / "empty").mkdir()
    make_folder(home.logs).joinpath("hermes.log").write_text("log", "utf-8")
    make_folder(home.models).joinpath("big.gguf").write_text("model", "utf-8")
    (home.root / "gateway.pid").write_text("1", "utf-8")
    return home


def _texts(home: Home) -> list[str]:
    with SessionDB(home.database) as store:
        return [row["content"] for row in store.get_messages_as_conversation(SESSION)]


@pytest.mark.parametrize("encrypt", [False, True])
def test_a_restored_home_has_everything_but_what_can_be_made_again(
    filled: Home, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encrypt: bool
) -> None:
    monkeypatch.setenv("HERMES_BACKUP_PASSPHRASE", "correct horse")
    file = tmp_path / "backup"
    report = shell.json(f"backup -o {file}" + " --encrypt" * encrypt)
    assert report["bytes"] == file.stat().st_size
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_bytes().startswith(MAGIC) is encrypt
    other = Home(tmp_path / "other" / "home")
    monkeypatch.setenv("HERMES_HOME", str(other.root))
    assert shell.json(f"restore --check {file}")["files"] == report["files"]
    assert not other.root.exists()
    restored = shell.json(f"restore {file}")
    assert restored["previous"] is None
    assert _texts(other) == ["Remember the blue house."]
    assert other.config.read_text("utf-8") == filled.config.read_text("utf-8")
    assert (other.skills / "report" / "SKILL.md").read_text("utf-8") == "# Report\n"
    assert os.access(other.workspace / "run.sh", os.X_OK)
    assert (other.workspace / "python").readlink() == Path("/usr/bin/python3")
    assert (other.workspace / "empty").is_dir()
    assert not other.logs.exists()
    assert not other.models.exists()
    assert not (other.root / "gateway.pid").exists()
    assert other.root.stat().st_mode & 0o777 == 0o700


def test_the_former_home_is_kept(filled: Home, shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "backup.tar.gz"
    shell.run(f"backup -o {file}")
    with SessionDB(filled.database) as store:
        store.append_message(SESSION, "user", "This comes later.")
    previous = Path(shell.json(f"restore --yes {file}")["previous"])
    assert _texts(filled) == ["Remember the blue house."]
    assert _texts(Home(previous)) == ["Remember the blue house.", "This comes later."]


def test_a_backup_is_consistent_while_messages_are_stored(
    filled: Home, shell: Shell, tmp_path: Path
) -> None:
    is_over = threading.Event()
    stored = 0

    def work() -> None:
        nonlocal stored
        with SessionDB(filled.database) as store:
            while not is_over.is_set():
                store.append_message(SESSION, "user", f"message {stored}")
                stored += 1

    writer = threading.Thread(target=work)
    writer.start()
    try:
        files = [tmp_path / f"{number}.tar.gz" for number in range(3)]
        for file in files:
            shell.run(f"backup -o {file}")
    finally:
        is_over.set()
        writer.join()
    for file in files:
        shell.run(f"restore --yes {file}")
        texts = _texts(filled)[1:]
        assert texts == [f"message {number}" for number in range(len(texts))]
        assert len(texts) <= stored


def test_a_home_in_use_is_not_replaced(filled: Home, shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "backup.tar.gz"
    shell.run(f"backup -o {file}")
    with SessionDB(filled.database) as store:
        store.append_message(SESSION, "user", "more")
        shell.run(f"restore --yes {file}", status=75)
        assert "in use" in shell.errors
        assert len(store.get_messages_as_conversation(SESSION)) == 2
    assert not list(filled.root.parent.glob(".*restored*"))


def test_a_wrong_passphrase_and_a_changed_file_are_refused(
    filled: Home, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_BACKUP_PASSPHRASE", "correct horse")
    (filled.workspace / "noise").write_bytes(os.urandom(200_000))  # so that there are some chunks
    file = tmp_path / "backup.enc"
    shell.run(f"backup --encrypt -o {file}")
    whole = file.read_bytes()
    monkeypatch.setenv("HERMES_BACKUP_PASSPHRASE", "wrong")
    shell.run(f"restore --yes {file}", status=2)
    assert "passphrase is wrong" in shell.errors
    monkeypatch.setenv("HERMES_BACKUP_PASSPHRASE", "correct horse")
    chunk = 65_536 + 16
    start = len(MAGIC) + 16
    bad = {
        "flipped": whole[:-20] + bytes([whole[-20] ^ 1]) + whole[-19:],
        "cut between chunks": whole[: start + 2 * chunk],
        "cut inside a chunk": whole[:-7],
        "chunks exchanged": whole[:start]
        + whole[start + chunk : start + 2 * chunk]
        + whole[start : start + chunk]
        + whole[start + 2 * chunk :],
        "longer": whole + b"x",
        "only the salt": whole[:start],
    }
    for name, data in bad.items():
        file.write_bytes(data)
        shell.run(f"restore --yes {file}", status=2)
        assert "backup" in shell.errors, name
    assert _texts(filled) == ["Remember the blue house."]


def test_a_damaged_or_foreign_archive_is_refused(
    filled: Home, shell: Shell, tmp_path: Path
) -> None:
    file = tmp_path / "backup.tar.gz"
    shell.run(f"backup -o {file}")
    whole = file.read_bytes()
    middle = len(whole) // 2
    changed = bytearray(whole)
    changed[middle] ^= 0xFF
    for data in (
        bytes(changed),
        whole[:middle],
        whole[:-4],
        b"",
        b"no archive",
        gzip.compress(b""),
    ):
        file.write_bytes(data)
        shell.run(f"restore --yes {file}", status=2)
        assert "backup" in shell.errors
    assert _texts(filled) == ["Remember the blue house."]
    assert not list(filled.root.parent.glob(".*restored*"))


def _archive(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    manifest = b'{"format": 1, "version": "0.1.0", "created_at": 1.0}'
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for info, data in ((tarfile.TarInfo("manifest.json"), manifest), *members):
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return target.getvalue()


def _member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def test_a_hostile_archive_writes_nothing_outside(
    filled: Home, shell: Shell, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("mine", "utf-8")
    file = tmp_path / "backup.tar.gz"
    attacks = [
        _archive((_member("../evil"), b"x")),
        _archive((_member("/tmp/hermes-evil"), b"x")),
        _archive((_member("a/../../evil"), b"x")),
        _archive((_member("d", tarfile.SYMTYPE, str(outside)), b""), (_member("d/evil"), b"x")),
        _archive((_member("h", tarfile.LNKTYPE, str(outside / "kept")), b"")),
        _archive((_member("pipe", tarfile.FIFOTYPE), b"")),
        _archive((_member("device", tarfile.CHRTYPE), b"")),
        _archive((_member("config.toml"), b"[agent]\nmax_steps = 'many'\n")),
        _archive((_member("state.db"), b"no store at all")),
    ]
    for number, data in enumerate(attacks):
        file.write_bytes(data)
        with contextlib.suppress(AssertionError):  # the status differs; nothing may be written
            shell.run(f"restore --yes {file}", status=2)
        assert sorted(path.name for path in outside.iterdir()) == ["kept"], number
        assert not list(tmp_path.rglob("evil")), number
        assert (outside / "kept").read_text("utf-8") == "mine"
        assert _texts(filled) == ["Remember the blue house."], number
    assert not Path("/tmp/hermes-evil").exists()


def test_a_killed_backup_leaves_no_file_of_that_name(filled: Home, tmp_path: Path) -> None:
    (filled.workspace / "noise").write_bytes(os.urandom(40_000_000))
    file = tmp_path / "backup.tar.gz"
    command = [sys.executable, "-m", "hermes_cli.main", "backup", "-o", str(file)]
    child = subprocess.Popen(command, env={**os.environ, "HERMES_HOME": str(filled.root)})
    deadline = time.monotonic() + TIMEOUT_S
    while not (drafts := list(tmp_path.glob(".backup*.part"))) or not drafts[0].stat().st_size:
        assert child.poll() is None
        assert time.monotonic() < deadline
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert not file.exists()


def test_what_is_not_a_file_is_left_out(filled: Home, shell: Shell, tmp_path: Path) -> None:
    os.mkfifo(filled.root / "pipe")
    short = Path(os.path.relpath(filled.root / "s"))  # the path of a socket may not be long
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short))
        file = tmp_path / "backup.tar.gz"
        shell.run(f"backup -o {file}")
    shell.run(f"restore --yes {file}")
    assert not (filled.root / "pipe").exists()
    assert not (filled.root / "s").exists()


def test_a_backup_is_not_written_into_the_home_nor_over_a_file(
    filled: Home, shell: Shell, tmp_path: Path
) -> None:
    shell.run(f"backup -o {filled.root / 'backup.tar.gz'}", status=2)
    assert "inside the home" in shell.errors
    file = tmp_path / "mine"
    file.write_text("mine", "utf-8")
    shell.run(f"backup -o {file}", status=2)
    assert file.read_text("utf-8") == "mine"
    shell.run(f"backup -o {tmp_path / 'missing' / 'x'}", status=2)
    assert "could not be written" in shell.errors


def test_a_command_of_the_agent_makes_and_restores_no_backup(
    filled: Home, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "backup.tar.gz"
    shell.run(f"backup -o {file}")
    monkeypatch.setenv(own_commands.MARKER, "1")
    shell.run(f"backup -o {tmp_path / 'other'}", status=78)
    shell.run(f"restore --yes {file}", status=78)
