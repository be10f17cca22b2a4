"""The parts of the gateway that messages and commands use."""

from collections.abc import Callable
from dataclasses import dataclass

from gateway.access import Access
from gateway.admin_chats import AdminChats
from gateway.chat_turns import ChatTurns
from gateway.conversations import Conversations
from gateway.delivery import Delivery
from gateway.model_input import ModelInput
from gateway.pairing import Pairing
from gateway.replies import Replies
from gateway.reply_target import ReplyTarget
from gateway.session import SessionStore
from hermes_agent.assembly import Assembly


@dataclass(frozen=True)
class GatewayParts:
    """The parts of one gateway, each made before those that follow it."""

    assembly: Assembly
    sessions: SessionStore
    access: Access
    pairing: Pairing
    replies: Replies
    model_input: ModelInput
    delivery: Delivery
    admin_chats: AdminChats
    conversations: Conversations
    turns: ChatTurns
    reset: Callable[[ReplyTarget], str]
    """Starts a new conversation in a chat; returns the reply."""
    restart: Callable[[], object]
    """Stops this process so that a new one starts."""
