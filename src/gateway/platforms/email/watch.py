"""The thread that watches a mailbox: hands new mail on, in order, and remembers how far it came."""

import logging
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

_TRIES = 10
"""So many connections, over some minutes, a mail may cost before those behind it have their turn."""

Take = Callable[[Mailbox, int, bytes, int], None]
"""Deals with a mail, given its UID, what was fetched of it, and its size; then it is on disk or not
for us."""


class Watch:
    """Watches until it is stopped or the connection is lost."""

    def __init__(
        self,
        mailbox: Mailbox,
        settings: EmailSettings,
        cursor_file: CursorFile,
        take: Take,
        on_lost: Callable[[PlatformError], None],
        stopping: threading.Event,
    ) -> None:
        self._mailbox = mailbox
        self._name = f"{settings.login}@{settings.imap_host}/{settings.folder}"
        self._file = cursor_file
        self._take = take
        self._on_lost = on_lost
        self._stopping = stopping
        self._cursor = self._file.read(self._name) or self._begin()
        self._thread = threading.Thread(target=self._run, name="hermes-email", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop and wait for the end; what is being handed in is finished first."""
        self._stopping.set()
        self._mailbox.cut()
        self._thread.join()

    def _begin(self) -> Cursor:
        """The first time ever: what is in the mailbox was written before Hermes was there."""
        last = self._mailbox.uidnext - 1
        about = self._mailbox.about(last) if last > 0 else None
        begun_at = about[1] if about else clock.now()
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
        except Exception:  # noqa: BLE001 -- the thread's boundary: nobody above would hear of it
            _log.exception("Watching the mailbox failed.")
            self._report(PlatformError("Watching the mailbox failed; the log says why."))
        finally:
            self._mailbox.close()

    def _report(self, error: PlatformError) -> None:
        if not self._stopping.is_set():
            self._on_lost(error)

    def _catch_up(self) -> None:
        """The server numbered its mails anew: look at all that may have come since the last known one.

        Those that were dealt with before have the same Message-ID and are recognised by it.
        """
        cursor, mailbox = self._cursor, self._mailbox
        if cursor.uidvalidity == mailbox.uidvalidity:
            return
        _log.warning(
            "The mail server numbered its mails anew; the latest ones are looked at again."
        )
        last = mailbox.uidnext - 1
        since = mailbox.uids_since(datetime.fromtimestamp(cursor.dealt_at).astimezone())
        uids = [uid for uid in since if uid <= last]
        for uid in uids:
            if not self._is_not_to_be_had(uid, uids[-1]):
                self._deal_with(uid, after=cursor.begun_at)
        self._advance(uidvalidity=mailbox.uidvalidity, uid=last)

    def _scan(self) -> None:
        """Deal with everything behind the cursor, also what comes meanwhile."""
        while not self._stopping.is_set():
            self._mailbox.had_news()
            uids = self._mailbox.uids_after(self._cursor.uid)
            for uid in uids:
                if self._stopping.is_set():
                    return
                is_lost = self._is_not_to_be_had(uid, uids[-1])
                arrived_at = 0.0 if is_lost else self._deal_with(uid)
                self._advance(uid=uid, dealt_at=max(arrived_at, self._cursor.dealt_at))
            if not self._mailbox.had_news():
                return

    def _is_not_to_be_had(self, uid: int, newest: int) -> bool:
        """Whether the server failed at this mail again and again, and gives others all the same.

        It is waited for as long as nobody is behind it; raises PlatformError when the server gives none.
        """
        if newest == uid or self._failures(uid) < _TRIES:
            return False
        self._fetch(newest)
        _log.error("The server does not give the mail with UID %s; it is left unread.", uid)
        return True

    def _failures(self, uid: int) -> int:
        return self._cursor.fails_at(self._mailbox.uidvalidity, uid)

    def _deal_with(self, uid: int, after: float = -1.0) -> float:
        """Hand one mail on, unless it had arrived before; returns when it arrived."""
        try:
            size_bytes, arrived_at, raw = self._fetch(uid, after)
        except PlatformError:
            if not self._stopping.is_set():
                failures, numbering = self._failures(uid) + 1, self._mailbox.uidvalidity
                self._advance(stuck=uid, failures=failures, stuck_in=numbering)
            raise
        if raw:
            self._take(self._mailbox, uid, raw, size_bytes)
        return arrived_at

    def _fetch(self, uid: int, after: float = -1.0) -> tuple[int, float, bytes]:
        """The size of a mail, when it arrived, and what is in it, unless it had arrived before."""
        size_bytes, arrived_at = self._mailbox.about(uid) or (0, 0.0)
        is_wanted = size_bytes > 0 and arrived_at > after
        return size_bytes, arrived_at, self._mailbox.content(uid, size_bytes) if is_wanted else b""

    def _advance(self, **changes: float) -> None:
        self._cursor = msgspec.structs.replace(self._cursor, **changes)
        self._file.write(self._cursor)
