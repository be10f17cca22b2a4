"""Waiting for the store: which errors are waited for, for how long, and who ends the wait."""

import pytest

from hermes_core import errors
from hermes_core.errors import StoreBusyError, StoreCorruptError, StoreError, StoreFullError
from hermes_state.store_retry import MAX_PAUSE_S, StoreRetry, until_stored

TEMPORARY = {
    "StoreBusyError",
    "StoreFullError",
    "StoreIOError",
    "StoreReadOnlyError",
    "StoreMemoryError",
    "StoreFilesError",
}


def test_the_store_cannot_be_written_now_has_one_definition() -> None:
    family = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    temporary = {
        kind.__name__ for kind in family if issubclass(kind, StoreError) and kind.is_temporary
    }
    assert temporary == TEMPORARY


def test_an_attempt_is_repeated_until_it_is_stored() -> None:
    problems: list[Exception] = [StoreBusyError("locked"), StoreFullError("full")]
    pauses: list[float] = []

    def attempt() -> str:
        if problems:
            raise problems.pop(0)
        return "stored"

    def wait(seconds: float) -> bool:
        pauses.append(seconds)
        return False

    assert until_stored("A reply", attempt, wait) == "stored"
    assert pauses == [0.5, 1.0]


@pytest.mark.parametrize(
    ("error", "gives_up"), [(StoreCorruptError, False), (StoreBusyError, True)]
)
def test_what_waiting_does_not_help_is_raised(error: type[StoreError], gives_up: bool) -> None:
    waits: list[float] = []

    def attempt() -> None:
        raise error("no")

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return gives_up

    with pytest.raises(error):
        until_stored("A reply", attempt, wait)
    assert len(waits) == (1 if gives_up else 0)


def test_pauses_grow_up_to_a_limit() -> None:
    retry = StoreRetry("A reply")
    pauses = [retry.pause_after(StoreBusyError("locked")) for _ in range(10)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == MAX_PAUSE_S
