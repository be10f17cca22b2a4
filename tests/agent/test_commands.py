"""Slash commands: one table, the same effects on every surface."""

import asyncio
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from hermes_agent import commands
from hermes_agent.agent import Agent
from hermes_agent.approval.danger import Danger
from hermes_agent.commands import COMMANDS, PluginCommand
from hermes_agent.permissions import Permissions
from hermes_agent.skills import Skill
from hermes_agent.testing.scripted import call
from hermes_agent.tools.base import Tool
from hermes_agent.turn.events import QuestionAsked
from hermes_agent.turn.stop import Stop
from hermes_cli.plugins import PluginContext
from hermes_core.errors import (
    NothingSaidError,
    PluginError,
    SessionNotFoundError,
    StoreError,
    TitleError,
    UsageError,
)
from hermes_core.paths import Home
from hermes_state.ledger import lineage, sessions, titles, turns
from hermes_state.ledger import messages as message_ledger
from hermes_state.values import NewMessage
from tests.agent.conftest import Chat, Counting, MakeChat, close_agent


@dataclass
class Surface:
    """A surface that remembers what commands did to it."""

    chat: Chat
    make_chat: MakeChat
    is_running: bool = False
    stop: Stop = field(default_factory=Stop)
    sent: list[Any] = field(default_factory=list[Any])
    has_left: bool = False
    background_sessions: Sequence[str] = ()
    permissions: Permissions | None = None
    plugins: Mapping[str, PluginCommand] = field(default_factory=dict[str, PluginCommand])
    skills: Mapping[str, Skill] = field(default_factory=dict[str, Skill])

    @property
    def agent(self) -> Agent:
        return self.chat.agent

    @property
    def conversation(self) -> Agent:
        return self.chat.agent

    def open(self, session_id: str | None, end_reason: str) -> None:
        close_agent(self.agent, end_reason, completed=True, interrupted=False)
        self.chat = self.make_chat(["Next."], session_id=session_id, hooks=self.chat.hooks)

    def send(self, content: Any, replaces: int | None = None) -> None:
        self.sent.append(content)
        if replaces is not None:
            store, here = self.agent.store, self.agent.session_id
            message = {"role": "user", "content": content}
            turn = store.write(turns.accept, here, message, replaces=replaces)
            store.write(turns.finish, turn.turn_id, "interrupted")

    def models(self) -> str:
        return "a and b"

    def use_model(self, name: str) -> str:
        return name

    def leave(self) -> None:
        self.has_left = True

    def type(self, line: str) -> str:
        parsed = commands.parse(line)
        assert parsed is not None
        return commands.run(self, parsed)

    def texts(self) -> list[str]:
        messages = self.agent.store.read(message_ledger.as_conversation, self.agent.session_id)
        return [message["content"] for message in messages]


MakeSurface = Callable[..., Surface]


@pytest.fixture
def make_surface(make_chat: MakeChat) -> MakeSurface:
    def make(*replies: str, tools: Sequence[Tool] = (), **how: Any) -> Surface:
        answers = [f"Answer to {text}." for text in replies]
        surface = Surface(make_chat(answers, tools, **how), make_chat)
        for text in replies:
            surface.agent.run_conversation(text)
        return surface

    return make


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("/help", ("help", "")),
        ("/NEW", ("new", "")),
        ("/title My  plans ", ("title", "My  plans")),
        ("/compress the\nkeys", ("compress", "the\nkeys")),
        ("/etc/passwd", None),
        ("/etc/hosts is wrong", None),
        (" /help", None),
        ("/", None),
        ("//help", None),
        ("hello /help", None),
        ("/7 is half of 14", None),
    ],
)
def test_a_line_is_a_command_when_it_begins_with_the_name_of_one(
    line: str, expected: tuple[str, str] | None
) -> None:
    assert commands.parse(line) == expected


def test_names_and_aliases_are_each_there_once() -> None:
    every = [name for command in COMMANDS for name in (command.name, *command.aliases)]
    assert len(every) == len(set(every))
    assert sorted(every) == commands.names()


def test_help_lists_every_command_and_those_of_plugins(make_surface: MakeSurface) -> None:
    surface = make_surface()
    surface.plugins = {"weather": _Weather()}
    text = surface.type("/help")
    assert all(f"/{command.name}" in text for command in COMMANDS)
    assert "Tells the weather." in text
    assert surface.type("/weather Oslo") == "Rain in Oslo"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError("no network"), "/weather failed. OSError: no network"),
        (asyncio.CancelledError(), "The plugin sky failed in the command weather: CancelledError"),
        (SystemExit(3), "The plugin sky failed in the command weather: SystemExit: 3"),
    ],
)
def test_a_command_of_a_plugin_may_raise_anything(
    make_surface: MakeSurface, home: Home, error: BaseException, message: str
) -> None:
    def fail(_place: str) -> str:
        raise error

    context = PluginContext("sky", home, {})
    context.command("weather", fail, description="Tells the weather.")
    surface = make_surface("one")
    surface.plugins = context.registered.commands
    with pytest.raises(PluginError, match=re.escape(message)):
        surface.type("/weather Oslo")


def test_what_a_command_of_a_plugin_says_can_be_sent(make_surface: MakeSurface, home: Home) -> None:
    context = PluginContext("sky", home, {})
    context.command("weather", lambda place: f"{place} \ud83d", description="Tells the weather.")
    surface = make_surface("one")
    surface.plugins = context.registered.commands
    assert surface.type("/weather Oslo") == "Oslo ?"


class _Weather:
    name = "weather"
    description = "Tells the weather."
    argument = ""

    @staticmethod
    def handler(place: str) -> str:
        return f"Rain in {place}"


def test_an_unknown_command_names_the_nearest(make_surface: MakeSurface) -> None:
    with pytest.raises(UsageError, match="/undo"):
        make_surface().type("/undoo")


def test_commands_that_change_the_conversation_wait_for_the_turn(make_surface: MakeSurface) -> None:
    surface = make_surface("one")
    surface.is_running = True
    with pytest.raises(UsageError, match="/stop"):
        surface.type("/undo")
    assert surface.type("/status").endswith("A turn is running.")
    assert surface.type("/stop") == "Stopping."
    assert surface.agent.is_interrupted


def test_new_ends_the_conversation_and_tells_plugins(make_surface: MakeSurface) -> None:
    surface = make_surface("one")
    old = surface.agent.session_id
    surface.type("/reset")
    row = surface.agent.store.read(sessions.find, old)
    assert row is not None and row["end_reason"] == "new_session"
    assert surface.agent.session_id != old
    names = [name for name, _ in surface.chat.hooks.calls]
    assert names[-3:] == ["on_session_end", "on_session_finalize", "on_session_reset"]


def test_a_title_is_shown_and_set_and_must_be_free(make_surface: MakeSurface) -> None:
    surface = make_surface("one")
    assert surface.type("/title") == "It has no title yet."
    assert "Plans" in surface.type("/title Plans")
    with pytest.raises(TitleError):
        make_surface("two").type("/title Plans")


def test_conversations_are_listed_found_and_opened(make_surface: MakeSurface) -> None:
    first = make_surface("about llamas")
    first.type("/title Llamas")
    surface = make_surface("about yaks")
    assert "Llamas" in surface.type("/sessions") and f"* {surface.agent.session_id}" in (
        surface.type("/sessions")
    )
    assert "No conversation" in surface.type("/sessions zebra")
    assert first.agent.session_id in surface.type("/search llamas")
    assert surface.type("/search zebra") == "Nothing found."
    with pytest.raises(SessionNotFoundError):
        surface.type("/resume zebra")
    surface.type("/resume Llamas")
    assert surface.texts() == ["about llamas", "Answer to about llamas."]


def test_resume_takes_a_title_before_the_beginning_of_an_id(make_surface: MakeSurface) -> None:
    other = make_surface("about yaks").agent.session_id
    first = make_surface("about llamas")
    first.type(f"/title {other[:-1]}")
    surface = make_surface("about bees")
    surface.type(f"/resume {other[:-1]}")
    assert surface.texts()[0] == "about llamas"
    surface.type(f"/resume {other}")
    assert surface.texts()[0] == "about yaks"


def test_undo_takes_back_exchanges_and_retry_asks_again(make_surface: MakeSurface) -> None:
    surface = make_surface("one", "two", "three")
    assert "'three'" in surface.type("/undo")
    assert surface.texts() == ["one", "Answer to one.", "two", "Answer to two."]
    surface.type("/retry")
    assert surface.sent == ["two"]
    assert surface.texts() == ["one", "Answer to one.", "two"]
    surface.type("/undo 9")
    assert surface.texts() == []
    with pytest.raises(NothingSaidError, match="nothing to undo"):
        surface.type("/undo")
    with pytest.raises(UsageError, match="cannot be undone"):
        surface.type("/undo everything")


def test_undo_keeps_what_was_said_into_a_turn_together_with_it(make_surface: MakeSurface) -> None:
    surface = make_surface("one")
    request = surface.agent.store.read(message_ledger.as_conversation, surface.agent.session_id)[0]
    surface.agent.store.write(
        message_ledger.append,
        surface.agent.session_id,
        NewMessage("user", "steered", answers=request["id"]),
    )
    surface.type("/undo")
    assert surface.texts() == []


def test_a_branch_is_a_copy_with_a_life_of_its_own(make_surface: MakeSurface) -> None:
    surface = make_surface("one")
    old = surface.agent.session_id
    assert old in surface.type("/branch Other way")
    assert surface.agent.session_id != old
    assert surface.texts() == ["one", "Answer to one."]
    assert surface.agent.store.read(titles.title_of, surface.agent.session_id) == "Other way"


def test_a_compaction_can_be_asked_for_expanded_and_undone(make_surface: MakeSurface) -> None:
    surface = make_surface(*(f"question {n} " + "about the harbour " * 60 for n in range(12)))
    before, old = surface.texts(), surface.agent.session_id
    surface.chat.model.add(*["## Goal\nKnow the harbour.\n"] * 4)
    assert "continues in" in surface.type("/compress the harbour")
    shortened = surface.agent.session_id
    assert shortened != old
    assert len(surface.texts()) < len(before)
    output = surface.type("/expand")
    assert "question 3" in output
    assert "question 3" in surface.texts()[-1]
    assert "undone" in surface.type("/undo compress")
    assert surface.agent.session_id == old
    assert surface.texts()[: len(before)] == before
    assert surface.chat.hooks.of("on_session_finalize") == [
        {"session_id": shortened, "platform": "cli"}
    ]


@pytest.fixture
def shortened(make_surface: MakeSurface) -> Surface:
    """A conversation whose beginning stands before a summary and whose end stands behind it."""
    surface = make_surface(*(f"question {n} " + "about the harbour " * 60 for n in range(12)))
    surface.chat.model.add(*["## Goal\nKnow the harbour.\n"] * 4)
    surface.type("/compress the harbour")
    return surface


def take_back_all_since_the_summary(surface: Surface) -> int:
    """Say /undo until it is refused; returns how often it was not."""
    for count in range(12):
        before = surface.texts()
        try:
            surface.type("/undo")
        except NothingSaidError as error:
            assert "/undo compress" in error.fix
            assert surface.texts() == before
            return count
    raise AssertionError("it was never refused")


def test_neither_undo_nor_retry_reaches_behind_a_summary(shortened: Surface) -> None:
    undo_count = take_back_all_since_the_summary(shortened)
    remaining = shortened.texts()
    assert undo_count
    assert remaining[0].startswith("question 0")
    assert "[Summary of messages" in "".join(remaining)
    with pytest.raises(NothingSaidError, match="nothing to retry") as refused:
        shortened.type("/retry")
    assert "/undo compress" in refused.value.fix
    assert (shortened.texts(), shortened.sent) == (remaining, [])
    shortened.type("/undo compress")
    shortened.type("/retry")
    assert [text[: len("question 11")].strip() for text in shortened.sent] == [
        f"question {11 - undo_count}"
    ]


def test_more_exchanges_than_there_are_since_a_summary_are_not_taken_back(
    shortened: Surface,
) -> None:
    before = shortened.texts()
    with pytest.raises(NothingSaidError, match=r"are only \d+ exchanges") as refused:
        shortened.type("/undo 999")
    assert "/undo compress" in refused.value.fix
    assert shortened.texts() == before


def test_a_copy_of_a_summed_up_conversation_names_what_it_was_made_from(shortened: Surface) -> None:
    take_back_all_since_the_summary(shortened)
    original = shortened.agent.session_id
    shortened.type("/branch")
    with pytest.raises(NothingSaidError) as refused:
        shortened.type("/undo")
    assert f"/resume {original}" in refused.value.fix


def test_what_is_asked_again_are_the_words_that_were_said_not_an_abridged_copy(
    make_surface: MakeSurface,
) -> None:
    surface = make_surface("one")
    store, request = surface.agent.store, "long " * 500
    original_id = store.write(
        message_ledger.append, surface.agent.session_id, NewMessage("user", request)
    )
    carried = [
        {"role": "user", "content": "[Summary of messages 1–2.]"},
        {"role": "user", "content": "long […]", "origin_id": original_id},
    ]
    surface.agent.session_id = store.write(lineage.rotate, surface.agent.session_id, carried)
    surface.type("/retry")
    assert surface.sent == [request]


def test_usage_and_status_tell_where_things_stand(make_surface: MakeSurface) -> None:
    surface = make_surface("one")
    assert "scripted: 1 call," in surface.type("/usage")
    status = surface.type("/status")
    assert surface.agent.session_id in status and "Messages: 2" in status


def test_what_needs_a_conversation_says_so_before_there_is_one(make_surface: MakeSurface) -> None:
    surface = make_surface()
    for line in ("/undo", "/title x", "/usage", "/compress", "/expand", "/branch", "/retry"):
        with pytest.raises(UsageError, match="has no messages yet"):
            surface.type(line)
    assert "Messages: 0" in surface.type("/status")


def test_the_model_is_shown_and_changed(make_surface: MakeSurface) -> None:
    surface = make_surface()
    assert surface.type("/model") == "Model: scripted (scripted)\na and b"
    assert surface.type("/model other") == "Switched to other."


def test_exit_leaves(make_surface: MakeSurface) -> None:
    surface = make_surface()
    surface.type("/quit")
    assert surface.has_left


def test_an_approval_that_waits_is_answered_by_a_command(make_chat: MakeChat) -> None:
    push = Counting(
        "push",
        options={"dangers": lambda _args, _bench: [Danger("exfiltration", "It pushes", "push")]},
    )
    chat = make_chat(
        [call("push"), "Pushed.", call("push"), "Not pushed."], [push.tool()], can_ask=True
    )
    surface = Surface(chat, make_chat)
    assert surface.type("/approve") == "There is no open question."
    for line in ("/approve", "/deny not today"):
        chat.sink.events.clear()
        turn = threading.Thread(target=chat.agent.run_conversation, args=("push",))
        turn.start()
        chat.sink.wait_for(QuestionAsked)
        assert "1 question waits" in surface.type("/status")
        with pytest.raises(UsageError):
            surface.type("/approve perhaps")
        surface.type(line)
        turn.join(30)
        assert not turn.is_alive() and len(push.runs) == 1
    assert "not today" in str(chat.model.requests[-1].messages)


def test_undo_is_refused_while_a_message_has_no_answer(make_surface: MakeSurface) -> None:
    surface = make_surface("one")
    surface.agent.accept("two")
    with pytest.raises(UsageError, match="no answer yet"):
        surface.type("/undo")


def test_undoing_a_compaction_that_never_was_is_an_error(make_surface: MakeSurface) -> None:
    with pytest.raises(StoreError, match="not been compacted"):
        make_surface("one").type("/undo compress")
