"""The thread that watches a mailbox: passes new mail on, in order, and stores the position."""

import logging
import math
import threading
from collections.abc import Callable
from datetime import datetime

import msgspec

from gateway.platforms.base import PlatformError
from gateway.platforms.email.cursor import Cursor, CursorFile
from gateway.platforms.email.mailbox import Mailbox
from gateway.platforms.email.manifest import EmailSettings
from hermes_core import clock

_log = logging.getLogger(__name__)

_MAX_ATTEMPTS = 10
"""After so many connections, over some minutes, a mail that cannot be fetched is skipped."""

Receive = Callable[[Mailbox, int, bytes, int], None]
"""Processes a mail, given its UID, fetched content and size; then it is on disk or not for us."""


class Watch:
    """Watches until it is stopped or the connection is lost."""

    def __init__(
        self,
        mailbox: Mailbox,
        settings: EmailSettings,
        cursor_file: CursorFile,
        receive: Receive,
        on_lost: Callable[[PlatformError], None],
        stopping: threading.Event,
    ) -> None:
        self._mailbox = mailbox
        self._name = f"{settings.login}@{settings.imap_host}/{settings.folder}"
        self._file = cursor_file
        self._receive = receive
        self._on_lost = on_lost
        self._stopping = stopping
        self._cursor = self._file.read(self._name) or self._begin()
        self._thread = threading.Thread(target=self._run, name="hermes-email", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop and wait for the end; a mail under way is finished first."""
        self._stopping.set()
        self._mailbox.cut()
        self._thread.join()

    def _begin(self) -> Cursor:
        """Start after the mails that are in the mailbox at the first time."""
        last = self._mailbox.uidnext - 1
        about = self._mailbox.about(last) if last > 0 else None
        # A server tells arrivals in whole seconds: what comes in this one is new.
        begun_at = about[1] if about else math.floor(clock.now()) - 1.0
        cursor = Cursor(self._name, self._mailbox.uidvalidity, last, begun_at, begun_at)
        self._file.write(cursor)
        return cursor

    def _run(self) -> None:
        try:
            self._catch_up()
            while not self._stopping.is_set():
                self._scan()
                self._mailbox.wait(self._stopping)
        except PlatformError as error:
            self._report(error)
        except Exception:  # noqa: BLE001 -- the boundary of a thread
            _log.exception("Watching the mailbox failed.")
            self._report(PlatformError("Watching the mailbox failed; the log has the reason."))
        finally:
            self._mailbox.close()

    def _report(self, error: PlatformError) -> None:
        if not self._stopping.is_set():
            self._on_lost(error)

    def _catch_up(self) -> None:
        """Process all mails since the last known one, after the server has numbered them anew.

        Mails that were processed before are recognized by their Message-ID.
        """
        cursor, mailbox = self._cursor, self._mailbox
        if cursor.uidvalidity == mailbox.uidvalidity:
            return
        _log.warning("The mail server renumbered its mails; the latest ones are processed again.")
        last = mailbox.uidnext - 1
        since = mailbox.uids_since(datetime.fromtimestamp(cursor.dealt_at).astimezone())
        uids = [uid for uid in since if uid <= last]
        for uid in uids:
            if not self._is_undeliverable(uid, uids[-1]):
                self._process(uid, after=cursor.begun_at)
        self._advance(uidvalidity=mailbox.uidvalidity, uid=last)

    def _scan(self) -> None:
        """Process everything after the cursor, also mails that arrive meanwhile."""
        while not self._stopping.is_set():
            self._mailbox.has_new_mail()
            uids = self._mailbox.uids_after(self._cursor.uid)
            for uid in uids:
                if self._stopping.is_set():
                    return
                is_lost = self._is_undeliverable(uid, uids[-1])
                arrived_at = 0.0 if is_lost else self._process(uid)
                self._advance(uid=uid, dealt_at=max(arrived_at, self._cursor.dealt_at))
            if not self._mailbox.has_new_mail():
                return

    def _is_undeliverable(self, uid: int, newest: int) -> bool:
        """Return whether the server fails again and again to deliver this mail, but delivers others.

        The newest mail is waited for; raises PlatformError when the server delivers none.
        """
        if newest == uid or self._failures(uid) < _MAX_ATTEMPTS:
            return False
        self._fetch(newest)
        _log.error("The server does not deliver the mail with UID %s; it is skipped.", uid)
        return True

    def _failures(self, uid: int) -> int:
        return self._cursor.fails_at(self._mailbox.uidvalidity, uid)

    def _process(self, uid: int, after: float = -1.0) -> float:
        """Pass one mail on, unless it arrived before `after`; return when it arrived."""
        try:
            size_bytes, arrived_at, raw = self._fetch(uid, after)
        except PlatformError:
            if not self._stopping.is_set():
                failures, numbering = self._failures(uid) + 1, self._mailbox.uidvalidity
                self._advance(stuck=uid, failures=failures, stuck_in=numbering)
            raise
        if raw:
            self._receive(self._mailbox, uid, raw, size_bytes)
        return arrived_at

    def _fetch(self, uid: int, after: float = -1.0) -> tuple[int, float, bytes]:
        """Fetch the size of a mail, its arrival, and its content unless it arrived before `after`."""
        size_bytes, arrived_at = self._mailbox.about(uid) or (0, 0.0)
        is_new = size_bytes > 0 and arrived_at > after
        return size_bytes, arrived_at, self._mailbox.content(uid, size_bytes) if is_new else b""

    def _advance(self, **changes: float) -> None:
        self._cursor = msgspec.structs.replace(self._cursor, **changes)
        self._file.write(self._cursor)
