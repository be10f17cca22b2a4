"""The slash commands of chats: those of every surface, and those that only a chat has."""

import threading
from collections.abc import Mapping
from typing import cast

from gateway import preflight
from gateway.command_context import CommandContext
from hermes_agent import commands, permissions, skills
from hermes_agent.commands import Context
from hermes_core.errors import ConfigError, HermesError, UsageError
from hermes_core.text import counted, one_line
from hermes_state.ledger import sessions

_COPIED = "This is a copy of the group's conversation; messages here do not reach the group."
_RESTART_DELAY_S = 0.2
"""Time for the reply to /restart to be sent."""


def _chat(context: Context) -> CommandContext:
    return cast("CommandContext", context)


def _new(context: Context, title: str) -> str:
    text = _chat(context).start_new()
    if not title:
        return text
    try:
        return f"{text} {_title(context, title)}"
    except HermesError as error:  # it is a new conversation all the same
        return f"{text}\n⚠️ {error}"


def _title(context: Context, title: str) -> str:
    if title:
        _chat(context).name(title)
    return commands.FUNCTIONS["title"](context, "")


def _undo(context: Context, what: str) -> str:
    if what != "compress":
        _chat(context).check_answered()
    return commands.FUNCTIONS["undo"](context, what)


def _retry(context: Context, argument: str) -> str:
    _chat(context).check_answered()
    return commands.FUNCTIONS["retry"](context, argument)


def _compress(context: Context, focus: str) -> str:
    return _chat(context).compress(focus)


def _status(context: Context, _argument: str) -> str:
    chat = _chat(context)
    if chat.is_being_compacted:
        return commands.status_text(context, "The conversation is being compacted.")
    if chat.is_waiting:
        return commands.status_text(context, "Turns are queued here; none has begun yet.")
    return commands.FUNCTIONS["status"](context, "")


def _stop(context: Context, what: str) -> str:
    return _chat(context).stop_all() if what == "all" else _chat(context).stop_turn()


def _queue(context: Context, text: str) -> str:
    _check_text(context, text, "/queue")
    return _chat(context).queue(text)


def _steer(context: Context, text: str) -> str:
    _check_text(context, text, "/steer")
    return _chat(context).steer(text)


def _background(context: Context, text: str) -> str:
    _check_text(context, text, "/background")
    if _chat(context).target.is_in_place:
        raise UsageError(
            "/background needs a chat to deliver its result to; the HTTP API has none.",
            fix="Send it as a message in another conversation: both are answered at once.",
        )
    return f"Working on it in the background ({_chat(context).background(text)})."


def _whoami(context: Context, _argument: str) -> str:
    chat = _chat(context)
    source = chat.target.source
    role = chat.parts.access.role_of(source) or "stranger"
    name = source.user_name or source.user_id
    return f"You are {name} ({source.user_id}), {role} on {source.description}."


def _pair(context: Context, argument: str) -> str:
    chat = _chat(context)
    person = chat.permissions
    return chat.parts.pairing.command(argument, person.role, person.person)


def _sethome(context: Context, _argument: str) -> str:
    chat = _chat(context)
    return chat.parts.admin_chats.choose(chat.target)


def _restart(context: Context, _argument: str) -> str:
    try:
        preflight.ask_for_start()
    except ConfigError as error:
        raise UsageError(
            f"Not restarted, since the gateway could not start again: {error.message}",
            fix=error.fix,
        ) from error
    threading.Timer(_RESTART_DELAY_S, _chat(context).parts.restart).start()
    return "🔄 Restarting. Running turns continue afterwards."


def _start(_context: Context, _argument: str) -> str:
    return "Hello. Send me a message, or see /help."


def _help(context: Context, _argument: str) -> str:
    is_owner = permissions.is_owner(context.permissions)
    usable = [command for command in TABLE if is_owner or not command.owner_only]
    _chat(context).is_markdown = True
    lines = ["**Commands**", "", *map(_help_line, commands.with_plugins(context, usable))]
    if usable_skills := skills.usable(
        context.skills, commands.names(context.plugins, table=usable)
    ):
        lines += ["", "**Skills**", ""]
        lines += [f"- /{skill.name} – {skill.description}" for skill in usable_skills]
    return "\n".join(lines)


def _help_line(command: commands.Command) -> str:
    """Describe a command; its name is not code, so that clients let people tap it."""
    argument = f" `{command.argument}`" if command.argument else ""
    return f"- /{command.name}{argument} – {command.help}{commands.aliases_text(command)}"


def _resume(context: Context, name: str) -> str:
    if name and _chat(context).is_at_work:  # another chat's turn goes on without this one
        raise UsageError("/resume has to wait for the turn.", fix="Stop it with /stop.")
    listing = commands.FUNCTIONS["resume"](context, name)
    if listing:
        return listing
    description = _describe(context)
    return f"{description} {_COPIED}" if _chat(context).is_copy else description


def _describe(context: Context) -> str:
    """Describe the conversation that a chat has just opened."""
    here = context.conversation
    row = here.store.read(sessions.find, here.session_id)
    if row is None:
        return f"You are in {here.session_id} now; it has no messages yet."
    count = counted(row["message_count"], "message")
    last = commands.format_time(row["last_active_at"])
    title = row["title"] or row["preview"] or "a conversation without a title"
    return f"You are in {one_line(title)!r} now ({here.session_id}): {count}, the last one {last}."


def _check_text(context: Context, text: str, command: str) -> None:
    """Raise UsageError when a command has neither text nor files."""
    if not text and not _chat(context).event.attachments:
        raise UsageError(f"{command} needs a text.", fix=f"Write it after {command}.")


_OWN: Mapping[str, commands.Function] = {
    "help": _help,
    "new": _new,
    "title": _title,
    "stop": _stop,
    "queue": _queue,
    "steer": _steer,
    "background": _background,
    "whoami": _whoami,
    "pair": _pair,
    "sethome": _sethome,
    "restart": _restart,
    "start": _start,
    "compress": _compress,
    "status": _status,
    "resume": _resume,
    "undo": _undo,
    "retry": _retry,
}
TABLE = commands.bind("chat", {**commands.FUNCTIONS, **_OWN})
"""Every command that a chat has."""


def menu() -> list[tuple[str, str]]:
    """Return the commands of a platform's menu, which has none that are for owners."""
    from hermes_cli import plugins  # noqa: PLC0415 -- read late, so that it can be replaced

    ours = [(command.name, command.help) for command in TABLE if not command.owner_only]
    theirs = [
        (command.name, command.description or command.name)
        for command in plugins.commands("chat").values()
    ]
    return [*ours, *theirs]


def takes_files(name: str) -> bool:
    """Return whether a command sends something that files may go along with."""
    command = commands.find(name, TABLE)
    return command is not None and command.takes_files


def canonical(name: str) -> str:
    """Return the command that a name or an alias stands for; empty when it is none of ours."""
    command = commands.find(name, TABLE)
    return command.name if command is not None else ""
