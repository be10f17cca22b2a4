"""AdminChats: the chats in which an owner wants to hear of what concerns the gateway itself.

There is one a platform, chosen with /sethome. What is told is little, durable, and told once: a notice
has a name, and the outbox takes no second piece of the same name.
"""

import logging
from collections.abc import Callable, Collection
from datetime import UTC, datetime

import msgspec

from gateway.platforms.base import PlatformError
from gateway.replies import Replies
from gateway.reply_target import ReplyTarget
from gateway.source import SessionSource
from hermes_core import clock
from hermes_core.errors import StoreError, UsageError
from hermes_core.text import one_line, truncate, visible
from hermes_state.ledger import meta, outbox
from hermes_state.store import Store

logger = logging.getLogger(__name__)

_LONGEST_NAME = 80
_CRASHED = (
    "⚠️ The gateway ended without having been stopped, and runs again. What it was answering goes on;"
    " `hermes gateway logs` on its machine tells more."
)


class AdminChats:
    """The home chats of a gateway. May be used from several threads."""

    def __init__(
        self,
        store: Store,
        replies: Replies,
        platforms: Callable[[], Collection[str]],
        wake_delivery: Callable[[], None],
    ) -> None:
        self._store = store
        self._replies = replies
        self._platforms = platforms
        self._wake_delivery = wake_delivery

    def choose(self, target: ReplyTarget) -> str:
        """Have a chat be the home of its platform; raises UsageError where nothing can be sent to."""
        if target.is_in_place:
            raise UsageError(
                "Notices cannot be sent here: what answers requests cannot write by itself.",
                fix="Write /sethome in a chat of a messenger.",
            )
        place = target.source
        self._store.write(
            meta.put, _key(place.platform.value), msgspec.json.encode(place.to_dict()).decode()
        )
        return (
            "This chat is where I send notices now: who wants to be let in, a platform that does not"
            " let me in any more, and when I ended without having been stopped."
        )

    def tell(self, text: str, name: str, *, but: str = "") -> int:
        """Send a notice to every home, unless it was sent; but to none of one platform.

        Returns how many it goes to. One that cannot be stored is not worth more than a line of the log.
        """
        count = 0
        try:
            for platform in self._platforms():
                said = self._store.read(meta.get, _key(platform)) if platform != but else None
                if said is not None:
                    home = ReplyTarget(msgspec.json.decode(said))
                    pieces = self._replies.answer(home, text, name=f"{name}:{platform}")
                    count += len(self._store.write(outbox.put, pieces))
        except StoreError as error:
            logger.warning("a notice is not told: %s", error)
        self._wake_delivery()
        return count

    def tell_stranger(self, source: SessionSource) -> None:
        """Somebody was shown a code; told once a person."""
        name = truncate(one_line(visible(source.user_name or source.person or "")), _LONGEST_NAME)
        who = f"{name} ({source.person})"
        platform = source.platform.value
        self.tell(
            f"👋 {who} wrote to me on {platform} and was shown a code."
            " /pair CODE lets them in, with the code they give you.",
            f"stranger:{platform}:{source.person}",
        )

    def tell_refused(self, platform: str, error: PlatformError) -> None:
        """A platform is not tried any more; told once a day, in the admin_chats of the others."""
        text = f"⚠️ {platform} is off until the gateway is started again. {error}"
        self.tell(text, f"refused:{platform}:{_today()}", but=platform)

    def tell_crash(self) -> None:
        """An earlier gateway of the home ended by itself; told once a day."""
        self.tell(_CRASHED, f"crash:{_today()}")


def _key(platform: str) -> str:
    return f"gateway.home.{platform}"


def _today() -> str:
    return f"{datetime.fromtimestamp(clock.now(), UTC).astimezone():%Y-%m-%d}"
