"""Slash commands: list, complete and run them."""

from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from msgspec import structs

from hermes_agent import commands, skills
from hermes_agent.commands import Parsed
from hermes_agent.skills import Skill, SkillSet
from hermes_cli import plugins
from hermes_core import slash_commands
from hermes_core.errors import HermesError, Interrupted, UsageError
from hermes_protocol.errors import BAD_ARGUMENT, UNKNOWN_COMMAND, USE_DISPATCH
from hermes_protocol.results import CommandOutcome
from tui_gateway import attachment, info, prompts, skill_commands, view
from tui_gateway.command_context import CommandContext
from tui_gateway.methods.session import STOPPED, Title, title
from tui_gateway.params import Nothing, Params, Session, says
from tui_gateway.projection import text_of
from tui_gateway.protocol import Result, RpcError
from tui_gateway.runtime import LiveSession, Runtime

COMMANDS = slash_commands.of("rpc")
OURS = {row.name for row in COMMANDS} - {row.name for row in commands.COMMANDS}
"""Commands for surfaces that accept input during a turn: /queue and /steer."""


class Execute(Session, frozen=True):
    """A typed command."""

    command: Annotated[str, says("The line, with or without the slash.")] = ""


def execute(rt: Runtime, params: Execute) -> CommandOutcome | None:
    """Run a slash command and return its output for the person."""
    line = params.command.strip()
    parsed = commands.parse(line if line.startswith("/") else f"/{line}")
    if parsed is None:
        raise RpcError(BAD_ARGUMENT, "This is not a command.", fix="/help lists them.")
    if _skill(rt, parsed.name) is not None:
        text = f"/{parsed.name} is a skill, whose text is a prompt."
        raise RpcError(USE_DISPATCH, text, fix="Call command.dispatch and submit its message.")
    return _run(rt, params.session_id, parsed)


class Dispatch(Session, frozen=True):
    """A command by its name."""

    name: Annotated[str, says("Its name or an alias, with or without the slash.")] = ""
    arg: Annotated[str, says("Its argument.")] = ""


def dispatch(rt: Runtime, params: Dispatch) -> CommandOutcome | None:
    """Run a slash command by its name."""
    name = params.name.strip().lstrip("/").lower()
    if not name:
        raise RpcError(BAD_ARGUMENT, "Which command?", fix="/help lists them.")
    return _run(rt, params.session_id, Parsed(name, params.arg.strip()))


def _run(rt: Runtime, sid: str, parsed: Parsed) -> CommandOutcome | None:
    session = rt.session(sid)
    if parsed.name in OURS:
        return _run_ours(rt, sid, parsed)
    if (skill := _skill(rt, parsed.name)) is not None:
        message = skills.prompt(skill, parsed.argument)
        return CommandOutcome("skill", message=message, name=skill.name)
    context = CommandContext(rt, sid, session)
    is_plugin = commands.find(parsed.name) is None and parsed.name in context.plugins
    if commands.find(parsed.name) is None and not is_plugin:
        raise _unknown(context, parsed)
    before = info.key_of(session)
    output = _output(rt, sid, context, parsed)
    if reason := _change(session, parsed, before):
        info.estimate(rt, session)
        info.notify_changed(rt, session, reason)
    outcome = CommandOutcome("plugin" if is_plugin else "exec", output)
    if context.sent is not None:
        outcome = CommandOutcome("send", output, text_of(context.sent))
    if context.has_moved or context.is_asked_again:
        outcome = structs.replace(outcome, session=view.snapshot(rt, sid, view.PAGE))
    if context.is_leaving:
        outcome = structs.replace(outcome, leave=True)
    else:
        rt.run_after_answer(
            lambda: info.send(rt, sid, session)
        )  # a title, a model: it may have changed
    return outcome


def _change(session: LiveSession, parsed: Parsed, before: str) -> str:
    """Return the reason for `session.changed`, empty for none. `before`: where it was typed."""
    command = commands.find(parsed.name)
    name, has_moved = command.name if command is not None else "", info.key_of(session) != before
    if name in ("new", "resume", "branch"):
        return "open" if has_moved else ""
    if name in ("undo", "compress") and has_moved:
        return "compress"
    return {"undo": "undo", "expand": "expand"}.get(name, "")


def _skill(rt: Runtime, name: str) -> Skill | None:
    rt.assembly()  # loads the plugins, whose commands come first
    return skill_commands.find(rt.home, name)


def _output(rt: Runtime, sid: str, context: CommandContext, parsed: Parsed) -> str:
    command = commands.find(parsed.name)
    name = command.name if command is not None else ""
    if name == "title":  # the store may not know the conversation yet, and gets it with its title
        request = Title(session_id=sid, title=parsed.argument or None)
        return commands.title_text(title(rt, request).get("title"))
    if name != "compress":
        return commands.run(context, parsed)
    try:
        with prompts.compacting(rt, rt.session(sid)) as context.stop:
            return commands.run(context, parsed)
    except Interrupted:
        return STOPPED


def _run_ours(rt: Runtime, sid: str, parsed: Parsed) -> CommandOutcome | None:
    if not parsed.argument:
        raise RpcError(BAD_ARGUMENT, "Write a text after the command.")
    if parsed.name == "queue":
        return CommandOutcome("send", message=parsed.argument, busy="queue")
    settle = rt.defer_answer()

    def answer(result: Result | HermesError) -> None:
        if isinstance(result, Mapping):
            result = CommandOutcome("exec", result["status"])
        settle(result)

    text = attachment.with_pasted(rt.home, parsed.argument)
    if prompts.steer(rt, rt.session(sid), text, answer):
        return None
    return CommandOutcome("send", message=parsed.argument)


def _unknown(context: CommandContext, parsed: Parsed) -> RpcError:
    try:
        commands.run(context, parsed)
    except UsageError as error:
        return RpcError(UNKNOWN_COMMAND, error.message, fix=error.fix)
    raise AssertionError("an unknown command ran")


class Resolve(Params, frozen=True):
    """A name."""

    name: Annotated[str, says("A command or an alias.")] = ""


class Resolved(TypedDict):
    """A command."""

    canonical: str
    description: str
    category: str


def resolve(rt: Runtime, params: Resolve) -> Resolved:
    """Resolve a command name or an alias."""
    rt.assembly()  # loads the plugins, which may have commands
    name = params.name.strip().lstrip("/").lower()
    for category, found in _categories(skills.load_all(rt.home)).items():
        for command, description, aliases in found:
            if name in (command, *aliases):
                return {"canonical": command, "description": description, "category": category}
    raise RpcError(UNKNOWN_COMMAND, f"Unknown command /{name[:80]}.", fix="Type /help for a list.")


class Catalog(TypedDict):
    """Every command; names have their slash."""

    pairs: list[list[str]]
    sub: dict[str, list[str]]
    canon: dict[str, str]
    categories: list[dict[str, Any]]
    skill_count: int
    warning: str


def catalog(rt: Runtime, params: Nothing) -> Catalog:
    """List the slash commands, for completion and help."""
    del params
    rt.assembly()
    skill_set = skills.load_all(rt.home)
    categories = _categories(skill_set)
    named = {
        category: [[f"/{name}", description] for name, description, _ in found]
        for category, found in categories.items()
    }
    canon = {
        f"/{alias}": f"/{name}"
        for found in categories.values()
        for name, _, aliases in found
        for alias in (name, *aliases)
    }
    return {
        "pairs": [pair for pairs in named.values() for pair in pairs],
        "sub": {"/undo": ["--files", "compress"], "/approve": ["session", "always"]},
        "canon": canon,
        "categories": [{"name": name, "pairs": pairs} for name, pairs in named.items() if pairs],
        "skill_count": len(categories["Skills"]),
        "warning": "\n".join(map(str, skill_set.broken)),
    }


def _categories(skill_set: SkillSet) -> dict[str, list[tuple[str, str, tuple[str, ...]]]]:
    ours = [(command.name, command.help, tuple(command.aliases)) for command in COMMANDS]
    theirs = [(c.name, c.description, ()) for c in plugins.commands("rpc").values()]
    instructions = [
        (skill.name, skill.description, ()) for skill in skill_commands.usable(skill_set.skills)
    ]
    return {"Hermes": ours, "Plugins": theirs, "Skills": instructions}


class Text(TypedDict):
    """Text for a person."""

    output: str


def status(rt: Runtime, params: Session) -> Text:
    """Describe the state of the session in words."""
    context = CommandContext(rt, params.session_id, rt.session(params.session_id))
    return {"output": commands.run(context, Parsed("status", ""))}
