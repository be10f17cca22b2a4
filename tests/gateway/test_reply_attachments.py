"""Files that a reply brings along: which go, to whom, and that they go once."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gateway.config import Platform
from gateway.platforms.base import Abilities
from gateway.replies import Replies, decode
from gateway.reply_attachments import MANNER, ReplyAttachments, ReplyWithFiles, without
from gateway.reply_target import ReplyTarget
from gateway.source import SessionSource
from gateway.workspaces import Workspaces
from hermes_agent.approval import rights
from hermes_agent.permissions import Permissions
from hermes_agent.testing.scripted import call, say
from hermes_agent.turn.values import Outcome
from hermes_core.paths import Home, make_folder
from hermes_core.settings import Settings
from hermes_state import SessionDB
from hermes_state.ledger import questions as question_ledger
from hermes_state.values import Role, Scope
from tests.gateway.harness import TIMEOUT_S, Inside, Process, World

OWNER = Permissions("x:1", "owner", Scope("x", "1"), is_private=True)
PLACE = SessionSource(Platform.register("loopback"), "a")


@pytest.fixture(autouse=True)
def workspace(home: Home, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that chats work in."""
    monkeypatch.setenv("HOME", str(home.root.parent))
    folder = make_folder(home.workspace)
    (folder / "plan.txt").write_text("the plan")
    return folder


def _attachments(home: Home, permissions: Permissions) -> ReplyAttachments:
    workspaces = Workspaces(home, Settings())
    return ReplyAttachments(home, 1024 * 1024, lambda _place: permissions, workspaces)


@pytest.fixture
def chosen(home: Home) -> Iterator[ReplyAttachments]:
    home.create()
    yield _attachments(home, OWNER)


def test_a_file_of_the_workspace_goes_along_and_its_line_does_not(
    world: World, workspace: Path
) -> None:
    world.play(say(f"Here it is.\n\nMEDIA:{workspace}/plan.txt"))
    with Inside(world):
        world.platform.say("a", "send me the plan")
        messages = world.platform.wait_for("a", lambda found: len(found) == 2, 30.0)
    assert [message.text for message in messages] == ["Here it is.", ""]
    assert [(file.name, file.content) for file in messages[1].files] == [("plan.txt", b"the plan")]


def test_a_reply_that_is_shown_while_it_is_written_has_its_file_too(
    world: World, workspace: Path
) -> None:
    world.configure(streaming=True)
    world.play(say(f"Here is the plan that you wanted.\n\nMEDIA:{workspace}/plan.txt"))
    with Inside(world):
        world.platform.say("a", "send me the plan")
        messages = world.platform.wait_for(
            "a", lambda found: any(message.files for message in found), 30.0
        )
    assert messages[0].text == "Here is the plan that you wanted."
    assert not any("MEDIA" in text for message in messages for text in message.edits)
    assert [message.name for message in messages[1].files] == ["plan.txt"]


def test_a_file_goes_once_also_when_the_gateway_is_killed_before_it_is_sent(
    world: World, workspace: Path
) -> None:
    world.play(say(f"Here it is.\nMEDIA:{workspace}/plan.txt"))
    world.platform.lose_answers()
    with Process(world).wait_until_up() as first:
        world.platform.say("a", "send me the plan")
        world.wait_for_text("a", "Here it is.")
        first.kill()
    with Process(world).wait_until_up():
        world.platform.wait_for("a", lambda found: any(message.files for message in found), 30.0)
        world.platform.say("a", "thank you")
        world.wait_for_text("a", "You said: thank you")
    messages = world.platform.shown("a")
    assert [message.text for message in messages[:2]] == ["Here it is.", ""]
    assert [len(message.files) for message in messages] == [0, 1, 0]


def test_the_model_is_told_how_where_it_may(world: World) -> None:
    with Inside(world) as inside:
        world.platform.say("a", "hello")
        world.wait_for_replies("a", 1)
        assert MANNER in str(world.model.model_requests[-1].json)
        guest = msgspec.structs.replace(OWNER, tools=frozenset({"clarify"}))
        assert inside.services.replies.manner("loopback", OWNER) == MANNER
        assert inside.services.replies.manner("loopback", guest) == ""
        assert inside.services.replies.manner("switched off", OWNER) == ""


def test_a_guest_gets_no_file_of_the_machine(world: World, workspace: Path) -> None:
    world.home.config.write_text(
        world.home.config.read_text().replace('["u1", "u2", "u3"]', '["u1"]')
        + '\n[gateway.allow]\nloopback = ["u2"]\n'
    )
    world.play(say(f"MEDIA:{workspace}/plan.txt"))
    with Inside(world):
        world.platform.say("b", "send me the plan", user="u2")
        [reply] = world.wait_for_replies("b", 1)
    assert reply == "[plan.txt is not sent: the person who asked may not read files here.]"


def _ask_in_group(world: World, text: str = "send me the plan") -> None:
    world.platform.say("g", text, chat_type="group", mention=True)


@pytest.mark.parametrize("by", ["chat", "machine"])
def test_a_file_goes_into_a_group_only_after_a_yes(world: World, workspace: Path, by: str) -> None:
    world.play(say(f"Here it is.\n\nMEDIA:{workspace}/plan.txt"))
    with Inside(world) as inside:
        _ask_in_group(world)
        question = world.wait_for_text("g", "Allow this command?").text
        assert f"Sends {workspace}/plan.txt to loopback: group" in question
        assert not any(message.files for message in world.platform.shown("g"))
        if by == "chat":
            world.platform.say("g", "/approve", chat_type="group", mention=True)
        else:
            (row,) = inside.store.read(question_ledger.pending)
            rights.answer(inside.store, row["id"], "once", by="cli")
        message = world.platform.wait_for(
            "g", lambda found: any(each.files for each in found), TIMEOUT_S
        )
    assert [file.content for each in message for file in each.files] == [b"the plan"]


def test_a_file_that_nobody_allows_stays_and_the_reply_says_so(
    world: World, workspace: Path
) -> None:
    world.play(say(f"Here it is.\n\nMEDIA:{workspace}/plan.txt"))
    with Inside(world):
        _ask_in_group(world)
        world.wait_for_text("g", "Allow this command?")
        world.platform.say("g", "/deny", chat_type="group", mention=True)
        reply = world.wait_for_text("g", "Here it is.").text
    assert reply.endswith("[plan.txt is not sent: it was not approved.]")
    assert not any(message.files for message in world.platform.shown("g"))


def test_a_stop_ends_the_question_about_a_file(world: World, workspace: Path) -> None:
    world.play(say(f"Here it is.\n\nMEDIA:{workspace}/plan.txt"))
    with Inside(world) as inside:
        _ask_in_group(world)
        world.wait_for_text("g", "Allow this command?")
        world.platform.say("g", "/stop", chat_type="group", mention=True)
        world.wait_for_text("g", "Stopping.")
        _ask_in_group(world, "and now?")
        world.wait_for_text("g", "You said")
        assert inside.store.read(question_ledger.pending) == []
    assert not any(message.files for message in world.platform.shown("g"))


def test_what_the_agent_has_just_written_goes_into_a_group_unasked(
    world: World, workspace: Path
) -> None:
    (workspace / "outputs").mkdir()
    (workspace / "outputs" / "chart.txt").write_text("a chart")
    world.play(
        call("write_file", path=str(workspace / "new.txt"), content="new"),
        say(f"Here.\nMEDIA:{workspace}/new.txt\nMEDIA:{workspace}/outputs/chart.txt"),
    )
    with Inside(world):
        _ask_in_group(world)
        messages = world.platform.wait_for(
            "g", lambda found: sum(len(each.files) for each in found) == 2, TIMEOUT_S
        )
    assert [file.content for each in messages for file in each.files] == [b"new", b"a chart"]


def test_what_was_replaced_after_it_was_written_is_asked_about(
    world: World, workspace: Path
) -> None:
    world.play(
        call("write_file", path=str(workspace / "new.txt"), content="new"),
        call("terminal", command="cp plan.txt new.txt"),
        say(f"Here.\nMEDIA:{workspace}/new.txt"),
    )
    with Inside(world):
        _ask_in_group(world)
        world.wait_for_text("g", "Allow this command?")
        world.platform.say("g", "/deny", chat_type="group", mention=True)
        world.wait_for_text("g", "not sent")


def test_nothing_leaves_that_is_hidden_secret_or_of_hermes(
    chosen: ReplyAttachments, home: Home, workspace: Path
) -> None:
    outside = home.root.parent / "outside.txt"
    for path in (
        workspace / ".ssh" / "config",
        workspace / "deploy.pem",
        home.config,
        home.database,
        home.root / "memories" / "USER.md",
        outside,
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("not for others")
        enclosed = chosen.of(f"MEDIA:{path}", PLACE)
        assert enclosed.files == [], path
        assert "only files of the workspace" in enclosed.text
    (workspace / "link.txt").symlink_to(home.config)
    assert chosen.of(f"MEDIA:{workspace}/link.txt", PLACE).files == []
    assert chosen.of(f"MEDIA:{workspace}/x/../.ssh/config", PLACE).files == []
    assert chosen.of("MEDIA:plan.txt", PLACE).files == []


@pytest.mark.parametrize(
    ("role", "is_private", "goes"),
    [("owner", True, True), ("owner", False, False), ("member", True, False)],
)
def test_what_people_sent_goes_to_an_owner_in_private_alone(
    home: Home, workspace: Path, role: Role, is_private: bool, goes: bool
) -> None:
    home.create()
    permissions = msgspec.structs.replace(OWNER, role=role, is_private=is_private)
    chosen = _attachments(home, permissions)
    picture = home.attachments / "abc.png"
    picture.parent.mkdir(exist_ok=True)
    picture.write_bytes(b"picture")
    assert chosen.of(f"MEDIA:{picture}", PLACE).files == ([str(picture)] if goes else [])


def test_what_is_missing_or_too_large_is_said(chosen: ReplyAttachments, workspace: Path) -> None:
    (workspace / "film.mp4").write_bytes(b"x" * (3 << 20))
    text = f"Two files:\nMEDIA:{workspace}/film.mp4\nMEDIA:{workspace}/none.txt"
    assert chosen.of(text, PLACE) == ReplyWithFiles(
        "Two files:\n"
        "[film.mp4 is not sent: it has 3 MB, and the limit is 1 MB.]\n"
        "[none.txt is not sent: there is no such file.]",
        [],
    )


def test_what_is_quoted_as_code_or_inside_a_sentence_is_text(
    chosen: ReplyAttachments, workspace: Path
) -> None:
    text = f"Write MEDIA:{workspace}/plan.txt, as in\n```\nMEDIA:{workspace}/plan.txt\n```"
    assert chosen.of(text, PLACE) == ReplyWithFiles(text, [])
    assert without(text) == text
    assert without("Here:\nMEDIA:/ho") == "Here:"


def test_where_nothing_is_edited_the_files_go_with_the_last_piece(
    home: Home, workspace: Path, chosen: ReplyAttachments
) -> None:
    able = Abilities(text_limit=40, can_send_files=True, resend="checked")
    text = f"{'many words ' * 6}\nMEDIA:{workspace}/plan.txt"
    with SessionDB(home.database) as store:
        replies = Replies(store, lambda _platform: able, chosen)
        target = ReplyTarget(stored_source=PLACE.to_dict(), message_id="m1")
        *others, last = replies.deliver("t", Outcome("answered", text), target)
    assert others
    assert [decode(other.extra).files for other in others] == [[] for _ in others]
    assert decode(last.extra).files == [str(workspace / "plan.txt")]
    assert last.content
