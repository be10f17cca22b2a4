"""Slash commands: one table for all surfaces. A command is a function of the surface it was typed on.

A command returns what the person is to read. What it does to the surface it does through `Context`, so
that a terminal, a messenger and a program offer the same commands.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec

from hermes_agent import history, lease, skills, undo
from hermes_agent.agent import Agent
from hermes_agent.approval import rights
from hermes_agent.conversation import Conversation
from hermes_agent.permissions import Permissions, has_notes
from hermes_agent.skills import Skill
from hermes_agent.turn.stop import Stop
from hermes_core import clock, slash_commands
from hermes_core.errors import (
    HermesError,
    Interrupted,
    ModelError,
    PluginError,
    SessionNotFoundError,
    UsageError,
    describe_error,
)
from hermes_core.slash_commands import Surface
from hermes_core.text import (
    counted,
    one_line,
    similar,
    truncate,
    usd,
    without_marks,
    without_surrogates,
)
from hermes_state.ledger import budgets, lineage, listing, messages, sessions, titles
from hermes_state.ledger import usage as usage_ledger
from hermes_state.store import Store
from hermes_state.values import Filter, Lease, NewMessage, Row, Scope

_LINE = re.compile(r"/([a-zA-Z][\w-]*)(?:\s+(.*))?\s*", re.DOTALL)
_MAX_LISTED = 10
_IDLE = "Nothing is running."


class Context(Protocol):
    """The surface that a command was typed on."""

    @property
    def conversation(self) -> Conversation:
        """The conversation that is open; there is one without a model too."""
        ...

    @property
    def agent(self) -> Agent:
        """Return who answers in it. Raises ModelError where nobody can."""
        ...

    @property
    def is_running(self) -> bool:
        """Return whether a turn of it runs now."""
        ...

    @property
    def stop(self) -> Stop:
        """Set when the person stops what the command does."""
        ...

    @property
    def background_sessions(self) -> Collection[str]:
        """The conversations that work beside it, whose questions are answered here too."""
        ...

    @property
    def permissions(self) -> Permissions | None:
        """Return what the person who typed it may see and allow; None at the machine: everything."""
        ...

    @property
    def plugins(self) -> Mapping[str, "PluginCommand"]:
        """The commands of plugins, by name."""
        ...

    @property
    def skills(self) -> Mapping[str, Skill]:
        """The skills of the home, by name."""
        ...

    def open(self, session_id: str | None, end_reason: str) -> None:
        """End the conversation for this reason and open another; None: a new one."""
        ...

    def send(self, content: Any, replaces: int | None = None) -> None:  # noqa: ANN401 -- text or parts
        """Answer this next, as if the person had sent it, in the place of a message of theirs
        and all after it; that is one change.
        """
        ...

    def models(self) -> str:
        """Return which models can be used here, in words."""
        ...

    def use_model(self, name: str) -> str:
        """Ask another model from now on; returns its name. Raises ModelError."""
        ...

    def leave(self) -> None:
        """Close the surface when the command is done."""
        ...


Function = Callable[[Context, str], str]


class Command(msgspec.Struct, frozen=True):
    """Something a person may do instead of saying something."""

    name: str
    help: str
    run: Function
    aliases: tuple[str, ...] = ()
    argument: str = ""
    """How the help names what follows the command."""
    while_running: bool = False
    """Whether it may be used while a turn runs."""
    owner_only: bool = False
    takes_files: bool = False


def bind(surface: Surface, functions: Mapping[str, Function]) -> tuple[Command, ...]:
    """Return the commands of a surface with the functions that run them there."""
    return tuple(
        Command(
            command.name,
            command.help,
            functions[command.name],
            tuple(command.aliases),
            command.argument,
            surface in command.while_running,
            command.owner_only,
            command.takes_files,
        )
        for command in slash_commands.of(surface)
    )


class Parsed(NamedTuple):
    """A line that is a command."""

    name: str
    argument: str


class PluginCommand(Protocol):
    """A command as plugins register it: the handler takes the argument and returns text or None."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def argument(self) -> str: ...
    @property
    def handler(self) -> Callable[..., object]: ...


def parse(line: str) -> Parsed | None:
    """The command that a line is, or None when it is something to say.

    A path is something to say, and so is everything after a blank.
    """
    found = _LINE.fullmatch(line)
    return Parsed(found[1].lower(), (found[2] or "").strip()) if found else None


def run(context: Context, parsed: Parsed, table: Sequence[Command] | None = None) -> str:
    """Do what a line says and return what the person is to read; raises HermesError."""
    command = find(parsed.name, table)
    if command is None and parsed.name in context.plugins:
        return _run_of_plugin(context.plugins[parsed.name], parsed.argument)
    if command is None:
        return _use(context, parsed, table)
    if context.is_running and not command.while_running:
        raise UsageError(f"/{command.name} has to wait for the turn.", fix="Stop it with /stop.")
    return command.run(context, parsed.argument)


def _run_of_plugin(command: PluginCommand, argument: str) -> str:
    """Return what a plugin's command says; its failure does not fail the surface."""
    try:
        return without_surrogates(str(command.handler(argument) or ""))
    except (HermesError, Interrupted):
        raise
    except Exception as error:
        raise PluginError(f"/{command.name} failed. {describe_error(error)}") from error


def _use(context: Context, parsed: Parsed, table: Sequence[Command] | None) -> str:
    skill = skills.find(parsed.name, context.skills, names(context.plugins, table=table))
    if skill is None:
        candidates = names(context.plugins, context.skills, table=table)
        fix = _suggestion(parsed.name, candidates)
        raise UsageError(f"Unknown command /{parsed.name}.", fix=fix)
    context.send(skills.prompt(skill, parsed.argument))
    return ""


def find(name: str, table: Sequence[Command] | None = None) -> Command | None:
    """The command with this name or alias."""
    commands = COMMANDS if table is None else table
    return next((c for c in commands if name == c.name or name in c.aliases), None)


def names(*others: Iterable[str], table: Sequence[Command] | None = None) -> list[str]:
    """Every name that can stand after a slash: those of a table, of plugins and of skills."""
    ours = (name for command in table or COMMANDS for name in (command.name, *command.aliases))
    return sorted({*ours, *(name for more in others for name in more)})


def _suggestion(name: str, candidates: Sequence[str]) -> str:
    near = similar(name, candidates)
    meant = f"Did you mean /{near[0]}? " if near else ""
    return f"{meant}Type /help for a list, or start with a space to send it as a message."


# -- the commands ------------------------------------------------------------------------------


def _help(context: Context, _argument: str) -> str:
    return help_text(context, COMMANDS)


def help_text(context: Context, table: Sequence[Command]) -> str:
    """Every command of a table and of plugins, with what it does, and the skills."""
    commands = with_plugins(context, table)
    usages = [f"/{command.name} {command.argument}".rstrip() for command in commands]
    column = max(map(len, usages)) + 2
    lines = [
        f"{usage:<{column}}{command.help}{aliases_text(command)}"
        for usage, command in zip(usages, commands, strict=True)
    ]
    if usable := skills.usable(context.skills, names(context.plugins, table=table)):
        lines += ["", "Skills", *(f"/{skill.name}  {skill.description}" for skill in usable)]
    return "\n".join(lines)


def with_plugins(context: Context, table: Sequence[Command]) -> list[Command]:
    """Return the commands of a table and those of plugins."""
    plugins = context.plugins.values()
    return [*table, *(Command(p.name, p.description, _exit, argument=p.argument) for p in plugins)]


def aliases_text(command: Command) -> str:
    """Return the other names of a command for the help, with a space before; empty without any."""
    return f" (also {', '.join(f'/{alias}' for alias in command.aliases)})" * bool(command.aliases)


def _new(context: Context, title: str) -> str:
    context.open(None, "new_session")
    agent = context.agent
    agent.hooks.invoke_hook(
        "on_session_reset", session_id=agent.session_id, platform=agent.platform
    )
    return f"A new conversation. {_title(context, title)}" if title else "A new conversation."


def _title(context: Context, title: str) -> str:
    store, session_id = _stored_session(context)
    if title:
        store.write(titles.set_title, session_id, title)
    return title_text(store.read(titles.title_of, session_id))


def title_text(title: str | None) -> str:
    """Return what a person is told about a title."""
    return f"This conversation is called {title!r}." if title else "It has no title yet."


def _sessions(context: Context, text: str) -> str:
    here = at_tip(context.conversation)
    found = here.store.read(
        listing.select, Filter(search_query=text or None, scope=_scope(context)), limit=_MAX_LISTED
    )
    if not found:
        return f"No conversation has {text!r}." if text else "There are no conversations yet."
    return "\n".join(
        f"{'*' if row['id'] == here.session_id else ' '} {row['id']}"
        f"  {format_time(row['last_active_at'])}"
        f"  {truncate(one_line(row['title'] or row['preview'] or '(empty)'), 60)}"
        for row in found
    )


def _resume(context: Context, name: str) -> str:
    if not name:
        opens = "/resume NAME opens one: an id, a title, or the beginning of an id."
        return f"{_sessions(context, '')}\n{opens}"
    store, scope = context.conversation.store, _scope(context)
    found = store.read(titles.resolve_name, name, scope)
    if found is None:
        raise SessionNotFoundError(
            f"{name!r} is not one conversation.", fix="/sessions lists them."
        )
    context.open(store.read(lineage.tip, found), "resumed_other")
    return ""


def _search(context: Context, query: str) -> str:
    if not query:
        raise UsageError("There is nothing to search for.", fix="Write /search and some words.")
    hits = context.conversation.store.search_messages(
        query, limit=_MAX_LISTED, scope=_scope(context)
    )
    if not hits:
        return "Nothing found."
    return "\n".join(
        f"{hit['session_id']}  {format_time(hit['timestamp'])}  {hit['role']}:"
        f" {truncate(one_line(without_marks(hit['snippet'])), 120)}"
        for hit in hits
    )


def _undo(context: Context, what: str) -> str:
    store, session_id = _stored_session(context)
    if what in ("compress", "compact", "compression", "compaction"):
        here = context.conversation
        with _held(context) as held:
            here.session_id = store.write(lineage.undo_rotation, session_id, lease=held)
        here.hooks.invoke_hook("on_session_finalize", session_id=session_id, platform=here.platform)
        return "The last compaction is undone; the model sees every message again."
    words = what.split()
    with_files = "--files" in words
    number = " ".join(word for word in words if word != "--files")
    if number and not (number.isdecimal() and int(number)):
        raise UsageError(
            f"{what!r} cannot be undone.",
            fix="Write /undo, /undo 2, /undo --files or /undo compress.",
        )
    here, hold = at_tip(context.conversation), partial(_held, context)
    undo.check_answered(here)
    if not with_files:
        return undo.undo(here, int(number or 1), hold)
    bench = context.agent.tool_context
    where = undo.FilesOf(bench.home, bench.settings.tools, has_notes(context.permissions))
    return undo.undo_with_files(here, int(number) if number else None, hold, where)


def _retry(context: Context, _argument: str) -> str:
    _ = context.agent  # without a model that can answer, nothing is undone
    store, session_id = _stored_session(context)
    undo.check_answered(context.conversation)
    last = history.last_request(store, session_id, purpose="retry")
    lease.expire_dead_leases(store)
    context.send(history.original_content(store, session_id, last), replaces=last["id"])
    return ""


def _held(context: Context) -> AbstractContextManager[Lease]:
    """Hold the conversation, so that no other process runs it meanwhile."""
    here = context.conversation
    return lease.held(here.store, here.conversation_id, here.interrupt)


def _branch(context: Context, title: str) -> str:
    _, session_id = _stored_session(context)
    here = context.conversation
    branch = here.store.write(lineage.branch, session_id, title=title)
    try:
        context.open(branch, "branched")
    finally:
        invoke_start_hook(here, branch)
    return f"This is a copy, {branch}; /resume {session_id} goes back."


def invoke_start_hook(here: Conversation, branch: str) -> None:
    """Tell plugins of a copy of a conversation, after the end of the one that was left for it."""
    row = here.store.read(sessions.find, branch)
    here.hooks.invoke_hook(
        "on_session_start",
        session_id=branch,
        model=(row and row["model"]) or "",
        platform=here.platform,
    )


def _compress(context: Context, focus: str) -> str:
    _stored_session(context)
    outcome = context.agent.compress(focus, context.stop)
    if not outcome["compressed"]:
        return "There is nothing to compact yet."
    return f"The conversation continues in {outcome['session_id']}."


def _expand(context: Context, which: str) -> str:
    store, session_id = _stored_session(context)
    text = history.expand_text(store, session_id, which)
    requests = history.requests(store.read(messages.as_conversation, session_id))
    answers = {"answers": requests[-1]["id"]} if requests else {}
    content = f"Earlier messages of this conversation, word for word:\n{text}"
    store.write(messages.append, session_id, NewMessage("user", content, **answers))
    return f"{text}\n\nThe model sees these again from now on."


def _usage(context: Context, _argument: str) -> str:
    store, session_id = _stored_session(context)
    lines = [
        f"{row['model']}: {counted(row['calls'], 'call')}, {row['input_tokens']:,} tokens in"
        f" ({row['cache_read_tokens']:,} from the cache), {row['output_tokens']:,} out,"
        f" ${row['cost_usd']:.4f}"
        for row in store.read(usage_ledger.of_conversation, session_id)
    ]
    if (permissions := context.permissions) is not None:
        yours = store.read(budgets.today_usd, permissions.person)
        limit = f" of {usd(permissions.usd_per_day)}" if permissions.usd_per_day else ""
        lines.append(f"Today, all your conversations together: ${yours:.4f}{limit}.")
    if has_notes(permissions):
        lines.append(f"Today, all conversations together: ${store.read(budgets.today_usd):.4f}.")
    return "\n".join(lines)


def _status(context: Context, _argument: str) -> str:
    return status_text(context, "A turn is running." if context.is_running else _IDLE)


def status_text(context: Context, doing: str) -> str:
    """Return where things stand in a conversation, with what is being done in it."""
    here = at_tip(context.conversation)
    row = here.store.read(sessions.find, here.session_id)
    title = (row and row["title"]) or "no title"
    waiting = len(_approvals(context))
    lines = [
        f"Conversation: {here.session_id} ({title})",
        *_model_lines(context),
        f"Messages: {row['message_count'] if row else 0}"
        + (f", compacted {row['depth']} times" if row and row["depth"] else ""),
        doing,
    ]
    if jobs := len({*context.background_sessions} - {context.conversation.conversation_id}):
        lines.append(f"{counted(jobs, 'background job')} {'runs' if jobs == 1 else 'run'}.")
    if waiting:
        verb = "waits" if waiting == 1 else "wait"
        lines.append(f"{counted(waiting, 'question')} {verb} for an answer: /approve or /deny.")
    return "\n".join(lines)


def _model_lines(context: Context) -> list[str]:
    try:
        agent = context.agent
    except ModelError as error:
        return [f"Model: {error}"]
    facts = agent.model.facts
    model = f"Model: {facts.name} ({facts.provider}), window of {facts.window:,} tokens"
    # The path has the name of the person whose machine this is.
    return (
        [model, f"Folder: {agent.tool_context.workspace}"]
        if has_notes(agent.permissions)
        else [model]
    )


def _model(context: Context, name: str) -> str:
    if name:
        return f"Switched to {context.use_model(name)}."
    try:
        facts = context.agent.model.facts
    except ModelError as error:
        return f"{error}\n{context.models()}".rstrip()
    return f"Model: {facts.name} ({facts.provider})\n{context.models()}".rstrip()


def _stop(context: Context, _argument: str) -> str:
    if not context.is_running:
        return _IDLE
    context.agent.interrupt()
    return "Stopping."


def _approve(context: Context, how: str) -> str:
    choice = how or "once"
    if choice not in ("once", "session", "always"):
        raise UsageError(
            f"Unknown choice {how!r}.", fix="Use /approve, /approve session or /approve always."
        )
    return _answer(context, choice)


def _deny(context: Context, remark: str) -> str:
    return _answer(context, f"deny: {remark}" if remark else "deny")


def _answer(context: Context, answer: str) -> str:
    waiting, here = _approvals(context), context.conversation
    if not waiting:
        return "There is no open question."
    if context.permissions is not None and not answer.startswith("deny"):
        rights.check_delivered(here.store, waiting[0]["id"])
    rights.answer(
        here.store,
        waiting[0]["id"],
        answer,
        conversations=_askers(context),
        permissions=context.permissions,
        by=here.platform,
    )
    more = f" {len(waiting) - 1} more wait." if len(waiting) > 1 else ""
    return f"{waiting[0]['tool_name']}: {answer}.{more}"


def _approvals(context: Context) -> list[Row]:
    return rights.waiting(context.conversation.store, _askers(context), "approval")


def _askers(context: Context) -> set[str]:
    return {context.conversation.conversation_id, *context.background_sessions}


def _scope(context: Context) -> Scope | None:
    return context.permissions.scope if context.permissions is not None else None


def _exit(context: Context, _argument: str) -> str:
    context.leave()
    return ""


def _stored_session(context: Context) -> tuple[Store, str]:
    """The store and the session, which must hold something."""
    here = at_tip(context.conversation)
    if here.store.read(sessions.find, here.session_id) is None:
        raise UsageError("This conversation has no messages yet.")
    return here.store, here.session_id


def at_tip(conversation: Conversation) -> Conversation:
    """A conversation, at its tip: another chat or surface may have compacted it."""
    tip = conversation.store.read(lineage.tip, conversation.session_id)
    conversation.session_id = tip
    return conversation


def format_time(seconds: float) -> str:
    """A moment as people read it, in the time of this machine."""
    return f"{clock.date(seconds).astimezone():%Y-%m-%d %H:%M}"


FUNCTIONS: Mapping[str, Function] = {
    "help": _help,
    "new": _new,
    "title": _title,
    "sessions": _sessions,
    "resume": _resume,
    "search": _search,
    "undo": _undo,
    "retry": _retry,
    "branch": _branch,
    "expand": _expand,
    "compress": _compress,
    "usage": _usage,
    "status": _status,
    "model": _model,
    "stop": _stop,
    "approve": _approve,
    "deny": _deny,
    "exit": _exit,
}
"""What runs the commands that need nothing but their context."""

COMMANDS = bind("line", FUNCTIONS)
"""The commands of a surface that has none of its own."""
