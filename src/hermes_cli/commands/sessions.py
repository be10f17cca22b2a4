"""`hermes sessions`: conversations listed, read, searched, moved and cleaned up."""

import sys
from collections.abc import Collection
from datetime import datetime
from typing import Any, NoReturn, cast

import click

from hermes_cli.commands import table
from hermes_cli.commands.app import App, json_option, pass_app, progress
from hermes_cli.commands.group import Entry, LazyGroup
from hermes_core import clock
from hermes_core.errors import ConversationBusyError, SessionNotFoundError, UsageError
from hermes_core.text import one_line, truncate, visible
from hermes_state import SessionDB, files
from hermes_state.ledger import effects, lineage, listing, outbox, partials, titles
from hermes_state.ledger import messages as message_ledger
from hermes_state.ledger import sessions as session_ledger
from hermes_state.ledger import turns as turn_ledger
from hermes_state.values import Sort

AMOUNT = click.IntRange(0, 1_000_000)
EXIT_NOTHING_FOUND = 3
_UNSETTLED = {
    "started": "it was running when last seen",
    "unknown": "it was cut off while it ran; it may or may not have taken effect",
}


@click.group(
    "sessions",
    cls=LazyGroup,
    entries={
        "export": Entry("session_files", "Write conversations as JSON Lines.", "export"),
        "import": Entry("session_files", "Take in an export, or a hermes-agent home.", "import_"),
    },
)
def command() -> None:
    """List, search, export and clean up conversations."""


@command.command("list")
@click.option("-n", "--limit", type=AMOUNT, default=20, show_default=True, help="How many to show.")
@click.option("--offset", type=AMOUNT, default=0, help="How many to leave out first.")
@click.option("--source", help="Only those begun here: cli, tui, telegram, …")
@click.option("--archived", is_flag=True, help="Those that were put away.")
@click.option("--all", "children", is_flag=True, help="Every session, also compacted ones.")
@click.argument("text", required=False)
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
) -> None:
    """Show conversations, the most recently active first; TEXT narrows by title, start or id."""
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
    return app.say(
        table.render(
            ("ID", "LAST ACTIVE", "SOURCE", "MESSAGES", "TITLE"),
            [
                (
                    row["id"],
                    ago(row["last_active_at"]),
                    row["source"],
                    row["message_count"],
                    row["title"] or row["preview"] or "(empty)",
                )
                for row in found
            ],
        )
    )


def _nothing_listed(text: str | None, source: str | None) -> str:
    if text:
        return f"No conversation has {text!r}."
    return f"No conversation was begun in {source!r}." if source else "No conversations yet."


@command.command("show")
@click.argument("session")
@click.option("--full", is_flag=True, help="From the very beginning, before any compaction.")
@click.option("--last", type=int, help="Only the last N messages.")
@json_option
@pass_app
def show(app: App, session: str, full: bool, last: int | None) -> None:
    """Print a conversation. SESSION is an id, a title, or the beginning of an id."""
    with app.store_to_read() as store:
        session_id = chosen(store, session)
        row = store.read(session_ledger.find, session_id)
        messages = store.read(message_ledger.as_conversation, session_id, include_ancestors=full)
        messages += store.read(partials.of_session, session_id)
        turns = _turns(store, session_id, full=full)
    assert row is not None
    if last is not None:
        messages = messages[-last:] if last > 0 else []
    if app.as_json:
        return app.emit({**row, "messages": messages, "turns": turns})
    app.say(_heading(row))
    for message in messages:
        app.say("\n" + _spoken(message))
    if troubles := [line for turn in turns for line in _trouble(turn)]:
        app.say("\n" + "\n".join(troubles))
    return None


def _turns(store: SessionDB, session_id: str, *, full: bool) -> list[dict[str, Any]]:
    """The turns of what is shown, each with its tool calls and the text it answers."""
    shown = store.read(lineage.members, session_id) if full else [session_id]
    return [
        {
            **turn,
            "user_text": store.read(turn_ledger.user_text, turn["id"]),
            "effects": store.read(effects.of_turn, turn["id"]),
        }
        for member in shown
        for turn in store.read(turn_ledger.of_session, member)
    ]


def _trouble(turn: dict[str, Any]) -> list[str]:
    """Return what a person should know about a turn that did not simply end in an answer."""
    about = truncate(one_line(visible(turn["user_text"])), 60)
    lines: list[str] = []
    if turn["state"] in ("accepted", "running"):
        lines.append(
            f"[turn {turn['state']}] no answer yet to {about!r};"
            f" go on with: hermes chat --resume {turn['session_id']}"
        )
    elif turn["state"] != "answered":
        lines.append(f"[turn {turn['state']}] {turn['reason'] or 'no reason given'} ({about!r})")
    lines += [
        f"[effect {effect['state']}] {_call_in_words({'name': effect['tool_name'], **effect})}:"
        f" {_UNSETTLED[effect['state']]}"
        for effect in turn["effects"]
        if effect["state"] in _UNSETTLED
    ]
    return lines


def _heading(row: dict[str, Any]) -> str:
    lines = [
        row["title"] or row["preview"] or "(no title)",
        f"{row['id']} · {row['source']} · {row['model'] or 'no model'} · "
        f"{row['message_count']} messages · began {moment(row['started_at'])}",
    ]
    if row["depth"]:
        lines.append(f"compacted {row['depth']} ×; --full shows all that was said")
    if row["ended_at"] is not None:
        lines.append(f"ended {moment(row['ended_at'])} ({row['end_reason']})")
    return visible("\n".join(lines))


def _spoken(message: dict[str, Any]) -> str:
    """One message for a person: who, then what; what tools got and gave is cut short."""
    content = message["content"]
    text = content if isinstance(content, str) else _parts_in_words(content)
    who = message["role"] + (f" ({message['kind']})" if "kind" in message else "")
    if message["role"] == "tool":
        name = visible(message.get("tool_name") or "tool")
        return f"  → {name}: {truncate(one_line(visible(text)), 200)}"
    lines = [visible(f"{who}: {text}").rstrip()]
    lines += [f"  ⚙ {_call_in_words(call)}" for call in _listed(message.get("tool_calls"))]
    return "\n".join(lines)


def _parts_in_words(content: Any) -> str:  # noqa: ANN401 -- whatever parts a provider has
    if content is None:
        return ""
    return "\n".join(_part_in_words(part) for part in _listed(content))


def _listed(value: Any) -> list[Any]:  # noqa: ANN401 -- an import may bring whatever is JSON
    if value is None:
        return []
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _part_in_words(part: Any) -> str:  # noqa: ANN401 -- as above
    if isinstance(part, dict):
        part = cast("dict[str, Any]", part).get("text", "[attachment]")
    return str(part)


def _call_in_words(call: Any) -> str:  # noqa: ANN401 -- as above
    """A call as its tool and arguments; one that is written otherwise, as it is."""
    words = str(call)
    if isinstance(call, dict):
        function: Any = cast("dict[str, Any]", call).get("function", call)
        if isinstance(function, dict) and "name" in function:
            named = cast("dict[str, Any]", function)
            words = f"{named['name']} {named.get('arguments', '')}"
    return truncate(one_line(visible(words)), 160)


@command.command("search")
@click.argument("query", nargs=-1, required=True)
@click.option("-n", "--limit", type=AMOUNT, default=20, show_default=True, help="How many to show.")
@click.option("--role", multiple=True, help="Only what user, assistant or tool said.")
@click.option("--source", help="Only conversations begun here.")
@click.option("--session", help="Only in this conversation.")
@click.option("--since", help="Not before this date (2026-11-30) or age (7d, 12h).")
@click.option("--until", help="Before this date or age.")
@click.option(
    "--sort",
    type=click.Choice(["newest", "oldest", "relevance"]),
    default="newest",
    show_default=True,
    help="Which to show first.",
)
@json_option
@pass_app
def search(  # noqa: PLR0913 -- one parameter an option
    app: App,
    query: tuple[str, ...],
    limit: int,
    role: tuple[str, ...],
    source: str | None,
    session: str | None,
    since: str | None,
    until: str | None,
    sort: Sort,
) -> int:
    """Find messages. Words must all occur; "a phrase", prefix*, -without, OR.

    Part of a word, or a piece of code, is found by three characters or more. A query that begins with a
    minus goes after --: hermes sessions search -- '->next'.
    """
    with app.store() as store:
        hits = store.search_messages(
            " ".join(query),
            limit=limit,
            role=role or None,
            source=source,
            session_id=chosen(store, session) if session else None,
            since=point_in_time(since),
            until=point_in_time(until),
            sort=sort,
        )
    if app.as_json:
        app.emit(hits)
    elif hits:
        rows = [
            (hit["session_id"], moment(hit["timestamp"]), hit["role"], hit["snippet"])
            for hit in hits
        ]
        app.say(table.render(("SESSION", "WHEN", "WHO", "WHAT"), rows))
    else:
        app.say("Nothing found.")
    return 0 if hits else EXIT_NOTHING_FOUND


@command.command("tree")
@click.argument("session")
@json_option
@pass_app
def tree(app: App, session: str) -> None:
    """Show how sessions follow from one another: compactions, branches, delegates."""
    with app.store_to_read() as store:
        session_id = chosen(store, session)
        rows = store.read(lineage.tree, session_id)
    if app.as_json:
        return app.emit(rows)
    for row in rows:
        relation = f"{row['relation']}: " if row["relation"] else ""
        here = " ←" if row["id"] == session_id else ""
        app.say(
            f"{'   ' * row['level']}{'└─ ' if row['level'] else ''}{relation}{row['id']}"
            f" ({row['message_count']} messages) {row['title'] or row['preview'] or ''}{here}"
        )
    return None


@command.command("rename")
@click.argument("session")
@click.argument("title")
@json_option
@pass_app
def rename(app: App, session: str, title: str) -> None:
    """Give a conversation another title; an empty one takes the title away."""
    with app.store() as store:
        session_id = store.read(lineage.tip, chosen(store, session))
        store.write(titles.set_title, session_id, title)
        now = store.read(titles.title_of, session_id)
    if app.as_json:
        app.emit({"id": session_id, "title": now})
    app.say(f"{session_id} is called {now!r}." if now else f"{session_id} has no title now.")


@command.command("delete")
@click.argument("sessions", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
@pass_app
def delete(app: App, sessions: tuple[str, ...], yes: bool) -> None:
    """Delete conversations with all they were before compaction; branches of them stay."""
    with app.store() as store:
        ids = [_doomed(store, name) for name in sessions]
        _refuse_running(store, ids)
        doomed = store.read(session_ledger.with_delegates, ids)
        what = f"{_amount(len(set(ids)), 'conversation')}{_lost_with(store, doomed)}"
        confirm(app, f"Delete {what} for good?", yes)
        with files.going_with(store, app.home, doomed):
            count = store.write(session_ledger.delete, ids)
        store.index.catch_up()
    if app.as_json:
        app.emit({"deleted": ids, "sessions": count})
    app.say(f"Deleted {what}.")


def _lost_with(store: SessionDB, doomed: Collection[str]) -> str:
    """Return what somebody still waits for and would not get when sessions go."""
    unanswered = sum(turn["session_id"] in doomed for turn in store.read(turn_ledger.still_open))
    waiting = {piece["turn_id"] for piece in store.read(outbox.waiting) if piece["turn_id"]}
    unsent = sum(
        (store.read(turn_ledger.find, one) or {}).get("session_id") in doomed for one in waiting
    )
    lost = [
        f"{_amount(unanswered, 'message')} that had no answer yet" if unanswered else "",
        f"{_amount(unsent, 'answer')} still to be sent" if unsent else "",
    ]
    said = " and ".join(one for one in lost if one)
    return f", with {said}" if said else ""


def _refuse_running(store: SessionDB, ids: list[str]) -> None:
    """Return what a living process is answering is not taken away under it."""
    from hermes_agent import lease  # noqa: PLC0415 -- lists need it not, and start faster

    for id_ in ids:
        if lease.is_held_elsewhere(store, store.read(lineage.root, id_)):
            raise ConversationBusyError(
                f"{id_} is being answered now; nothing was deleted.",
                fix="Wait for the answer or stop it there (/stop), then delete it.",
            )


def _doomed(store: SessionDB, name: str) -> str:
    """The session to delete: one that is called exactly so, before a later one of the same title."""
    exact = store.read(session_ledger.find, name) or store.read(titles.by_title, name)
    return exact["id"] if exact is not None else chosen(store, name)


@command.command("prune")
@click.option("--older-than", "days", type=float, help="Age in days; else sessions.retention_days.")
@click.option("--source", help="Only conversations begun here.")
@click.option("--archived", is_flag=True, help="Also those that were put away.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
@pass_app
def prune(
    app: App, days: float | None, source: str | None, archived: bool, dry_run: bool, yes: bool
) -> None:
    """Delete ended conversations that are old, and what crashes of others left behind."""
    age = days if days is not None else app.settings.sessions.retention_days
    if age <= 0:
        raise UsageError("The age must be more than zero days.")
    with app.store() as store:
        old = store.list_prune_candidates(
            older_than_days=age, source=source, include_archived=archived
        )
        if dry_run:
            return _say_what_would_go(app, old)
        if old:
            confirm(app, f"Delete {_amount(len(old), 'conversation')} for good?", yes)
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
        f"Deleted {_amount(pruned, 'conversation')} and {_amount(ghosts, 'empty one')}, "
        f"ended {_amount(orphans, 'continuation')} nobody used."
    )


def _say_what_would_go(app: App, old: list[dict[str, Any]]) -> None:
    if app.as_json:
        return app.emit(old)
    if old:
        app.say(
            table.render(
                ("ID", "LAST ACTIVE", "MESSAGES", "TITLE"),
                [
                    (
                        row["id"],
                        moment(row["last_active_at"]),
                        row["message_count"],
                        row["title"] or row["preview"],
                    )
                    for row in old
                ],
            )
        )
    return app.say(f"{_amount(len(old), 'conversation')} would go.")


@command.command("stats")
@json_option
@pass_app
def stats(app: App) -> None:
    """Show what there is, in numbers."""
    with app.store() as store:
        numbers = store.read(listing.stats)
        numbers["database_bytes"] = store.path.stat().st_size
    if app.as_json:
        return app.emit(numbers)
    rows = [
        (name.replace("_", " "), moment(value) if name.endswith("_at") and value else value)
        for name, value in numbers.items()
        if not isinstance(value, dict)
    ]
    rows += [
        (f"{group.replace('_', ' ')}: {name}", count)
        for group in ("by_source", "turns")
        for name, count in numbers[group].items()
    ]
    return app.say(table.render(("WHAT", "VALUE"), rows))


def chosen(store: SessionDB, text: str) -> str:
    """The session a person means: an id, a title, or the beginning of an id."""
    found = store.read(titles.meant, text)
    return found if found is not None else _not_found(store, text)


def _not_found(store: SessionDB, text: str) -> NoReturn:
    near = store.list_sessions_rich(limit=4, search_query=text) if text else []
    if near:
        names = ", ".join(row["id"] for row in near)
        raise SessionNotFoundError(
            f"{text!r} is not one conversation.", fix=f"Do you mean: {names}?"
        )
    raise SessionNotFoundError(
        f"There is no conversation {text!r}.", fix="See: hermes sessions list"
    )


def confirm(app: App, question: str, yes: bool) -> None:
    """Ask before something is gone for good; without a person to ask, --yes must have been said."""
    if yes:
        return
    if app.as_json or not sys.stdin.isatty():
        raise UsageError("This cannot be undone.", fix="Say --yes if you mean it.")
    click.confirm(question, abort=True)


def point_in_time(text: str | None) -> float | None:
    """Seconds since the epoch of a date or of an age like 7d, 12h, 30m."""
    if text is None:
        return None
    units = {"d": 86_400, "h": 3_600, "m": 60}
    if text[-1:] in units and text[:-1].replace(".", "", 1).isdecimal():
        return clock.now() - float(text[:-1]) * units[text[-1]]
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError as error:
        raise UsageError(
            f"{text!r} is no point in time.", fix="Write 2026-11-30, 2026-11-30T08:00, 7d or 12h."
        ) from error


def moment(seconds: float) -> str:
    """A point in time as a person here writes it."""
    return f"{clock.date(seconds).astimezone():%Y-%m-%d %H:%M}"


def ago(seconds: float) -> str:
    """Return how long something is past, in the largest unit that fits."""
    passed = clock.now() - seconds
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if passed >= size:
            return f"{int(passed // size)}{unit} ago" if passed < 30 * 86_400 else moment(seconds)
    return "just now"


def _amount(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
