"""Limits that hold across a crash: what a model call may cost is set aside before it is made.

open → settled
A reservation is checked against the limits and written in one transaction, so that two processes cannot
both take the last cent. One that stays open counts in full: the provider may have charged for it.
"""

from typing import NamedTuple

import apsw

from hermes_core import clock
from hermes_core.errors import BudgetSpent
from hermes_state import usage
from hermes_state.database import Database
from hermes_state.records import Row, rows
from hermes_state.usage import Spent

_DAY_S = 86_400.0


class Limits(NamedTuple):
    """How far a turn, a day (UTC) and somebody's day may go; 0 is no limit."""

    steps: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    seconds: float = 0.0
    cost_per_day_usd: float = 0.0
    person: str = ""
    """Who is to pay, when it is not the owner of the machine."""
    person_cost_per_day_usd: float = 0.0


class Estimate(NamedTuple):
    """The most that one model call can take."""

    tokens: int
    cost_usd: float
    elapsed_s: float
    """Working time of the turn so far, over all attempts."""


class Receipt(NamedTuple):
    """What a reserved call did cost."""

    reservation_id: int
    spent: Spent
    task: str = ""


def reserve(
    conn: apsw.Connection,
    turn_id: str,
    limits: Limits,
    estimate: Estimate,
    task: str = "",
    account: str | None = None,
) -> int:
    """Set aside what a call may cost; raises BudgetSpent, which says which limit is reached.

    Steps and time are the turn's own; tokens and money are those of the account, another turn if given.
    """
    sofar = of_turn(conn, turn_id, account)
    _hold("steps", sofar["steps"] + (not task), limits.steps)
    _hold("tokens", sofar["tokens"] + estimate.tokens, limits.tokens)
    _hold("USD", sofar["cost_usd"] + estimate.cost_usd, limits.cost_usd)
    _hold("seconds", estimate.elapsed_s, limits.seconds)
    if limits.cost_per_day_usd:
        _hold("USD a day", _today(conn) + estimate.cost_usd, limits.cost_per_day_usd)
    if limits.person_cost_per_day_usd:
        wanted = _today(conn, limits.person) + estimate.cost_usd
        _hold("USD a day for you", wanted, limits.person_cost_per_day_usd)
    conn.execute(
        "INSERT INTO reservations (turn_id, account, task, tokens, cost_usd, elapsed_s, reserved_at,"
        " person) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (turn_id, account or turn_id, task, *estimate, clock.now(), limits.person or None),
    )
    return conn.last_insert_rowid()


def _hold(unit: str, wanted: float, limit: float) -> None:
    if limit and wanted > limit:
        raise BudgetSpent(f"the limit of {limit:g} {unit} is reached")


def _today(conn: apsw.Connection, person: str | None = None) -> float:
    terms, values = ("", ()) if person is None else (" AND person = ?", (person,))
    midnight = clock.now() // _DAY_S * _DAY_S
    return conn.execute(
        f"SELECT coalesce(sum(cost_usd), 0.0) FROM reservations WHERE reserved_at >= ?{terms}",
        (midnight, *values),
    ).get


def settle(conn: apsw.Connection, turn_id: str, session_id: str, receipt: Receipt) -> None:
    """Replace what was set aside by what was spent, and book it."""
    spent = receipt.spent
    conn.execute(
        "UPDATE reservations SET state = 'settled', tokens = ?, cost_usd = ? WHERE id = ?",
        (spent.input_tokens + spent.output_tokens, spent.cost_usd, receipt.reservation_id),
    )
    usage.record(conn, session_id, spent, turn_id=turn_id, task=receipt.task)


def of_turn(conn: apsw.Connection, turn_id: str, account: str | None = None) -> Row:
    """Steps and working time of a turn; tokens and money that its account has taken or set aside."""
    return rows(
        conn.execute(
            "SELECT coalesce(sum(task = '' AND turn_id = ?1), 0) AS steps,"
            " coalesce(sum(tokens), 0) AS tokens, coalesce(sum(cost_usd), 0.0) AS cost_usd,"
            " coalesce(max(CASE turn_id WHEN ?1 THEN elapsed_s END), 0.0) AS seconds"
            " FROM reservations WHERE account = ?2",
            (turn_id, account or turn_id),
        )
    )[0]


class Budgets:
    """The store's reservations, one transaction a call."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def reserve(
        self,
        turn_id: str,
        limits: Limits,
        estimate: Estimate,
        task: str = "",
        account: str | None = None,
    ) -> int:
        return self._db.write(lambda c: reserve(c, turn_id, limits, estimate, task, account))

    def settle(self, turn_id: str, session_id: str, receipt: Receipt) -> None:
        self._db.write(lambda c: settle(c, turn_id, session_id, receipt))

    def of_turn(self, turn_id: str, account: str | None = None) -> Row:
        return self._db.ask(lambda c: of_turn(c, turn_id, account))

    def today_usd(self, person: str | None = None) -> float:
        return self._db.read(lambda c: _today(c, person))
