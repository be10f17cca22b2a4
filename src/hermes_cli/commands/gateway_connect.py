"""The connection of a set-up: test a platform, and let in the person at the terminal.

It accepts no messages: they wait for the gateway, which answers them. Only the message with the
one-time code is settled here.
"""

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import click

from gateway import pairing, reply_target
from gateway.access import Access
from gateway.config import Platform
from gateway.pairing import Pairing
from gateway.platforms.base import (
    BasePlatformAdapter,
    Manifest,
    MessageEvent,
    PlatformError,
    Receipt,
    StoredTurn,
    TurnResult,
)
from gateway.source import SessionSource
from hermes_cli.commands.app import App
from hermes_core.errors import HermesError, StoreError
from hermes_core.text import one_line, truncate
from hermes_state.ledger import inbox
from hermes_state.store import Tx
from hermes_state.values import InboundMessage, Role

_MESSAGE_TIMEOUT_S = 300.0
_SHOWN_TEXT = 60
_GREETING = "Hello, this is Hermes. The connection works."
_WELCOME = "You are the owner now. Send me a message, or see /help."


def connect(
    app: App,
    manifest: Manifest,
    adapter: BasePlatformAdapter,
    write: Callable[[], None],
    *,
    greet: bool,
    can_ask: bool,
) -> None:
    """Connect, write the settings, and let in the first person who proves to be at the terminal.

    Raises PlatformError.
    """
    dialogue = _Dialogue(app, manifest, adapter, can_ask=can_ask)
    with asyncio.Runner() as runner:
        try:
            runner.run(dialogue.connect())
            app.say(f"{manifest.title}: connected.")
            write()
            if address := adapter.address():
                app.say(f"{address}.")
            elif greet:
                dialogue.meet(runner)
        finally:
            runner.run(adapter.disconnect())


class _Dialogue:
    """Finds out who is at the terminal, by the first messages that arrive."""

    def __init__(
        self, app: App, manifest: Manifest, adapter: BasePlatformAdapter, *, can_ask: bool
    ) -> None:
        self._app = app
        self._manifest = manifest
        self._adapter = adapter
        self._can_ask = can_ask
        self._code = pairing.new_code()
        self._events: _Events = asyncio.Queue()
        self._rejected: set[str] = set()
        """People who are not at the terminal; their messages come again and again."""

    async def connect(self) -> None:
        """Connect the adapter. Raises PlatformError."""
        loop = asyncio.get_running_loop()

        def lost(error: PlatformError) -> None:
            loop.call_soon_threadsafe(self._events.put_nowait, error)

        self._adapter.set_ingress(_SetupIngress(self._events), lost)
        await self._adapter.connect()

    def meet(self, runner: asyncio.Runner) -> None:
        """Wait for messages until one shows who is there. Raises PlatformError."""
        self._app.say(f"\n{self._adapter.invitation(self._code)}\nWaiting (Ctrl+C to skip) …")
        try:
            while not self._is_over(runner, runner.run(self._next())):
                pass
        except TimeoutError:
            self._app.say(f"No message arrived. {_LATER}")
        except (KeyboardInterrupt, click.Abort):
            self._app.say(f"\nSkipped. {_LATER}")

    async def _next(self) -> MessageEvent:
        async with asyncio.timeout(_MESSAGE_TIMEOUT_S):
            while True:
                event = await self._events.get()
                if isinstance(event, PlatformError):
                    raise event
                if self._may_be_meant(event):
                    return event

    def _may_be_meant(self, event: MessageEvent) -> bool:
        """Return whether a message may be that of the person at the terminal: one in a direct chat."""
        source = event.source
        if source is None or source.is_group or source.is_bot or not source.person:
            return False
        return source.person not in self._rejected or self._has_code(event)

    def _has_code(self, event: MessageEvent) -> bool:
        return self._code in event.text.upper().split()

    def _is_over(self, runner: asyncio.Runner, event: MessageEvent) -> bool:
        """Let in the sender of a message, if it is the person at the terminal; otherwise go on."""
        source = event.source
        assert source is not None
        sender = f"{source.user_name or source.user_id} ({source.user_id})"
        role = self._role(source)
        has_code = self._has_code(event)
        if not has_code and (role is not None or not self._can_ask):
            runner.run(self._greet_only(source, event.message_id, sender, role))
            return True
        if not has_code and not self._is_at_terminal(sender, event):
            self._rejected.add(source.person or "")
            self._app.say("They were not let in. Waiting (Ctrl+C to skip) …")
            return False
        self._admit(source)
        if has_code:
            self._settle(event, source)
        runner.run(self._send(source, event.message_id, f"{_GREETING} {_WELCOME}"))
        self._app.say(f"Got a message from {sender}. You are the owner now.")
        if source.is_unverified:
            self._app.say(
                "Your address cannot be verified there, so you have the rights of a guest."
            )
        return True

    def _is_at_terminal(self, sender: str, event: MessageEvent) -> bool:
        text = truncate(one_line(event.text), _SHOWN_TEXT)
        self._app.say(f"{sender} wrote: {text}")
        return click.confirm("Is that you? You become the owner", default=False)

    def _role(self, source: SessionSource) -> Role | None:
        """Return the role of a sender, or None without access."""
        with self._app.store() as store:
            trusted = [] if self._manifest.needs_pairing else [self._manifest.name]
            return Access(store, self._app.settings, trusted).role_of(source)

    def _admit(self, source: SessionSource) -> None:
        with self._app.store() as store:
            Pairing(store, self._app.settings).admit(source, "owner")

    def _settle(self, event: MessageEvent, source: SessionSource) -> None:
        """Settle the message with the code, so that the gateway does not answer it."""
        with self._app.store() as store:
            store.write(_settled, reply_target.inbound_message(event, source))

    async def _greet_only(
        self, source: SessionSource, message_id: str | None, sender: str, role: Role | None
    ) -> None:
        """Answer somebody without changing their access."""
        if role is None and not self._manifest.greets_strangers:
            self._app.say(
                f"Got a message from {sender}. Hermes does not answer strangers there: add them to"
                " gateway.owners."
            )
            return
        await self._send(source, message_id, _GREETING)
        self._app.say(f"Got a message from {sender} and answered it.")
        if role is None:
            self._app.say(
                "When the gateway runs, it sends them a pairing code. Let them in with:"
                " hermes gateway pair CODE"
            )
        else:
            self._app.say(f"They already have access as {role}.")

    async def _send(self, source: SessionSource, message_id: str | None, text: str) -> None:
        sent = await self._adapter.send(source.chat_id, text, message_id, {"key": uuid4().hex})
        if not sent.success:
            raise PlatformError(f"Could not send the greeting: {sent.error}.")


_LATER = "The settings are saved. Write to it when the gateway runs, then: hermes gateway pair CODE"
_Events = asyncio.Queue[MessageEvent | PlatformError]


def _settled(tx: Tx, message: InboundMessage) -> None:
    inbox.receive(tx, message)
    inbox.settle(tx, message, "ignored")


class _SetupIngress:
    """An ingress that only reports messages and accepts none: the gateway gets them later."""

    def __init__(self, events: _Events) -> None:
        self._events = events

    async def accept(self, event: MessageEvent) -> Receipt:
        self._events.put_nowait(event)
        raise _rejection()

    async def moved(self, platform: Platform, old_chat: str, new_chat: str) -> None:
        del platform, old_chat, new_chat
        raise _rejection()

    def watch(self, turn_id: str) -> Any:  # noqa: ANN401 -- never called
        raise HermesError(f"There is no turn {turn_id}.")

    async def find_turn(self, turn_id: str, reader: SessionSource) -> StoredTurn:
        raise HermesError(f"There is no turn {turn_id}.")

    async def delete_turn(self, turn_id: str, reader: SessionSource) -> None:
        raise HermesError(f"There is no turn {turn_id}.")

    async def wait_for_result(self, turn_id: str) -> TurnResult:
        raise HermesError(f"There is no turn {turn_id}.")

    async def stop(self, turn_id: str) -> None:
        del turn_id

    async def may_invite(self, source: SessionSource) -> bool:
        del source
        return True  # the person at the terminal waits for this message

    async def check_health(self) -> None:
        """There is no store to check."""

    async def models(self) -> list[str]:
        return []


def _rejection() -> StoreError:
    """Return the error that keeps an adapter from acknowledging a message."""
    return StoreError("Setup accepts no messages; the gateway does when it runs.")
