"""Files that conversations were sent, and which of them go when conversations are deleted.

A file goes with the last message that names it: a branch keeps what it shows, and so does another chat
that was sent the same picture.
"""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hermes_core import attachments
from hermes_core.paths import Home

if TYPE_CHECKING:  # every start of the command line would pay for it
    from hermes_state.protocol import Store


@contextmanager
def going_with(store: "Store", home: Home, session_ids: Iterable[str]) -> Generator[None]:
    """Sessions are deleted within; after it, the files go that were theirs and that nobody names."""
    ids = list(session_ids)
    named = store.list_named_files(ids)
    try:
        yield
    finally:  # who is interrupted has deleted some of them
        gone = [id_ for id_ in ids if store.get_session(id_) is None]
        doomed = attachments.own(home, gone) | {one for one in named if _is_nobodys(store, one)}
        if doomed:
            attachments.remove(home, doomed - store.list_named_files())


def _is_nobodys(store: "Store", name: str) -> bool:
    """Whether no session has a file as its own: a branch may have outlived the one that was sent it."""
    owner = attachments.owner(name)
    return attachments.is_shared(name) or (owner != "" and store.get_session(owner) is None)
