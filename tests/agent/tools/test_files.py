"""Reading, writing, patching and searching files."""

import base64
import os
import re
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.sandbox.child import Child
from hermes_agent.tools import files, read_file, search_files
from hermes_agent.tools.patch import TOOL as PATCH
from hermes_agent.tools.read_file import TOOL as READ
from hermes_agent.tools.search_files import TOOL as SEARCH
from hermes_agent.tools.write_file import TOOL as WRITE
from hermes_agent.turn.stop import Stop
from hermes_core.errors import Interrupted
from tests.agent.tools.conftest import Desk, MakeDesk

# Reading


def test_a_file_is_read_as_it_is(desk: Desk) -> None:
    (desk.workspace / "a.txt").write_text("one\n\ttwo\nthree")
    assert desk.text(READ, path="a.txt") == "one\n\ttwo\nthree"


def test_a_part_of_a_file_says_which_lines_it_is(desk: Desk) -> None:
    (desk.workspace / "a.txt").write_text("".join(f"{n}\n" for n in range(1, 101)))
    assert desk.text(READ, path="a.txt", offset=10, limit=3) == "10\n11\n12\n[lines 10-12 of 100]"
    assert desk.text(READ, path="a.txt", offset="99").startswith("99\n100\n[lines 99-100")
    assert "has only 100 lines" in desk.error(READ, path="a.txt", offset=500)


def test_a_long_file_is_cut_at_whole_lines(make_desk: MakeDesk) -> None:
    desk = make_desk(output_limit=1000)
    (desk.workspace / "a.txt").write_text("".join(f"line {n}\n" for n in range(1, 5001)))
    text = desk.text(READ, path="a.txt")
    assert len(text) <= 1000
    assert text.endswith("of 5000]")
    last = int(text.rpartition("-")[2].split()[0])
    assert desk.text(READ, path="a.txt", offset=last + 1).startswith(f"line {last + 1}\n")


def test_an_empty_file_and_a_very_long_line_are_read(desk: Desk) -> None:
    (desk.workspace / "empty").touch()
    assert desk.text(READ, path="empty") == "(the file is empty)"
    (desk.workspace / "long").write_text("x" * 100_000)
    assert len(desk.text(READ, path="long")) < 3000


def test_paths_start_in_the_working_directory(desk: Desk) -> None:
    (desk.workspace / "sub").mkdir()
    (desk.workspace / "sub" / "a").write_text("inner")
    desk.bench.cwd = desk.workspace / "sub"
    assert desk.text(READ, path="a") == "inner"
    assert desk.text(READ, path=str(desk.workspace / "sub" / "a")) == "inner"


def test_what_is_not_there_is_told_with_what_may_be_meant(desk: Desk) -> None:
    (desk.workspace / "settings.py").touch()
    assert "Did you mean: settings.py?" in desk.error(READ, path="setings.py")
    assert "no file" in desk.error(READ, path="x/y/z")
    assert "is a folder" in desk.error(READ, path=".")
    assert "not a valid path" in desk.error(READ, path="")


def test_devices_and_pipes_are_refused(desk: Desk) -> None:
    os.mkfifo(desk.workspace / "pipe")
    for path in ("pipe", "/dev/zero", "/dev/stdin"):
        assert re.search("device or a pipe|is a link|no file", desk.error(READ, path=path))


def test_a_pipe_that_takes_the_place_of_a_file_is_refused(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(desk.workspace / "pipe")
    monkeypatch.setattr(files, "check_file", lambda _path: None)
    assert "is not a file any more" in desk.error(READ, path="pipe")


def test_a_line_without_end_costs_little_memory(desk: Desk) -> None:
    with (desk.workspace / "a.log").open("wb") as file:
        file.write(b"first\n" + b"x" * 10_000)
        file.truncate(64_000_000)  # a hole: nothing on the disk
    tracemalloc.start()
    try:
        text = desk.text(READ, path="a.log")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert text.startswith("first\nxxx")
    assert peak < 8_000_000


def test_a_file_too_large_to_be_counted_says_so(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_file, "_MAX_SCANNED", 100)
    (desk.workspace / "a.log").write_text("123456789\n" * 1000)
    assert desk.text(READ, path="a.log", limit=2).endswith("[lines 1-2 of more than 10]")
    assert desk.text(READ, path="a.log", offset=9).endswith("[lines 9-10 of more than 10]")
    assert "Use terminal" in desk.error(READ, path="a.log", offset=11)
    (desk.workspace / "b.log").write_text("123456789\n" * 10)
    assert desk.text(READ, path="b.log") == "\n".join(["123456789"] * 10)


def test_binary_files_are_refused_with_a_hint(desk: Desk) -> None:
    (desk.workspace / "a.bin").write_bytes(b"\x00\x01" * 100)
    assert "Look at it with terminal" in desk.error(READ, path="a.bin")


def test_a_small_picture_comes_as_a_picture(desk: Desk) -> None:
    picture = b"\x89PNG\r\n\x1a\n" + b"\0" * 50
    (desk.workspace / "a.png").write_bytes(picture)
    result = desk.run(READ, path="a.png")
    (address,) = result.images
    assert address == f"data:image/png;base64,{base64.b64encode(picture).decode()}"
    (desk.workspace / "b.png").write_bytes(picture + b"\0" * 5_000_000)
    assert "too large" in desk.error(READ, path="b.png")


def test_reading_secrets_is_dangerous_also_through_a_link(desk: Desk) -> None:
    (desk.workspace / ".env").write_text("A=1")
    (desk.workspace / "link").symlink_to(desk.workspace / ".env")
    assert desk.kinds(READ, path=".env") == ["secrets"]
    assert desk.kinds(READ, path="link") == ["secrets"]
    assert desk.kinds(READ, path=str(desk.bench.home.config)) == ["secrets"]
    assert desk.kinds(READ, path="other") == []
    assert desk.kinds(READ, path="/etc/hosts") == []


# Writing


def test_a_file_is_made_with_its_folders_and_a_diff(desk: Desk) -> None:
    result = desk.run(WRITE, path="new/sub/a.txt", content="one\ntwo\n")
    assert (desk.workspace / "new/sub/a.txt").read_text() == "one\ntwo\n"
    assert result.text == "Created new/sub/a.txt: 2 lines."
    assert "+one" in result.diff
    assert result.diff.startswith("--- /dev/null\n+++ new/sub/a.txt")


def test_a_file_is_replaced_and_keeps_its_mode(desk: Desk) -> None:
    path = desk.workspace / "a.sh"
    path.write_text("old\n")
    path.chmod(0o750)
    result = desk.run(WRITE, path="a.sh", content="new\n")
    assert path.read_text() == "new\n"
    assert path.stat().st_mode & 0o777 == 0o750
    assert result.text == "Replaced a.sh: 1 lines."
    assert "-old\n+new" in result.diff
    assert desk.text(WRITE, path="a.sh", content="new\n") == "a.sh has this content already."
    assert [p.name for p in desk.workspace.iterdir()] == ["a.sh"]


def test_a_link_stays_a_link_and_its_target_is_written(desk: Desk) -> None:
    (desk.workspace / "real").write_text("old")
    (desk.workspace / "link").symlink_to("real")
    desk.run(WRITE, path="link", content="new")
    assert (desk.workspace / "link").is_symlink()
    assert (desk.workspace / "real").read_text() == "new"


def test_a_write_that_fails_leaves_the_old_file(desk: Desk) -> None:
    (desk.workspace / "folder").mkdir()
    assert "is a folder" in desk.error(WRITE, path="folder", content="x")
    (desk.workspace / "file").write_text("x")
    assert "cannot be written" in desk.error(WRITE, path="file/below", content="x")


def test_a_stop_before_the_write_leaves_the_old_file(desk: Desk) -> None:
    (desk.workspace / "a").write_text("old")
    stop = Stop()
    stop.set()
    with pytest.raises(Interrupted):
        desk.run(WRITE, stop, path="a", content="new")
    assert (desk.workspace / "a").read_text() == "old"


def test_a_reader_never_sees_half_a_file(desk: Desk) -> None:
    path = desk.workspace / "a"
    contents = {"a" * 200_000, "b" * 200_000}
    path.write_text("a" * 200_000)
    seen: set[str] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.add(path.read_text())

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(20):
        for content in contents:
            desk.run(WRITE, path="a", content=content)
    done.set()
    reader.join(30)
    assert seen <= contents


def test_writing_outside_the_workspace_is_dangerous(desk: Desk) -> None:
    assert desk.kinds(WRITE, path="a", content="") == []
    assert desk.kinds(WRITE, path="../a", content="") == ["outside"]
    assert desk.kinds(PATCH, path="/etc/hosts", old="a", new="b") == ["privilege"]
    (desk.workspace / "link").symlink_to("/srv")
    assert desk.kinds(WRITE, path="link/a", content="") == ["outside"]


# Patching


def patched(desk: Desk, before: str, old: str, new: str, **how: Any) -> tuple[str, str]:
    path = desk.workspace / "a.py"
    path.write_text(before)
    result = desk.run(PATCH, path="a.py", old=old, new=new, **how)
    assert result.diff
    return path.read_text(), result.text


def test_an_exact_passage_is_replaced(desk: Desk) -> None:
    after, text = patched(desk, "a = 1\nb = 2\n", "b = 2", "b = 3")
    assert after == "a = 1\nb = 3\n"
    assert text == "Patched a.py."


def test_a_passage_that_is_there_twice_is_refused_unless_all_are_meant(desk: Desk) -> None:
    (desk.workspace / "a.py").write_text("x\ny\nx\n")
    message = desk.error(PATCH, path="a.py", old="x", new="z")
    assert "2 times, in lines 1, 3" in message
    after, text = patched(desk, "x\ny\nx\n", "x", "z", replace_all=True)
    assert after == "z\ny\nz\n"
    assert "2 places" in text


def test_a_passage_with_other_white_space_is_found_and_said_so(desk: Desk) -> None:
    before = "class A:\n    def f(self):\n        return 1\n\n    def g(self):\n        return 2\n"
    after, text = patched(
        desk, before, "def g(self):\n    return 2", "def g(self):\n    x = 3\n    return x"
    )
    assert after == before.replace("        return 2\n", "        x = 3\n        return x\n")
    assert "loosely (only white space differed)" in text


def test_tabs_and_trailing_blanks_do_not_hide_a_passage(desk: Desk) -> None:
    after, _ = patched(
        desk, "if x:\n\ty = 1  \n\tz = 2\n", "if x:\n    y = 1\n", "if x:\n    y = 9\n"
    )
    assert after == "if x:\n    y = 9\n\tz = 2\n"


def test_a_passage_that_is_nearly_there_is_found_and_said_so(desk: Desk) -> None:
    before = "".join(f"value_{n} = compute(alpha, {n})\n" for n in "abc")
    before += "def handle(request, context):\n    log.info('handling the request')\n    return ok\n"
    old = "def handle(request, context):\n    log.info('handling a request')\n    return ok\n"
    after, text = patched(desk, before, old, "def handle():\n    return ok\n")
    assert after.endswith("compute(alpha, c)\ndef handle():\n    return ok\n")
    assert "% alike" in text


def test_a_loose_passage_in_two_places_is_refused(desk: Desk) -> None:
    (desk.workspace / "a.py").write_text("  x = 1\n  y = 2\nif a:\n    x = 1\n    y = 2\n")
    message = desk.error(PATCH, path="a.py", old="x = 1\ny = 2", new="z")
    assert "2 places are like it" in message


def test_a_passage_that_is_not_there_is_told_with_the_nearest_line(desk: Desk) -> None:
    before = "def alpha():\n    pass\n"
    (desk.workspace / "a.py").write_text(before)
    message = desk.error(
        PATCH, path="a.py", old="def alpha(x, y):\n    return x + y + 1\n", new="q"
    )
    assert "is not in a.py" in message
    assert "Line 1 is most like it: def alpha():" in message
    assert (desk.workspace / "a.py").read_text() == before


def test_line_ends_and_foreign_bytes_survive_a_patch(desk: Desk) -> None:
    path = desk.workspace / "a.txt"
    path.write_bytes(b"one\r\ntwo\r\n\xff\xfe\r\n")
    desk.run(PATCH, path="a.txt", old="one\ntwo", new="three\nfour")
    assert path.read_bytes() == b"three\r\nfour\r\n\xff\xfe\r\n"


def test_a_patch_that_changes_nothing_is_refused(desk: Desk) -> None:
    (desk.workspace / "a.py").write_text("x\n")
    assert "stay the same" in desk.error(PATCH, path="a.py", old="x", new="x")
    assert "empty" in desk.error(PATCH, path="a.py", old="", new="x")
    assert "not a text file" in _binary_error(desk)


def _binary_error(desk: Desk) -> str:
    (desk.workspace / "b").write_bytes(b"\0\1")
    return desk.error(PATCH, path="b", old="x", new="y")


# Searching


@pytest.fixture
def tree(desk: Desk) -> Path:
    root = desk.workspace
    files = {
        "src/app.py": "import os\nneedle = 1\n",
        "src/deep/mod.py": "x = 'NEEDLE'\n",
        "docs/a.md": "the needle\n",
        "build/out.py": "needle\n",
        "keep/build.txt": "needle\n",
        "node_modules/x/index.js": "needle\n",
        ".git/config": "needle\n",
        "secret.log": "needle\n",
        "important.log": "needle\n",
        ".env": "needle=1\n",
        ".gitignore": "/build/\n*.log\n!important.log\n# comment\n",
        "src/.gitignore": "generated.py\n",
        "src/generated.py": "needle\n",
    }
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    (root / "bin.dat").write_bytes(b"needle\0")
    return root


def test_lines_are_found_by_a_regex_past_what_git_ignores(desk: Desk, tree: Path) -> None:
    assert desk.text(SEARCH, pattern="(?i)need.e") == (
        "docs/a.md:1: the needle\n"
        "important.log:1: needle\n"
        "keep/build.txt:1: needle\n"
        "src/app.py:2: needle = 1\n"
        "src/deep/mod.py:1: x = 'NEEDLE'\n"
        "[1 files that may hold secrets were not searched]"
    )


def test_a_search_can_be_narrowed_by_folder_file_and_glob(desk: Desk, tree: Path) -> None:
    assert desk.text(SEARCH, pattern="needle", path="src") == "app.py:2: needle = 1"
    assert desk.text(SEARCH, pattern="needle", path="docs/a.md") == "a.md:1: the needle"
    assert "src/app.py" in desk.text(SEARCH, pattern="needle", glob="*.py")
    assert "docs" not in desk.text(SEARCH, pattern="needle", glob="*.py")


def test_names_are_found(desk: Desk, tree: Path) -> None:
    assert desk.text(SEARCH, pattern=r"\.py$", names=True) == "src/app.py\nsrc/deep/mod.py"


def test_a_wrong_regex_is_searched_as_plain_text(desk: Desk) -> None:
    (desk.workspace / "a.txt").write_text("f(x\n")
    text = desk.text(SEARCH, pattern="f(x")
    assert text.startswith("a.txt:1: f(x\n[searched as plain text")


def test_many_hits_are_capped_and_none_is_told(make_desk: MakeDesk) -> None:
    desk = make_desk(output_limit=1000)
    (desk.workspace / "a.txt").write_text("hit " * 20 + "\n")
    (desk.workspace / "b.txt").write_text("hit\n" * 1000)
    text = desk.text(SEARCH, pattern="hit")
    assert len(text) <= 1000
    assert "narrow the search" in text
    assert desk.text(SEARCH, pattern="nowhere") == "Nothing found."
    assert "There is no" in desk.error(SEARCH, pattern="x", path="nowhere")


def test_links_do_not_lead_a_search_in_circles_or_outside(desk: Desk) -> None:
    (desk.workspace / "loop").symlink_to(desk.workspace)
    (desk.workspace / "etc").symlink_to("/etc")
    (desk.workspace / "a.txt").write_text("root\n")
    assert desk.text(SEARCH, pattern="root") == "a.txt:1: root"


def test_a_stop_ends_a_search(desk: Desk, tree: Path) -> None:
    stop = Stop()
    stop.set()
    with pytest.raises(Interrupted):
        desk.run(SEARCH, stop, pattern="x")


ENDLESS = "a" * 40 + "!"
"""Takes `(a+)+$` days."""


def test_a_regex_that_never_ends_is_given_up(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_files, "_TIMEOUT_S", 1.0)
    (desk.workspace / "b").write_text(f"{ENDLESS}\n")
    message = desk.error(SEARCH, pattern="(a+)+$")
    assert "did not end" in message
    assert "Simplify the pattern (a+)+$" in message


def test_a_search_that_is_given_up_keeps_its_hits(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_files, "_TIMEOUT_S", 5.0)
    (desk.workspace / "a").write_text("aaa\naa\n")
    (desk.workspace / "b").write_text(f"{ENDLESS}\n")
    text = desk.text(SEARCH, pattern="(a+)+$")
    assert text.startswith("a:1: aaa\na:2: aa\n[the search was given up after 5 s. Simplify")


def test_names_and_ignore_rules_cannot_freeze_a_search_either(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_files, "_TIMEOUT_S", 1.0)
    (desk.workspace / ENDLESS).touch()
    assert "Simplify" in desk.error(SEARCH, pattern="(a+)+$", names=True)
    (desk.workspace / ("a" * 200)).touch()
    (desk.workspace / ".gitignore").write_text("a*" * 30 + "b\n")
    assert "Simplify" in desk.error(SEARCH, pattern="x", names=True)


def test_a_search_imports_nothing_from_the_workspace(desk: Desk) -> None:
    for name in ("re.py", "json.py", "hermes_agent.py"):
        (desk.workspace / name).write_text("import os\nos._exit(1)  # evil\n")
    assert "re.py:2" in desk.text(SEARCH, pattern="evil")


def test_a_stop_ends_a_regex_that_never_ends(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    (desk.workspace / "a").write_text(f"{ENDLESS}\n")
    stop = Stop()
    send = Child.send

    def send_and_stop(child: Child, data: bytes) -> None:
        send(child, data)
        stop.set()

    monkeypatch.setattr(Child, "send", send_and_stop)
    with pytest.raises(Interrupted):
        desk.run(SEARCH, stop, pattern="(a+)+$")
