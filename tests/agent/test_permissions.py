"""What somebody who is not at the machine may see, use, spend and allow."""

import threading

import pytest
from msgspec.structs import replace

from hermes_agent.approval import rights
from hermes_agent.approval.danger import Danger
from hermes_agent.models.base import Facts, Usage
from hermes_agent.permissions import Permissions
from hermes_agent.testing.scripted import call, raw_call, say
from hermes_agent.tools.base import Tool
from hermes_agent.tools.memory import TOOL as MEMORY
from hermes_agent.tools.registry import Toolbox, default_tools
from hermes_agent.turn.events import Event, QuestionAsked
from hermes_core.errors import UsageError
from hermes_core.paths import Home, make_folder
from hermes_core.settings import AgentSettings, Settings
from hermes_state import SessionDB
from hermes_state.ledger import budgets, outbox, questions, titles
from hermes_state.values import Estimate, OutboundPart, Scope
from tests.agent.conftest import Chat, Counting, MakeChat

ANN = Permissions("telegram:1", "owner", Scope("telegram", "1", with_local=True), is_private=True)
BOB = Permissions("telegram:2", "member", Scope("telegram", "2"), is_private=True)
EVE = Permissions("telegram:3", "guest", Scope("telegram", "3"), is_private=True)

PRICED = Facts("m", "p", 8000, max_output=1000, input_price=1.0, output_price=10.0)


def of(permissions: Permissions) -> dict[str, str]:
    """What the session of somebody's direct chat says."""
    assert permissions.scope.user_id is not None
    return {"user_id": permissions.scope.user_id, "chat_id": permissions.scope.user_id}


def results(chat: Chat) -> str:
    """What tools told the model."""
    return "\n".join(str(content) for role, content in chat.transcript() if role == "tool")


def further(name: str) -> Counting:
    return Counting(name, options={"toolset": "more"})


# -- tools -----------------------------------------------------------------------------------------


def test_only_the_allowed_tools_are_offered_and_run(make_chat: MakeChat) -> None:
    yes, no = Counting("yes"), Counting("no")
    permissions = replace(BOB, tools=frozenset({"yes"}))
    chat = make_chat(
        [call("no"), call("yes"), "Done."], [yes.tool(), no.tool()], permissions=permissions
    )
    chat.say()
    assert [tool.name for tool in chat.model.requests[0].tools] == ["yes"]
    assert (len(yes.runs), len(no.runs)) == (1, 0)
    assert "There is no tool 'no'" in results(chat)


def test_a_further_toolset_is_no_way_around(make_chat: MakeChat) -> None:
    yes, no = further("yes"), further("no")
    steps = [
        call("more_tools", toolset="more"),
        call("call_tool", name="no"),
        call("call_tool", name="yes"),
        raw_call("no", "{}"),
        "Done.",
    ]
    # Also naming the tools that open toolsets opens no others.
    names = frozenset({"yes", "call_tool", "more_tools"})
    chat = make_chat(steps, [yes.tool(), no.tool()], permissions=replace(BOB, tools=names))
    chat.say()
    assert (len(yes.runs), len(no.runs)) == (1, 0)
    assert "no: no." not in results(chat), "it is not even shown"
    assert "There is no further tool 'no'" in results(chat)


def test_a_tool_that_calls_tools_is_no_way_around(make_chat: MakeChat) -> None:
    no = Counting("no")
    outer = Counting("outer", then=lambda _args, running: running.run_tool("no", {}))
    permissions = replace(BOB, tools=frozenset({"outer"}))
    chat = make_chat([call("outer"), "Done."], [outer.tool(), no.tool()], permissions=permissions)
    chat.say()
    assert (len(outer.runs), len(no.runs)) == (1, 0)


def test_a_sub_agent_may_do_no_more_than_who_sent_it(make_chat: MakeChat) -> None:
    no = Counting("no")
    delegate = Counting("delegate", then=lambda _args, running: running.delegate("do it", ""))
    permissions = replace(BOB, tools=frozenset({"delegate"}))
    steps = [call("delegate"), call("no"), "The sub-agent is done.", "Done."]
    chat = make_chat(steps, [delegate.tool(), no.tool()], permissions=permissions)
    chat.say()
    assert no.runs == []
    assert "The sub-agent is done." in results(chat)


def test_no_tools_at_all_is_possible(make_chat: MakeChat) -> None:
    chat = make_chat(["Hi."], [Counting().tool()], permissions=replace(EVE, tools=frozenset()))
    assert chat.say()["final_response"] == "Hi."
    assert chat.model.requests[0].tools == ()


# -- the notes of the home ---------------------------------------------------------------------------

GROUP = replace(ANN, scope=Scope("telegram", "1", "-9"), is_private=False)


@pytest.mark.parametrize(
    ("permissions", "has_notes"),
    [(None, True), (ANN, True), (GROUP, False), (BOB, False), (EVE, False)],
)
def test_the_notes_are_for_the_owner_in_private(
    make_chat: MakeChat, home: Home, permissions: Permissions | None, has_notes: bool
) -> None:
    make_folder(home.memories)
    (home.memories / "USER.md").write_text("- likes pears\n", "utf-8")
    chat = make_chat([call("memory", action="show", about="user"), "Done."], [MEMORY],
                     permissions=permissions)  # fmt: skip
    chat.say()
    request = chat.model.requests[0]
    assert ("likes pears" in request.system) is has_notes
    assert ("memory" in [tool.name for tool in request.tools]) is has_notes
    assert ("likes pears" in results(chat)) is has_notes


def test_the_tool_itself_keeps_the_notes_back(make_chat: MakeChat, home: Home) -> None:
    def offered_anyway() -> Tool:
        return replace(MEMORY, name="notes", reads_notes=False)

    chat = make_chat(
        [call("notes", action="add", text="Bob was here"), "Done."],
        [offered_anyway()],
        permissions=BOB,
    )
    chat.say()
    assert "belong to the owner" in results(chat)
    assert not (home.memories / "MEMORY.md").exists()


# -- the past -----------------------------------------------------------------------------------------


def test_the_past_of_others_is_not_found(make_chat: MakeChat, store: SessionDB) -> None:
    store.create_session("anns", "telegram", **of(ANN))
    secret = store.append_message("anns", "user", "the needle of Ann")
    store.create_session("bobs", "telegram", **of(BOB))
    store.append_message("bobs", "user", "the needle of Bob")
    steps = [
        call("session_search", query="needle"),
        call("session_search", query="needle", session="anns"),
        call("session_search", session="anns", around=secret),
        "Done.",
    ]
    chat = make_chat(steps, default_tools(Settings()), permissions=BOB, fields=of(BOB),
                     source="telegram")  # fmt: skip
    chat.say("Look.")
    assert "needle<<< of Bob" in results(chat)
    assert "of Ann" not in results(chat)
    assert results(chat).count("There is no session 'anns'") == 2


# -- money --------------------------------------------------------------------------------------------


def test_the_day_of_a_person_is_limited_over_all_their_conversations(make_chat: MakeChat) -> None:
    eve = replace(EVE, usd_per_day=0.012)
    full = say("a", usage=Usage(0, 1000))
    assert make_chat([full], facts=PRICED, permissions=eve).say()["completed"]
    result = make_chat([full], facts=PRICED, permissions=eve).say()
    assert result["failed"] and "$0.01 per day for you" in result["error"]
    bob = replace(BOB, usd_per_day=0.012)
    assert make_chat([full], facts=PRICED, permissions=bob).say()["completed"], "it is Eve's day"


def test_a_call_that_a_crash_cut_off_stays_paid_for(make_chat: MakeChat, store: SessionDB) -> None:
    eve = replace(EVE, usd_per_day=0.012)
    chat = make_chat(["Never."], facts=PRICED, permissions=eve)
    store.write(budgets.reserve, "cut off", chat.agent._limits, Estimate(1, 0.011, 0.0))
    assert chat.say()["failed"]
    assert chat.model.requests == []


def test_a_sub_agent_is_paid_by_who_sent_it(make_chat: MakeChat, store: SessionDB) -> None:
    delegate = Counting("delegate", then=lambda _args, running: running.delegate("do it", ""))
    usage = Usage(100, 100)
    steps = [call("delegate"), say("Found.", usage=usage), "Done."]
    make_chat(steps, [delegate.tool()], facts=PRICED, permissions=EVE).say()
    assert store.read(budgets.today_usd, "telegram:3") == store.read(budgets.today_usd) > 0


def test_a_title_is_paid_by_the_person_it_is_for(make_chat: MakeChat, store: SessionDB) -> None:
    settings = Settings(agent=AgentSettings(titles=True))
    chat = make_chat(["Hi.", "A title"], facts=PRICED, permissions=EVE, settings=settings)
    chat.say()
    chat.agent._titler.close(5)
    assert store.read(titles.title_of, chat.agent.session_id) == "A title"
    assert store.read(budgets.today_usd, "telegram:3") == store.read(budgets.today_usd) > 0


# -- allowing ----------------------------------------------------------------------------------------


def pushing() -> Counting:
    dangers = [Danger("exfiltration", "It pushes", "push")]
    return Counting("push", options={"dangers": lambda _args, _bench: dangers})


def test_what_an_owner_allowed_for_all_times_is_not_allowed_to_others(
    make_chat: MakeChat, store: SessionDB
) -> None:
    push = pushing()
    chat = make_chat([call("push"), "Done."], [push.tool()], can_ask=True)
    record = chat.agent.sink

    def answer(event: Event) -> None:
        record(event)
        if isinstance(event, QuestionAsked):
            store.write(questions.answer, event.question_id, "always")

    chat.agent.sink = answer
    chat.say()
    assert len(push.runs) == 1
    push.runs.clear()
    for permissions, runs in ((BOB, 0), (EVE, 0), (ANN, 1), (None, 2)):
        make_chat([call("push"), "Done."], [push.tool()], permissions=permissions).say()
        assert len(push.runs) == runs


@pytest.mark.parametrize(
    ("permissions", "text", "is_allowed"),
    [
        (None, "always", True),
        (ANN, "always", True),
        (BOB, "once", True),
        (BOB, "session", True),
        (BOB, "always", False),
        (BOB, "always: please", False),
        (replace(BOB, scope=Scope("telegram", None, "-9")), "once", False),
        (replace(BOB, scope=Scope("matrix", "2")), "once", False),
        (replace(EVE, scope=BOB.scope), "once", False),
        (replace(EVE, scope=BOB.scope), "once: please", False),
        (replace(EVE, scope=BOB.scope), "deny", True),
        (replace(EVE, scope=BOB.scope), "no way", True),
    ],
)
def test_who_may_allow_what_in_bobs_chat(
    make_chat: MakeChat, permissions: Permissions | None, text: str, is_allowed: bool
) -> None:
    push = pushing()
    chat = make_chat([call("push"), "Done."], [push.tool()], can_ask=True, permissions=BOB,
                     fields=of(BOB), source="telegram")  # fmt: skip
    turn = threading.Thread(target=chat.say)
    turn.start()
    question = chat.sink.wait_for(QuestionAsked).question_id
    here = chat.agent.conversation_id
    with pytest.raises(UsageError, match="no open question with that id"):
        rights.answer(
            chat.store, question, text, conversations=["elsewhere"], permissions=permissions
        )
    if is_allowed:
        rights.answer(chat.store, question, text, conversations=[here], permissions=permissions)
    else:
        with pytest.raises(UsageError, match="Only an owner"):
            rights.answer(chat.store, question, text, conversations=[here], permissions=permissions)
        rights.answer(chat.store, question, "deny", conversations=[here], permissions=permissions)
    turn.join(30)
    assert not turn.is_alive()
    assert len(push.runs) == (is_allowed and text in ("once", "session", "always"))


def test_nobody_allows_in_a_chat_what_it_has_not_been_shown_yet(make_chat: MakeChat) -> None:
    push = pushing()
    chat = make_chat([call("push"), "Done."], [push.tool()], can_ask=True, permissions=BOB,
                     fields=of(BOB), source="telegram")  # fmt: skip
    turn = threading.Thread(target=chat.say)
    turn.start()
    question = chat.sink.wait_for(QuestionAsked).question_id
    key = f"{questions.part_name(question)}:0"
    (part,) = chat.store.write(outbox.add, [OutboundPart("telegram", "a", "Push?", key=key)])
    with pytest.raises(UsageError, match="has not been delivered yet"):
        rights.check_delivered(chat.store, question)
    chat.store.write(outbox.begin, part)
    chat.store.write(outbox.sent, part)
    rights.check_delivered(chat.store, question)
    rights.answer(chat.store, question, "once", permissions=BOB)
    turn.join(30)
    assert not turn.is_alive() and len(push.runs) == 1


def test_the_question_of_a_sub_agent_waits_in_the_conversation_that_sent_it(
    make_chat: MakeChat,
) -> None:
    push = pushing()
    delegate = Counting("delegate", then=lambda _args, running: running.delegate("push", ""))
    steps = [call("delegate"), call("push"), "Pushed.", "Done."]
    chat = make_chat(steps, [push.tool(), delegate.tool()], can_ask=True, permissions=BOB,
                     fields=of(BOB), source="telegram")  # fmt: skip
    turn = threading.Thread(target=chat.say)
    turn.start()
    chat.sink.wait_for(QuestionAsked)
    (question,) = rights.waiting(chat.store, [chat.agent.conversation_id], "approval")
    here = chat.agent.conversation_id
    rights.answer(chat.store, question["id"], "once", conversations=[here], permissions=BOB)
    turn.join(30)
    assert not turn.is_alive() and len(push.runs) == 1


def test_a_restricted_toolbox_of_everything_has_the_same_tools() -> None:
    box = Toolbox(default_tools(Settings()))
    assert box.restricted_to(None) is box
    assert box.restricted_to(ANN).core == box.core
    assert "memory" not in [tool.name for tool in box.restricted_to(BOB).core]
