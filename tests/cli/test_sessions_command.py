"""`hermes sessions`, driven as from a shell."""

import codecs
import contextlib
import io
import json
import os
import re
import resource
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hermes_agent import lease
from hermes_cli.commands import root
from hermes_core import attachments, clock
from hermes_core.paths import Home, make_folder
from hermes_core.text import width
from hermes_state import SessionDB, files
from hermes_state.ledger import effects, leases, lineage, sessions, titles
from hermes_state.ledger import turns as turn_ledger
from hermes_state.values import Call, NewSession, OutboundPart
from tests.cli.conftest import Shell, on_terminal
from tests.state.test_faults import NOBODY_UID, as_somebody_else, reachable
from tests.state.test_foreign import Foreign
from tests.support.faults import needs_dev_full

__all__ = ["reachable"]

DAY = 86_400.0


@pytest.fixture
def store(home: Home) -> Iterator[SessionDB]:
    with SessionDB(home.database) as store:
        yield store


@pytest.fixture
def talk(store: SessionDB) -> SessionDB:
    """Two conversations: one titled and with tools, one compacted once."""
    store.create_session("20261101_100000_aaaaaa", "cli", model="small")
    store.append_message("20261101_100000_aaaaaa", "user", "What is in\nthis folder?")
    call = {"id": "1", "function": {"name": "list_files", "arguments": '{"path": "."}'}}
    store.append_message("20261101_100000_aaaaaa", "assistant", "Let me look.", tool_calls=[call])
    store.append_message(
        "20261101_100000_aaaaaa", "tool", "README.md", tool_call_id="1", tool_name="list_files"
    )
    store.append_message("20261101_100000_aaaaaa", "assistant", "One file, README.md.")
    store.set_session_title("20261101_100000_aaaaaa", "Folder talk")
    store.create_session("20261102_100000_bbbbbb", "telegram")
    first = store.append_message("20261102_100000_bbbbbb", "user", "Remember the blue house.")
    store.write(
        lineage.rotate,
        "20261102_100000_bbbbbb",
        [{"role": "user", "content": "Summary: a house."}, first],
        child_id="20261103_100000_cccccc",
    )
    return store


def test_an_empty_home_has_no_conversations(shell: Shell) -> None:
    assert shell.run("sessions list") == "No conversations yet.\n"
    assert shell.json("sessions list") == []


def test_the_list_has_one_row_a_conversation(talk: SessionDB, shell: Shell) -> None:
    lines = shell.run("sessions list").splitlines()
    assert lines[0].split() == ["ID", "LAST", "ACTIVE", "SOURCE", "MESSAGES", "TITLE"]
    assert [line.split()[0] for line in lines[1:]] == [
        "20261103_100000_cccccc",
        "20261101_100000_aaaaaa",
    ]
    assert lines[1].endswith("Remember the blue house.")
    assert lines[2].endswith("Folder talk")
    assert [row["id"] for row in shell.json("sessions list blue")] == ["20261103_100000_cccccc"]
    assert [row["id"] for row in shell.json("sessions list --source cli")] == [
        "20261101_100000_aaaaaa"
    ]
    assert len(shell.json("sessions list --all")) == 3
    assert "No conversation matches" in shell.run("sessions list nonsense")


def test_a_conversation_is_shown_by_id_by_the_beginning_of_one_and_by_title(
    talk: SessionDB, shell: Shell
) -> None:
    by_id = shell.run("sessions show 20261101_100000_aaaaaa")
    assert shell.run("sessions show 20261101") == by_id
    assert shell.run("sessions show 'Folder talk'") == by_id
    assert "user: What is in\nthis folder?" in by_id
    assert "⚙ list_files" in by_id
    assert "→ list_files: README.md" in by_id
    assert shell.run("sessions show 20261101 --last 1").count("README") == 1


def test_nothing_that_is_shown_steers_the_terminal(store: SessionDB, shell: Shell) -> None:
    store.create_session("odd", "cli\x1b[2J", model="m\x1b]0;title\x07")
    call = {"function": {"name": "sh\x1b[31m", "arguments": "\x9b2J \u202e"}}
    store.append_message("odd", "assistant", "hm", tool_calls=[call])
    store.append_message("odd", "tool", "done", tool_name="sh\x1b[31m")
    output = shell.run("sessions show odd")
    assert "sh[31m" in output and not set(output) & set("\x1b\x07\x9b\u202e")


@pytest.mark.parametrize("calls", [{"a": 1}, "odd", ["odd"], [{"function": "odd"}], [None], 5])
def test_a_message_whose_calls_are_no_calls_is_shown(
    store: SessionDB, shell: Shell, tmp_path: Path, calls: object
) -> None:
    store.create_session("a", "cli")
    store.append_message("a", "assistant", "hm", tool_calls=calls)
    assert "assistant: hm\n  ⚙ " in shell.run("sessions show a")


def test_full_shows_what_was_said_before_compaction(talk: SessionDB, shell: Shell) -> None:
    short = shell.run("sessions show 20261103")
    assert "compacted 1 ×" in short and "user (summary): Summary: a house." in short
    whole = shell.run("sessions show 20261103 --full")
    assert whole.count("blue house") == 2, "in the heading and once in the text"
    assert "Summary" not in whole


def test_a_turn_that_did_not_end_well_is_told(store: SessionDB, shell: Shell) -> None:
    store.create_session("a", "cli")
    turn = store.write(turn_ledger.accept, "a", {"role": "user", "content": "hello"}).turn_id
    store.write(turn_ledger.start, turn)
    store.write(turn_ledger.finish, turn, "failed", reason="no quota")
    assert "[turn failed] no quota" in shell.run("sessions show a")


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_search_on_a_terminal_fits_and_highlights(
    talk: SessionDB, home: Home, columns: int
) -> None:
    talk.append_message("20261101_100000_aaaaaa", "user", "日本 \x1b[2J " + "a blue house " * 20)
    output = on_terminal("sessions search blue", home, columns)
    assert "\x1b[1m\x1b[4mblue\x1b[0m" in output and "\x1b[2J" not in output
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output)
    assert all(width(line) <= columns for line in plain.splitlines())
    assert ("--full" in plain) == (columns == 40)


@pytest.mark.parametrize(
    ("environment", "styles"),
    [({"TERM": "dumb"}, set[str]()), ({"NO_COLOR": "1"}, {"1", "4", "0"})],
)
def test_a_terminal_shows_no_styles_that_it_should_not(
    talk: SessionDB, home: Home, environment: dict[str, str], styles: set[str]
) -> None:
    output = on_terminal("sessions search blue", home, 80, **environment)
    assert set(re.findall(r"\x1b\[([0-9;]*)m", output)) == styles
    assert "blue" in output and ">>>" not in output


def test_search_finds_words_and_says_where(talk: SessionDB, shell: Shell) -> None:
    assert shell.run("sessions search blue house").endswith("Remember the blue house.\n")
    assert ">>>blue<<<" in shell.json("sessions search blue house")[0]["snippet"]
    hit = shell.json("sessions search README --role assistant")[0]
    assert hit["session_id"] == "20261101_100000_aaaaaa"
    assert shell.run("sessions search zeppelin", status=3) == "Nothing found.\n"
    assert shell.json("sessions search blue --since 1d") != []
    assert shell.json("sessions search blue --until 2020-01-01", status=3) == []
    shell.run("sessions search blue --since yesterday", status=2)
    assert "not a valid date or age" in shell.errors


def test_the_tree_shows_compactions_and_branches(talk: SessionDB, shell: Shell) -> None:
    branch = talk.write(lineage.branch, "20261103_100000_cccccc")
    lines = shell.run("sessions tree 20261103").splitlines()
    assert lines[1].split()[:2] == ["20261102_100000_bbbbbb", "1"]
    assert lines[2].split()[:4] == ["*", "└─", "20261103_100000_cccccc", "continuation"]
    assert lines[3].split()[:3] == ["└───", branch, "branch"]


def test_an_export_comes_back_whole_in_another_home(
    talk: SessionDB, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "talk.jsonl"
    assert "Wrote" in shell.run(f"sessions export -o {file}")
    assert file.stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "other"))
    assert "Imported 3 sessions with 7 messages" in shell.run(f"sessions import {file}")
    assert shell.run("sessions export") == file.read_text()
    assert "already exist here" in shell.run(f"sessions import {file}")
    shell.run(f"sessions export -o {file}", status=2)
    assert "already exists" in shell.errors


def test_a_broken_line_is_named_and_what_came_before_it_is_kept(
    talk: SessionDB, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = shell.run("sessions export").splitlines()
    file = tmp_path / "broken.jsonl"
    file.write_text("\n".join([*lines, "{broken"]))
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "other"))
    shell.run(f"sessions import {file}", status=2)
    assert f"{file}: Line {len(lines) + 1}: " in shell.errors
    assert len(shell.json("sessions list")) >= 1
    file.write_text(json.dumps({"hello": 1}))
    shell.run(f"sessions import {file}", status=2)
    assert "not an export of Hermes" in shell.errors
    shell.run("sessions import /nowhere/at/all", status=2)
    shell.run("sessions import", status=2)
    shell.run(f"sessions import {tmp_path}", status=2)
    assert "Is a directory" in shell.errors


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"id": None}, "the id of this session is missing"),
        ({"id": ["x"]}, "the id of a session cannot be ['x']"),
        ({"x); DELETE FROM messages; --": 1}, "a session cannot have 'x); DELETE"),
    ],
)
def test_a_line_that_says_something_odd_is_named_with_its_file(
    talk: SessionDB, shell: Shell, tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    header, first, *_ = map(json.loads, shell.run("sessions export").splitlines())
    file = tmp_path / "odd.jsonl"
    file.write_text("\n".join(map(json.dumps, [header, {**first, **change}])))
    shell.run(f"sessions import {file}", status=2)
    assert f"{file}: Line 2: " in shell.errors and why in shell.errors
    file.write_text("")
    shell.run(f"sessions import {file}", status=2)
    assert "It is empty" in shell.errors


@pytest.mark.parametrize("moment", [1e20, -1e15, "inf", "-inf", 1e300, 253402300799.9])
def test_moments_that_no_calendar_has_are_taken_and_shown(
    talk: SessionDB, shell: Shell, tmp_path: Path, moment: object
) -> None:
    odd = {"id": "odd", "conversation_id": "odd", "source": "cli", "model_config": "not json"}
    times = {"started_at": moment, "last_active_at": moment}
    message = {
        "type": "message",
        "id": 1,
        "session_id": "odd",
        "role": "user",
        "content": "strange",
    }
    lines = [
        {"type": "hermes-export", "version": 1},
        {"type": "session", **odd, **times},
        {**message, "timestamp": moment},
    ]
    file = tmp_path / "odd.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    assert "Imported 1 session" in shell.run(f"sessions import {file}")
    assert "strange" in shell.run("sessions show odd")
    for command in ("list", "stats", "tree odd", "search strange", "export odd"):
        assert shell.run(f"sessions {command}")


def hermes(home: Path, line: str) -> subprocess.CompletedProcess[str]:
    """A shell line in a process of its own, in which `hermes` is this one."""
    command = f'hermes() {{ {shlex.quote(sys.executable)} -m hermes_cli.main "$@"; }}; {line}'
    return subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, "HERMES_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("name", ["-", "/dev/stdin", "<(cat)"])
def test_an_export_can_be_imported_through_a_pipe(
    talk: SessionDB, home: Home, shell: Shell, tmp_path: Path, name: str
) -> None:
    other = tmp_path / "other"
    line = f"hermes sessions export | HERMES_HOME={other} hermes sessions import {name}"
    done = hermes(home.root, line)
    assert (done.returncode, done.stdout) == (0, "Imported 3 sessions with 7 messages.\n"), (
        done.stderr
    )


@needs_dev_full
def test_an_export_without_room_says_so_and_leaves_nothing(
    talk: SessionDB, home: Home, tmp_path: Path
) -> None:
    full = hermes(home.root, "hermes sessions export > /dev/full")
    assert (full.returncode, full.stderr.count("\n")) == (2, 2)
    assert "No space left on device" in full.stderr
    nowhere = hermes(home.root, f"hermes sessions export -o {tmp_path}/no/such/folder")
    assert nowhere.returncode == 2 and "No such file or directory" in nowhere.stderr
    small = hermes(home.root, f"ulimit -f 1; trap '' XFSZ; hermes sessions export -o {tmp_path}/x")
    assert small.returncode == 2 and "File too large" in small.stderr, small.stderr
    assert not list(tmp_path.glob("x*"))


def test_rename_gives_a_title_and_refuses_one_that_is_taken(talk: SessionDB, shell: Shell) -> None:
    assert "to 'Blue house'" in shell.run("sessions rename 20261102 'Blue house'")
    assert talk.read(titles.title_of, "20261103_100000_cccccc") == "Blue house"
    shell.run("sessions rename 20261103 'Folder talk'", status=1)
    assert "belongs to session 20261101_100000_aaaaaa" in shell.errors
    assert "Removed the title" in shell.run("sessions rename 'Blue house' ''")


def test_delete_needs_a_yes(talk: SessionDB, home: Home, shell: Shell) -> None:
    folder = make_folder(home.attachments)
    kept_files = [
        attachments.path_of(home, "20261101_100000_aaaaaa", 1, "a.txt"),
        attachments.path_of(home, "20261102_100000_bbbbbb", 1, "b.txt"),
    ]
    for path in kept_files:
        path.write_text("x")
    shell.run("sessions delete 20261102", status=2)
    assert "--yes" in shell.errors
    assert shell.run("sessions delete 20261102 --yes") == "Deleted 1 conversation.\n"
    assert [row["id"] for row in shell.json("sessions list --all")] == ["20261101_100000_aaaaaa"]
    assert shell.json("sessions search blue", status=3) == []
    assert list(folder.iterdir()) == kept_files[:1], "what was kept for it is gone, too"


def test_a_conversation_that_is_being_answered_is_not_deleted(
    talk: SessionDB, shell: Shell
) -> None:
    holder = f"{os.uname().nodename}:{os.getppid()}:{lease._started(os.getppid())}:1"
    held = talk.write(leases.acquire, "20261101_100000_aaaaaa", holder, 60)
    assert held is not None
    shell.run("sessions delete 'Folder talk' -y", status=75)
    assert "being answered" in shell.errors
    assert talk.get_session("20261101_100000_aaaaaa") is not None
    talk.write(leases.release, held)
    message = {"role": "user", "content": "still waits"}
    talk.write(turn_ledger.accept, "20261101_100000_aaaaaa", message)
    answered = talk.write(turn_ledger.accept, "20261101_100000_aaaaaa", message).turn_id
    talk.write(turn_ledger.start, answered)
    pieces = [OutboundPart("telegram", "1", text) for text in ("the reply", "and its end")]
    talk.write(turn_ledger.finish, answered, "answered", parts=pieces)
    deleted = shell.run("sessions delete 'Folder talk' -y")
    assert deleted == (
        "Deleted 1 conversation, with 1 unanswered message and 1 undelivered answer.\n"
    )


def test_deleting_a_conversation_takes_no_file_of_another_and_none_outside(
    store: SessionDB, home: Home, shell: Shell, tmp_path: Path
) -> None:
    outside = tmp_path / "report_1_final.txt"
    outside.write_text("mine")
    make_folder(home.attachments)
    for id_ in ("work", "work_2", "../../report", "/report"):
        store.create_session(id_, "cli")
        attachments.path_of(home, id_, 1, "a.txt").write_text("x")
    shell.run("sessions delete --yes -- work ../../report /report")
    assert outside.exists()
    assert [path.name for path in home.attachments.iterdir()] == ["work_2.1_a.txt"]


@pytest.fixture
def dates(store: SessionDB) -> SessionDB:
    """A conversation whose title is a day, and another one whose id begins with that day."""
    for id_, title in (("20261116_101010_bbbbbb", "20261115"), ("20261115_101010_aaaaaa", "taxes")):
        store.create_session(id_, "cli")
        store.append_message(id_, "user", f"about {title}")
        store.set_session_title(id_, title)
    return store


def test_a_title_is_meant_before_the_beginning_of_an_id(dates: SessionDB, shell: Shell) -> None:
    assert "about 20261115" in shell.run("sessions show 20261115")
    assert shell.json("sessions delete 20261115 -y")["deleted"] == ["20261116_101010_bbbbbb"]
    assert [row["title"] for row in shell.json("sessions list")] == ["taxes"]
    assert shell.json("sessions delete 20261115 -y")["deleted"] == ["20261115_101010_aaaaaa"]


def test_delete_takes_the_title_that_was_said_and_not_a_later_one_of_its_line(
    dates: SessionDB, shell: Shell
) -> None:
    dates.write(lineage.branch, "20261115_101010_aaaaaa", child_id="later")
    assert dates.read(titles.title_of, "later") == "taxes #2"
    assert shell.json("sessions delete taxes -y")["deleted"] == ["20261115_101010_aaaaaa"]
    assert shell.json("sessions delete taxes -y")["deleted"] == ["later"]


@pytest.mark.parametrize("line", ["delete a -y", "prune --older-than 30 -y"])
def test_what_was_kept_for_undone_continuations_and_delegates_goes_with_the_conversation(
    store: SessionDB, home: Home, shell: Shell, line: str
) -> None:
    make_folder(home.attachments)
    with clock.replaced(lambda: clock.time.time() - 40 * DAY):
        store.create_session("a", "cli")
        store.append_message("a", "user", "look at this")
        store.write(
            lineage.rotate, "a", [{"role": "user", "content": "Summary."}], child_id="undone"
        )
        store.write(lineage.undo_rotation, "a")
        store.create_session(
            "helper", "cli", parent_session_id="a", model_config={"_delegate_from": "a"}
        )
        store.end_session("a", "cli_close")
    for id_ in ("a", "undone", "helper", "other"):
        attachments.path_of(home, id_, 1, "a.txt").write_text("x")
    shell.run(f"sessions {line}")
    assert [path.name for path in home.attachments.iterdir()] == ["other.1_a.txt"]


def test_what_was_kept_for_a_pruned_conversation_goes_with_it(
    store: SessionDB, home: Home, shell: Shell
) -> None:
    make_folder(home.attachments)
    with clock.replaced(lambda: clock.time.time() - 40 * DAY):
        store.create_session("old", "cli")
        store.append_message("old", "user", "look at this")
        store.end_session("old", "cli_close")
    attachments.path_of(home, "old", 1, "a.txt").write_text("x")
    shell.run("sessions prune --older-than 30 --yes")
    assert list(home.attachments.iterdir()) == []


def test_what_was_kept_for_a_session_that_ended_without_a_word_goes_with_it(
    store: SessionDB, home: Home, shell: Shell
) -> None:
    make_folder(home.attachments)
    with clock.replaced(lambda: clock.time.time() - 2 * DAY):
        for id_ in ("ghost", "open"):
            store.create_session(id_, "tui")
            attachments.path_of(home, id_, 1, "a.txt").write_text("x")
        store.end_session("ghost", "tui_close")
    assert shell.json("sessions prune --yes")["ghosts"] == 1
    assert [path.name for path in home.attachments.iterdir()] == ["open.1_a.txt"]


@pytest.mark.parametrize("line", ["delete a -y", "prune --older-than 30 -y"])
def test_a_file_goes_with_the_last_message_that_names_it(
    store: SessionDB, home: Home, shell: Shell, line: str
) -> None:
    folder = make_folder(home.attachments)
    alone, shared, listed = (folder / f"{digit * 32}.png" for digit in "abc")
    own, taken_along = (attachments.path_of(home, "a", number, "x.txt") for number in (1, 2))
    for path in (alone, shared, listed, own, taken_along):
        path.write_text("x")
    with clock.replaced(lambda: clock.time.time() - 40 * DAY):
        store.create_session("a", "telegram")
        store.append_message("a", "user", f"[Attached image: {taken_along}]")
        store.write(lineage.branch, "a", child_id="b")
        store.append_message("a", "user", [{"type": "text", "text": f"[Attached image: {alone}]"}])
        store.append_message("a", "user", f"[Attached file: report.pdf at {shared}]")
        store.append_message("a", "user", f"[Attached file: x.txt at {own}]")
        store.end_session("a", "session_reset")
    store.create_session("c", "telegram")
    store.append_message("c", "user", f"[Attached file: again.pdf at {shared}]")
    store.append_message("c", "user", f"[Attached image: {listed}]")
    shell.run(f"sessions {line}")
    assert set(folder.iterdir()) == {shared, listed, taken_along}


def test_a_file_that_a_branch_took_along_goes_with_the_branch(
    store: SessionDB, home: Home, shell: Shell
) -> None:
    make_folder(home.attachments)
    path = attachments.path_of(home, "a", 1, "x.txt")
    path.write_text("x")
    store.create_session("a", "tui")
    store.append_message("a", "user", f"[Attached file: {path}]")
    store.write(lineage.branch, "a", child_id="b")
    store.write(lineage.branch, "a", child_id="c")
    shell.run("sessions delete b -y")
    assert path.exists()
    shell.run("sessions delete a -y")
    assert path.exists()
    shell.run("sessions delete c -y")
    assert not path.exists()


def test_what_was_sent_goes_also_when_who_deletes_is_interrupted(
    store: SessionDB, home: Home
) -> None:
    make_folder(home.attachments)
    deleted, remaining = (attachments.path_of(home, name, 1, "x.txt") for name in ("gone", "left"))
    for path, name in ((deleted, "gone"), (remaining, "left")):
        path.write_text("x")
        store.create_session(name, "tui")
    with (
        pytest.raises(KeyboardInterrupt),
        files.going_with(store, home, ["gone", "left"]),
    ):
        store.write(sessions.delete, ["gone"])
        raise KeyboardInterrupt
    assert (deleted.exists(), remaining.exists()) == (False, True)


@pytest.mark.parametrize("line", ["list", "show a", "tree a", "export a"])
def test_conversations_are_read_on_a_disk_without_room(
    store: SessionDB, shell: Shell, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    store.create_session("a", "cli")
    store.append_message("a", "user", "hello there")
    store.close()
    rest = SimpleNamespace(f_bavail=0, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda _path: rest)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))  # no file may grow
    try:
        done = shell.run(f"sessions {line}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "hello there" in done


def test_prune_refuses_an_age_of_nothing_also_when_it_only_looks(
    store: SessionDB, shell: Shell
) -> None:
    shell.run("sessions prune --older-than=-5 --dry-run", status=2)
    assert "more than zero days" in shell.errors


def test_nothing_that_is_shown_speaks_to_the_terminal(store: SessionDB, shell: Shell) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\x9b2J\u202e\r"
    store.create_session("esc", f"cli{evil}", model=f"gpt{evil}")
    calls = [{"id": "c", "function": {"name": f"sh{evil}", "arguments": evil}}]
    store.append_message("esc", "assistant", f"text{evil}", tool_calls=calls)
    store.append_message("esc", "tool", evil, tool_call_id="c", tool_name=f"sh{evil}")
    for line in ("show esc", "list", "tree esc", "search text"):
        assert not set(shell.run(f"sessions {line}")) & set("\x1b\x07\x9b\u202e\r")


def test_a_title_is_found_as_it_was_typed(store: SessionDB, shell: Shell) -> None:
    store.create_session("talk", "cli")
    for title in ("family 👩‍👩‍👧", "می‌خواهم", "two  blanks"):
        shell.run(f"sessions rename talk '{title}'")
        assert shell.json(f"sessions show '{title}'")["id"] == "talk"
    shell.run("sessions rename talk '👩‍👩‍👧'")
    assert store.read(titles.title_of, "talk") == "👩‍👩‍👧"


def test_prune_says_what_would_go_and_then_takes_it(store: SessionDB, shell: Shell) -> None:
    with clock.replaced(lambda: clock.time.time() - 40 * DAY):
        store.create_session("old", "cli")
        store.append_message("old", "user", "long ago")
        store.end_session("old", "cli_close")
    assert "Would delete 0 conversations" in shell.run("sessions prune --dry-run")
    assert "Would delete 1 conversation." in shell.run("sessions prune --dry-run --older-than 30")
    assert shell.json("--set sessions.retention_days=30 sessions prune --yes")["pruned"] == 1
    assert store.get_session("old") is None


def test_how_far_a_command_is_is_shown_on_a_terminal_alone(
    talk: SessionDB, shell: Shell, tmp_path: Path
) -> None:
    shell.run(f"sessions export -o {tmp_path}/all")
    talk.write(sessions.delete, ["20261101_100000_aaaaaa", "20261102_100000_bbbbbb"])
    for line in (f"import {tmp_path}/all", "prune --yes"):
        shell.run(f"sessions {line}")
        assert shell.errors == ""
    with contextlib.redirect_stderr(io.StringIO()) as seen:
        seen.isatty = lambda: True
        shell.json(f"sessions import {tmp_path}/all")
    assert "Importing" in seen.getvalue()


def test_stats_count_what_there_is(talk: SessionDB, shell: Shell) -> None:
    numbers = shell.json("sessions stats")
    assert numbers["conversations"] == 2 and numbers["sessions"] == 3
    assert numbers["by_source"] == {"cli": 1, "telegram": 1}
    assert "Open conversations" in shell.run("sessions stats")


def test_an_unknown_conversation_has_its_own_exit_status(talk: SessionDB, shell: Shell) -> None:
    shell.run("sessions show zeppelin", status=4)
    assert "No conversation 'zeppelin'" in shell.errors
    shell.run("sessions show 2026", status=4)
    assert "Did you mean:\n          20261103_100000_cccccc  Remember" in shell.errors
    assert "20261101_100000_aaaaaa  Folder talk\n" in shell.errors
    shell.run("sessions show zeppelin --json", status=4)
    assert json.loads(shell.errors)["error"]["code"] == "session.not_found"


def test_a_hermes_agent_home_is_taken_in_once_and_the_report_says_what_was_left(
    shell: Shell, tmp_path: Path
) -> None:
    foreign = Foreign(tmp_path / "foreign")
    foreign.session("20250101_000000_abcdef", "hello from the other side", title="Old friend")
    foreign.insert("state_meta", key="last_auto_prune", value="1")
    first = shell.run(f"sessions import --from-hermes-agent {foreign.home}")
    assert "Imported 1 sessions, 1 messages" in first and "Not imported: state_meta" in first
    assert shell.json("sessions search 'other side'")[0]["title"] == "Old friend"
    assert "Already imported: 1 sessions" in shell.run(
        f"sessions import --from-hermes-agent {foreign.path}"
    )
    shell.run("sessions import --from-hermes-agent /nowhere/at/all", status=2)


def test_show_tells_what_happened_to_turns_that_were_not_answered(
    store: SessionDB, shell: Shell
) -> None:
    ids: list[str] = []
    for text in ("good", "stopped", "broken", "open"):
        message = {"role": "user", "content": text}
        ids.append(
            store.write(turn_ledger.accept, "s1", message, new_session=NewSession("cli")).turn_id
        )
    for id_ in ids[:3]:
        store.write(turn_ledger.start, id_)
    calls = [Call(f"c{n}", "terminal", f'{{"command": "deploy {n}"}}', False) for n in (1, 2)]
    store.write(turn_ledger.step, ids[0], {"role": "assistant", "content": None}, calls[:1])
    store.write(turn_ledger.step, ids[2], {"role": "assistant", "content": None}, calls[1:])
    for id_ in (ids[0], ids[2]):
        store.write(effects.start, store.read(effects.of_turn, id_)[0]["id"])
    assert "[effect started] terminal" in shell.run("sessions show s1")
    store.write(effects.unknown, store.read(effects.of_turn, ids[0])[0]["id"])
    store.write(
        turn_ledger.finish, ids[0], "answered", message={"role": "assistant", "content": "Done."}
    )
    store.write(turn_ledger.finish, ids[1], "interrupted", reason="stopped by the user")
    store.write(turn_ledger.finish, ids[2], "failed", reason="No quota.")
    output = shell.run("sessions show s1")
    assert output.count("[effect unknown] terminal") == 2 and "deploy 1" in output
    assert "[turn interrupted] stopped by the user ('stopped')" in output
    assert "[turn failed] No quota. ('broken')" in output
    assert "[turn accepted] no answer yet to 'open'" in output
    assert "hermes chat --resume s1" in output
    turns = shell.json("sessions show s1")["turns"]
    assert [turn["state"] for turn in turns] == ["answered", "interrupted", "failed", "accepted"]
    assert turns[0]["effects"][0]["state"] == "unknown"


def test_a_home_that_may_only_be_read_can_be_read(
    reachable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(reachable))
    with SessionDB(reachable / "state.db") as store:
        store.index.catch_up()
    for path in reachable.iterdir():
        path.chmod(0o444)
    reachable.chmod(0o555)

    def read_and_try_to_write() -> None:
        for line in ("list", "show a", "search hello", "tree a", "stats", "export"):
            assert root.run(["sessions", *line.split()]) == 0, line
        assert root.run(["sessions", "rename", "a", "b"]) == 1

    assert as_somebody_else(read_and_try_to_write) is None
    reachable.chmod(0o755)


def test_an_amount_that_cannot_be_is_refused(talk: SessionDB, shell: Shell) -> None:
    for amount in ("-1", "99999999999999999999"):
        shell.run(f"sessions list -n {amount}", status=2)
        shell.run(f"sessions search -n {amount} blue", status=2)
    assert "not in the range" in shell.errors


def test_a_list_of_a_source_without_conversations_names_it(talk: SessionDB, shell: Shell) -> None:
    assert shell.run("sessions list --source fax") == "No conversation from 'fax'.\n"


@pytest.mark.usefixtures("can_answer")
@pytest.mark.parametrize("line", ["--version", "sessions list", "sessions export", "doctor"])
def test_a_command_without_a_place_to_print_to_does_its_work(home: Home, line: str) -> None:
    command = f"exec {shlex.quote(sys.executable)} -m hermes_cli.main {line} >&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_an_editor_leaves_in_an_export_does_no_harm(
    talk: SessionDB, shell: Shell, tmp_path: Path
) -> None:
    lines = shell.run("sessions export").encode()
    (tmp_path / "edited.jsonl").write_bytes(codecs.BOM_UTF8 + lines + b"\r\n\n")
    talk.write(sessions.delete, ["20261101_100000_aaaaaa", "20261103_100000_cccccc"])
    assert "Imported 3" in shell.run(f"sessions import {tmp_path / 'edited.jsonl'}")


def test_a_log_that_cannot_be_read_is_told_and_not_left_out(
    reachable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(reachable))
    write = "import os, sys; from hermes_state import SessionDB; store = SessionDB(sys.argv[1]);"
    write += "store.append_message('a', 'user', 'newest'); os._exit(0)"
    subprocess.run([sys.executable, "-c", write, str(reachable / "state.db")], check=True)
    (reachable / "state.db-shm").unlink()
    for path in reachable.iterdir():
        path.chmod(0o444)
    reachable.chmod(0o555)

    def read() -> None:
        assert root.run(["sessions", "show", "a"]) == 1

    assert as_somebody_else(read) is None
    reachable.chmod(0o755)


@pytest.mark.parametrize("line", ["sessions list", "sessions stats", "plugins list"])
def test_a_home_that_may_not_be_entered_is_told_with_what_opens_it(
    reachable: Path, shell: Shell, line: str
) -> None:
    if os.getuid() == 0:
        os.chown(reachable, NOBODY_UID, NOBODY_UID)
    reachable.chmod(0o600)

    def look() -> None:
        os.environ["HERMES_HOME"] = str(reachable)
        shell.run(f"{line} --json", status=78)
        assert json.loads(shell.errors)["error"]["fix"] == f"Run: chmod 700 {reachable}"

    assert as_somebody_else(look) is None
    reachable.chmod(0o755)
