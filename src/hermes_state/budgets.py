"""Limits that hold across a crash: what a model call may cost is set aside before it is made.

open → settled
A reservation is checked against the limits and written in one transaction, so that two processes cannot
both take the last cent. One that stays open counts in full: the provider may have charged for it.
Where neither tokens nor money are limited nothing is set aside; what was spent is noted settled.
"""

from typing import NamedTuple

import apsw

from hermes_core import clock
from hermes_core.errors import BudgetSpent
from hermes_core.text import number
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

    @property
    def need_reservations(self) -> bool:
        """Whether a call may be one too many for what others spend meanwhile."""
        return bool(
            self.tokens or self.cost_usd or self.cost_per_day_usd or self.person_cost_per_day_usd
        )

    def check_work(self, steps: int, seconds: float) -> None:
        """Steps and working time of a turn, which are nobody else's; raises BudgetSpent."""
        _hold("steps", steps, self.steps)
        _hold("seconds", seconds, self.seconds)


class Estimate(NamedTuple):
    """The most that one model call can take."""

    tokens: int
    cost_usd: float
    elapsed_s: float
    """Working time of the turn so far, over all attempts."""


class Reservation(NamedTuple):
    """What was set aside for a call, or would have been if anything limited it."""

    id: int | None
    elapsed_s: float = 0.0
    account: str | None = None
    """The turn that pays, when it is another one."""
    person: str = ""


class Receipt(NamedTuple):
    """What a call did cost."""

    reservation: Reservation
    spent: Spent
    task: str = ""


def reserve(
    conn: apsw.Connection,
    turn_id: str,
    limits: Limits,
    estimate: Estimate,
    task: str = "",
    account: str | None = None,
) -> Reservation:
    """Set aside what a call may cost; raises BudgetSpent, which says which limit is reached.

    Steps and time are the turn's own; tokens and money are those of the account, another turn if given.
    """
    sofar = of_turn(conn, turn_id, account)
    limits.check_work(sofar["steps"] + (not task), estimate.elapsed_s)
    _hold("tokens", sofar["tokens"] + estimate.tokens, limits.tokens)
    _hold("USD", sofar["cost_usd"] + estimate.cost_usd, limits.cost_usd)
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
    return Reservation(conn.last_insert_rowid(), estimate.elapsed_s, account, limits.person)


def _hold(unit: str, wanted: float, limit: float) -> None:
    if limit and wanted > limit:
        raise BudgetSpent(f"the limit of {number(limit)} {unit} is reached")


def _today(conn: apsw.Connection, person: str | None = None) -> float:
    terms, values = ("", ()) if person is None else (" AND person = ?", (person,))
    midnight = clock.now() // _DAY_S * _DAY_S
    return conn.execute(
        f"SELECT coalesce(sum(cost_usd), 0.0) FROM reservations WHERE reserved_at >= ?{terms}",
        (midnight, *values),
    ).get


def settle(conn: apsw.Connection, turn_id: str, session_id: str, receipt: Receipt) -> None:
    """Replace what was set aside by what was spent, and book it."""
    (id_, elapsed_s, account, person), spent, task = receipt
    tokens = spent.input_tokens + spent.output_tokens
    if id_ is None:
        conn.execute(
            "INSERT INTO reservations (turn_id, account, task, tokens, cost_usd, elapsed_s,"
            " reserved_at, person, state) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'settled')",
            (turn_id, account or turn_id, task, tokens, spent.cost_usd, elapsed_s, clock.now(),
             person or None),
        )  # fmt: skip
    else:
        conn.execute(
            "UPDATE reservations SET state = 'settled', tokens = ?, cost_usd = ? WHERE id = ?",
            (tokens, spent.cost_usd, id_),
        )
    usage.record(conn, session_id, spent, turn_id=turn_id, task=task)


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
    ) -> Reservation:
        return self._db.write(lambda c: reserve(c, turn_id, limits, estimate, task, account))

    def settle(self, turn_id: str, session_id: str, receipt: Receipt) -> None:
        self._db.write(lambda c: settle(c, turn_id, session_id, receipt))

    def of_turn(self, turn_id: str, account: str | None = None) -> Row:
        return self._db.ask(lambda c: of_turn(c, turn_id, account))

    def today_usd(self, person: str | None = None) -> float:
        return self._db.read(lambda c: _today(c, person))
