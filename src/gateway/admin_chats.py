"""AdminChats: the chats in which owners get notices about the gateway itself.

There is one per platform, chosen with /sethome. Each notice is stored in the outbox under a name, so it
is sent once.
"""

import logging
from collections.abc import Callable, Collection
from datetime import UTC, datetime

import msgspec

from gateway.delivery import Delivery
from gateway.platforms.base import PlatformError
from gateway.replies import Replies
from gateway.reply_target import ReplyTarget
from gateway.source import SessionSource
from hermes_core import clock
from hermes_core.errors import StoreError, UsageError
from hermes_core.text import one_line, truncate, visible
from hermes_state.ledger import meta
from hermes_state.store import Store

logger = logging.getLogger(__name__)

_MAX_NAME = 80
_CRASHED = (
    "⚠️ The gateway ended unexpectedly and is running again. Unfinished answers continue;"
    " see `hermes gateway logs` on its machine."
)


class AdminChats:
    """The admin chats of a gateway. May be used from several threads."""

    def __init__(
        self,
        store: Store,
        replies: Replies,
        platforms: Callable[[], Collection[str]],
        delivery: Delivery,
    ) -> None:
        self._store = store
        self._replies = replies
        self._platforms = platforms
        self._delivery = delivery

    def choose(self, target: ReplyTarget) -> str:
        """Make a chat the admin chat of its platform; raises UsageError for the HTTP API."""
        if target.is_in_place:
            raise UsageError(
                "Notices cannot be sent here: the HTTP API only answers requests.",
                fix="Write /sethome in a chat of a messenger.",
            )
        source = target.source
        stored = msgspec.json.encode(source.to_dict()).decode()
        self._store.write(meta.put, _key(source.platform.value), stored)
        return (
            "I send notices to this chat now: new pairing codes, platforms that reject my"
            " settings, and crashes of the gateway."
        )

    def send(self, text: str, name: str, *, except_platform: str = "") -> int:
        """Send a notice to every admin chat that did not get it; return how many get it.

        A store that fails is only logged.
        """
        count = 0
        try:
            for platform in self._platforms():
                if platform == except_platform:
                    continue
                if (stored := self._store.read(meta.get, _key(platform))) is not None:
                    target = ReplyTarget(msgspec.json.decode(stored))
                    parts = self._replies.answer(target, text, name=f"{name}:{platform}")
                    count += self._delivery.enqueue(parts)
        except StoreError as error:
            logger.warning("Could not store notice %s: %s", name, error)
        return count

    def report_stranger(self, source: SessionSource) -> None:
        """Send a notice that a person got a pairing code; once per person."""
        name = truncate(one_line(visible(source.user_name or source.person or "")), _MAX_NAME)
        platform = source.platform.value
        self.send(
            f"👋 {name} ({source.person}) wrote to me on {platform} and got a pairing code."
            " /pair CODE lets them in, with the code they give you.",
            f"stranger:{platform}:{source.person}",
        )

    def report_failed(self, platform: str, error: PlatformError) -> None:
        """Send a notice that a platform is off, to the others; once per day."""
        text = f"⚠️ {platform} is off until the gateway is restarted. {error}"
        self.send(text, f"refused:{platform}:{_today()}", except_platform=platform)

    def report_crash(self) -> None:
        """Send a notice that an earlier gateway of the home crashed; once per day."""
        self.send(_CRASHED, f"crash:{_today()}")


def _key(platform: str) -> str:
    return f"gateway.home.{platform}"


def _today() -> str:
    return f"{datetime.fromtimestamp(clock.now(), UTC).astimezone():%Y-%m-%d}"
