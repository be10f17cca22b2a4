"""Transcripts for tests: made by hand or at random, and what every one of them must fulfil."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from hermes_agent.compaction import Job
from hermes_agent.compaction.summarizer import Ask
from hermes_agent.models.base import Reply, Request, Usage
from hermes_agent.tokens import Estimator
from hermes_core.errors import ContextTooLongError, ModelRefusedError, ModelUnreachableError
from hermes_state import SessionDB

Message = dict[str, Any]

GOOD = """\
## Goal
- Move the shop to the new server.

## Decisions
- Keep SQLite, because one machine is enough.

## Facts and identifiers
- The port is 8080.

## Next step
- Copy the files.
"""
PROMPT = "You are Hermes, an agent that works with tools. Be brief and say what you did."


def user(text: Any) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def step(*calls: tuple[str, dict[str, Any]], text: str | None = None) -> Message:
    """An assistant's message that calls tools: an id and the arguments each."""
    tool_calls = [
        {
            "id": id_,
            "type": "function",
            "function": {"name": "look", "arguments": json.dumps(arguments)},
        }
        for id_, arguments in calls
    ]
    return {"role": "assistant", "content": text, "tool_calls": tool_calls}


def result(id_: str, text: Any) -> Message:
    return {"role": "tool", "content": text, "tool_call_id": id_, "tool_name": "look"}


def prose(tokens: int, seed: int = 0) -> str:
    """About so many tokens of text in which no sentence comes twice."""
    return " ".join(f"Word {seed} and {n} go by." for n in range(max(tokens // 8, 1)))


def chat(exchanges: int, size: int = 100) -> list[Message]:
    """Questions and answers, every second one with two tool calls at once."""
    messages: list[Message] = []
    for n in range(exchanges):
        messages.append(user(f"Question {n}? {prose(size // 2, n)}"))
        if n % 2:
            messages += [
                step((f"a{n}", {"path": f"src/part{n}.py"}), (f"b{n}", {"n": n})),
                result(f"a{n}", prose(size, n)),
                result(f"b{n}", "fine"),
            ]
        messages.append(assistant(f"Answer {n}. {prose(size, n)}"))
    return messages


def stored(messages: Sequence[Mapping[str, Any]], session_id: str = "s") -> SessionDB:
    """A store in memory with one session that holds these messages."""
    store = SessionDB.in_memory()
    store.create_session(session_id, "cli")
    store.append_messages(session_id, messages)
    return store


def job(store: SessionDB, session_id: str = "s", **options: Any) -> Job:
    options = {
        "window": 8_192,
        "max_output": 2_048,
        "system": PROMPT,
        "ask": saying(GOOD),
        **options,
    }
    return Job(store, session_id, options.pop("estimator", None) or Estimator("m"), **options)


def saying(text: str, **fields: Any) -> Ask:
    """A model that always says this."""
    return lambda _request: Reply(text, usage=Usage(100, 10), **fields)


def _raising(error: Exception) -> Ask:
    def ask(_request: Request) -> Reply:
        raise error

    return ask


SUMMARIZERS: dict[str, Ask] = {
    "good": saying(GOOD),
    "nothing": saying(""),
    "blanks": saying("  \n\n "),
    "signs": saying("?!… --- ### \n" * 20),
    "headings only": saying("## Goal\n## Decisions\n## Facts and identifiers\n## Open questions\n"),
    "one line again and again": saying("- and then it went on\n" * 60),
    "one word again and again": saying("word " * 300),
    "refusal": saying("I'm sorry, but I can't help with that."),
    "refusal by the provider": saying("This was blocked here, try another.", finish="refusal"),
    "cut off": saying(GOOD, finish="length"),
    "huge": saying("\n".join(f"- fact number {n} is that {n * 7} is odd" for n in range(5_000))),
    "copies what it is given": lambda request: Reply(str(request.messages[0]["content"])),
    "no room": _raising(ContextTooLongError("That is too long.")),
    "wrong key": _raising(ModelRefusedError("The key is wrong.")),
    "unreachable": _raising(ModelUnreachableError("No route to the host.")),
}  # fmt: skip
"""Models that write summaries, most of them badly."""


def faults(messages: Sequence[Mapping[str, Any]], *, running: bool = False) -> list[str]:
    """Why a provider would refuse these messages; `running`: the last step may lack results."""
    found: list[str] = []
    if messages and messages[0]["role"] != "user":
        found.append("the first message is not the user's")
    position = 0
    last_step = max((i for i, m in enumerate(messages) if m.get("tool_calls")), default=-1)
    while position < len(messages):
        message = messages[position]
        position += 1
        if message["role"] == "tool":
            found.append(f"a result of {message['tool_call_id']} that nobody asked for")
        calls = [call["id"] for call in message.get("tool_calls") or ()]
        if not calls:
            continue
        found += [
            "arguments that are no object"
            for call in message["tool_calls"]
            if not isinstance(json.loads(call["function"]["arguments"]), dict)
        ]
        own = position - 1
        answered: Counter[str] = Counter()
        while position < len(messages) and messages[position]["role"] == "tool":
            answered[messages[position]["tool_call_id"]] += 1
            position += 1
        missing = Counter(calls) - answered
        if answered - Counter(calls) or (missing and not (running and own == last_step)):
            found.append(f"calls {calls} with results {dict(answered)}")
    return found


# -- at random ---------------------------------------------------------------------------------

_words = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cs",)) | st.sampled_from("aeiou .\n漢字😀"),
    max_size=60,
)
_sizes = st.sampled_from([0, 5, 40, 150, 600]) | st.sampled_from([600, 2_500, 9_000])
_ids = st.sampled_from(["call_0", "call_1", "call_2", "x9"])


@st.composite
def texts(draw: Callable[..., Any]) -> str:
    """Text of any size: a few words, or a few words and a lot."""
    return draw(_words) + prose(draw(_sizes), draw(st.integers(0, 99)))


@st.composite
def _steps(draw: Callable[..., Any]) -> list[Message]:
    """A step with its results; ids come again, results are missing, doubled, or in between."""
    ids = draw(st.lists(_ids, min_size=1, max_size=4, unique=True))
    drawn_calls = [(id_, {"text": draw(texts())} if draw(st.booleans()) else {}) for id_ in ids]
    answered = [id_ for id_ in ids if draw(st.integers(0, 9))]
    results = [result(id_, draw(texts())) for id_ in answered]
    if draw(st.integers(0, 9)) == 0:
        results.append(result(draw(_ids), "once more"))
    if draw(st.integers(0, 9)) == 0:
        results.insert(0, user("and by the way: " + draw(_words)))
    return [step(*drawn_calls, text=draw(st.none() | texts())), *results]


@st.composite
def _parts(draw: Callable[..., Any]) -> Message:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    return user([{"type": "text", "text": draw(texts())}, picture])


_anything = st.one_of(
    texts().map(lambda text: [user(text)]),
    texts().map(lambda text: [assistant(text)]),
    texts().map(lambda text: [user(text), assistant(text[:80])]),
    _parts().map(lambda message: [message]),
    _steps(),
    _steps(),
    st.just([result("nobody", "a result that nobody asked for")]),
)


@st.composite
def transcripts(draw: Callable[..., Any]) -> list[Message]:
    """Anything that may be in a session; it begins with what somebody asked."""
    rest = draw(st.lists(_anything, max_size=25))
    return [user(draw(texts())), *(message for group in rest for message in group)]
