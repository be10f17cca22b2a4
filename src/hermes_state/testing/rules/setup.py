"""Set up what the rules need: a clock that stands still, conversations, turns."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from hermes_core import clock
from hermes_state.db import SessionDB
from hermes_state.ledger import turns

DAY_S = 86_400.0
NOON = 1_700_000_000.0


class Clock:
    """Tells the time that a test sets."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


@contextmanager
def still_clock() -> Generator[Clock]:
    """Stop the clock, unless the test moves it."""
    moved = Clock()
    with clock.replaced(moved):
        yield moved


@contextmanager
def refused(*kinds: type[Exception]) -> Generator[None]:
    """Assert that the block raises one of these exceptions."""
    try:
        yield
    except kinds:
        return
    raise AssertionError(f"this was not refused with {' or '.join(k.__name__ for k in kinds)}")


def contents(store: SessionDB, session_id: str, **how: bool) -> list[Any]:
    """Return the contents of the messages of a session."""
    return [m["content"] for m in store.get_messages_as_conversation(session_id, **how)]


def listed(store: SessionDB, **filters: Any) -> list[str]:  # noqa: ANN401 -- fields of Filter
    """Return the ids of the listed sessions."""
    return [row["id"] for row in store.list_sessions_rich(**filters)]


def found(store: SessionDB, query: str, **filters: Any) -> list[str]:  # noqa: ANN401 -- fields of Wanted
    """Return the session ids of all hits of a query, sorted."""
    return sorted(row["session_id"] for row in store.search_messages(query, **filters))


def session(store: SessionDB, session_id: str) -> dict[str, Any]:
    """Return a session that must exist."""
    row = store.get_session(session_id)
    assert row is not None, f"{session_id} is missing"
    return row


def chat(store: SessionDB, session_id: str, *texts: str, source: str = "cli") -> list[int]:
    """Create a session with alternating messages of user and assistant."""
    store.create_session(session_id, source)
    return [
        store.append_message(session_id, "assistant" if number % 2 else "user", text)
        for number, text in enumerate(texts)
    ]


def accepted(store: SessionDB, session_id: str = "s", **how: Any) -> str:  # noqa: ANN401 -- as accept()
    """Accept a turn and return its id."""
    message = {"role": "user", "content": "a question"}
    return store.write(turns.accept, session_id, message, **how).turn_id


def running(store: SessionDB, session_id: str = "s") -> str:
    """Start a turn in a session of its own and return its id."""
    store.create_session(session_id, "cli")
    turn_id = accepted(store, session_id)
    store.write(turns.start, turn_id)
    return turn_id


def execute(sql: str, *values: Any) -> Callable[[Any], Any]:  # noqa: ANN401 -- for any transaction
    """Return a write that bypasses the ledger."""
    return lambda tx: tx.run(sql, *values)


def summary(text: str = "in short") -> dict[str, Any]:
    """Return the first message that a compaction writes."""
    return {"role": "user", "content": text}
