"""Summaries: read leniently, updated, kept within their room; identifiers; the judge; the digest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_agent.compaction import summarizer, summary
from hermes_agent.compaction.summary import FILES, Material, Tally, identifiers_in
from hermes_agent.compaction.transcript import Block, blocks
from hermes_agent.models.base import Reply
from hermes_agent.tokens import Estimator
from tests.agent.compaction.transcripts import GOOD, SUMMARIZERS, Message, chat, prose, stored, user

SIZES = Estimator("m")


# -- reading -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "## Goal\n- Ship it.\n\n## Next step\n- Test.",
        "# Goal\nShip it.\n# Next Steps\nTest.",
        "**Goal**\n* Ship it.\n\n**Next step:**\n* Test.",
        "**Goal:** Ship it.\n**Next step**: Test.",
        "Goal: Ship it.\nNext step: Test.",
        "1. **Goal**: Ship it.\n2. **Next steps**\n   - Test.",
        "### User's goal ###\n+ Ship it.\n### Next step ###\n• Test.",
        "```markdown\n## Goal\n- Ship it.\n## Next step\n- Test.\n```",
        "## Goal: Ship it.\n## Next step: Test.",
    ],
)
def test_headings_are_understood_in_whatever_form(text: str) -> None:
    found = summary.parse(text).sections
    assert (found["goal"], found["next"]) == (["Ship it."], ["Test."])


def test_text_under_no_heading_or_a_strange_one_is_a_fact() -> None:
    found = summary.parse(
        "It went well.\n## Weather\n- Rain.\n**Important**: bring a coat"
    ).sections
    assert found["facts"] == ["It went well.", "Weather:", "Rain.", "**Important**: bring a coat"]


def test_marks_of_lists_are_no_part_of_what_is_said() -> None:
    found = summary.parse("## Facts\n- one - two\n* three\n2. four, 5. five\n3) six\n-7 degrees\n-")
    assert found.sections["facts"] == ["one - two", "three", "four, 5. five", "six", "-7 degrees"]


def test_what_is_written_is_read_again() -> None:
    assert summary.parse(summary.parse(GOOD).text) == summary.parse(GOOD)


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    again = summary.parse(text)
    assert summary.parse(again.text).text == summary.parse(summary.parse(again.text).text).text


def test_a_section_that_the_model_forgot_stays_as_it_was() -> None:
    before = summary.of(goal=["Ship it."], decisions=["Use SQLite."], open=["Who pays?"])
    after = summary.of(decisions=["Use SQLite.", "No cache."], next=["Test."])
    found = summary.update(before, after).sections
    assert found["goal"] == ["Ship it."]
    assert found["decisions"] == ["Use SQLite.", "No cache."]
    assert found["open"] == ["Who pays?"]


# -- room --------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [0, 20, 60, 200, 1_000])
def test_a_summary_is_fitted_to_its_room(budget: int) -> None:
    long = summary.of(
        goal=["Ship it. " + "and more " * 50],
        decisions=[f"Decision {n} is final." for n in range(200)],
        facts=[f"Fact {n}." for n in range(100)],
        next=["Test."],
    )
    fitted = summary.fit(long, budget, SIZES)
    assert SIZES.text(fitted.text) <= max(budget, 30)
    if budget >= 200:
        assert fitted.sections["goal"] and fitted.sections["next"]
        assert fitted.sections["decisions"][-1] == "Decision 199 is final."


def test_identifiers_that_a_summary_dropped_are_added_as_far_as_there_is_room() -> None:
    found = summary.keep_identifiers(
        summary.parse(GOOD), ["8080", "src/a.py", "3f2a9c1", "x" * 500], 30, SIZES
    )
    assert found.sections["facts"] == ["The port is 8080.", "Also named: src/a.py, 3f2a9c1"]
    again = summary.keep_identifiers(found, ["src/b.py"], 30, SIZES)
    assert again.sections["facts"] == ["The port is 8080.", "Also named: src/b.py"]


# -- identifiers -------------------------------------------------------------------------------


def test_identifiers_are_found_in_prose_and_code() -> None:
    text = (
        "See https://example.com/a?b=1, mail bob@example.com. Then /etc/hosts, ~/notes/x.txt and"
        " src/app/main.py or README.md; C:\\work\\a.txt too. Commit 3f2a9c1b of v1.2.3, ticket #42,"
        " port 8080, id 550e8400-e29b-41d4-a716-446655440000, on 2024-05-01, for 1,234 and 12 people"
        " and/or he/she, in a facade."
    )
    assert [word for _, word in identifiers_in(text)] == [
        "https://example.com/a?b=1", "bob@example.com", "/etc/hosts", "~/notes/x.txt",
        "src/app/main.py", "README.md", "C:\\work\\a.txt", "3f2a9c1b", "v1.2.3", "#42", "8080",
        "550e8400-e29b-41d4-a716-446655440000", "2024-05-01", "1,234",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "unit", ["-", "a-", "/-", "a.", "1.", "a/", "a@", "/a.", "0", "..//", "ab"]
)
@pytest.mark.timeout(20)
def test_no_text_takes_long_to_look_through(unit: str) -> None:
    assert sum(1 for _ in identifiers_in(unit * (200_000 // len(unit)))) < 200_000


def test_what_a_person_wrote_comes_before_what_a_tool_put_out_and_numbers_last() -> None:
    found = Tally()
    found.add("/from/tool.py 1234", 1, numbers=False)
    found.add("/from/person.py 5678", 3)
    found.add("/from/tool2.py", 1)
    assert found.ranked() == ["/from/person.py", "/from/tool2.py", "/from/tool.py", "5678"]
    assert "5678" not in found.ranked(FILES)


# -- the judge ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        n
        for n in SUMMARIZERS
        if n not in ("good", "headings only", "no room", "wrong key", "unreachable")
    ],
)
def test_what_cannot_be_used_is_refused_with_a_reason(name: str) -> None:
    request = summarizer.request("", prose(2_000), budget=300, max_output=900)
    assert summarizer.fault(SUMMARIZERS[name](request), 300, 2_000, SIZES)


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        "<think>What do they want?</think>\n" + GOOD,
        "The user moves a shop to a new server and wants to keep SQLite; the port is 8080.",
        "## Goal\n- The assistant said: I can't open the door, I'm sorry.\n- Open the door anyway.",
        "## 目标\n- 把商店搬到新的服务器上，保留数据库，端口是八千零八十。",
    ],
)
def test_what_can_be_used_is_not_refused(text: str) -> None:
    assert summarizer.fault(Reply(text), 300, 2_000, SIZES) == ""


def test_a_summary_longer_than_what_it_sums_up_is_refused() -> None:
    assert "longer" in summarizer.fault(Reply(GOOD), 300, 20, SIZES)


# -- the digest --------------------------------------------------------------------------------


def blocks_of(messages: list[Message]) -> list[Block]:
    with stored(messages) as store:
        return blocks(store.get_messages_as_conversation("s"))


def test_a_digest_says_what_was_asked_what_was_answered_and_what_was_touched() -> None:
    blocks = blocks_of(chat(4))
    found = summary.digest(Material([], "", blocks), 1_000, SIZES).sections
    assert found["goal"] == ["Question 0?"]
    assert "Asked: Question 3?" in found["facts"]
    assert "Tools used: look × 4" in found["facts"]
    assert found["decisions"] == [f"Answer {n}." for n in range(4)]
    assert found["files"] == ["src/part3.py", "src/part1.py"]


def test_a_digest_takes_its_goal_from_how_it_all_began() -> None:
    blocks = blocks_of([user("Go ahead.")])
    began = blocks_of([user("Paint the bicycle.\nIt is red now.")])
    found = summary.digest(Material(began, "", blocks), 1_000, SIZES).sections
    assert found["goal"] == ["Paint the bicycle."]


def test_a_digest_goes_on_from_the_summary_before_it() -> None:
    blocks = blocks_of([user("Now paint it blue. Thanks.")])
    found = summary.digest(Material([], GOOD, blocks), 1_000, SIZES).sections
    assert found["goal"] == ["Move the shop to the new server."]
    assert found["next"] == ["Copy the files."]
    assert "Asked: Now paint it blue." in found["facts"]


@pytest.mark.parametrize("budget", [0, 50, 300])
def test_a_digest_of_anything_fits_and_is_the_same_each_time(budget: int) -> None:
    blocks = blocks_of(chat(60))
    digests = [summary.digest(Material([], GOOD, blocks), budget, SIZES).text for _ in range(2)]
    assert digests[0] == digests[1]
    assert SIZES.text(digests[0]) <= max(budget, 40)
