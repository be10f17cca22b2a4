"""Trees of a workspace: what is in them, and that nothing in the workspace runs or leads git astray."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_agent.checkpoints import entries
from hermes_agent.checkpoints.shadow import Shadow
from hermes_core.errors import CheckpointError
from hermes_core.paths import Home
from hermes_core.settings import ToolSettings

Files = dict[str, bytes]


def held(shadow: Shadow, tree: str) -> Files:
    """Everything that a tree holds, by path."""
    empty = shadow._git.run("mktree").decode().strip()
    changes = shadow.changes(empty, tree)
    contents = dict(shadow.contents({c.after.id for c in changes if c.after is not None}))
    return {c.path: contents.get(c.after.id, b"?") for c in changes if c.after is not None}


def git(folder: Path, *words: str) -> None:
    names = ("-c", "user.name=P", "-c", "user.email=p@example.invalid")
    subprocess.run(["git", *names, *words], cwd=folder, check=True, capture_output=True)


def test_a_tree_holds_files_links_and_modes(shadow: Shadow, work: Path) -> None:
    (work / "a.txt").write_bytes(b"a\r\nb\n")
    (work / "dir").mkdir()
    (work / "dir" / "run").write_bytes(b"#!/bin/sh\n")
    (work / "dir" / "run").chmod(0o755)
    (work / "link").symlink_to("/etc/passwd")
    tree = shadow.snapshot().tree
    assert held(shadow, tree) == {
        "a.txt": b"a\r\nb\n", "dir/run": b"#!/bin/sh\n", "link": b"/etc/passwd",
    }  # fmt: skip
    for path in ("a.txt", "dir/run", "link"):
        (change,) = [c for c in shadow.changes(shadow._git.run("mktree").decode().strip(), tree)
                     if c.path == path]  # fmt: skip
        assert change.after == entries.read(str(work), path, 1000)


def test_nothing_changed_is_the_same_tree(shadow: Shadow, work: Path) -> None:
    (work / "a").write_text("1")
    (work / "big").write_bytes(b"x" * 1_500_000)
    first = shadow.snapshot()
    assert shadow.snapshot() == first
    (work / "a").write_text("2")
    assert shadow.snapshot().tree != first.tree
    (work / "a").write_text("1")
    assert shadow.snapshot().tree == first.tree


def test_files_take_the_place_of_folders_and_back(shadow: Shadow, work: Path) -> None:
    (work / "a").mkdir()
    (work / "a" / "b").write_text("1")
    first = shadow.snapshot().tree
    (work / "a" / "b").unlink()
    (work / "a").rmdir()
    (work / "a").write_text("2")
    second = shadow.snapshot().tree
    assert held(shadow, second) == {"a": b"2"}
    (work / "a").unlink()
    (work / "a").symlink_to("nowhere")
    third = shadow.snapshot().tree
    assert held(shadow, third) == {"a": b"nowhere"}
    (work / "a").unlink()
    (work / "a").mkdir()
    (work / "a" / "b").write_text("1")
    assert shadow.snapshot().tree == first


def test_what_the_person_ignores_is_left_out_unless_it_is_forced(
    shadow: Shadow, work: Path
) -> None:
    (work / ".gitignore").write_text("*.log\nbuild/\n")
    (work / "a.log").write_text("1")
    (work / "build").mkdir()
    (work / "build" / "x").write_text("2")
    first = shadow.snapshot().tree
    assert set(held(shadow, first)) == {".gitignore"}
    assert shadow.is_ignored("a.log") and shadow.is_ignored("new.log")
    assert not shadow.is_ignored("a.txt")
    second = shadow.amended(first, ["a.log"])
    assert set(held(shadow, second)) == {".gitignore", "a.log"}
    (work / "a.log").write_text("3")
    assert held(shadow, shadow.snapshot().tree)["a.log"] == b"3", "it stays in later trees"


def test_repositories_inside_are_covered_without_their_git_folder(
    shadow: Shadow, work: Path
) -> None:
    for name in ("one", "one/two", "empty"):
        (work / name).mkdir()
        git(work / name, "init", "-q")
    (work / "one" / "a").write_text("1")
    (work / "one" / "two" / "b").write_text("2")
    git(work / "one", "add", "a")
    git(work / "one", "commit", "-qm", "first")
    (work / "one" / "a").write_text("3")
    first = shadow.snapshot()
    assert held(shadow, first.tree) == {"one/a": b"3", "one/two/b": b"2"}
    assert shadow.snapshot() == first
    (work / "one" / "two" / "c").write_text("4")
    assert held(shadow, shadow.snapshot().tree)["one/two/c"] == b"4"


def test_the_workspace_may_be_a_repository_itself(shadow: Shadow, work: Path) -> None:
    git(work, "init", "-q")
    (work / "a").write_text("1")
    git(work, "add", "a")
    git(work, "commit", "-qm", "first")
    (work / "a").write_text("2")
    before = (work / ".git" / "index").read_bytes()
    assert held(shadow, shadow.snapshot().tree) == {"a": b"2"}
    assert (work / ".git" / "index").read_bytes() == before


def test_a_large_file_is_noted_and_its_changes_are_seen(shadow: Shadow, work: Path) -> None:
    (work / "big").write_bytes(b"x" * 1_500_000)
    first = shadow.snapshot()
    assert first.notes == ["big is larger than 1 MB"]
    assert shadow.size() < 500_000
    (work / "big").write_bytes(b"y" * 1_500_000)
    second = shadow.snapshot()
    (change,) = shadow.changes(first.tree, second.tree)
    assert change.path == "big" and change.after == entries.read(str(work), "big", 1_000_000)
    ((_, data),) = shadow.contents({change.before.id if change.before else ""})
    assert entries.is_placeholder(data)
    (work / "big").write_bytes(b"small")
    assert held(shadow, shadow.snapshot().tree) == {"big": b"small"}


def test_too_much_at_once_is_refused(home: Home, work: Path) -> None:
    for number in range(3):
        (work / str(number)).write_bytes(os.urandom(500_000))
    shadow = Shadow(home, work, ToolSettings(checkpoint_total_mb=1))
    with pytest.raises(CheckpointError, match="too much"):
        shadow.snapshot()
    shadow.close()


@pytest.mark.parametrize(
    "name",
    [b"new\nline", b"tab\there", b"-rf", b"\xff\xfe", b"*", b":(glob)x", b'quote"', b"a\\b",
     b" space ", b"\x1b[31m", "ü".encode(), b"git~1"],
)  # fmt: skip
def test_any_name_is_held(shadow: Shadow, work: Path, name: bytes) -> None:
    path = work / os.fsdecode(name)
    path.write_bytes(b"1")
    first = shadow.snapshot().tree
    assert held(shadow, first) == {os.fsdecode(name): b"1"}
    path.unlink()
    assert held(shadow, shadow.snapshot().tree) == {}


def test_a_broken_index_is_made_anew(
    open_shadow: Callable[[], Shadow], shadow: Shadow, work: Path
) -> None:
    (work / "a").write_text("1")
    first = shadow.snapshot().tree
    (shadow.folder / "index").write_bytes(b"DIRC" + b"\xff" * 100)
    (shadow.folder / "index.lock").write_bytes(b"")
    (work / "b").write_text("2")
    assert held(open_shadow(), shadow.snapshot().tree) == {"a": b"1", "b": b"2"}
    (work / "b").unlink()
    assert shadow.snapshot().tree == first


def test_pruning_keeps_what_is_needed(shadow: Shadow, work: Path) -> None:
    trees: list[str] = []
    for number in range(3):
        (work / "a").write_bytes(os.urandom(200_000))
        (work / "b").write_text(str(number))
        trees.append(shadow.snapshot().tree)
    before, expected = shadow.size(), held(shadow, trees[0])
    shadow.prune([trees[0]], kept_since=0)
    assert shadow.size() < before - 150_000
    assert held(shadow, trees[0]) == expected
    assert held(shadow, shadow.snapshot().tree)["b"] == b"2", "and what is there now"


# -- attacks ---------------------------------------------------------------------------------------


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A program that leaves a trace when it is run."""
    path = tmp_path / "trap.sh"
    path.write_text(f"#!/bin/sh\ntouch '{tmp_path}/sprung'\ncat\n")
    path.chmod(0o755)
    return path


def sprung(tmp_path: Path) -> bool:
    return (tmp_path / "sprung").exists()


def test_no_setting_of_the_workspace_runs_anything(
    shadow: Shadow, work: Path, tmp_path: Path, trap: Path
) -> None:
    for folder in (work, work / "nested"):
        folder.mkdir(exist_ok=True)
        git(folder, "init", "-q")
        (folder / "a.txt").write_text("1\r\n")
        for setting in (
            "core.fsmonitor", "filter.evil.clean", "filter.evil.smudge", "filter.evil.process",
            "diff.external", "core.pager", "core.sshCommand", "core.editor", "diff.evil.textconv",
            "merge.evil.driver", "uploadpack.packObjectsHook",
        ):  # fmt: skip
            git(folder, "config", setting, str(trap))
        git(folder, "config", "core.hooksPath", str(trap.parent))
        git(folder, "config", "core.autocrlf", "true")
        for hook in ("post-index-change", "pre-commit", "post-checkout", "fsmonitor-watchman"):
            (folder / ".git" / "hooks").mkdir(exist_ok=True)
            (folder / ".git" / "hooks" / hook).write_bytes(trap.read_bytes())
            (folder / ".git" / "hooks" / hook).chmod(0o755)
        (folder / ".gitattributes").write_text(
            "* filter=evil diff=evil merge=evil ident text=auto\n"
        )
    (tmp_path / "sprung").unlink(missing_ok=True)
    first = shadow.snapshot().tree
    (work / "a.txt").write_text("2\r\n$Id$\r\n")
    second = shadow.snapshot().tree
    shadow.changes(first, second)
    shadow.prune([first], 0)
    assert held(shadow, second)["a.txt"] == b"2\r\n$Id$\r\n", "as it is, not as attributes say"
    assert held(shadow, first)["nested/a.txt"] == b"1\r\n"
    assert not sprung(tmp_path)


def test_no_variable_of_ours_reaches_git(
    shadow: Shadow, work: Path, tmp_path: Path, trap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configuration = tmp_path / "gitconfig"
    configuration.write_text(f"[core]\n\tfsmonitor = {trap}\n")
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, str(configuration))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.fsmonitor")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(trap))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "other"))
    (work / "a").write_text("1")
    assert held(shadow, shadow.snapshot().tree) == {"a": b"1"}
    assert not sprung(tmp_path)
    assert not (tmp_path / "other").exists()


def test_links_lead_nowhere(shadow: Shadow, work: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("key")
    (work / "folder").symlink_to(outside)
    (work / "file").symlink_to(outside / "secret")
    (work / ".gitignore").symlink_to(outside / "secret")
    (work / "real").mkdir()
    (work / "real" / "secret").write_text("mine")
    first = shadow.snapshot().tree
    assert b"key" not in held(shadow, first).values()
    (work / "real" / "secret").unlink()
    (work / "real").rmdir()
    (work / "real").symlink_to(outside)
    assert b"key" not in held(shadow, shadow.snapshot().tree).values()
    assert entries.read(str(work), "real/secret", 1000) is None
    with pytest.raises(OSError):
        entries.write(str(work), "real/secret", entries.Entry(entries.FILE, ""), b"changed")
    assert (outside / "secret").read_text() == "key"


def test_a_git_file_that_points_elsewhere_changes_nothing(
    shadow: Shadow, work: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    git(elsewhere, "init", "-q")
    for name in ("nested", "gone"):
        (work / name).mkdir()
        (work / name / "a").write_text("1")
    (work / "nested" / ".git").write_text(f"gitdir: {elsewhere}/.git\n")
    (work / "gone" / ".git").write_text("gitdir: /nowhere/at/all\n")
    assert held(shadow, shadow.snapshot().tree) == {"nested/a": b"1", "gone/a": b"1"}


def test_a_path_of_a_tree_never_leaves_it() -> None:
    assert entries.is_plain("a/b.git/c")
    for path in ("", "/a", "a//b", "../a", "a/../b", "./a", ".git/config", "a/.GIT/config"):
        assert not entries.is_plain(path)


def test_only_covered_paths_count_as_covered(shadow: Shadow, work: Path) -> None:
    (work / ".gitignore").write_text("*.log\n")
    for name in ("src", "logs", "clone", "data"):
        (work / name).mkdir()
        (work / name / "a.txt").write_text("1")
    (work / "logs" / "x.log").write_text("2")
    git(work / "clone", "init", "-q")
    (work / "data" / "big").write_bytes(b"x" * 1_500_000)
    shadow.snapshot()
    assert [n for n in ("src", "logs", "clone", "data", "src/a.txt") if shadow.covers(n)] == [
        "src", "src/a.txt",
    ]  # fmt: skip
