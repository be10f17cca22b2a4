"""CommandRunner: runs commands apart from the path of messages, and stores their replies."""

import logging
import re
import threading
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from gateway import commands, log_fields
from gateway.command_context import CommandContext
from gateway.parts import GatewayParts
from gateway.platforms.base import MessageEvent
from gateway.reply_target import ReplyTarget
from hermes_agent import commands as shared
from hermes_core.errors import HermesError, SessionNotFoundError, UsageError, failure_text
from hermes_state.ledger import inbox
from hermes_state.store_retry import until_stored
from hermes_state.values import InboundMessage

logger = logging.getLogger(__name__)

MAX_COMMANDS = 16
_ORDER_TIMEOUT_S = 5.0
"""How long later messages of a chat wait for a command."""
_LONG_DASH = re.compile(r"(?<!\S)[–—](?=[A-Za-z])")


class CommandRunner:
    """Runs commands. May be used from several threads."""

    def __init__(self, parts: GatewayParts) -> None:
        self._parts = parts
        self._store = parts.assembly.store
        self._pool = ThreadPoolExecutor(max_workers=MAX_COMMANDS, thread_name_prefix="command")
        self._running: set[tuple[str, str, str]] = set()
        """The messages whose command somebody waits for now."""
        self._closing = threading.Event()

    def is_running(self, message: InboundMessage) -> bool:
        """Return whether the command of a message is running, whatever its text is now."""
        return message.key in self._running

    def run(self, event: MessageEvent, message: InboundMessage, target: ReplyTarget) -> str:
        """Run a command that is stored in the inbox; return its reply, for a request.

        A command from a chat is waited for at most a moment, so that text sent after /new is part of the
        new conversation; a long command says itself when later messages may be accepted.
        """
        context = CommandContext(self._parts, target, message, event)
        self._running.add(message.key)
        try:
            job = self._pool.submit(self._run, context)
            if target.is_in_place:
                return job.result()
            futures.wait([job, context.has_begun], _ORDER_TIMEOUT_S, futures.FIRST_COMPLETED)
            return ""
        finally:
            self._running.discard(message.key)

    def stop(self) -> None:
        """Leave what cannot be stored now to the next start."""
        self._closing.set()

    def close(self) -> None:
        """Cancel commands that have not begun."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, context: CommandContext) -> str:
        """Error boundary of a command: whatever happens, it gets a reply and is settled."""
        event = context.event
        fields = log_fields.of_command(event, commands.TABLE, context.plugins)
        try:
            text = self._reply(context) if event.answers is None else context.answer(event)
            logger.info("command done", extra=fields)
        except HermesError as error:
            logger.info("command refused", extra=fields | {"code": error.code})
            text = f"⚠️ {error}"
        except Exception as error:
            logger.exception("command failed", extra=fields)
            text = f"⚠️ {failure_text(error)}"
        settle = partial(self._settle, context, text)
        until_stored("The reply of a command", settle, self._closing.wait)
        return text

    def _reply(self, context: CommandContext) -> str:
        event = context.event
        parsed = shared.Parsed(event.get_command() or "", event.get_command_args())
        command = shared.find(parsed.name, commands.TABLE)
        if command is None:  # a plugin's: phones replace the dashes of its options
            parsed = parsed._replace(argument=_LONG_DASH.sub("--", parsed.argument))
        role = self._parts.access.role_of(context.target.source)
        if command is not None and command.owner_only and role != "owner":
            raise UsageError(f"/{command.name} is for owners.", fix="/whoami shows your role.")
        return shared.run(context, parsed, commands.TABLE)

    def _settle(self, context: CommandContext, text: str) -> None:
        """Store the reply of a command, then that it is done; repeating this changes nothing.

        A request gets one answer: what became a turn is answered by that turn alone.
        """
        is_reply = context.target.is_in_place and not context.is_settled
        if context.target.is_in_place and context.is_settled:
            text = ""
        session_id = ""
        with suppress(SessionNotFoundError):  # deleted meanwhile
            session_id = context.stored_session_id() if is_reply else ""
        is_ours = shared.find(context.event.get_command() or "", commands.TABLE) is not None
        parts = self._parts.replies.answer(
            context.target,
            text,
            name=reply_name(context.message),
            session_id=session_id,
            is_plain=is_ours and not context.is_markdown,
        )
        self._parts.delivery.enqueue(parts)
        if not context.is_settled:
            self._store.write(inbox.settle, context.message, "command")


def reply_name(message: InboundMessage) -> str:
    """Return the name of the reply to a command."""
    return f"command:{':'.join(message.key)}"
