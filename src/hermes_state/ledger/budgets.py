"""Enforce spending limits across crashes by reserving the cost of a model call before it starts.

open → settled
A reservation is checked against the limits and written in one transaction, so that two processes cannot
both spend the last cent. An open reservation counts in full, since the provider may have charged for it.
Without a limit on tokens or money, nothing is reserved and the row is written as settled.
"""

from hermes_state.ledger import usage
from hermes_state.store import Tx, one_statement
from hermes_state.values import Estimate, Limit, Limits, Receipt, Reservation, Row

_DAY_S = 86_400.0


def reserve(
    tx: Tx,
    turn_id: str,
    limits: Limits,
    estimate: Estimate,
    task: str = "",
    account: str | None = None,
) -> Reservation:
    """Reserve the maximum cost of a call; raise BudgetSpent, which names the limit that is reached.

    Steps and time count per turn; tokens and money count per account, which may be another turn.
    """
    for limit, amount in used(tx, turn_id, limits, account):
        limit.check(amount, estimate, task)
    id_: int = tx.value(
        "INSERT INTO reservations (turn_id, account, task, tokens, cost_usd, elapsed_s, reserved_at,"
        " person) VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING id",
        turn_id,
        account or turn_id,
        task,
        *estimate,
        tx.now,
        limits.person or None,
    )
    return Reservation(id_, estimate.elapsed_s, account, limits.person)


def used(
    tx: Tx, turn_id: str, limits: Limits, account: str | None = None
) -> list[tuple[Limit, float]]:
    """Return each limit with the amount used so far."""
    turn = of_turn(tx, turn_id, account)
    return [(limit, _used(tx, limit, turn, limits.person)) for limit in limits.all]


def _used(tx: Tx, limit: Limit, turn: Row, person: str) -> float:
    if limit.scope == "turn":
        return turn["cost_usd" if limit.unit == "usd" else limit.unit]
    return today_usd(tx, person if limit.scope == "person" else None)


def today_usd(tx: Tx, person: str | None = None) -> float:
    """Sum the money spent or reserved today (UTC), by all or by one person."""
    terms, values = ("", ()) if person is None else (" AND person = ?", (person,))
    midnight = tx.now // _DAY_S * _DAY_S
    return tx.value(
        f"SELECT coalesce(sum(cost_usd), 0.0) FROM reservations WHERE reserved_at >= ?{terms}",
        midnight,
        *values,
    )


def settle(tx: Tx, turn_id: str, session_id: str, receipt: Receipt) -> None:
    """Replace a reservation by the actual cost and record the usage."""
    (id_, elapsed_s, account, person), spent, task = receipt
    tokens = spent.input_tokens + spent.output_tokens
    if id_ is None:
        tx.run("INSERT INTO reservations (turn_id, account, task, tokens, cost_usd, elapsed_s,"
            " reserved_at, person, state) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'settled')",
            turn_id, account or turn_id, task, tokens, spent.cost_usd, elapsed_s, tx.now,
            person or None,
        )  # fmt: skip
    else:
        tx.run(
            "UPDATE reservations SET state = 'settled', tokens = ?, cost_usd = ? WHERE id = ?",
            tokens,
            spent.cost_usd,
            id_,
        )
    usage.record(tx, session_id, spent, turn_id=turn_id, task=task)


@one_statement
def of_turn(tx: Tx, turn_id: str, account: str | None = None) -> Row:
    """Return the steps and working time of a turn, and the tokens and money of its account."""
    return tx.rows(
        "SELECT coalesce(sum(CASE WHEN task = '' AND turn_id = ?1 THEN 1 END), 0) AS steps,"
        " coalesce(sum(tokens), 0) AS tokens, coalesce(sum(cost_usd), 0.0) AS cost_usd,"
        " coalesce(max(CASE turn_id WHEN ?1 THEN elapsed_s END), 0.0) AS seconds"
        " FROM reservations WHERE account = ?2",
        turn_id,
        account or turn_id,
    )[0]
