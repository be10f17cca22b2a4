"""The chaos: a short run on every server, and that its judge sees what can go wrong."""

import os
import random
from pathlib import Path

import pytest

from gateway.platforms.base import Resend
from gateway.replies import REPEAT_MARK
from hermes_agent.testing.scripted import Quiet, say, silence
from hermes_agent.testing.server import Recorded
from hermes_core.paths import Home
from hermes_state import SessionDB
from hermes_state.ledger import outbox, turns
from hermes_state.values import OutboundPart
from tests.gateway.chaos import script, verdict
from tests.gateway.chaos.__main__ import summary_of
from tests.gateway.chaos.run import run
from tests.gateway.chaos.script import Question
from tests.gateway.chaos.servers import everywhere
from tests.gateway.chaos.surface import Seen, Surface
from tests.gateway.chaos.verdict import Findings, Talk
from tests.gateway.harness import TIMEOUT_S, Inside, World

REPLY = "k0n1 1/2 is said.\n\nk0n1 2/2 is said."
TWO = "k0n2 1/2 is said.\n\nk0n2 2/2 is said."


@pytest.mark.servers
@pytest.mark.proof
@pytest.mark.promise("P2")
def test_every_message_is_answered_once_while_the_gateway_dies_and_all_around_it_fails(
    tmp_path: Path,
) -> None:
    seed = random.randrange(1_000_000)
    log = tmp_path / "log"
    report = run(everywhere(), messages=120, talks=35, kills=10, seed=seed, log=log)
    assert not report.found.wrong, f"{summary_of(report)}\nseed {seed}"
    assert report.kills.total() >= 10
    assert report.has_disk or "CI" not in os.environ


# -- what it found ---------------------------------------------------------------------------------


def test_a_piece_that_is_sent_again_fits_with_its_mark(world: World) -> None:
    world.configure(resend="marked")
    world.platform._folds_keys = False
    world.play(say("word " * 1000))
    with Inside(world) as gateway:
        world.platform.lose_answers()
        world.platform.say("a", "hello")
        first, again, rest = world.wait_for_replies("a", 3)
        assert again == f"{REPEAT_MARK}\n{first}"
        assert len(again) <= 4000
        assert f"{first} {rest}".split() == ["word"] * 1000
        assert gateway.store.read(outbox.failed) == []


def test_a_draft_does_not_overtake_what_was_said_before(world: World) -> None:
    world.configure(streaming=True)
    text = "This is what is said while it is written."
    here, there = Quiet(), Quiet()
    world.play(silence(here, after=text), silence(there, after=text))
    with Inside(world) as gateway:
        (earlier,) = gateway.store.write(outbox.add, [OutboundPart("loopback", "a", "earlier")])
        gateway.store.write(outbox.begin, earlier)  # it is on its way, for long
        world.platform.say("a", "one")
        assert here.started.wait(TIMEOUT_S)
        world.platform.say("b", "two")
        world.wait_for_text("b", text)
        assert world.replies("a") == []
        gateway.store.write(outbox.sent, earlier)
        here.release()
        there.release()
        world.platform.wait_for(
            "a", lambda messages: [message.text for message in messages] == [text], TIMEOUT_S
        )


# -- the judge -------------------------------------------------------------------------------------


class ShownSurface(Surface):
    """A surface that shows what it is told to show."""

    name = "shown"

    def __init__(self, resend: Resend, *seen: Seen) -> None:
        self.resend = resend
        self._seen = seen

    def open(self) -> None: ...
    def close(self) -> None: ...

    def begin(self, count: int) -> list[str]:
        return ["chat"] * count

    def settings(self) -> str:
        return ""

    def say(self, talk: str, text: str) -> str:
        return ""

    def seen(self, talk: str) -> list[Seen]:
        return list(self._seen)

    def sends(self) -> int:
        return len(self._seen)


def judged(*seen: Seen, resend: Resend = "same", kinds: tuple[str, ...] = ("plain",)) -> Findings:
    questions = [Question(0, number, kind, f"m{number}") for number, kind in enumerate(kinds, 1)]
    found = Findings()
    verdict.of_talk(Talk(ShownSurface(resend, *seen), "chat", questions), found)
    return found


def test_one_whole_reply_is_right() -> None:
    found = judged(Seen(REPLY, "m1"))
    assert found.wrong == []
    assert found.counts["shown"] == {"asked": 1, "answered": 1, "repeats": 0, "stumps": 0}


def test_a_reply_in_pieces_is_right() -> None:
    first, second = REPLY.split("\n\n")
    assert judged(Seen(first, "m1"), Seen(second, "m1")).wrong == []


@pytest.mark.parametrize(
    ("what", "seen"),
    [
        ("has no whole reply", []),
        ("has no whole reply", [Seen("k0n1 1/2 is said.", "m1")]),
        ("is answered twice", [Seen(REPLY, "m1"), Seen(REPLY, "m1")]),
        ("is answered twice", [Seen(REPLY, "m1"), Seen("k0n1 2/2 is said.", "m1")]),
        ("torn", [Seen("k0n1 2/2 is said.", "m1"), Seen("k0n1 1/2 is said.", "m1")]),
        ("has the reply of another", [Seen(REPLY + "\n\nk7n1 1/2 is said.", "m1")]),
        ("nobody asked for", [Seen(REPLY, "m1"), Seen("k7n1 1/2 is said.", "m9")]),
        ("nobody asked for", [Seen(REPLY, "m1"), Seen("What is this?", "")]),
        ("is left half written", [Seen("k0n1 1/2 is ▉", "m1"), Seen(REPLY, "m1")]),
        ("is marked where it need not", [Seen(REPLY, "m1"), Seen(f"{REPEAT_MARK}\n{REPLY}", "m1")]),
    ],
)
def test_what_people_must_not_see_is_seen(what: str, seen: list[Seen]) -> None:
    assert any(what in problem for problem in judged(*seen).wrong)


def test_replies_out_of_order_are_seen() -> None:
    kinds = ("plain", "plain")
    assert judged(Seen(REPLY, "m1"), Seen(TWO, "m2"), kinds=kinds).wrong == []
    (wrong,) = judged(Seen(TWO, "m2"), Seen(REPLY, "m1"), kinds=kinds).wrong
    assert "out of order: [2, 1]" in wrong


def test_a_marked_repeat_and_the_stump_beside_it_are_counted_where_nothing_better_is_known() -> (
    None
):
    stump, repeat = Seen("k0n1 1/2 is ▉", "m1"), Seen(f"{REPEAT_MARK}\n{REPLY}", "m1")
    found = judged(stump, Seen(REPLY, "m1"), repeat, resend="marked")
    assert found.wrong == []
    assert found.counts["shown"]["repeats"] == found.counts["shown"]["stumps"] == 1
    assert judged(stump, Seen(REPLY, "m1"), resend="marked").wrong


def test_a_command_is_answered_once_or_told_as_cut_off() -> None:
    kinds = ("command",)
    assert judged(Seen("Model: scripted", "m1"), kinds=kinds).wrong == []
    cut_off = judged(Seen("⚠️ The process ended while /status was running.", "m1"), kinds=kinds)
    assert cut_off.wrong == [] and cut_off.counts["shown"]["cut off"] == 1
    assert judged(kinds=kinds).wrong
    assert judged(Seen("Model: a", "m1"), Seen("Model: a", "m1"), kinds=kinds).wrong


def test_what_the_store_holds_open_is_seen(home: Home) -> None:
    questions = [Question(0, 1, "plain")]
    with SessionDB(home.database) as store:
        store.create_session("s", "shown")
        turn = store.write(turns.accept, "s", {"role": "user", "content": questions[0].text("/")})
        store.write(outbox.add, [OutboundPart("shown", "chat", "k0n1")])
    found = Findings()
    verdict.of_store(home, questions, found)
    assert any("turns without an end" in problem for problem in found.wrong)
    assert any("pieces that were not sent" in problem for problem in found.wrong)
    with SessionDB(home.database) as store:
        store.write(turns.start, turn.turn_id)
        store.write(turns.finish, turn.turn_id, "answered")
        (piece,) = store.read(outbox.due)
        store.write(outbox.begin, piece["id"])
        store.write(outbox.sent, piece["id"])
    found = Findings()
    verdict.of_store(home, questions, found)
    assert found.wrong == []
    verdict.of_store(home, [*questions, Question(0, 2, "plain")], found)
    assert any("too few" in problem for problem in found.wrong)


@pytest.mark.parametrize(
    ("prompts", "is_wrong"),
    [(["k0n1", "k0n2"], False), (["k1n1", "k0n2"], True), (["k0n3", "k0n2"], True)],
)
def test_the_model_sees_conversations_that_mix_or_are_out_of_order(
    prompts: list[str], is_wrong: bool
) -> None:
    model = script.Script()
    messages = [f'{{"role":"user","content":"{prompt} wants a plain reply"}}' for prompt in prompts]
    body = f'{{"messages":[{",".join(messages)}]}}'.encode()
    model(Recorded("POST", "/v1/chat/completions", {}, body))
    assert bool(model.mixed) == is_wrong
