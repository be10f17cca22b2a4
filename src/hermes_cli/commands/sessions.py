"""`hermes sessions`: list, show, search, export and clean up conversations."""

import sys
from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Any, NoReturn, cast

import click

from hermes_cli.commands import table
from hermes_cli.commands.app import App, json_option, pass_app, progress
from hermes_cli.commands.group import Entry, LazyGroup
from hermes_cli.commands.table import Column
from hermes_core import clock
from hermes_core.errors import ConversationBusyError, SessionNotFoundError, UsageError
from hermes_core.text import counted, human_size, one_line, truncate, usd, visible
from hermes_state import SessionDB, files
from hermes_state.ledger import effects, lineage, listing, outbox, partials, titles
from hermes_state.ledger import messages as message_ledger
from hermes_state.ledger import sessions as session_ledger
from hermes_state.ledger import turns as turn_ledger
from hermes_state.transitions import TurnState
from hermes_state.values import Sort

_LAST_ACTIVE = Column("LAST ACTIVE", rank=1)
_SOURCE = Column("SOURCE", rank=3)
_MESSAGES = Column("MESSAGES", rank=2)

_MAX_LEVEL = 8
"""Levels of a tree that are indented."""
_LABELS = {
    "cost_usd": "Cost",
    "first_at": "First activity",
    "last_at": "Last activity",
    "database_bytes": "Database",
    "by_source": "Conversations from",
}

AMOUNT = click.IntRange(0, 1_000_000)
EXIT_NOTHING_FOUND = 3
_UNSETTLED = {
    "started": "was running when last seen",
    "unknown": "was cut off; it may or may not have taken effect",
}


@click.group(
    "sessions",
    cls=LazyGroup,
    entries={
        "export": Entry(
            "session_files", "Export conversations as JSONL, Markdown, HTML or ATIF.", "export"
        ),
        "import": Entry("session_files", "Import an export, or a hermes-agent home.", "import_"),
    },
)
def command() -> None:
    """List, search, export and clean up conversations."""


@command.command("list")
@click.option("-n", "--limit", type=AMOUNT, default=20, show_default=True, help="How many to show.")
@click.option("--offset", type=AMOUNT, default=0, help="How many to skip.")
@click.option("--source", help="Only from this source: cli, tui, telegram, …")
@click.option("--archived", is_flag=True, help="Show archived conversations.")
@click.option("--all", "children", is_flag=True, help="Show every session, also compacted ones.")
@click.argument("text", required=False)
@table.full_option
@json_option
@pass_app
def list_(
    app: App,
    limit: int,
    offset: int,
    source: str | None,
    archived: bool,
    children: bool,
    text: str | None,
    full: bool,
) -> None:
    """List conversations, last active first; TEXT filters by title, first words or id."""
    with app.store_to_read() as store:
        found = store.list_sessions_rich(
            limit=limit,
            offset=offset,
            source=source,
            archived_only=archived,
            include_children=children,
            search_query=text,
        )
    if app.as_json:
        return app.emit(found)
    if not found:
        return app.say(_nothing_listed(text, source))
    rows = [
        (
            row["id"],
            clock.ago(row["last_active_at"]),
            row["source"],
            row["message_count"],
            row["title"] or row["preview"] or "(empty)",
        )
        for row in found
    ]
    return table.show(app, ("ID", _LAST_ACTIVE, _SOURCE, _MESSAGES, "TITLE"), rows, full=full)


def _nothing_listed(text: str | None, source: str | None) -> str:
    if text:
        return f"No conversation matches {text!r}."
    return f"No conversation from {source!r}." if source else "No conversations yet."


@command.command("show")
@click.argument("session")
@click.option("--full", is_flag=True, help="Start before any compaction.")
@click.option("--last", type=int, help="Show only the last N messages.")
@json_option
@pass_app
def show(app: App, session: str, full: bool, last: int | None) -> None:
    """Print a conversation. SESSION is an id, a title, or the beginning of an id."""
    with app.store_to_read() as store:
        session_id = find_session(store, session)
        row = store.read(session_ledger.find, session_id)
        select = message_ledger.originals if full else message_ledger.as_conversation
        messages = store.read(select, session_id)
        messages += store.read(partials.of_session, session_id)
        turns = _turns(store, session_id, full=full)
    assert row is not None
    if last is not None:
        messages = messages[-last:] if last > 0 else []
    if app.as_json:
        return app.emit({**row, "messages": messages, "turns": turns})
    app.say(_heading(row))
    for message in messages:
        app.say("\n" + _format_message(message))
    if troubles := [line for turn in turns for line in _describe_failure(turn)]:
        app.say("\n" + "\n".join(troubles))
    return None


def _turns(store: SessionDB, session_id: str, *, full: bool) -> list[dict[str, Any]]:
    """Return the turns, each with its tool calls and the text it answers."""
    sessions = store.read(lineage.members, session_id) if full else [session_id]
    return [
        {
            **turn,
            "user_text": store.read(turn_ledger.user_text, turn["id"]),
            "effects": store.read(effects.of_turn, turn["id"]),
        }
        for member in sessions
        for turn in store.read(turn_ledger.of_session, member)
    ]


def _describe_failure(turn: dict[str, Any]) -> list[str]:
    """Describe a turn that did not end in an answer, and its unsettled tool calls."""
    about = truncate(one_line(visible(turn["user_text"])), 60)
    lines: list[str] = []
    if TurnState(turn["state"]).is_open:
        lines.append(
            f"[turn {turn['state']}] no answer yet to {about!r};"
            f" continue with: hermes chat --resume {turn['session_id']}"
        )
    elif turn["state"] != TurnState.ANSWERED:
        lines.append(f"[turn {turn['state']}] {turn['reason'] or 'no reason given'} ({about!r})")
    lines += [
        f"[effect {effect['state']}] {_format_call({'name': effect['tool_name'], **effect})}:"
        f" {_UNSETTLED[effect['state']]}"
        for effect in turn["effects"]
        if effect["state"] in _UNSETTLED
    ]
    return lines


def _heading(row: dict[str, Any]) -> str:
    lines = [
        row["title"] or row["preview"] or "(no title)",
        f"{row['id']} · {row['source']} · {row['model'] or 'no model'} · "
        f"{row['message_count']} messages · started {clock.local(row['started_at'])}",
    ]
    if row["depth"]:
        lines.append(f"compacted {row['depth']} ×; --full shows all messages")
    if row["ended_at"] is not None:
        lines.append(f"ended {clock.local(row['ended_at'])} ({row['end_reason']})")
    return visible("\n".join(lines))


def _format_message(message: dict[str, Any]) -> str:
    """Format a message: role, then text; tool calls and results are truncated."""
    content = message["content"]
    text = content if isinstance(content, str) else _text_of(content)
    role = message["role"] + (f" ({message['kind']})" if "kind" in message else "")
    if message["role"] == "tool":
        name = visible(message.get("tool_name") or "tool")
        return f"  → {name}: {truncate(one_line(visible(text)), 200)}"
    lines = [visible(f"{role}: {text}").rstrip()]
    lines += [f"  ⚙ {_format_call(call)}" for call in _as_list(message.get("tool_calls"))]
    return "\n".join(lines)


def _text_of(content: Any) -> str:  # noqa: ANN401 -- an import may hold any JSON
    parts = (
        cast("dict[str, Any]", part).get("text", "[attachment]") if isinstance(part, dict) else part
        for part in _as_list(content)
    )
    return "\n".join(map(str, parts))


def _as_list(value: Any) -> list[Any]:  # noqa: ANN401 -- as above
    if value is None:
        return []
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _format_call(call: Any) -> str:  # noqa: ANN401 -- as above
    """Format a tool call as name and arguments; an unknown form stays as it is."""
    text = str(call)
    if isinstance(call, dict):
        function: Any = cast("dict[str, Any]", call).get("function", call)
        if isinstance(function, dict) and "name" in function:
            named = cast("dict[str, Any]", function)
            text = f"{named['name']} {named.get('arguments', '')}"
    return truncate(one_line(visible(text)), 160)


@command.command("search")
@click.argument("query", nargs=-1, required=True)
@click.option("-n", "--limit", type=AMOUNT, default=20, show_default=True, help="How many to show.")
@click.option("--role", multiple=True, help="Only messages of user, assistant or tool.")
@click.option("--source", help="Only conversations from this source.")
@click.option("--session", help="Only in this conversation.")
@click.option("--since", help="From this date (2026-11-30) or age (7d, 12h) on.")
@click.option("--until", help="Before this date or age.")
@click.option(
    "--sort",
    type=click.Choice(["newest", "oldest", "relevance"]),
    default="newest",
    show_default=True,
    help="Order of the results.",
)
@table.full_option
@json_option
@pass_app
def search(  # noqa: PLR0913 -- one parameter per option
    app: App,
    query: tuple[str, ...],
    limit: int,
    role: tuple[str, ...],
    source: str | None,
    session: str | None,
    since: str | None,
    until: str | None,
    sort: Sort,
    full: bool,
) -> int:
    """Search messages. All words must occur; "a phrase", prefix*, -without, OR.

    Three characters or more also find parts of words and code. Put a query that begins with a minus
    after --: hermes sessions search -- '->next'.
    """
    with app.store() as store:
        hits = store.search_messages(
            " ".join(query),
            limit=limit,
            role=role or None,
            source=source,
            session_id=find_session(store, session) if session else None,
            since=point_in_time(since),
            until=point_in_time(until),
            sort=sort,
        )
    if app.as_json:
        app.emit(hits)
    elif hits:
        rows = [
            (hit["session_id"], clock.local(hit["timestamp"]), hit["role"], hit["snippet"])
            for hit in hits
        ]
        columns = ("ID", Column("WHEN", rank=1), Column("ROLE", rank=2), "TEXT")
        table.show(app, columns, rows, full=full, marked=True)
    else:
        app.say("Nothing found.")
    return 0 if hits else EXIT_NOTHING_FOUND


@command.command("tree")
@click.argument("session")
@table.full_option
@json_option
@pass_app
def tree(app: App, session: str, full: bool) -> None:
    """Show the tree of a conversation: compactions, branches, sub-agents."""
    with app.store_to_read() as store:
        session_id = find_session(store, session)
        rows = store.read(lineage.tree, session_id)
    if app.as_json:
        return app.emit(rows)
    cells = [("*" if row["id"] == session_id else "", *_branch(row)) for row in rows]
    columns = ("", "ID", Column("RELATION", rank=1), _MESSAGES, "TITLE")
    return table.show(app, columns, cells, full=full)


def _branch(row: dict[str, Any]) -> tuple[object, ...]:
    """Return the cells of a session, whose id is indented by its level in the tree."""
    level = min(row["level"], _MAX_LEVEL)
    stem = f"└{'─' * (2 * level - 1)} " if level else ""
    title = row["title"] or row["preview"]
    return f"{stem}{row['id']}", row["relation"], row["message_count"], title


@command.command("rename")
@click.argument("session")
@click.argument("title")
@json_option
@pass_app
def rename(app: App, session: str, title: str) -> None:
    """Rename a conversation; an empty TITLE removes the title."""
    with app.store() as store:
        session_id = store.read(lineage.tip, find_session(store, session))
        store.write(titles.set_title, session_id, title)
        now = store.read(titles.title_of, session_id)
    if app.as_json:
        app.emit({"id": session_id, "title": now})
    app.say(f"Renamed {session_id} to {now!r}." if now else f"Removed the title of {session_id}.")


@command.command("delete")
@click.argument("sessions", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
@pass_app
def delete(app: App, sessions: tuple[str, ...], yes: bool) -> None:
    """Delete conversations, including compacted history; branches are kept."""
    with app.store() as store:
        ids = [_exact_or_chosen(store, name) for name in sessions]
        _check_not_running(store, ids)
        doomed = store.read(session_ledger.with_delegates, ids)
        what = f"{counted(len(set(ids)), 'conversation')}{_describe_losses(store, doomed)}"
        confirm(app, f"Delete {what}?", yes)
        with files.going_with(store, app.home, doomed):
            count = store.write(session_ledger.delete, ids)
        store.index.catch_up()
    if app.as_json:
        app.emit({"deleted": ids, "sessions": count})
    app.say(f"Deleted {what}.")


def _describe_losses(store: SessionDB, doomed: Collection[str]) -> str:
    """Describe the unanswered messages and undelivered replies in these sessions."""
    unanswered = sum(turn["session_id"] in doomed for turn in store.read(turn_ledger.all_open))
    turn_ids = {part["turn_id"] for part in store.read(outbox.waiting) if part["turn_id"]}
    unsent = sum(
        (store.read(turn_ledger.find, turn_id) or {}).get("session_id") in doomed
        for turn_id in turn_ids
    )
    lost = [counted(unanswered, "unanswered message")] if unanswered else []
    lost += [counted(unsent, "undelivered answer")] if unsent else []
    return f", with {' and '.join(lost)}" if lost else ""


def _check_not_running(store: SessionDB, ids: list[str]) -> None:
    """Raise ConversationBusyError if a process is answering one of the conversations."""
    from hermes_agent import lease  # noqa: PLC0415 -- slow to import

    for id_ in ids:
        if lease.is_held_elsewhere(store, store.read(lineage.root, id_)):
            raise ConversationBusyError(
                f"{id_} is being answered now; nothing was deleted.",
                fix="Wait for the answer or stop it (/stop), then try again.",
            )


def _exact_or_chosen(store: SessionDB, name: str) -> str:
    """Return the session with exactly this id or title, else the one that `chosen` finds."""
    exact = store.read(session_ledger.find, name) or store.read(titles.by_title, name)
    return exact["id"] if exact is not None else find_session(store, name)


@command.command("prune")
@click.option(
    "--older-than", "days", type=float, help="Age in days; default: sessions.retention_days."
)
@click.option("--source", help="Only conversations from this source.")
@click.option("--archived", is_flag=True, help="Also delete archived conversations.")
@click.option("--dry-run", is_flag=True, help="Only list what would be deleted.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
@pass_app
def prune(
    app: App, days: float | None, source: str | None, archived: bool, dry_run: bool, yes: bool
) -> None:
    """Delete old ended conversations, and empty sessions left by crashes."""
    age = days if days is not None else app.settings.sessions.retention_days
    if age <= 0:
        raise UsageError("The age must be more than zero days.")
    with app.store() as store:
        old = store.list_prune_candidates(
            older_than_days=age, source=source, include_archived=archived
        )
        if dry_run:
            return _list_candidates(app, old)
        if old:
            confirm(app, f"Delete {counted(len(old), 'conversation')}?", yes)
        doomed = store.read(session_ledger.with_delegates, [row["id"] for row in old])
        with files.going_with(store, app.home, doomed), progress(len(old), "Pruning") as count:
            pruned = store.prune_sessions(age, source, include_archived=archived, progress=count)
        with files.going_with(store, app.home, store.list_ghost_candidates()):
            ghosts = store.prune_empty_ghost_sessions()
        orphans = store.finalize_orphaned_compression_sessions()
        store.index.catch_up()
    if app.as_json:
        return app.emit({"pruned": pruned, "ghosts": ghosts, "orphans_ended": orphans})
    return app.say(
        f"Deleted {counted(pruned, 'conversation')} and {counted(ghosts, 'empty session')}, "
        f"ended {counted(orphans, 'unused continuation')}."
    )


def _list_candidates(app: App, old: list[dict[str, Any]]) -> None:
    if app.as_json:
        return app.emit(old)
    if old:
        rows = [
            (
                row["id"],
                clock.local(row["last_active_at"]),
                row["message_count"],
                row["title"] or row["preview"],
            )
            for row in old
        ]
        table.show(app, ("ID", _LAST_ACTIVE, _MESSAGES, "TITLE"), rows)
    return app.say(f"Would delete {counted(len(old), 'conversation')}.")


@command.command("stats")
@json_option
@pass_app
def stats(app: App) -> None:
    """Show statistics."""
    with app.store() as store:
        numbers = store.read(listing.stats)
        numbers["database_bytes"] = store.path.stat().st_size
    if app.as_json:
        return app.emit(numbers)
    columns = (Column("WHAT", wraps=True), Column("VALUE", right=True))
    return table.show(app, columns, _statistics(numbers))


def _statistics(numbers: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Describe the statistics for people."""
    for name, value in numbers.items():
        label = _LABELS.get(name, name.replace("_", " ").capitalize())
        if isinstance(value, dict):
            counts = cast("dict[str, int]", value).items()
            yield from ((f"{label} {key}", f"{count:,}") for key, count in counts)
        elif name.endswith("_at"):
            yield label, clock.local(value) if value else "never"
        elif name.endswith("_bytes"):
            yield label, human_size(value)
        else:
            yield label, usd(value) if name.endswith("_usd") else f"{value:,}"


def find_session(store: SessionDB, text: str) -> str:
    """Return the session with this id, title, or beginning of an id."""
    found = store.read(titles.resolve_name, text)
    return found if found is not None else _not_found(store, text)


def _not_found(store: SessionDB, text: str) -> NoReturn:
    near = store.list_sessions_rich(limit=4, search_query=text) if text else []
    if near:
        names = "".join(f"\n          {_named(row)}" for row in near)
        raise SessionNotFoundError(
            f"No conversation has exactly the id or title {text!r}.", fix=f"Did you mean:{names}"
        )
    raise SessionNotFoundError(f"No conversation {text!r}.", fix="See: hermes sessions list")


def _named(row: dict[str, Any]) -> str:
    title = truncate(one_line(visible(row["title"] or row["preview"] or "")), 50)
    return f"{row['id']}  {title}".rstrip()


def confirm(app: App, question: str, yes: bool) -> None:
    """Ask before deleting; without a terminal, --yes is required."""
    if yes:
        return
    if app.as_json or not sys.stdin.isatty():
        raise UsageError("This cannot be undone.", fix="Add --yes to confirm.")
    click.confirm(question, abort=True)


def point_in_time(text: str | None) -> float | None:
    """Convert a date or an age such as 7d, 12h or 30m to a timestamp."""
    if text is None:
        return None
    units = {"d": 86_400, "h": 3_600, "m": 60}
    if text[-1:] in units and text[:-1].replace(".", "", 1).isdecimal():
        return clock.now() - float(text[:-1]) * units[text[-1]]
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError as error:
        raise UsageError(
            f"{text!r} is not a valid date or age.",
            fix="Write 2026-11-30, 2026-11-30T08:00, 7d or 12h.",
        ) from error
