"""The terminal tool: commands in the foreground."""

import threading
import time
from pathlib import Path

import pytest

from hermes_agent.tools.read_file import TOOL as READ_FILE
from hermes_agent.tools.search_files import TOOL as SEARCH
from hermes_agent.tools.terminal import TOOL
from hermes_agent.turn.stop import Stop
from hermes_core import secrets
from hermes_core.errors import Interrupted
from tests.agent.tools.conftest import Desk, MakeDesk

NEVER = threading.Event()
"""A file and a foreign process tell nobody of their changes: they are looked at again and again."""


def wait_for(path: Path) -> None:
    """Wait until a command says that it is running, bounded at 30 s."""
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline, "the command did not start"
        NEVER.wait(0.01)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the second: it ended while we read
        return False
    return state != "Z"


def has_ended(pid: int) -> bool:
    """Whether a process that was told to end does so, bounded at 30 s."""
    deadline = time.monotonic() + 30
    while is_alive(pid) and time.monotonic() < deadline:
        NEVER.wait(0.01)
    return not is_alive(pid)


def test_output_and_errors_come_together_in_order(desk: Desk) -> None:
    assert desk.text(TOOL, command="echo one; echo two >&2; echo three") == "one\ntwo\nthree"


def test_the_exit_code_is_told_when_it_is_not_zero(desk: Desk) -> None:
    result = desk.run(TOOL, command="echo x; exit 3")
    assert result.text == "x\n[exit code 3]"
    assert not result.is_error
    assert desk.text(TOOL, command="true") == "(no output)"


def test_the_working_directory_is_kept_also_after_a_failing_command(desk: Desk) -> None:
    (desk.workspace / "sub").mkdir()
    text = desk.text(TOOL, command="cd sub && false")
    assert f"[now in {desk.workspace / 'sub'}]" in text
    assert desk.text(TOOL, command="pwd") == str(desk.workspace / "sub")
    desk.run(TOOL, command="cd ..; exit 1")
    assert desk.bench.cwd == desk.workspace


def test_a_directory_that_is_gone_is_replaced_by_the_workspace(desk: Desk) -> None:
    desk.run(TOOL, command="mkdir gone && cd gone && rmdir ../gone")
    assert desk.bench.cwd == desk.workspace
    desk.bench.cwd = desk.workspace / "gone"
    text = desk.text(TOOL, command="pwd")
    assert text.startswith(str(desk.workspace))
    assert "is gone" in text


def test_there_is_no_input_to_wait_for(desk: Desk) -> None:
    assert desk.text(TOOL, command="cat; echo done") == "done"


def test_quotes_documents_and_several_lines_work(desk: Desk) -> None:
    command = 'cat <<\'EOF\'\nit\'s $HOME\nEOF\nx="a b"\necho "$x"'
    assert desk.text(TOOL, command=command) == "it's $HOME\na b"


def test_a_syntax_error_is_told(desk: Desk) -> None:
    text = desk.text(TOOL, command="if true")
    assert "syntax error" in text.lower()
    assert "[exit code" in text


def test_secrets_of_ours_are_not_in_its_environment(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "API_KEY" not in " ".join(desk.bench.environment)
    desk.bench.environment["PLAIN"] = "yes"
    assert desk.text(TOOL, command="echo $PLAIN") == "yes"


def test_a_secret_in_the_output_is_replaced(desk: Desk) -> None:
    secrets.register({"SOME_KEY": "sk-1234567890"})
    text = desk.text(TOOL, command="echo the key is sk-1234567890")
    assert text == "the key is [secret SOME_KEY]"
    assert "sk-1234567890" not in "".join(desk.updates)


def test_bytes_that_are_no_text_are_replaced(desk: Desk) -> None:
    assert desk.text(TOOL, command=r"printf 'a\xff\xfeb\n'") == "a��b"


def test_colours_and_progress_bars_are_reduced(desk: Desk) -> None:
    command = r"printf '\033[31mred\033[0m\n10%%\r50%%\r100%%\ndone\b\b\b\bDONE\n'"
    assert desk.text(TOOL, command=command) == "red\n100%\nDONE"


def test_long_output_is_cut_in_the_middle_and_saved_whole(make_desk: MakeDesk) -> None:
    desk = make_desk(output_limit=2000)
    text = desk.text(TOOL, command="seq 1 5000")
    assert len(text) <= 2000
    assert text.startswith("1\n2\n3\n")
    assert text.endswith("\n4999\n5000")
    (saved,) = desk.bench.outputs.iterdir()
    assert str(saved) in text
    assert saved.read_text() == "".join(f"{n}\n" for n in range(1, 5001))
    assert saved.stat().st_mode & 0o777 == 0o600


def test_endless_output_is_kept_within_bounds(desk: Desk) -> None:
    result = desk.run(TOOL, command="yes 0123456789 | head -c 9000000")
    (saved,) = desk.bench.outputs.iterdir()
    assert saved.stat().st_size < 5_000_000
    assert "characters were not kept" in saved.read_text()
    assert len(result.text) <= desk.bench.settings.tools.output_limit


def test_progress_is_told_as_it_comes_and_less_of_it_later(desk: Desk) -> None:
    desk.run(TOOL, command="echo first; seq 1 20000")
    assert desk.updates[0].startswith("first")
    assert sum(map(len, desk.updates)) < 20_000


def test_a_command_that_takes_too_long_is_ended_and_says_so(desk: Desk) -> None:
    result = desk.run(TOOL, command="echo begun; sleep 60", timeout=5)
    assert result.is_error
    assert "begun" in result.text
    assert "ended after 5 s" in result.text
    assert "background=true" in result.text


def test_a_stop_ends_the_whole_group(desk: Desk) -> None:
    stop = Stop()
    marker = desk.workspace / "begun"
    stopper = threading.Thread(target=lambda: (wait_for(marker), stop.set()))
    stopper.start()
    command = "trap '' TERM; sleep 300 & echo $! > child; touch begun; wait; sleep 300"
    with pytest.raises(Interrupted):
        desk.run(TOOL, stop, command=command)
    stopper.join(30)
    assert has_ended(int((desk.workspace / "child").read_text()))


def test_what_a_command_leaves_running_is_ended_with_it(desk: Desk) -> None:
    desk.run(TOOL, command="sleep 300 & echo $! > child")
    assert has_ended(int((desk.workspace / "child").read_text()))


def test_a_stop_that_came_before_starts_nothing_that_stays(desk: Desk) -> None:
    stop = Stop()
    stop.set()
    with pytest.raises(Interrupted):
        desk.run(TOOL, stop, command="sleep 300")


def test_many_commands_at_once_do_not_mix(make_desk: MakeDesk) -> None:
    desks = [make_desk() for _ in range(8)]
    results: dict[int, str] = {}
    barrier = threading.Barrier(len(desks))

    def work(number: int) -> None:
        barrier.wait(30)
        results[number] = desks[number].text(TOOL, command=f"echo {number}; seq 1 100 | tail -1")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(desks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert results == {n: f"{n}\n100" for n in range(len(desks))}


def test_an_empty_command_is_refused(desk: Desk) -> None:
    assert "empty" in desk.error(TOOL, command="  ")


def test_dangers_are_those_of_the_command_where_it_would_run(desk: Desk) -> None:
    assert desk.kinds(TOOL, command="ls") == []
    assert desk.kinds(TOOL, command="rm -rf src") == ["destructive"]
    assert desk.kinds(TOOL, command="rm -rf src", background=True) == ["destructive"]
    desk.bench.cwd = Path("/srv")
    assert desk.kinds(TOOL, command="touch x") == ["outside"]


def test_long_outputs_are_read_by_their_own_conversation_alone(make_desk: MakeDesk) -> None:
    desk, other = make_desk(output_limit=1000), make_desk()
    other.bench.conversation_id = "another"
    desk.run(TOOL, command="seq 2000")
    (saved,) = desk.bench.outputs.iterdir()
    for tool, args in ((READ_FILE, {"path": str(saved)}), (TOOL, {"command": f"cat {saved}"})):
        assert desk.kinds(tool, **args) == []
        assert other.kinds(tool, **args) == ["secrets"]
    everything = str(desk.bench.home.outputs)
    assert other.kinds(SEARCH, pattern="1", path=everything) == ["secrets"]
    assert other.kinds(TOOL, command=f"cat {everything}/*/*.txt") != []
