"""The judge: what people see and what the store holds, against what was asked.

A question has exactly one reply, in its own chat and in its order, whole. Where a platform cannot tell
whether something arrived, one more with the visible mark may be there, and what was half written when
its name was lost; both are counted.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gateway.replies import REPEAT_MARK
from hermes_core.paths import Home
from hermes_state import SessionDB
from hermes_state.ledger import inbox, lineage, outbox
from hermes_state.ledger import turns as turn_ledger
from hermes_state.ledger.turns import MAX_ATTEMPTS
from tests.gateway.chaos import script
from tests.gateway.chaos.script import Question
from tests.gateway.chaos.surface import Seen, Surface

_CURSOR = "▉"
_PUT_OFF = "I continue with this afterwards"
_GIVEN_UP = "times and the process ended each time"
_CUT_OFF = "The process ended while"
_ENDS = {"answered", "failed", "interrupted"}
COLUMNS = ("asked", "commands", "answered", "failed", "given up", "cut off", "repeats", "stumps")
"""`failed`: the model refused. `given up`: three processes died with it. `repeats`: replies with the
mark. `stumps`: drafts whose name a crash hid, beside a reply with the mark."""


@dataclass
class Findings:
    """What was counted, a platform each, and what is wrong."""

    counts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    notices: int = 0
    wrong: list[str] = field(default_factory=list[str])


@dataclass
class Talk:
    """A conversation: where it is, and what was asked in it."""

    surface: Surface
    name: str
    questions: list[Question] = field(default_factory=list[Question])

    def replies(self) -> tuple[dict[str, list[Seen]], list[Seen]]:
        """What was said to each question, by its token, and what belongs to none."""
        by_id = {question.id: question.token for question in self.questions}
        replies: dict[str, list[Seen]] = {question.token: [] for question in self.questions}
        strays: list[Seen] = []
        for seen in self.surface.seen(self.name):
            token = by_id.get(seen.answers) or next(iter(script.tokens(seen.text)), "")
            replies.get(token, strays).append(seen)
        return replies, strays

    @property
    def is_complete(self) -> bool:
        """Whether everything that was asked has a whole reply."""
        replies, _ = self.replies()
        return all(_is_complete(question, replies[question.token]) for question in self.questions)


def _is_complete(question: Question, replies: Sequence[Seen]) -> bool:
    answers = [reply for reply in replies if not _is_aside(reply)]
    if question.is_command or any(_GIVEN_UP in reply.text for reply in answers):
        return bool(answers)
    found = {line.number for reply in answers for line in script.lines(reply.text)}
    return found == set(range(1, question.total + 1))


def _is_aside(seen: Seen) -> bool:
    return _CURSOR in seen.text or _PUT_OFF in seen.text


def of_talk(talk: Talk, found: Findings) -> None:
    """Look at one conversation."""
    replies, strays = talk.replies()
    found.wrong += [
        f"{talk.surface.name} {talk.name}: nobody asked for {token}" for token in strays
    ]
    for question in talk.questions:
        _of_question(question, replies[question.token], talk.surface, found)
    _order(talk, found)


def _of_question(
    question: Question, replies: Sequence[Seen], surface: Surface, found: Findings
) -> None:
    counts = found.counts[surface.name]

    def wrong(what: str) -> None:
        texts = [reply.text[:100] for reply in replies]
        found.wrong.append(f"{surface.name} {question.token} ({question.kind}) {what}: {texts}")

    found.notices += sum(_PUT_OFF in reply.text for reply in replies)
    answers = [reply for reply in replies if not _is_aside(reply)]
    marked = [reply for reply in answers if reply.text.startswith(REPEAT_MARK)]
    plain = [reply for reply in answers if not reply.text.startswith(REPEAT_MARK)]
    stumps = sum(_CURSOR in reply.text for reply in replies)
    counts["commands" if question.is_command else "asked"] += 1
    counts["repeats"] += len(marked)
    counts["stumps"] += stumps
    if marked and surface.resend != "marked":
        wrong("is marked where it need not be")
    if stumps and not (surface.resend == "marked" and marked):
        wrong("is left half written")
    if any(
        _is_foreign(token, question) for reply in answers for token in script.tokens(reply.text)
    ):
        wrong("has the reply of another")
    if not _is_complete(question, replies):
        wrong("has no whole reply")
    elif question.is_command or any(_GIVEN_UP in reply.text for reply in answers):
        _count_notice(question, answers, counts)
        if len(plain) > 1:
            wrong("is answered twice")
    else:
        numbers = [line.number for reply in plain for line in script.lines(reply.text)]
        if numbers != sorted(set(numbers)):
            wrong("is answered twice, or torn")
        counts["failed" if question.kind == "failing" else "answered"] += 1


def _is_foreign(token: str, question: Question) -> bool:
    """Whether a token has no surface in a reply; what commands tell may name their own conversation."""
    if question.is_command:
        return not token.startswith(f"k{question.talk}n")
    return token != question.token


def _count_notice(question: Question, answers: Sequence[Seen], counts: Counter[str]) -> None:
    if any(_CUT_OFF in reply.text for reply in answers):
        counts["cut off"] += 1
    elif not question.is_command:
        counts["given up"] += 1


def _order(talk: Talk, found: Findings) -> None:
    """Replies stand in the order of their questions; commands are answered beside."""
    numbers = {
        question.id: question.number for question in talk.questions if not question.is_command
    }
    numbers |= {
        question.token: question.number for question in talk.questions if not question.is_command
    }
    order: list[int] = []
    for seen in talk.surface.seen(talk.name):
        named = numbers.get(seen.answers) or next(
            (numbers[question] for question in script.tokens(seen.text) if question in numbers), 0
        )
        if named and not _is_aside(seen):
            order.append(named)
    if order != sorted(order):
        found.wrong.append(f"{talk.surface.name} {talk.name} is out of order: {order}")


def of_store(home: Home, questions: Iterable[Question], found: Findings) -> None:
    """Look at what the store holds, when nobody uses it any more."""
    with SessionDB(home.database) as store:
        for name, rows in (
            ("turns without an end", store.read(turn_ledger.unfinished)),
            ("pieces that may have been sent", store.read(outbox.unsure)),
            ("pieces that were given up", store.read(outbox.failed)),
            ("deliveries nobody decided about", store.read(inbox.unsettled)),
            ("damage", store.check()),
        ):
            found.wrong += [f"the store has {name}: {str(item)[:300]}" for item in rows]
        if store.read(outbox.next_due_at) is not None:
            found.wrong.append("the store has pieces that were not sent")
        turns: Counter[str] = Counter()
        worn_out = 0
        roots = store.list_sessions_rich(limit=None, include_children=True)
        ids = {item for row in roots for item in store.read(lineage.members, row["id"])}
        for session_id in ids:
            for turn in store.read(turn_ledger.of_session, session_id):
                turns[
                    next(iter(script.tokens(store.read(turn_ledger.user_text, turn["id"]))), "")
                ] += 1
                worn_out += turn["attempts"] > MAX_ATTEMPTS
                if turn["state"] not in _ENDS:
                    found.wrong.append(f"turn {turn['id']} is {turn['state']}")
    given_up_count = sum(counts["given up"] for counts in found.counts.values())
    if given_up_count != worn_out:
        found.wrong.append(f"{given_up_count} were told that they were given up, {worn_out} were")
    expected = Counter(item.token for item in questions if not item.is_command)
    if turns != expected:
        found.wrong.append(f"turns too many {turns - expected}, too few {expected - turns}")


def table(found: Findings) -> str:
    """The counts as text, one line a platform and one for all."""
    rows = {**found.counts, "all": sum(found.counts.values(), Counter[str]())}
    width = max(map(len, rows))
    text = [" " * width + "".join(f"{name:>10}" for name in COLUMNS)]
    text += [
        f"{name:<{width}}" + "".join(f"{counts[column]:>10,}" for column in COLUMNS)
        for name, counts in rows.items()
    ]
    return "\n".join(text)
