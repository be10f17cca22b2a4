"""What was kept for a conversation goes with it, and nothing else does."""

from pathlib import Path

from hermes_core import attachments
from hermes_core.paths import Home, make_folder


def create(home: Home, session_id: str, number: int, name: str) -> Path:
    make_folder(home.attachments)
    path = attachments.path_of(home, session_id, number, name)
    path.touch()
    return path


def test_only_files_of_the_deleted_session_go(home: Home) -> None:
    own = [create(home, "work", 1, "a.png"), create(home, "work", 3, "2026_holiday.jpg")]
    others = [create(home, "work_2", 1, "b.png"), create(home, "workshop", 1, "c.png")]
    assert attachments.names_of(home, ["work"]) == {path.name for path in own}
    attachments.remove(home, attachments.names_of(home, ["work"]))
    assert not any(path.exists() for path in own)
    assert all(path.exists() for path in others)


def test_a_session_that_is_named_like_a_path_reaches_no_file_outside(home: Home) -> None:
    outside = make_folder(home.root / "docs") / "report_1_x.txt"
    outside.touch()
    own = create(home, "../docs/report", 1, "x.txt")
    assert own.parent == home.attachments and own.exists()
    for name in ("../docs/report", str(outside.parent / "report"), "", "..", "*"):
        attachments.remove(home, attachments.names_of(home, [name]))
    assert outside.exists() and not own.exists()
