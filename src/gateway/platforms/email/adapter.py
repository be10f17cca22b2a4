"""The adapter of email: mails in from the watched mailbox, replies out over SMTP."""

import asyncio
import contextlib
import logging
import re
import threading
import time
from collections.abc import Coroutine
from email.message import EmailMessage
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from gateway.config import Platform, PlatformConfig
from gateway.platforms.base import (
    Abilities,
    BasePlatformAdapter,
    PlatformError,
    SendMetadata,
    SendResult,
)
from gateway.platforms.email import post, screening
from gateway.platforms.email.compose import compose, message_id, without_files
from gateway.platforms.email.cursor import CursorFile
from gateway.platforms.email.mail import Mail
from gateway.platforms.email.mailbox import Mailbox
from gateway.platforms.email.manifest import EmailSettings
from gateway.platforms.email.quotes import Writer
from gateway.platforms.email.threads import Threads
from gateway.platforms.email.translate import Letter, translate
from gateway.platforms.email.watch import Watch
from hermes_core.errors import StoreError
from hermes_state.store_retry import StoreRetry

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_ADDRESS = re.compile(r"[!-~]+@[A-Za-z0-9.-]+")
_UNVERIFIED = (
    "Senders of mail can be forged, so everybody on email is a guest, owners too. Set trusted_authserv"
    " in [gateway.platforms.email] to the server that verifies them."
)


class EmailAdapter(BasePlatformAdapter):
    """One mailbox."""

    abilities: ClassVar[Abilities] = Abilities(
        text_limit=100_000, resend="checked", can_send_files=True
    )

    def __init__(self, config: PlatformConfig, settings: EmailSettings, folder: Path) -> None:
        super().__init__(config, Platform.EMAIL)
        self._settings = settings
        self._cursor_path = folder / "cursor.json"
        self._threads = Threads(folder / "threads.jsonl")
        self._pace = post.Pace(settings.replies_per_hour)
        self._watch: Watch | None = None
        self._opening: asyncio.Task[Watch] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = threading.Event()
        self._sent_folder = ""
        self._last_unsure = time.monotonic()
        """When a mail may last have left without our knowledge, also before this process."""

    def invitation(self, code: str) -> str:
        return f"Write a mail to {self._settings.address} with this code in its text: {code}"

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        await self.disconnect()
        self._loop = asyncio.get_running_loop()
        if not is_reconnect:  # mail is accepted also while none can be sent
            if not self._settings.trusted_authserv:
                _log.warning(_UNVERIFIED)
            await post.check(self._settings)
        self._stopping = threading.Event()
        self._opening = asyncio.create_task(asyncio.to_thread(self._open, self._stopping))
        self._watch = await asyncio.shield(self._opening)
        return True

    def _open(self, stopping: threading.Event) -> Watch:
        """Open the mailbox and start watching it.

        A thread cannot be cancelled, so the watching thread closes the mailbox once `stopping` is
        set, even when no caller waits any more.
        """
        mailbox = Mailbox(self._settings)
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(mailbox.close)
            self._sent_folder = mailbox.sent_folder()
            cursor = CursorFile(self._cursor_path, self.mark)
            watch = Watch(
                mailbox, self._settings, cursor, self._receive, self._report_lost, stopping
            )
            watch.start()
            on_failure.pop_all()
        return watch

    async def disconnect(self) -> None:
        self._stopping.set()
        self._watch = None
        opening, self._opening = self._opening, None
        if opening is not None:
            await asyncio.wait([opening])
            if not opening.cancelled() and opening.exception() is None:
                await asyncio.to_thread(opening.result().stop)

    def _report_lost(self, error: PlatformError) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self.lost, error)

    # Runs in the thread of the watch, down to the next line like this one.

    def _receive(self, mailbox: Mailbox, uid: int, raw: bytes, size_bytes: int) -> None:
        """Pass a mail on; return when it is on disk, or not for us."""
        try:
            mail = Mail.read(raw, size_bytes)
            is_copy = screening.is_own_copy(mail, self._settings.address)
            letter = None if is_copy else self._read(mail)
        except Exception:  # noqa: BLE001 -- a boundary: one broken mail must not stop all later ones
            _log.exception("The mail with UID %s cannot be read and is skipped.", uid)
            return
        if is_copy:
            mailbox.mark_seen(uid)
            mailbox.move(uid, self._sent_folder)
        elif letter is not None and self._accept(letter) and self._settings.mark_seen:
            mailbox.mark_seen(uid)

    def _read(self, mail: Mail) -> Letter | None:
        """Translate a mail; return None when it must not be answered."""
        settings, (address, _) = self._settings, mail.sender
        reason = screening.reason_to_skip(mail, settings.address, settings.trusted_authserv)
        if reason:
            _log.info("The mail %s is not answered: %s.", mail.message_id, reason)
            return None
        known_root = self._threads.root_of(address, mail.references)
        writer = Writer(settings.address, settings.name)
        is_verified = bool(settings.trusted_authserv)
        letter = translate(mail, known_root, writer, is_verified=is_verified)
        self._threads.note(address, mail.message_id, letter.root, mail.subject)
        return letter

    def _accept(self, letter: Letter) -> bool:
        """Store a mail, retrying until it is on disk; return False when the gateway ignores it."""
        retry = StoreRetry(f"Mail {letter.event.message_id}")
        while True:
            try:
                receipt = self._await(self.ingress.accept(letter.event))
                return receipt.outcome != "ignored"
            except StoreError as error:
                if self._stopping.wait(retry.pause_after(error)):
                    raise PlatformError("Stopped before a mail was stored.") from error

    def _await(self, work: Coroutine[Any, Any, _T]) -> _T:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    # In the event loop again.

    async def send(
        self,
        chat_id: str,
        content: str,
        reply_to: str | None = None,
        metadata: SendMetadata | None = None,
    ) -> SendResult:
        to, about = chat_id.lower(), metadata or {}
        if (refusal := self._refusal(to)) is not None:
            return refusal
        root = about.get("thread_id", "")
        subject = about.get("subject") or self._threads.subject_of(to, root)
        files = about.get("files", [])
        write = partial(
            compose,
            self._settings,
            to,
            key=about.get("key", ""),
            references=[name for name in (root, reply_to) if name],
            subject=subject,
            is_plain=about.get("plain", False),
        )
        result = await self._deliver(await asyncio.to_thread(write, content, files=files), to)
        if files and result.error_kind == "refused":
            # It may be too large, or have a file that the server rejects: send the text alone.
            words = without_files(content, files, f"could not be sent: {result.error}")
            result = await self._deliver(write(words), to)
        if result.success:
            name = str(result.message_id)
            self._threads.note(to, name, root or name, subject)
        return result

    def _refusal(self, to: str) -> SendResult | None:
        """Return why nothing can be sent to an address, now or ever."""
        if self._watch is None:
            return SendResult(success=False, error="Not connected.", error_kind="network")
        if not _ADDRESS.fullmatch(to):
            return SendResult(
                success=False, error=f"{to} is not a valid address.", error_kind="refused"
            )
        if wait_s := self._pace.wait_s(to):
            reason = f"{to} had {self._settings.replies_per_hour} mails in this hour."
            return SendResult(
                success=False, error=reason, error_kind="rate_limited", retry_after=wait_s
            )
        return None

    async def _deliver(self, mail: EmailMessage, to: str) -> SendResult:
        try:
            result = await post.deliver(self._settings, mail, to)
        except PlatformError as error:
            if error.is_fatal:
                self.lost(error)
            return SendResult(success=False, error=str(error), error_kind="network")
        if result.error_kind == "unsure":
            self._last_unsure = time.monotonic()
        if result.success or result.error_kind == "unsure":
            self._pace.note(to)
        return result

    async def find_sent(self, chat_id: str, key: str) -> str | None:
        """Look for our own copy of a mail; raises PlatformError when the mailbox cannot be read.

        The copy may be on its way for a moment, counted from the last time that one may have left.
        """
        del chat_id
        name = message_id(key, self._settings.domain)
        deadline = self._last_unsure + self._settings.find_sent_s
        is_there = await asyncio.to_thread(self._search, name, deadline)
        return name if is_there else None

    def _search(self, name: str, deadline: float) -> bool:
        mailbox = Mailbox(self._settings)
        try:
            while not _is_in(mailbox, name, [self._settings.folder, self._sent_folder]):
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    return False
                mailbox.select(self._settings.folder)
                mailbox.wait(threading.Event(), left_s)
            return True
        finally:
            mailbox.close()


def _is_in(mailbox: Mailbox, name: str, folders: list[str]) -> bool:
    """Search the inbox first: a copy that is moved meanwhile is found in its new folder."""
    for folder in filter(None, folders):
        mailbox.select(folder)
        if mailbox.has(name):
            return True
    return False
