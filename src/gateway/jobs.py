"""Jobs: what /background has done beside a conversation, each in one and in a lane of its own.

A job belongs to the chat that began it: its answer and its questions go there, and there it is stopped.
"""

from gateway.lanes import Lanes
from gateway.session import SessionEntry
from hermes_state.protocol import Store
from hermes_state.records import Row


def lane_key(chat_key: str, conversation_id: str) -> str:
    """The lane of a job; its sessions say it too, so that it is found again after a restart."""
    return f"{chat_key}:{conversation_id}"


def lane_of(session: Row, chat_key: str, entry: SessionEntry | None) -> str:
    """The lane of a turn that came from a chat: the chat's own, unless it is one of a job beside it.

    A chat that has opened the conversation of a job goes on with it in its own lane.
    """
    is_open = entry is not None and entry.session_id == session["id"]
    key = lane_key(chat_key, session["conversation_id"])
    return key if session["session_key"] == key and not is_open else chat_key


def conversations(lanes: Lanes, store: Store, chat_key: str) -> set[str]:
    """The conversations of a chat's jobs."""
    sessions = {one.session_id for lane in lanes.beside(chat_key) for one in lane.turns}
    return {store.get_conversation_root(session_id) for session_id in sessions}
