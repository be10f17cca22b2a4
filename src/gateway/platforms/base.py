"""What a platform is to the gateway: messages in, pieces out, and what it can do.

An adapter turns what its platform delivers into a `MessageEvent` and hands it to the ingress. When
`accept` returns, the message is on disk, and only then may the adapter acknowledge it to its platform.
It never decides who may speak, whose files are kept, which conversation is meant, or what is sent: that
is the gateway's.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypedDict

import msgspec

from gateway.config import Platform, PlatformConfig
from gateway.source import SessionSource
from hermes_agent.turn.events import Event
from hermes_core.errors import HermesError

ErrorKind = Literal["", "rate_limited", "network", "unsure", "refused", "too_long"]
"""Why a send failed. `network`: it did not arrive. `unsure`: it may have. `refused`: it never will."""

Resend = Literal["same", "checked", "marked"]
"""How a piece is sent again whose fate a crash hid: under the same name, which the platform folds into
one; after a look whether it is there; or with a visible mark, because the platform knows no better."""


Finish = Literal["stop", "length", "refusal"]
"""Why a reply ends where it does: all is said, one answer holds no more, or the model declined."""


class MessageType(Enum):
    """What a message is, by its main part."""

    TEXT = "text"
    LOCATION = "location"
    PHOTO = "photo"
    VIDEO = "video"
    AUDIO = "audio"
    VOICE = "voice"
    DOCUMENT = "document"
    STICKER = "sticker"
    COMMAND = "command"


class IncomingFile(NamedTuple):
    """A file that came with a message, until the ingress fetches it: when its sender may speak."""

    name: str
    fetch: Callable[[], Awaitable[bytes]]
    """Raises PlatformError when it is not to be had; the text of the message then says so."""
    is_needed: bool = False
    """Whether the message is refused without it, with that error."""


def at_hand(content: bytes) -> Callable[[], Awaitable[bytes]]:
    """How a file is fetched whose content came along with its message."""

    async def fetch() -> bytes:
        return content

    return fetch


class Attachment(NamedTuple):
    """A file that came with a message, as it lies in the home."""

    path: Path
    kind: str
    """Its media type, told from its content."""
    name: str


@dataclass
class MessageEvent:
    """A message as the gateway sees it, whatever platform it came from."""

    text: str
    message_type: MessageType = MessageType.TEXT
    source: SessionSource | None = None
    raw_message: Any = None
    message_id: str | None = None
    """Its name on the platform, unique within its chat: a second delivery has the same."""
    named_within: str | None = None
    """Where its name is unique, if that is not its chat: a client's key counts in all conversations."""
    platform_update_id: int | None = None
    media_urls: list[str] = field(default_factory=list[str])
    media_types: list[str] = field(default_factory=list[str])
    attachments: list[Attachment] = field(default_factory=list[Attachment])
    """The files that are kept; filled by the ingress."""
    files: list[IncomingFile] = field(default_factory=list[IncomingFile])
    """The files that came along and are not fetched yet."""
    reply_to_message_id: str | None = None
    reply_to_text: str | None = None
    """The text of the message that this one replies to, or the part of it that is quoted."""
    reply_to_is_own_message: bool = False
    """Whether that message is the bot's."""
    quotes_part: bool = False
    """Whether `reply_to_text` is a part of it that the person chose."""
    is_mention: bool = False
    """Whether a message in a group is meant for us: named, replied to, or a command for us."""
    names_nobody: bool = False
    """Whether it is a command in a group that does not say for which bot: it is for who has it."""
    edits: str | None = None
    """The message that this one is a new version of."""
    parts: list[str] = field(default_factory=list[str])
    """The messages that it is made of, where the platform delivers one as several: an album."""
    answers: str | None = None
    """The question that a pressed button answers; `text` is the choice."""
    can_be_asked: bool = True
    """Whether its sender is shown what the agent asks before it has answered, and can answer that."""
    must_be_known: bool = False
    """Whether it is taken only as the repeat of a message that was taken in; a new one is ignored."""
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    """What a program asks for with its message: `session_id`, `model`, `instructions`."""
    internal: bool = False
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    timestamp: datetime = field(default_factory=datetime.now)

    def is_command(self) -> bool:
        return self.text.startswith("/")

    def get_command(self) -> str | None:
        """The name after the slash, in small letters and without `@bot`; None for paths and texts."""
        first, *_ = self.text.split(maxsplit=1) if self.is_command() else ("",)
        name = first[1:].lower().partition("@")[0]
        return name if name and "/" not in name else None

    def get_command_args(self) -> str:
        """What follows the name, as it was written; of what is no command, all of it."""
        if not self.is_command():
            return self.text
        _, *rest = self.text.split(maxsplit=1)
        return "".join(rest).strip()


@dataclass
class SendResult:
    """What became of a send."""

    success: bool
    message_id: str | None = None
    error: str | None = None
    raw_response: Any = None
    retry_after: float | None = None
    error_kind: ErrorKind = ""
    continuation_message_ids: tuple[str, ...] = ()

    @property
    def retryable(self) -> bool:
        return self.error_kind in ("rate_limited", "network")


class Button(NamedTuple):
    """Something to press: what it says, and the choice it stands for."""

    label: str
    choice: str


class SendMetadata(TypedDict, total=False):
    """What goes along with a piece."""

    thread_id: str
    key: str
    """The piece's name, the same at every attempt: a transaction id or a Message-ID."""
    question: str
    """The question that the buttons answer."""
    buttons: list[Button]
    files: list[str]
    """Paths of files to send after the text."""
    subject: str
    final: bool
    """Whether an edit is the last one."""
    plain: bool
    """Whether the text is shown as it stands: no Markdown is read in it."""


class Abilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a platform can do; the gateway's ways follow from it."""

    text_limit: int
    """The most that one message holds, as `measure` counts."""
    measure: Callable[[str], int] = len
    resend: Resend = "marked"
    can_edit: bool = False
    edit_every_s: float = 1.0
    """The shortest time between two edits of a message."""
    has_typing: bool = False
    typing_every_s: float = 4.0
    has_buttons: bool = False
    can_send_files: bool = False
    command_prefix: str = "/"
    """What people write before the name of a command, where clients keep the slash for themselves."""
    answers_in_place: bool = False
    """Whether the reply goes back on the request itself, so that there is nothing to deliver."""


class PlatformError(HermesError):
    """A platform cannot be used: now, or (`is_fatal`) until somebody changes something."""

    code = "platform"

    def __init__(self, message: str, *, fix: str = "", is_fatal: bool = False) -> None:
        super().__init__(message, fix=fix)
        self.is_fatal = is_fatal


class Receipt(NamedTuple):
    """What became of a message that was handed in; by then it is on disk."""

    outcome: Literal["turn", "command", "ignored"]
    turn_id: str | None = None
    session_id: str | None = None
    is_new: bool = True
    """False: it had been delivered before, and this is what came of it then."""
    reply: str = ""
    """What a command said. It is in the outbox too, unless the platform answers in place."""
    is_over: bool = True
    """False: it is a command that had been delivered before and is still being done."""


class TurnResult(NamedTuple):
    """How a turn ended, from the store."""

    status: Literal["answered", "failed", "interrupted"]
    text: str
    """What the person is to read, also when it failed."""
    reason: str
    session_id: str
    usage: Mapping[str, Any]
    model: str = ""
    finish: Finish = "stop"


class ToolCall(NamedTuple):
    """A tool call that the agent made, with what the tool returned."""

    call_id: str
    name: str
    arguments: str
    """As JSON."""
    status: Literal["in_progress", "completed", "incomplete"]
    """`incomplete`: it was not run to its end."""
    output: str = ""


class StoredTurn(NamedTuple):
    """A turn as the store has it, whether or not it has ended."""

    session_id: str
    accepted_at: float
    model: str
    instructions: str
    tool_calls: Sequence[ToolCall]
    result: TurnResult | None
    """None until the turn has ended."""


class Ingress(Protocol):
    """What the gateway offers to an adapter."""

    async def accept(self, event: MessageEvent) -> Receipt:
        """Take a message in, with its files; what is ignored, such as a stranger's, without them.

        Raises StoreError when it could not be taken in, and it must not be acknowledged: the same event
        may be handed in again.
        """
        ...

    async def moved(self, platform: Platform, old_chat: str, new_chat: str) -> None:
        """Note that a chat has another id from now on; to say so again changes nothing.

        Its conversations and what is to be sent there follow. Names of messages and threads do not: they
        are good in the chat they were given in. Raises StoreError when it could not be noted.
        """
        ...

    def watch(self, turn_id: str) -> AsyncIterator[Event]:
        """What a turn reports from now on, until it has ended."""
        ...

    async def find_turn(self, turn_id: str, reader: SessionSource) -> StoredTurn:
        """Look up a turn; raises TurnNotFoundError when `reader` may not see one with this id."""
        ...

    async def delete_turn(self, turn_id: str, reader: SessionSource) -> None:
        """Delete the conversation of a turn that is the only one in it.

        Raises TurnNotFoundError as above, and UsageError when the turn runs or others are with it.
        """
        ...

    async def wait_for_result(self, turn_id: str) -> TurnResult:
        """Wait for the end of a turn; raises TurnNotFoundError when there is no such turn."""
        ...

    async def stop(self, turn_id: str) -> None:
        """Stop a turn that runs or waits."""
        ...

    async def check_health(self) -> None:
        """Raise StoreError when the store does not work now; answers within a few seconds."""
        ...

    async def models(self) -> Sequence[str]:
        """The names of the models that can be asked for, the default one first."""
        ...


class Mark(Protocol):
    """How far an account was dealt with, by whichever gateway of this machine had it.

    For a platform whose server does not keep that itself. What lies before it is on the disk of some
    home and not for who takes the account over; so it is written after a message is, never before.
    """

    def read(self) -> str | None:
        """What was written last, in the platform's own form; None when nothing was."""
        ...

    def write(self, said: str) -> None:
        """Write it; does not raise, as an old one only has something be read again."""
        ...


class _Unkept:
    """The mark of an adapter that nobody gave an account."""

    def read(self) -> str | None:
        return None

    def write(self, said: str) -> None:
        """It is kept by nobody."""


class BasePlatformAdapter(ABC):
    """One connection to one platform."""

    abilities: ClassVar[Abilities]

    def __init__(self, config: PlatformConfig, platform: Platform) -> None:
        self.config = config
        self.platform = platform
        self.mark: Mark = _Unkept()
        """How far the account was dealt with; set by the gateway before it connects."""
        self._ingress: Ingress | None = None
        self._on_lost: Callable[[PlatformError], None] = _nobody

    @property
    def ingress(self) -> Ingress:
        if self._ingress is None:
            raise RuntimeError("The adapter has not been given an ingress.")
        return self._ingress

    def set_ingress(
        self, ingress: Ingress, on_lost: Callable[[PlatformError], None] | None = None
    ) -> None:
        """Say where messages go, and who is told when the connection is lost for good."""
        self._ingress = ingress
        self._on_lost = on_lost or _nobody

    def lost(self, error: PlatformError) -> None:
        """Tell the gateway that the connection broke; it disconnects and connects again, later."""
        self._on_lost(error)

    def check(self) -> None:  # noqa: B027 -- not every platform can tell
        """Raise PlatformError when the settings are no good, and nobody has to be asked for that."""

    @abstractmethod
    async def connect(self, *, is_reconnect: bool = False) -> bool:
        """Connect and begin to hand messages in; raises PlatformError."""

    @abstractmethod
    async def disconnect(self) -> None:
        """Stop taking messages in and let go of the connection. May be called at any time."""

    @abstractmethod
    async def send(
        self,
        chat_id: str,
        content: str,
        reply_to: str | None = None,
        metadata: SendMetadata | None = None,
    ) -> SendResult:
        """Send one piece, which fits into the limit. Does not raise and does not try again."""

    def address(self) -> str:
        """Where programs find it, in words, once it is connected; empty where people write to a bot."""
        return ""

    async def get_chat_info(self, chat_id: str) -> dict[str, Any]:
        """The name and the type of a chat."""
        return {"name": chat_id, "type": "dm"}

    async def edit_message(
        self, chat_id: str, message_id: str, content: str, metadata: SendMetadata | None = None
    ) -> SendResult:
        """Give a message another text, and no buttons; where `abilities.can_edit`."""
        del chat_id, message_id, content, metadata
        return SendResult(success=False, error="Messages cannot be edited.", error_kind="refused")

    async def find_sent(self, chat_id: str, key: str) -> str | None:
        """The platform's id of a piece that may have arrived; where `abilities.resend` is checked.

        None: it is not there. Raises PlatformError when that cannot be told now.
        """
        del chat_id, key
        return None

    async def send_typing(  # noqa: B027 -- where there is nothing to show, nothing is done
        self, chat_id: str, metadata: SendMetadata | None = None
    ) -> None:
        """Show that an answer is being written; where `abilities.has_typing`."""

    async def stop_typing(  # noqa: B027 -- see above
        self, chat_id: str, metadata: SendMetadata | None = None
    ) -> None:
        """Show it no longer, where it does not end by itself."""

    async def announce_commands(  # noqa: B027 -- see above
        self, commands: Sequence[tuple[str, str]]
    ) -> None:
        """Register commands (name and help), where the platform has such a thing.

        Raises PlatformError when that cannot be done now; it is asked for again, later.
        """


def _nobody(_error: PlatformError) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True)
class Manifest:
    """A platform before anything of it is loaded."""

    name: str
    title: str
    settings: type[msgspec.Struct]
    """The schema of `[gateway.platforms.NAME]` in config.toml, without `enabled`."""
    make: Callable[[PlatformConfig, Any, Path], BasePlatformAdapter]
    """Builds the adapter from its configuration, its settings and a folder of its own in the home;
    imports the platform's library."""
    identity: Callable[[Any], str]
    """The account that these settings speak for: two gateways must not use the same at once."""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """Environment variables and the setting each one gives."""
    tables: Sequence[str] = ()
    """Settings that are tables by name of which there must be one: a setup asks for the first."""
    extra: str = ""
    """The extra that installs the platform's library."""
    needs_pairing: bool = True
    """False: who has the token is an owner; there are no strangers."""
    greets_strangers: bool = True
    """Whether a stranger may be answered at all; where senders can be forged, they must not be."""
    guarantee: str = ""
    """One sentence for people: what holds when the process dies while it sends."""
