"""Commands in a chat: those of every surface, and those that only a chat has."""

import threading
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

from msgspec import structs

from gateway import closing, questions
from gateway.chat_turns import SURFACE, ChatTurns
from gateway.model_input import ModelInput
from gateway.platforms.base import MessageEvent
from gateway.reply_target import ReplyTarget
from gateway.session import SessionEntry, SessionStore
from gateway.source import SessionSource
from hermes_agent import commands, permissions, recovery, skills
from hermes_agent.agent import Agent
from hermes_agent.assembly import Assembly
from hermes_agent.commands import Context, PluginCommand
from hermes_agent.conversation import Asleep, Conversation
from hermes_agent.permissions import Permissions
from hermes_agent.skills import Skill
from hermes_agent.turn import meter
from hermes_agent.turn.stop import Stop
from hermes_core.errors import (
    ConfigError,
    HermesError,
    Interrupted,
    ModelError,
    StoreError,
    TitleError,
    UsageError,
)
from hermes_core.text import counted, one_line
from hermes_engine.runner import STOPPED
from hermes_state.ledger import lineage, sessions
from hermes_state.ledger import questions as question_ledger
from hermes_state.ledger import scope as scope_ledger
from hermes_state.ledger import turns as turn_ledger
from hermes_state.ledger.scope import DIRECT
from hermes_state.values import Accepted, InboundMessage, NewSession

_NOTHING = "Nothing is running."
_COPIED = "This is a copy of what was said in the group; what is said here does not reach it."


class Services(Protocol):
    """What commands ask of the gateway as a whole."""

    sessions: SessionStore
    turns: ChatTurns
    assembly: Assembly
    model_input: ModelInput

    def reset(self, target: ReplyTarget) -> str: ...
    def steer(self, accepted: Accepted, target: ReplyTarget, text: str) -> str: ...
    def held_up(self, accepted: Accepted, target: ReplyTarget) -> str: ...
    def check_restart(self) -> None: ...
    def restart(self) -> None: ...
    def describe(self, target: ReplyTarget) -> str: ...
    def pair(self, target: ReplyTarget, argument: str) -> str: ...
    def set_home(self, target: ReplyTarget) -> str: ...
    def permissions_of(self, target: ReplyTarget) -> Permissions: ...
    def may_answer(self, target: ReplyTarget, asker: SessionSource) -> bool: ...
    def fields_of(self, target: ReplyTarget, session_key: str) -> dict[str, Any]: ...
    def tell_reset(self, entry: SessionEntry, target: ReplyTarget) -> None: ...
    def placed(self, event: MessageEvent) -> SessionSource: ...
    def entry_of(self, event: MessageEvent, target: ReplyTarget) -> SessionEntry: ...
    def opening_of(
        self, entry: SessionEntry, event: MessageEvent, target: ReplyTarget
    ) -> NewSession: ...


@dataclass
class Chat:
    """The chat that a command was written in, as commands see it."""

    services: Services
    target: ReplyTarget
    delivery: InboundMessage
    event: MessageEvent
    is_settled: bool = False
    """Whether what the command did has settled its delivery already."""
    is_under_way: Future[str] = field(default_factory=Future[str])
    """Done when a command that takes long has begun: what comes after it need not wait for its end."""
    stop: Stop = field(default_factory=Stop)
    is_copy: bool = False
    """Whether the conversation that was opened is a copy, as it belongs to a group."""
    _single: SessionEntry | None = None
    """The conversation of a request that names none, once the command has looked at it."""

    @property
    def key(self) -> str:
        return self.target.session_key

    @property
    def entry(self) -> SessionEntry:
        """The route of the chat; that its conversation began by itself is said before all else."""
        if self._single is not None:
            return self._single
        entry = self.services.entry_of(self.event, self.target)
        self.services.tell_reset(entry, self.target)
        if self._is_unnamed:
            self._single = entry
            if self.event.options.get("history"):
                self._begin(entry)
        return entry

    @property
    def is_session(self) -> bool:
        """Whether the chat is one session, named by its request or its own, and never in another one."""
        return bool(self.event.options.get("is_single"))

    @property
    def _is_unnamed(self) -> bool:
        """Whether the request names no conversation: its own is on disk once there is something."""
        return self.is_session and not self.event.options.get("session_id")

    @property
    def _known(self) -> SessionEntry | None:
        """The route of the chat; None when it has none yet, and none is made."""
        return self.entry if self.is_session else self.services.sessions.peek(self.key)

    @property
    def conversation(self) -> Conversation:
        """As its agent holds it, when that is awake: a model is not needed to look at it."""
        from hermes_cli import plugins  # noqa: PLC0415 -- see below

        store = self.services.assembly.store
        entry = self.entry
        root = store.read(lineage.root, entry.session_id)
        agent = self.services.turns.engine.agents.peek(root)
        if agent is not None:
            return agent
        return Asleep(store, entry.session_id, self.target.source.platform.value, plugins)

    @property
    def agent(self) -> Agent:
        return self.services.turns.agent(self.entry.session_id, self.target)

    @property
    def is_running(self) -> bool:
        """Whether the conversation is at work, for this chat or another one that is in it."""
        turns, here = self.services.turns, self._conversation_id
        if not here:
            return False
        turns.wait_until_left(here)
        return turns.engine.work.is_at_work(here) or self.is_at_work

    @property
    def is_at_work(self) -> bool:
        """Whether something runs or is queued for this chat itself."""
        return self.services.turns.is_busy(self.key)

    @property
    def _conversation_id(self) -> str:
        """The conversation that the chat is in; empty when it has none yet, and none is made."""
        entry = self._known
        store = self.services.assembly.store
        return store.read(lineage.root, entry.session_id) if entry is not None else ""

    @property
    def is_waiting(self) -> bool:
        """Whether messages wait, and nothing is being answered."""
        turns = self.services.turns
        return not turns.engine.work.is_at_work(self._conversation_id) and bool(
            turns.queued(self.key)
        )

    @property
    def is_being_compacted(self) -> bool:
        return self.services.turns.engine.work.is_compacting(self._conversation_id)

    @property
    def beside(self) -> Collection[str]:
        return self.services.turns.background(self.key).keys()

    @property
    def plugins(self) -> Mapping[str, PluginCommand]:
        from hermes_cli import plugins  # noqa: PLC0415 -- read late, so that it can be replaced

        return plugins.commands("chat")

    @property
    def skills(self) -> Mapping[str, Skill]:
        return skills.found(self.services.assembly.home)

    @property
    def permissions(self) -> Permissions | None:
        return self.services.permissions_of(self.target)

    def open(self, session_id: str | None, end_reason: str) -> None:
        del end_reason
        if session_id is None:
            self.begin_another()
            return
        here = self.conversation
        if self.is_session:
            target = self._own(session_id)
            self._become(target)
        else:
            target = self._switch(session_id)
        if self.is_copy:
            commands.tell_start(here, target)

    def _switch(self, session_id: str) -> str:
        """Have the chat go on in another conversation; returns the session that it is in then."""
        routes = self.services.sessions
        old, switched = self.entry, list[object]()
        turns, left = self.services.turns, self._conversation_id
        with turns.held(self.key), turns.engine.paused(left, timeout_s=0):
            running = turns.engine.work.get(left)
            if running is not None and turns.is_for(running, self.key):
                # It has begun since the command was let through.
                raise UsageError("A turn has just begun here.", fix="Wait for it, or /stop it.")
            target = self._own(session_id)
            if target == old.session_id:
                return target  # it is there already
            closing.let_go(
                old.session_id,
                self.target.source.platform.value,
                None if routes.is_elsewhere_too(old) else turns.engine.agents.drop(left),
                lambda: switched.append(routes.switch_session(self.key, target)),
                model=routes.model_of(old.session_id),
                is_reported=not routes.is_elsewhere_too(old),
                assembly=self.services.assembly,
            )
        if not switched:
            raise StoreError("The conversation could not be opened; this chat is where it was.")
        return target

    def _become(self, session_id: str) -> None:
        """Go on as the chat of another session: one that is a session is not moved by a command.

        The model that was chosen goes along, unless another one was chosen there.
        """
        chosen = self.entry.model_override
        self._name(session_id)
        if chosen and not self.entry.model_override:
            self._choose(chosen)

    def _name(self, session_id: str) -> None:
        """Have the command be about another session, as if its request had named that one."""
        options = {"session_id": session_id, "is_single": True}
        self.event, self._single = replace(self.event, options=options), None
        place = self.services.placed(self.event)
        key = self.services.sessions.key_of(place)
        self.target = structs.replace(self.target, stored_source=place.to_dict(), session_key=key)

    def begin_another(self) -> str:
        """Begin a new conversation; returns what the person reads."""
        if not self.is_session:
            return self.services.reset(self.target)
        left = "" if self._is_unnamed else f" {self.entry.session_id} stays as it is."
        session_id = sessions.new_id()
        self._name(session_id)
        self._begin(self.services.sessions.entry_for(self.key, session_id, self.target.source))
        return f"✨ A new session: {session_id}.{left}"

    def begun(self) -> str:
        """The session that the chat is in; made when there is none yet, since its id is given out.

        Empty when the request names no conversation, and the command has made none.
        """
        if self._is_unnamed:
            single, store = self._single, self.services.assembly.store
            is_made = (
                single is not None and store.read(sessions.find, single.session_id) is not None
            )
            return single.session_id if single is not None and is_made else ""
        entry = self.entry
        self._begin(entry)
        return entry.session_id

    def _begin(self, entry: SessionEntry) -> None:
        store = self.services.assembly.store
        opening = self.services.opening_of(entry, self.event, self.target)
        if store.write(turn_ledger.begin_once, entry.session_id, opening):
            commands.tell_start(self.conversation, entry.session_id)

    def _own(self, session_id: str) -> str:
        """The conversation that this chat goes on in: what is said in private must not reach a group, so
        of one that is had there it gets a copy.
        """
        row = self.services.assembly.store.read(sessions.find, session_id)
        self.is_copy = not self.target.source.is_group and (row or {}).get("chat_type") not in (
            None,
            DIRECT,
        )
        if not self.is_copy:
            return session_id
        place = self.services.fields_of(self.target, self.key)
        return self.conversation.store.write(lineage.branch, session_id, place=place)

    def send(self, content: Any, replaces: int | None = None) -> None:  # noqa: ANN401 -- text or parts
        """Have this answered as if the person had sent it: the command's delivery becomes a turn."""
        self._accept(self.entry.session_id, self.key, content, replaces)

    def queue(self, text: str) -> str:
        """Have something answered after what runs, as words without a command are; returns why nothing
        happens, when that does not show here.
        """
        entry = self.entry
        content = self.services.model_input.of(self.event, text, entry.session_id)
        accepted = self._accept(entry.session_id, self.key, content)
        return self.services.held_up(accepted, self.target)

    def background(self, text: str) -> str:
        """Have something answered beside the conversation, in one of its own."""
        session_id = sessions.new_id()
        content = self.services.model_input.of(self.event, text, session_id)
        self._accept(session_id, f"{self.key}:{session_id}", content)
        return session_id

    def steer(self, text: str) -> str:
        """Say something to the turn that runs, whichever chat it is for; what it does not hear is
        answered next.

        Returns why it may not hear it, or where it is answered, when that is elsewhere.
        """
        entry = self.entry
        content = self.services.model_input.of(self.event, text, entry.session_id)
        accepted = self._accept(entry.session_id, self.key, content)
        words = content if isinstance(content, str) else ""
        return self.services.steer(accepted, self.target, words)

    def _accept(
        self,
        session_id: str,
        key: str,
        content: Any,  # noqa: ANN401 -- text or parts
        replaces: int | None = None,
    ) -> Accepted:
        fields = self.services.fields_of(self.target, key)
        accepted = self.services.turns.accept(
            session_id,
            content,
            structs.replace(self.target, message_id=None),
            self.delivery,
            opening=NewSession(self.target.source.platform.value, fields),
            reopens=self.is_session,
            replaces=replaces,
        )
        self.is_settled = True
        return accepted

    def compress(self, focus: str) -> str:
        """Shorten the conversation; it can be stopped, and what is said meanwhile waits."""
        agent = self.agent
        with self.services.turns.engine.compacting(agent) as self.stop:
            self.is_under_way.set_result("")
            try:
                text = commands.FUNCTIONS["compress"](self, focus)
                self.services.sessions.catch_up(self.entry)
                return text
            except Interrupted:
                return "⏹ Stopped; nothing was compacted."

    def name(self, title: str) -> None:
        """Give the conversation its title, also before anything is said; raises TitleError."""
        routes = self.services.sessions
        entry = self.entry
        here = commands.at_tip(self.conversation)
        try:
            is_first = here.store.write(
                turn_ledger.name, here.session_id, title, routes.opening(entry)
            )
        except TitleError as error:
            scope = self.services.permissions_of(self.target).scope
            if not error.holder or here.store.read(scope_ledger.is_visible, error.holder, scope):
                raise
            raise TitleError(f"The title {title!r} is taken.", fix=error.fix) from None
        if is_first:
            here.hooks.invoke_hook(
                "on_session_start",
                session_id=here.session_id,
                model=self._model_name(entry),
                platform=here.platform,
            )

    def _model_name(self, entry: SessionEntry) -> str:
        try:
            return self.agent.model.facts.name
        except ModelError:
            return _model_of(entry)

    def answer(self, event: MessageEvent) -> str:
        """A pressed button answers a question, when it is one of this chat."""
        store, entry = self.services.assembly.store, self.services.sessions.peek(self.key)
        self._check_asked(event.answers or "")
        here = [store.read(lineage.root, entry.session_id)] if entry is not None else []
        self.services.turns.engine.answer(
            event.answers or "",
            event.text,
            conversations=[*here, *self.beside],
            permissions=self.permissions,
        )
        return ""

    def _check_asked(self, question_id: str) -> None:
        """Raise UsageError when somebody may not tell a turn what it wants to know."""
        for question in self.services.assembly.store.read(question_ledger.pending):
            if question["id"] != question_id or question["kind"] != "clarify":
                continue
            asker = questions.asker(question, self.key, self.services.turns)
            if asker is not None and not self.services.may_answer(self.target, asker):
                raise UsageError(
                    "Only who asked for this may answer it.", fix="Say it in a message of your own."
                )

    def models(self) -> str:
        """The models whose names are known: the settings', and what can be found from here."""
        settings = self.services.assembly.settings.model
        names = {settings.name: "the settings name it"} if settings.name else {}
        names |= dict.fromkeys(settings.fallbacks, "a fallback")
        for found in self.services.assembly.registry().discovery.found():
            for model in (found.model, *found.others) if found.model else ():
                names.setdefault(f"{found.provider}/{model}", found.reason)
        lines = [f"  {name}: {reason}" for name, reason in names.items()]
        return "\n".join([*lines, "/model NAME has another one answer in this chat."])

    def use_model(self, name: str) -> str:
        made = self.services.assembly.model(name)
        meter.check_choice(made.facts, self.permissions)
        self._choose({"model": name})
        return made.facts.name

    def _choose(self, model: dict[str, str]) -> None:
        if self._is_unnamed:  # what is chosen is chosen for whoever goes on there
            session_id = self.entry.session_id
            self._begin(self.entry)
            self._name(session_id)
        self.services.sessions.keep(self.entry)
        self.services.sessions.set_model_override(self.key, model)

    def leave(self) -> None:
        raise UsageError("A chat cannot be left from here.", fix="/new starts a new conversation.")

    def stop_turn(self) -> str:
        """Stop what runs, at once; tells what goes on."""
        turns = self.services.turns
        is_stopped = self._interrupt()
        waiting, jobs = turns.queued(self.key), turns.background(self.key)
        left = [
            _so_many(len(waiting), "waiting message", "follows", "follow"),
            _so_many(len(jobs), "job", "runs beside it", "run beside it"),
        ]
        rest = " and ".join(one for one in left if one)
        if is_stopped:
            return f"⏹ Stopping. {rest}; /stop all stops that too." if rest else "⏹ Stopping."
        return f"Nothing is running here. {rest}; /stop all stops that." if rest else _NOTHING

    def _interrupt(self) -> bool:
        """Stop what works on the conversation, whichever chat it is for; tells whether something did."""
        return self.services.turns.engine.interrupt(self._conversation_id, self.key)

    def stop_all(self) -> str:
        """Stop what runs, and the jobs beside; take back what waits, and what a terminal left."""
        turns = self.services.turns
        beside = turns.background(self.key)
        taken = sum(turns.cancel(row["id"], STOPPED) for row in turns.queued(self.key))
        is_stopped = self._interrupt()
        for conversation_id, rows in beside.items():
            for row in rows:
                turns.cancel(row["id"], STOPPED)
            turns.engine.interrupt(conversation_id, self.key)
        left = self._left()
        for turn_id in left:
            self.services.assembly.store.write(
                turn_ledger.finish, turn_id, "interrupted", reason=STOPPED
            )
        if not (is_stopped or taken or beside or left):
            return _NOTHING
        done = [
            _so_many(taken, "waiting message", "was taken back", "were taken back"),
            _so_many(len(beside), "job", "beside it is stopped", "beside it are stopped"),
            _so_many(
                len(left), "message", "of a terminal is given up", "of a terminal are given up"
            ),
        ]
        return " ".join(["⏹ Stopping.", *(f"{one}." for one in done if one)])

    def _left(self) -> list[str]:
        """The turns of this conversation that a terminal began, and that nobody runs any more."""
        store, here = self.services.assembly.store, self._conversation_id
        if not here:
            return []
        found = recovery.unfinished(store, here)
        return [row["id"] for row in found if row["surface"] != SURFACE]

    def check_answered(self) -> None:
        """Raise UsageError when a terminal left a message without an answer."""
        if not self.is_running and self._left():
            raise UsageError(
                "A message that was written to this conversation in a terminal has no answer yet.",
                fix="Open the conversation there, or give the message up with /stop all.",
            )


def _so_many(number: int, what: str, one: str, several: str) -> str:
    """So many of something and what they do; nothing when there are none."""
    return f"{counted(number, what)} {one if number == 1 else several}" if number else ""


def _model_of(entry: SessionEntry | None) -> str:
    return ((entry.model_override if entry is not None else None) or {}).get("model", "")


def _chat(context: Context) -> Chat:
    return cast("Chat", context)


def _new(context: Context, title: str) -> str:
    chat = _chat(context)
    told = chat.begin_another()
    if not title:
        return told
    try:
        return f"{told} {_title(context, title)}"
    except HermesError as error:  # it is a new conversation all the same
        return f"{told}\n⚠️ {error}"


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
        return commands.status_text(context, "The conversation is being shortened.")
    if chat.is_waiting:
        return commands.status_text(context, "Nothing has begun yet of what waits here.")
    return commands.FUNCTIONS["status"](context, "")


def _stop(context: Context, what: str) -> str:
    return _chat(context).stop_all() if what == "all" else _chat(context).stop_turn()


def _queue(context: Context, text: str) -> str:
    _needs(context, text, "/queue")
    return _chat(context).queue(text)


def _steer(context: Context, text: str) -> str:
    _needs(context, text, "/steer")
    return _chat(context).steer(text)


def _background(context: Context, text: str) -> str:
    _needs(context, text, "/background")
    if _chat(context).target.is_in_place:
        raise UsageError(
            "What is done beside is told later, and here that would reach nobody.",
            fix="Send it as a message in another conversation: both are answered at once.",
        )
    return f"Working on it beside this conversation ({_chat(context).background(text)})."


def _whoami(context: Context, _argument: str) -> str:
    chat = _chat(context)
    return chat.services.describe(chat.target)


def _pair(context: Context, argument: str) -> str:
    chat = _chat(context)
    return chat.services.pair(chat.target, argument)


def _sethome(context: Context, _argument: str) -> str:
    chat = _chat(context)
    return chat.services.set_home(chat.target)


def _restart(context: Context, _argument: str) -> str:
    services = _chat(context).services
    try:
        services.check_restart()
    except ConfigError as error:
        raise UsageError(
            f"Not restarted, since I could not start again: {error.message}", fix=error.fix
        ) from error
    threading.Timer(0.2, services.restart).start()  # the reply goes out before
    return "🔄 Restarting. What runs goes on afterwards."


def _start(_context: Context, _argument: str) -> str:
    return "Hello. Write to me, or see /help."


def _help(context: Context, _argument: str) -> str:
    is_owner = permissions.is_owner(context.permissions)
    usable = [one for one in TABLE if is_owner or not one.owner_only]
    return commands.help_text(context, usable)


def _resume(context: Context, name: str) -> str:
    if name and _chat(context).is_at_work:  # another chat's turn goes on without this one
        raise UsageError("/resume has to wait for the turn.", fix="Stop it with /stop.")
    listed = commands.FUNCTIONS["resume"](context, name)
    if listed:
        return listed
    return f"{_where(context)} {_COPIED}" if _chat(context).is_copy else _where(context)


def _where(context: Context) -> str:
    """The conversation that a chat is in, for a person who has just come into it."""
    here = context.conversation
    row = here.store.read(sessions.find, here.session_id)
    if row is None:
        return f"You are in {here.session_id} now; nothing has been said in it yet."
    said = counted(row["message_count"], "message")
    last = commands.moment(row["last_active_at"])
    title = row["title"] or row["preview"] or "a conversation without a title"
    return f"You are in {one_line(title)!r} now ({here.session_id}): {said}, the last one {last}."


def _needs(context: Context, text: str, command: str) -> None:
    if not text and not _chat(context).event.attachments:
        raise UsageError(f"{command} needs a text.", fix=f"Write {command} and what is to be done.")


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
    """Return what a platform shows to whoever opens its menu; an owner's /help has the rest."""
    from hermes_cli import plugins  # noqa: PLC0415 -- read late, so that it can be replaced

    ours = [(one.name, one.help) for one in TABLE if not one.owner_only]
    theirs = [(one.name, one.description or one.name) for one in plugins.commands("chat").values()]
    return [*ours, *theirs]


def takes_files(name: str) -> bool:
    """Whether a command has something answered that files may go along with."""
    command = commands.find(name, TABLE)
    return command is not None and command.takes_files


def canonical(name: str) -> str:
    """The name of the command that a name or an alias stands for; empty: none of ours."""
    command = commands.find(name, TABLE)
    return command.name if command is not None else ""
