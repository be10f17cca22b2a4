"""Save conversations as files in the home."""

from datetime import UTC, datetime
from typing import TypedDict

import msgspec

from hermes_core import clock
from hermes_core.errors import NothingSaidError
from hermes_core.paths import write_private
from hermes_state.ledger import messages as message_ledger
from hermes_state.ledger import sessions
from tui_gateway import info
from tui_gateway.params import Session
from tui_gateway.runtime import Runtime


class Saved(TypedDict):
    """The file."""

    file: str


def save(rt: Runtime, params: Session) -> Saved:
    """Write the whole conversation into a private JSON file in the home."""
    key = info.key_of(rt.session(params.session_id))
    row = rt.db().read(sessions.find, key)
    messages = rt.db().read(message_ledger.originals, key)
    if row is None or not messages:
        raise NothingSaidError("There is nothing to save yet.")
    content = {
        "session_id": key,
        "title": row["title"],
        "model": row["model"],
        "started_at": row["started_at"],
        "messages": messages,
    }
    moment = datetime.fromtimestamp(clock.now(), UTC)
    name = f"hermes_conversation_{moment:%Y%m%d_%H%M%S_%f}.json"
    file = rt.home.sessions / "saved" / name
    write_private(file, msgspec.json.format(msgspec.json.encode(content)).decode())
    return {"file": str(file)}
