"""The door to a store: a write or a read is a function of a transaction, whichever engine runs it.

    store.write(turns.accept, session_id, message, inbound=inbound)
    store.read(messages.as_conversation, session_id)
    store.within(conversation_id).write(turns.finish, turn_id, "answered", message=answer)

A function may be run a second time when its transaction had to be given up, so it must do nothing but
talk to the transaction. Functions compose: one calls another with the same transaction.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from hermes_state.values import Row, Sort

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])


class Tx(Protocol):
    """One transaction. SQL is what SQLite and PostgreSQL both take, with `?` or `?1` for values."""

    @property
    def now(self) -> float:
        """The time of this transaction; the server's where there is one."""
        ...

    @property
    def rejections(self) -> tuple[type[Exception], ...]:
        """The exceptions which say that a row is wrong, not the disk or the store."""
        ...

    def value(self, sql: str, *values: Any) -> Any:  # noqa: ANN401 -- any column
        """The first column of the first row; None when there is no row."""
        ...

    def row(self, sql: str, *values: Any) -> Row | None:  # noqa: ANN401 -- any column
        """The first row by the names of its columns; None when there is none."""
        ...

    def rows(self, sql: str, *values: Any) -> list[Row]:  # noqa: ANN401 -- any column
        """All rows by the names of their columns."""
        ...

    def tuples(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401 -- any column
        """All rows as tuples."""
        ...

    def run(self, sql: str, *values: Any) -> int:  # noqa: ANN401 -- any column
        """Run a statement and return how many rows it changed."""
        ...

    def among(self, column: str, mark: str = "?") -> str:
        """The condition that a column is one of the values that `many` gives for `mark`."""
        ...

    def many(self, values: Iterable[str | int]) -> Any:  # noqa: ANN401 -- what the driver takes
        """Several values as the one parameter that `among` asks for."""
        ...

    def lock(self, *keys: str) -> None:
        """Keep other transactions off these keys until this one ends."""
        ...

    def savepoint(self) -> AbstractContextManager[object]:
        """A part of the transaction that is undone alone when it raises."""
        ...


class Transactional(Protocol):
    """Runs functions of a transaction."""

    def write(self, fn: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn` in one transaction and return its result once that is on disk."""
        ...

    def read(self, fn: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn` on one snapshot."""
        ...


class Store(Transactional, Protocol):
    """A durable store."""

    def within(self, conversation_id: str) -> Transactional:
        """Declare writes to be about one conversation: those about others may run beside them."""
        ...

    # Pinned: programs that bring a store of their own count on these two being called.
    def end_session(self, session_id: str, end_reason: str) -> None: ...
    def set_session_title(self, session_id: str, title: str | None) -> bool: ...

    def check_file(self) -> None:
        """Raise StoreGoneError when what was opened is not there any more."""
        ...

    def search_messages(
        self,
        query: str,
        *,
        limit: int = 20,
        offset: int = 0,
        sort: Sort = "newest",
        **filters: Any,  # noqa: ANN401 -- fields of Wanted
    ) -> list[Row]:
        """Find messages by the words a person typed; engines index text each in their own way."""
        ...

    def close(self) -> None:
        """Finish what waits and close the files or connections."""
        ...


def one_statement(fn: F) -> F:
    """Mark a function that runs a single statement: reading it needs no snapshot besides its own."""
    fn.__dict__["is_one_statement"] = True
    return fn


def is_one_statement(fn: Callable[..., object]) -> bool:
    """Tell whether a function is marked so."""
    return getattr(fn, "is_one_statement", False)


def deferrable(fn: F) -> F:
    """Mark a function whose commit may wait up to 10 ms for another one to join."""
    fn.__dict__["is_deferrable"] = True
    return fn


def is_deferrable(fn: Callable[..., object]) -> bool:
    """Tell whether a function is marked so."""
    return getattr(fn, "is_deferrable", False)
