"""The triggers that enforce the state machines in SQLite, generated from `hermes_state.transitions`."""

from collections.abc import Iterator

import apsw

from hermes_state.transitions import GROWTHS, MACHINES, Growth, Machine


def install(conn: apsw.Connection) -> None:
    """Create missing triggers and replace outdated ones."""
    for name, sql in expected().items():
        present = conn.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (name,)).get
        if normalized(present) != normalized(sql):
            conn.execute(f"DROP TRIGGER IF EXISTS {name}; {sql}")


def expected() -> dict[str, str]:
    """Return the statements that create the triggers, by their names."""
    found = dict(pair for machine in MACHINES for pair in _of_machine(machine))
    return found | dict(map(_of_growth, GROWTHS))


def normalized(sql: object) -> str:
    """Return a statement without the differences that white space makes."""
    return " ".join(str(sql).split())


def _of_machine(machine: Machine) -> Iterator[tuple[str, str]]:
    table, column = machine.table, machine.column
    if machine.first is not None:
        yield _trigger(
            f"{table}_begin",
            f"INSERT ON {table} WHEN NEW.{column} <> '{machine.first}'",
            f"{machine.noun} begins as {machine.first}",
        )
    message = f"{machine.noun} cannot go there from its state"
    if machine.moves is not None:
        pairs = ", ".join(
            f"('{old}', '{new}')" for old, news in machine.moves.items() for new in news
        )
        condition = f"(OLD.{column}, NEW.{column}) NOT IN (VALUES {pairs})" + "".join(
            f" AND NOT (OLD.{column} = '{old}' AND NEW.{column} = '{new}' AND OLD.{flag} = 1)"
            for (old, new), flag in machine.moves_if.items()
        )
    else:
        message = f"{machine.noun} is settled once"
        is_open = machine.open
        condition = f"OLD.{column} " + ("IS NOT NULL" if is_open is None else f"<> '{is_open}'")
    columns = "" if machine.freezes_row else f" OF {column}"
    yield _trigger(
        f"{table}_{machine.rule}", f"UPDATE{columns} ON {table} WHEN {condition}", message
    )


def _of_growth(growth: Growth) -> tuple[str, str]:
    table, column = growth.table, growth.column
    return _trigger(
        f"{table}_grow",
        f"UPDATE OF {column} ON {table} WHEN NEW.{column} < OLD.{column}",
        f"{growth.noun} only grows",
    )


def _trigger(name: str, event: str, message: str) -> tuple[str, str]:
    return name, (
        f"CREATE TRIGGER {name} BEFORE {event} BEGIN\n"
        f"    SELECT RAISE(ABORT, 'illegal transition: {message}');\nEND"
    )
