"""Files that conversations were sent, and which of them go when conversations are deleted.

A file goes with the last message that names it: a branch keeps what it shows, and so does another chat
that was sent the same picture. Who takes a file in holds it until the message that names it is stored.
"""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hermes_core import attachments
from hermes_core.paths import Home
from hermes_state.ledger import messages, sessions

if TYPE_CHECKING:  # every start of the command line would pay for it
    from hermes_state.store import Store

_AT_ONCE = 200  # far below what a process may have open


@contextmanager
def going_with(store: "Store", home: Home, session_ids: Iterable[str]) -> Generator[None]:
    """Sessions are deleted within; after it, the files go that were theirs and that nobody names."""
    ids = list(session_ids)
    named = store.read(messages.named_files, ids)
    try:
        yield
    finally:  # who is interrupted has deleted some of them
        gone = [id_ for id_ in ids if store.read(sessions.find, id_) is None]
        nobodys = {one for one in named if _is_nobodys(store, one)}
        doomed = list(attachments.names_of(home, gone) | nobodys)
        for start in range(0, len(doomed), _AT_ONCE):
            with attachments.locked_names(home, doomed[start : start + _AT_ONCE]) as free:
                attachments.remove(home, free - store.read(messages.named_files) if free else ())


def _is_nobodys(store: "Store", name: str) -> bool:
    """Whether no session has a file as its own: a branch may have outlived the one that was sent it."""
    owner = attachments.owner(name)
    return attachments.is_shared(name) or (owner != "" and store.read(sessions.find, owner) is None)
