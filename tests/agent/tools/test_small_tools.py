"""The tools that keep and find words: todo, clarify, delegate, session_search, memory."""

import threading
from typing import Any

from hermes_agent.tools.clarify import TOOL as CLARIFY
from hermes_agent.tools.delegate import TOOL as DELEGATE
from hermes_agent.tools.memory import TOOL as MEMORY
from hermes_agent.tools.session_search import TOOL as SEARCH
from hermes_agent.tools.todo import TOOL as TODO
from hermes_agent.tools.todo import current
from hermes_core import clock
from hermes_state.ledger import lineage, messages, sessions, titles
from hermes_state.values import NewMessage
from tests.agent.tools.conftest import Desk


def store_result(desk: Desk, text: str) -> None:
    """Store a result of the todo tool, as a turn does."""
    desk.bench.store.write(
        messages.append,
        desk.session_id,
        NewMessage("tool", text, tool_call_id="c", tool_name="todo"),
    )


def test_a_list_is_put_into_one_form(desk: Desk) -> None:
    text = "- [x] done\n* [ ] open\n1. first\n[~]   doing  it\n- [X] also done\nplain\n\n"
    assert desk.text(TODO, list=text) == (
        "- [x] done\n- [ ] open\n- [ ] first\n- [~] doing it\n- [x] also done\n- [ ] plain"
    )
    assert desk.text(TODO, list="") == "The list is empty."
    assert "too many" in desk.error(TODO, list="x\n" * 51)


def test_the_last_list_of_the_transcript_is_the_list(desk: Desk) -> None:
    assert desk.text(TODO) == "The list is empty."
    store_result(desk, desk.text(TODO, list="- [ ] a"))
    store_result(desk, desk.text(TODO, list="- [x] a\n- [ ] b"))
    store_result(desk, "The argument 'lst' does not exist.")
    assert desk.text(TODO) == "- [x] a\n- [ ] b"


def test_the_list_survives_compaction(desk: Desk) -> None:
    store = desk.bench.store
    store.write(messages.append, "s1", NewMessage("user", "hello"))
    store_result(desk, desk.text(TODO, list="- [ ] a"))
    desk.session_id = store.write(lineage.rotate, "s1", [{"role": "user", "content": "summary"}])
    assert desk.text(TODO) == "- [ ] a"
    assert current(store, desk.session_id) == "- [ ] a"
    store_result(desk, desk.text(TODO, list=""))
    assert desk.text(TODO) == "The list is empty."


def test_a_question_goes_to_the_person(desk: Desk) -> None:
    assert desk.text(CLARIFY, question="Which colour?", choices=["red", "blue", " "]) == "blue"
    assert desk.questions == [("Which colour?", ("red", "blue"))]
    assert "empty" in desk.error(CLARIFY, question=" ")
    assert "at most 8" in desk.error(CLARIFY, question="x", choices=list("abcdefghi"))


def test_a_task_goes_to_a_sub_agent(desk: Desk) -> None:
    assert desk.text(DELEGATE, task="it", context="now") == "did it with 'now'"
    assert "empty" in desk.error(DELEGATE, task="  ")


def filled(desk: Desk) -> list[int]:
    store = desk.bench.store
    store.write(sessions.create, "old", "telegram", {})
    store.write(titles.set_title, "old", "The garden")
    with clock.replaced(lambda: 1_700_000_000.0):
        ids = [
            store.write(messages.append, "old", NewMessage("user", "when do the tulips bloom?")),
            store.write(messages.append, "old", NewMessage("assistant", "tulips bloom in April")),
            store.write(
                messages.append,
                "old",
                NewMessage("tool", "tulips: 3 kg", tool_call_id="c", tool_name="x"),
            ),
        ]
    store.write(messages.append, "s1", NewMessage("user", "what about roses?"))
    return ids


def test_earlier_conversations_are_searched(desk: Desk) -> None:
    ids = filled(desk)
    lines = desk.text(SEARCH, query="tulips").splitlines()
    assert len(lines) == 2
    assert f"2023-11-14 “The garden” session=old around={ids[1]} assistant: " in "\n".join(lines)
    assert ">>>tulips<<<" in lines[0]
    assert desk.text(SEARCH, query="nowhere") == "Nothing was found."
    assert "nothing to search" in desk.error(SEARCH)


def test_a_search_can_be_narrowed(desk: Desk) -> None:
    filled(desk)
    assert "kg" in desk.text(SEARCH, query="tulips", role="tool")
    assert len(desk.text(SEARCH, query="tulips", limit=1).splitlines()) == 1
    assert desk.text(SEARCH, query="tulips", days=30) == "Nothing was found."
    assert desk.text(SEARCH, query="roses", days=30) != "Nothing was found."
    assert desk.text(SEARCH, query="tulips", session="s1") == "Nothing was found."
    assert "no-such" in desk.error(SEARCH, query="x", session="no-such")


def test_what_stands_around_a_hit_is_shown(desk: Desk) -> None:
    ids = filled(desk)
    assert desk.text(SEARCH, session="old", around=ids[1]) == (
        "user: when do the tulips bloom?\nassistant: tulips bloom in April\ntool: tulips: 3 kg\n"
        "[1 messages before, 1 after the one asked for]"
    )
    assert "Take session and around" in desk.error(SEARCH, session="old", around=999_999)
    assert "needs the session" in desk.error(SEARCH, around=1)


def note(desk: Desk, **args: Any) -> str:
    return desk.text(MEMORY, **args)


def test_notes_are_added_replaced_removed_and_shown(desk: Desk) -> None:
    assert note(desk, action="show") == "There are no notes."
    assert "1 notes" in note(desk, action="add", text="the  door\nis blue")
    note(desk, action="add", text="the cat is black")
    assert note(desk, action="show") == "- the door is blue\n- the cat is black"
    note(desk, action="replace", old="door", text="the door is red")
    note(desk, action="remove", old="cat")
    path = desk.bench.home.memories / "MEMORY.md"
    assert path.read_text() == "- the door is red\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_notes_about_the_user_are_a_file_of_their_own(desk: Desk) -> None:
    result = desk.run(MEMORY, action="add", about="user", text="likes tea")
    assert "USER.md" in result.text
    assert "+- likes tea" in result.diff
    assert (desk.bench.home.memories / "USER.md").read_text() == "- likes tea\n"
    assert note(desk, action="show") == "There are no notes."


def test_a_note_that_cannot_be_taken_is_told(desk: Desk) -> None:
    note(desk, action="add", text="one apple")
    note(desk, action="add", text="two apples")
    assert "noted already" in desk.error(MEMORY, action="add", text="one apple")
    assert "2 notes have 'apple'" in desk.error(MEMORY, action="remove", old="apple")
    assert "No note has 'pear'" in desk.error(MEMORY, action="replace", old="pear", text="x")
    assert "Give words of it" in desk.error(MEMORY, action="remove")
    assert "The note is empty" in desk.error(MEMORY, action="add", text=" ")
    assert "Keep it to 500" in desk.error(MEMORY, action="add", text="x" * 501)
    assert "one of add" in desk.error(MEMORY, action="forget")


def test_full_notes_refuse_more_and_stay_as_they_are(desk: Desk) -> None:
    for number in range(8):
        note(desk, action="add", text=f"{number} " + "x" * 480)
    before = note(desk, action="show")
    message = desk.error(MEMORY, action="add", text="y" * 400)
    assert "the maximum is 4000" in message
    assert note(desk, action="show") == before


def test_what_a_person_wrote_by_hand_is_kept(desk: Desk) -> None:
    path = desk.bench.home.memories / "MEMORY.md"
    path.parent.mkdir()
    path.write_text("by hand\n- a point\n")
    note(desk, action="add", text="new")
    assert path.read_text() == "- by hand\n- a point\n- new\n"


def test_notes_written_at_once_are_all_kept(desk: Desk) -> None:
    barrier = threading.Barrier(8)

    def work(number: int) -> None:
        barrier.wait(30)
        note(desk, action="add", text=f"note {number}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    lines = note(desk, action="show").splitlines()
    assert sorted(lines) == [f"- note {n}" for n in range(8)]
