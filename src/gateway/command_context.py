"""CommandContext: the chat that a command was written in, as commands see it."""

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from msgspec import structs

from gateway import closing, questions
from gateway.access import may_answer
from gateway.chat_turns import SURFACE
from gateway.parts import GatewayParts
from gateway.platforms.base import MessageEvent
from gateway.reply_target import ReplyTarget
from gateway.session import SessionEntry
from hermes_agent import commands, recovery, skills
from hermes_agent.agent import Agent
from hermes_agent.commands import PluginCommand
from hermes_agent.conversation import Conversation, StoredConversation
from hermes_agent.permissions import Permissions
from hermes_agent.skills import Skill
from hermes_agent.turn import meter
from hermes_agent.turn.stop import Stop
from hermes_core.errors import Interrupted, ModelError, StoreError, TitleError, UsageError
from hermes_core.text import counted
from hermes_engine.runner import STOPPED
from hermes_state.ledger import lineage, sessions
from hermes_state.ledger import questions as question_ledger
from hermes_state.ledger import scope as scope_ledger
from hermes_state.ledger import turns as turn_ledger
from hermes_state.ledger.scope import DIRECT
from hermes_state.values import Accepted, InboundMessage, NewSession

_NOTHING_RUNS = "Nothing is running."


class CommandContext:
    """One command and its chat. Its command runs in one thread."""

    def __init__(
        self,
        parts: GatewayParts,
        target: ReplyTarget,
        message: InboundMessage,
        event: MessageEvent,
    ) -> None:
        self.parts = parts
        self.target = target
        self.message = message
        self.event = event
        self.store = parts.assembly.store
        self.stop = Stop()
        """Set when the person stops what the command does."""
        self.is_settled = False
        """Whether the command has settled its message, which became a turn."""
        self.has_begun: Future[str] = Future()
        """Done when a long command has begun: later messages need not wait for its end."""
        self.is_markdown = False
        """Whether the reply is Markdown: others have titles and ids that are not."""
        self.is_copy = False
        """Whether the conversation that was opened is a copy, as it belongs to a group."""
        self._single: SessionEntry | None = None
        """The conversation of a request that names none, once the command has used it."""

    # -- the chat -----------------------------------------------------------------------------------

    @property
    def key(self) -> str:
        return self.target.session_key

    @property
    def platform(self) -> str:
        return self.target.source.platform.value

    @property
    def entry(self) -> SessionEntry:
        """The route of the chat; if it was reset, the chat is told first."""
        if self._single is not None:
            return self._single
        conversations = self.parts.conversations
        entry = conversations.entry_of(self.event, self.target.source, is_command=True)
        conversations.notify_reset(entry, self.target)
        if self._is_unnamed:
            self._single = entry
            if self.event.options.get("history"):
                self._begin(entry)
        return entry

    @property
    def is_session(self) -> bool:
        """Return whether the chat is one session, which a request names or has for itself."""
        return bool(self.event.options.get("is_single"))

    @property
    def _is_unnamed(self) -> bool:
        """Return whether the request names no conversation; its own is stored with its first content."""
        return self.is_session and not self.event.options.get("session_id")

    @property
    def conversation(self) -> Conversation:
        """The conversation as its agent holds it, if that is awake; reading needs no model."""
        from hermes_cli import plugins  # noqa: PLC0415 -- read late, so that it can be replaced

        entry = self.entry
        root = self.store.read(lineage.root, entry.session_id)
        agent = self.parts.turns.engine.agents.peek(root)
        return agent or StoredConversation(self.store, entry.session_id, self.platform, plugins)

    @property
    def agent(self) -> Agent:
        return self.parts.turns.agent(self.entry.session_id, self.target)

    @property
    def is_running(self) -> bool:
        """Return whether the conversation is at work, for this chat or another one that is in it."""
        turns, here = self.parts.turns, self._conversation_id
        if not here:
            return False
        turns.engine.wait_for_ended_turn(here)
        return turns.engine.work.is_at_work(here) or self.is_at_work

    @property
    def is_at_work(self) -> bool:
        """Return whether a turn runs or is queued for this chat itself."""
        return self.parts.turns.is_busy(self.key)

    @property
    def is_waiting(self) -> bool:
        """Return whether turns are queued and none runs."""
        is_at_work = self.parts.turns.engine.work.is_at_work(self._conversation_id)
        return not is_at_work and bool(self.parts.turns.queued(self.key))

    @property
    def is_being_compacted(self) -> bool:
        return self.parts.turns.engine.work.is_compacting(self._conversation_id)

    @property
    def _conversation_id(self) -> str:
        """The conversation of the chat; empty when it has none yet, and none is made."""
        entry = self.entry if self.is_session else self.parts.sessions.peek(self.key)
        return self.store.read(lineage.root, entry.session_id) if entry is not None else ""

    @property
    def background_sessions(self) -> Collection[str]:
        return self.parts.turns.background(self.key).keys()

    @property
    def plugins(self) -> Mapping[str, PluginCommand]:
        from hermes_cli import plugins  # noqa: PLC0415 -- read late, so that it can be replaced

        return plugins.commands("chat")

    @property
    def skills(self) -> Mapping[str, Skill]:
        return skills.load(self.parts.assembly.home)

    @property
    def permissions(self) -> Permissions:
        return self.parts.access.permissions_of(self.target.source)

    # -- opening conversations ----------------------------------------------------------------------

    def open(self, session_id: str | None, end_reason: str) -> None:
        """Open another conversation in this chat; None: a new one."""
        del end_reason
        if session_id is None:
            self.start_new()
            return
        here = self.conversation
        if self.is_session:
            opened = self._own(session_id)
            self._become(opened)
        else:
            opened = self._switch(session_id)
        if self.is_copy:
            commands.invoke_start_hook(here, opened)

    def _switch(self, session_id: str) -> str:
        """Move the chat to another conversation; return the session that it is in then."""
        routes, turns = self.parts.sessions, self.parts.turns
        old, switched = self.entry, list[object]()
        old_id = self._conversation_id
        with turns.blocked(self.key), turns.engine.paused(old_id, timeout_s=0):
            running = turns.engine.work.get(old_id)
            if running is not None and turns.is_for(running, self.key):
                # It began after the command was let through.
                raise UsageError("A turn has just started.", fix="Wait for it, or /stop it.")
            opened = self._own(session_id)
            if opened == old.session_id:
                return opened
            is_shared = routes.is_in_other_chats(old)
            closing.close_chat(
                old.session_id,
                self.platform,
                None if is_shared else turns.engine.agents.drop(old_id),
                lambda: switched.append(routes.switch_session(self.key, opened)),
                model=routes.model_of(old.session_id),
                is_reported=not is_shared,
                assembly=self.parts.assembly,
            )
        if not switched:
            raise StoreError(
                "The conversation could not be opened; this chat stays in its conversation."
            )
        return opened

    def _become(self, session_id: str) -> None:
        """Continue as the chat of another session, as a chat that is a session cannot be moved.

        The chosen model comes along, unless another one was chosen there.
        """
        model = self.entry.model_override
        self._name(session_id)
        if model and not self.entry.model_override:
            self._choose(model)

    def _name(self, session_id: str) -> None:
        """Apply the command to another session, as if its request had named that one."""
        options = {"session_id": session_id, "is_single": True}
        self.event, self._single = replace(self.event, options=options), None
        source = self.parts.conversations.source_of(self.event)
        key = self.parts.sessions.key_of(source)
        self.target = structs.replace(self.target, stored_source=source.to_dict(), session_key=key)

    def start_new(self) -> str:
        """Start a new conversation; return the reply."""
        if not self.is_session:
            return self.parts.reset(self.target)
        rest = "" if self._is_unnamed else f" {self.entry.session_id} stays as it is."
        session_id = sessions.new_id()
        self._name(session_id)
        source = self.target.source
        self._begin(self.parts.sessions.entry_for(self.key, session_id, source))
        return f"✨ New session: {session_id}.{rest}"

    def stored_session_id(self) -> str:
        """Return the session of the chat, stored if it was not yet, as its id is given out.

        Empty when the request names no conversation, and the command stored none.
        """
        if not self._is_unnamed:
            entry = self.entry
            self._begin(entry)
            return entry.session_id
        single = self._single
        if single is None or self.store.read(sessions.find, single.session_id) is None:
            return ""
        return single.session_id

    def _begin(self, entry: SessionEntry) -> None:
        """Store the session of a route, unless it is stored."""
        opening = self.parts.conversations.opening_of(entry, self.event, self.target.source)
        if self.store.write(turn_ledger.create_session_once, entry.session_id, opening):
            commands.invoke_start_hook(self.conversation, entry.session_id)

    def _own(self, session_id: str) -> str:
        """Return the session to continue in this chat.

        A group's conversation is copied for a private chat: what is said there must not reach the group.
        """
        row = self.store.read(sessions.find, session_id)
        is_private = not self.target.source.is_group
        self.is_copy = is_private and (row or {}).get("chat_type") not in (None, DIRECT)
        if not self.is_copy:
            return session_id
        fields = self.parts.conversations.fields_of(self.target, self.key)
        return self.store.write(lineage.branch, session_id, place=fields)

    # -- turns ----------------------------------------------------------------------------------------

    def send(self, content: Any, replaces: int | None = None) -> None:  # noqa: ANN401 -- text or parts
        """Answer this as if the person had sent it: the command's message becomes a turn."""
        self._accept(self.entry.session_id, self.key, content, replaces)

    def queue(self, text: str) -> str:
        """Queue a text; return why nothing happens, when that does not show here."""
        accepted, _content = self._say(text)
        return self.parts.turns.queue_notice(accepted, self.target)

    def steer(self, text: str) -> str:
        """Offer a text to the running turn; a text that it does not use is answered next.

        Returns why it may not use it, or that it is answered in another chat.
        """
        accepted, content = self._say(text)
        return self.parts.turns.steer(
            accepted, self.target, content if isinstance(content, str) else ""
        )

    def _say(self, text: str) -> tuple[Accepted, Any]:
        session_id = self.entry.session_id
        content = self.parts.model_input.of(self.event, text, session_id)
        return self._accept(session_id, self.key, content), content

    def background(self, text: str) -> str:
        """Answer a text in a conversation of its own; return its session."""
        session_id = sessions.new_id()
        content = self.parts.model_input.of(self.event, text, session_id)
        self._accept(session_id, f"{self.key}:{session_id}", content)
        return session_id

    def _accept(
        self,
        session_id: str,
        key: str,
        content: Any,  # noqa: ANN401 -- text or parts
        replaces: int | None = None,
    ) -> Accepted:
        fields = self.parts.conversations.fields_of(self.target, key)
        accepted = self.parts.turns.accept(
            session_id,
            content,
            structs.replace(self.target, message_id=None),
            self.message,
            opening=NewSession(self.platform, fields),
            reopens=self.is_session,
            replaces=replaces,
        )
        self.is_settled = True
        return accepted

    def stop_turn(self) -> str:
        """Stop the running turn; return what continues."""
        turns = self.parts.turns
        is_stopped = self._interrupt()
        rest = " and ".join(
            text
            for text in (
                _count(len(turns.queued(self.key)), "queued message", "is", "are", "next"),
                _count(
                    len(turns.background(self.key)), "background job", "is", "are", "still running"
                ),
            )
            if text
        )
        if is_stopped:
            return f"⏹ Stopping. {rest}; /stop all stops that too." if rest else "⏹ Stopping."
        return f"Nothing is running here. {rest}; /stop all stops that." if rest else _NOTHING_RUNS

    def _interrupt(self) -> bool:
        """Stop the turn of the conversation, whichever chat it is for; return whether one ran."""
        return self.parts.turns.engine.interrupt(self._conversation_id, self.key)

    def stop_all(self) -> str:
        """Stop the running turn and the background jobs; cancel what is queued or was abandoned."""
        turns = self.parts.turns
        jobs = turns.background(self.key)
        cancelled = sum(turns.cancel(row["id"], STOPPED) for row in turns.queued(self.key))
        is_stopped = self._interrupt()
        for conversation_id, rows in jobs.items():
            for row in rows:
                turns.cancel(row["id"], STOPPED)
            turns.engine.interrupt(conversation_id, self.key)
        here = self._conversation_id
        abandoned = [
            turn_id
            for turn_id in self._abandoned()
            if turns.engine.interrupt_unstarted(turn_id, here, STOPPED)
        ]
        if not (is_stopped or cancelled or jobs or abandoned):
            return _NOTHING_RUNS
        counts = (
            _count(cancelled, "queued message", "was", "were", "cancelled"),
            _count(len(jobs), "background job", "was", "were", "stopped"),
            _count(
                len(abandoned), "message", "of a terminal was", "of a terminal were", "cancelled"
            ),
        )
        return " ".join(["⏹ Stopping.", *(f"{text}." for text in counts if text)])

    def _abandoned(self) -> list[str]:
        """Return the turns of this conversation that a terminal began and nobody runs any more."""
        here = self._conversation_id
        rows = recovery.unfinished(self.store, here) if here else ()
        return [row["id"] for row in rows if row["surface"] != SURFACE]

    def check_answered(self) -> None:
        """Raise UsageError when a message of a terminal has no answer yet."""
        if not self.is_running and self._abandoned():
            raise UsageError(
                "A message that was written to this conversation in a terminal has no answer yet.",
                fix="Open the conversation there, or cancel the message with /stop all.",
            )

    # -- the conversation -------------------------------------------------------------------------------

    def compress(self, focus: str) -> str:
        """Compact the conversation; it can be stopped, and new turns wait meanwhile."""
        agent = self.agent
        with self.parts.turns.engine.compacting(agent) as self.stop:
            self.has_begun.set_result("")
            try:
                text = commands.FUNCTIONS["compress"](self, focus)
                self.parts.sessions.catch_up(self.entry)
                return text
            except Interrupted:
                return "⏹ Stopped; nothing was compacted."

    def name(self, title: str) -> None:
        """Set the title of the conversation, also before its first message; raises TitleError."""
        entry = self.entry
        here = commands.at_tip(self.conversation)
        opening = self.parts.sessions.opening(entry)
        try:
            is_first = self.store.write(turn_ledger.set_title, here.session_id, title, opening)
        except TitleError as error:
            scope = self.permissions.scope
            if not error.holder or self.store.read(scope_ledger.is_visible, error.holder, scope):
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
            return (entry.model_override or {}).get("model", "")

    def answer(self, event: MessageEvent) -> str:
        """Answer a question of this chat with a pressed button."""
        entry = self.parts.sessions.peek(self.key)
        self._check_asker(event.answers or "")
        here = [self.store.read(lineage.root, entry.session_id)] if entry is not None else []
        self.parts.turns.engine.answer(
            event.answers or "",
            event.text,
            conversations=[*here, *self.background_sessions],
            permissions=self.permissions,
        )
        return ""

    def _check_asker(self, question_id: str) -> None:
        """Raise UsageError when the person may not answer a question of somebody else's turn."""
        for question in self.store.read(question_ledger.pending):
            if question["id"] != question_id or question["kind"] != "clarify":
                continue
            asker = questions.asker(question, self.key, self.parts.turns)
            if asker is None:
                continue
            if not may_answer(self.permissions, self.parts.access.permissions_of(asker)):
                raise UsageError(
                    "Only the person who asked may answer this.",
                    fix="Send a message of your own.",
                )

    def models(self) -> str:
        """List the models whose names are known: of the settings, and found from here."""
        settings = self.parts.assembly.settings.model
        names = {settings.name: "from the settings"} if settings.name else {}
        names |= dict.fromkeys(settings.fallbacks, "a fallback")
        for provider in self.parts.assembly.registry().discovery.found():
            for model in (provider.model, *provider.others) if provider.model else ():
                names.setdefault(f"{provider.provider}/{model}", provider.reason)
        lines = [f"  {name}: {reason}" for name, reason in names.items()]
        return "\n".join([*lines, "/model NAME switches the model of this chat."])

    def use_model(self, name: str) -> str:
        model = self.parts.assembly.model(name)
        meter.check_choice(model.facts, self.permissions)
        self._choose({"model": name})
        return model.facts.name

    def _choose(self, model: dict[str, str]) -> None:
        if self._is_unnamed:  # the choice is for whoever continues the session
            session_id = self.entry.session_id
            self._begin(self.entry)
            self._name(session_id)
        self.parts.sessions.keep(self.entry)
        self.parts.sessions.set_model_override(self.key, model)

    def leave(self) -> None:
        raise UsageError("A chat cannot be closed from here.", fix="Start a new one with /new.")


def _count(number: int, what: str, singular: str, plural: str, state: str) -> str:
    """Return a count with its state, as "2 background jobs were stopped"; empty for none."""
    return (
        f"{counted(number, what)} {singular if number == 1 else plural} {state}" if number else ""
    )
