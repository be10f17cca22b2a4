"""Define the interface of a store: writes and reads are functions of a transaction.

    store.write(turns.accept, session_id, message, inbound=inbound)
    store.read(messages.as_conversation, session_id)
    store.within(conversation_id).write(turns.finish, turn_id, "answered", message=answer)

A function may run twice when its transaction had to be rolled back, so it must have no other effects.
Functions compose: one calls another with the same transaction.
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
        """Return the time of this transaction, on the clock of the server if there is one."""
        ...

    @property
    def rejections(self) -> tuple[type[Exception], ...]:
        """Return the exceptions that mean an invalid row, not a failure of the store."""
        ...

    def value(self, sql: str, *values: Any) -> Any:  # noqa: ANN401 -- any column
        """Return the first column of the first row, or None."""
        ...

    def row(self, sql: str, *values: Any) -> Row | None:  # noqa: ANN401 -- any column
        """Return the first row as a dictionary, or None."""
        ...

    def rows(self, sql: str, *values: Any) -> list[Row]:  # noqa: ANN401 -- any column
        """Return all rows as dictionaries."""
        ...

    def tuples(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401 -- any column
        """Return all rows as tuples."""
        ...

    def run(self, sql: str, *values: Any) -> int:  # noqa: ANN401 -- any column
        """Run a statement and return how many rows it changed."""
        ...

    def among(self, column: str, mark: str = "?") -> str:
        """Return the condition that a column is one of the values bound by `many`."""
        ...

    def many(self, values: Iterable[str | int]) -> Any:  # noqa: ANN401 -- what the driver takes
        """Return several values as the one parameter of `among`."""
        ...

    def lock(self, *keys: str) -> None:
        """Hold advisory locks on these keys until the transaction ends."""
        ...

    def savepoint(self) -> AbstractContextManager[object]:
        """Return a context manager that rolls back its block alone when it raises."""
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
        """Declare that writes concern one conversation, so that others may run concurrently."""
        ...

    # Pinned: programs with their own store rely on these two calls.
    def end_session(self, session_id: str, end_reason: str) -> None: ...
    def set_session_title(self, session_id: str, title: str | None) -> bool: ...

    def check_file(self) -> None:
        """Raise StoreGoneError when the opened store was removed or replaced."""
        ...

    def search_messages(
        self,
        query: str,
        *,
        limit: int = 20,
        offset: int = 0,
        sort: Sort = "newest",
        **filters: Any,  # noqa: ANN401 -- fields of MessageFilter
    ) -> list[Row]:
        """Find messages that match a query; each engine has its own index."""
        ...

    def close(self) -> None:
        """Finish waiting writes and close files and connections."""
        ...


def one_statement(fn: F) -> F:
    """Mark a function that runs a single statement and so needs no transaction to read."""
    fn.__dict__["is_one_statement"] = True
    return fn


def is_one_statement(fn: Callable[..., object]) -> bool:
    """Return whether a function is marked so."""
    return getattr(fn, "is_one_statement", False)


def deferrable(fn: F) -> F:
    """Mark a function whose commit may wait up to 10 ms for another one to join."""
    fn.__dict__["is_deferrable"] = True
    return fn


def is_deferrable(fn: Callable[..., object]) -> bool:
    """Return whether a function is marked so."""
    return getattr(fn, "is_deferrable", False)
