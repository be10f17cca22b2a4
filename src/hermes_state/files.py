"""Delete attachments together with conversations.

A file is deleted with the last message that names it, so branches and other chats keep theirs. A surface
that receives a file holds a claim on it until its message is stored.
"""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hermes_core import attachments
from hermes_core.paths import Home
from hermes_state.ledger import messages, sessions

if TYPE_CHECKING:  # keeps the start of the command line fast
    from hermes_state.store import Store

_AT_ONCE = 200  # far below the limit of open files


@contextmanager
def going_with(store: "Store", home: Home, session_ids: Iterable[str]) -> Generator[None]:
    """Delete the files of sessions that the block deletes, unless other messages name them."""
    ids = list(session_ids)
    named = store.read(messages.named_files, ids)
    try:
        yield
    finally:  # after an interrupt, some sessions are deleted
        deleted = [id_ for id_ in ids if store.read(sessions.find, id_) is None]
        unowned = {name for name in named if _is_unowned(store, name)}
        doomed = list(attachments.names_of(home, deleted) | unowned)
        for start in range(0, len(doomed), _AT_ONCE):
            with attachments.locked_names(home, doomed[start : start + _AT_ONCE]) as free:
                attachments.remove(home, free - store.read(messages.named_files) if free else ())


def _is_unowned(store: "Store", name: str) -> bool:
    """Return whether the session that received a file is gone; a branch may have outlived it."""
    owner = attachments.owner(name)
    return attachments.is_shared(name) or (owner != "" and store.read(sessions.find, owner) is None)
