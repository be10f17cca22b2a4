"""Files that come with messages are kept under names of ours, with the type that they have."""

import asyncio
import base64
import errno
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.attachments import Attachments, as_content, kind_of
from gateway.platforms.base import (
    Attachment,
    IncomingFile,
    MessageEvent,
    PlatformError,
    Receipt,
    at_hand,
)
from hermes_core.errors import StoreFullError
from hermes_state import SessionDB, files
from hermes_state.ledger import sessions
from tests.gateway.harness import Inside, World

PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 20
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'


@pytest.fixture
def attachments(tmp_path: Path) -> Attachments:
    return Attachments(tmp_path / "attachments", 1024 * 1024)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0 JFIF", "image/jpeg"),
        (b"GIF89a...", "image/gif"),
        (b"RIFF\x01\x02\x0a\x04WEBPVP8 ", "image/webp"),
        (b"RIFF\x01\x02\x03\x04WAVEfmt ", "audio/wav"),
        (b"%PDF-1.7\n", "application/pdf"),
        (b"PK\x03\x04...", "application/zip"),
        (b"OggS\x00\x02", "audio/ogg"),
        (b"ID3\x04\x00", "audio/mpeg"),
        (b"\xff\xfb\x90\x44", "audio/mpeg"),
        (b"\x00\x00\x00\x20ftypisom", "video/mp4"),
        (b"\x00\x00\x00\x20ftypM4A ", "audio/mp4"),
        (b"\x1a\x45\xdf\xa3\x9fB\x86\x81\x01B\xf7\x81\x01B\x82\x84webm", "video/webm"),
        ("Grüße\n\tund mehr\x1b[0m".encode(), "text/plain"),
        (SVG, "text/plain"),
        (b"<!DOCTYPE html><html>", "text/plain"),
        (b"", "text/plain"),
        (b"\x00\x01\x02", "application/octet-stream"),
        (b"\xfe\xff\x00a", "application/octet-stream"),
        (b"RIFF\x01\x02\x03\x04AVI ", "application/octet-stream"),
    ],
)
def test_the_type_is_told_from_the_content(content: bytes, kind: str):
    assert kind_of(content) == kind


def test_a_name_that_lies_about_the_type_does_not_win(attachments: Attachments):
    saved = attachments.save(SVG, "picture.png")
    assert (saved.kind, saved.path.suffix, saved.name) == ("text/plain", ".txt", "picture.png")
    assert isinstance(as_content("look", [saved]), str)


@pytest.mark.parametrize(
    "name",
    ["../../etc/passwd", "..\\..\\boot.ini", "/etc/shadow", "a\x00b", ".", "..", "", "x" * 5000],
)
def test_nothing_of_the_name_reaches_the_path(attachments: Attachments, tmp_path: Path, name: str):
    saved = attachments.save(b"text", name)
    assert saved.path == attachments.save(b"text", "other").path
    assert saved.path.parent == tmp_path / "attachments"
    assert "/" not in saved.name
    assert len(saved.name) <= 120


@given(st.text())
def test_a_name_is_shown_in_one_line_and_cannot_close_the_mark(name: str):
    mark = as_content("", [Attachment(Path(__file__), "text/plain", _named(name))])
    assert isinstance(mark, str)
    assert mark.count("\n") == 0
    assert mark.count("]") == 1


def _named(name: str) -> str:
    folder = Path(os.environ["HERMES_HOME"]) / "attachments"
    return Attachments(folder, 10).save(b"x", name).name


def test_a_file_is_private_and_whole(attachments: Attachments):
    path = attachments.save(PNG, "a.png").path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.read_bytes() == PNG


def test_the_same_file_is_kept_once(attachments: Attachments):
    first, second = attachments.save(PNG, "a.png"), attachments.save(PNG, "b.png")
    assert first.path == second.path
    assert [path.name for path in first.path.parent.iterdir()] == [first.path.name]


def test_a_file_that_is_too_large_is_refused_with_the_limit(tmp_path: Path):
    with pytest.raises(
        PlatformError, match=r"2\.0 KB; the limit is 1\.0 KB\..*attachment_limit_mb"
    ):
        Attachments(tmp_path, 1024).save(b"x" * 2048, "a.txt")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_apart_so_that_the_message_comes_again(
    attachments: Attachments, monkeypatch: pytest.MonkeyPatch
):
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreFullError):
        attachments.save(PNG, "a.png")
    monkeypatch.undo()
    path = attachments.save(PNG, "a.png").path
    assert list(path.parent.iterdir()) == [path]


def test_a_message_without_files_is_its_text():
    assert as_content("hello", []) == "hello"


def test_a_picture_goes_to_the_model_and_its_place_too(attachments: Attachments):
    saved = attachments.save(PNG, "a.png")
    text, picture = as_content("What is it?", [saved])
    assert text == {"type": "text", "text": f"What is it?\n[Attached image: {saved.path}]"}
    assert picture == {
        "type": "image_url",
        "image_url": {"url": "data:image/png;base64," + base64.b64encode(PNG).decode()},
    }


def test_a_picture_that_is_too_large_is_only_named(tmp_path: Path):
    saved = Attachments(tmp_path, 10**8).save(PNG + b"\x00" * 5 * 1024 * 1024, "big.png")
    assert (
        as_content("", [saved]) == f"[Attached file: big.png (image/png, 5.0 MB) at {saved.path}]"
    )


def test_pictures_go_along_as_long_as_there_is_room(tmp_path: Path):
    attachments = Attachments(tmp_path, 10**8)
    large = 4 * 1024 * 1024
    saved = [
        attachments.save(PNG + bytes([number]) * large, f"{number}.png") for number in range(6)
    ]
    content = as_content("", saved)
    assert [part["type"] for part in content if isinstance(part, dict)] == [
        "text",
        *["image_url"] * 4,
    ]


def test_other_files_are_named_with_their_place_so_that_tools_can_read_them(
    attachments: Attachments,
):
    voice, paper = attachments.save(b"OggS\x00", "voice"), attachments.save(b"%PDF-1", "paper.pdf")
    assert as_content("", [voice, paper]) == (
        f"[Attached file: voice (audio/ogg, 5 bytes) at {voice.path}]\n"
        f"[Attached file: paper.pdf (application/pdf, 6 bytes) at {paper.path}]"
    )


def test_a_file_that_is_gone_does_not_stop_the_message(attachments: Attachments):
    saved = attachments.save(PNG, "a.png")
    saved.path.unlink()
    assert as_content("hi", [saved]) == (
        "hi\n[Attached file: a.png (image/png), which is no longer there]"
    )


# -- files that are fetched ---------------------------------------------------------------------


def refused() -> IncomingFile:
    async def fetch() -> bytes:
        raise PlatformError("It is gone.")

    return IncomingFile("a]\nb.png", fetch)


def test_of_a_file_that_is_not_to_be_had_the_text_says_so(attachments: Attachments):
    event = MessageEvent("look", files=[refused(), IncomingFile("c.png", at_hand(PNG))])
    asyncio.run(attachments.collect(event))
    assert event.text == "look\n[The file a)b.png was left out: It is gone.]"
    (saved,) = event.attachments
    assert (saved.name, saved.kind) == ("c.png", "image/png")


def test_a_message_that_needs_its_file_is_refused_without_it(attachments: Attachments):
    event = MessageEvent("look", files=[refused()._replace(is_needed=True)])
    with pytest.raises(PlatformError, match="It is gone"):
        asyncio.run(attachments.collect(event))


def test_after_a_full_disk_files_are_fetched_on_from_there(
    attachments: Attachments, monkeypatch: pytest.MonkeyPatch
):
    fetched: list[str] = []

    def file(name: str) -> IncomingFile:
        async def fetch() -> bytes:
            fetched.append(name)
            if name == "b" and fetched.count("b") == 1:
                monkeypatch.setattr(os, "fsync", full)
            return name.encode()

        return IncomingFile(name, fetch)

    def full(_descriptor: int) -> None:
        monkeypatch.undo()
        raise OSError(errno.ENOSPC, "No space left on device")

    event = MessageEvent("look", files=[file("a"), file("b")])
    with pytest.raises(StoreFullError):
        asyncio.run(attachments.collect(event))
    asyncio.run(attachments.collect(event))
    assert fetched == ["a", "b", "b"]
    assert [attachment.path.read_bytes() for attachment in event.attachments] == [b"a", b"b"]


# -- whose files are kept -----------------------------------------------------------------------


def _stored_contents(world: World) -> list[bytes]:
    folder = world.home.attachments
    return [path.read_bytes() for path in folder.iterdir()] if folder.exists() else []


def test_a_file_of_somebody_who_may_speak_is_kept(world: World):
    with Inside(world):
        world.platform.say("a", "look", files=[("a.txt", b"words")])
        assert "a.txt" in world.wait_for_replies("a", 1)[0]
        assert _stored_contents(world) == [b"words"]


def test_a_file_of_a_stranger_is_not_kept(world: World):
    with Inside(world):
        world.platform.say("s", "look", user="stranger", files=[("a.txt", b"words")])
        world.wait_for_text("s", "Your pairing code is")
        assert _stored_contents(world) == []


def test_a_file_in_a_group_that_is_not_meant_for_us_is_not_kept(world: World):
    with Inside(world):
        world.platform.say(
            "g", "chatter", chat_type="group", mention=False, files=[("a.txt", b"words")]
        )
        world.platform.say("g", "you there?", chat_type="group")
        world.wait_for_replies("g", 1)
        assert _stored_contents(world) == []


def test_a_second_delivery_brings_no_file_again(world: World):
    with Inside(world):
        file = ("a.txt", b"words")
        world.platform.say("a", "look", message_id="m1", files=[file])
        world.wait_for_replies("a", 1)
        (path,) = world.home.attachments.iterdir()
        path.unlink()
        world.platform.say("a", "look", message_id="m1", files=[file])
        world.platform.say("a", "after it")
        world.wait_for_replies("a", 2)
        assert _stored_contents(world) == []


def test_a_file_that_comes_with_a_command_is_not_kept(world: World):
    with Inside(world):
        world.platform.say("a", "/whoami", files=[("a.txt", b"words")])
        world.wait_for_text("a", "owner")
        assert _stored_contents(world) == []


def test_a_file_that_is_being_taken_in_does_not_go_with_another_conversation(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    with Inside(world) as inside:
        world.platform.say("a", "look", files=[("a.txt", b"words")])
        world.wait_for_replies("a", 1)
        take = inside.services.pipeline.accept
        (first,) = (row["id"] for row in inside.store.list_sessions_rich())

        def take_after_a_deletion(event: MessageEvent) -> Receipt:
            with (
                SessionDB(world.home.database) as other,
                files.going_with(other, world.home, [first]),
            ):
                other.write(sessions.delete, [first])
            return take(event)

        monkeypatch.setattr(inside.services.pipeline, "accept", take_after_a_deletion)
        world.platform.say("b", "look", files=[("a.txt", b"words")])
        world.wait_for_replies("b", 1)
        assert _stored_contents(world) == [b"words"]
