"""The interface between the gateway and a platform: messages in, pieces out, abilities.

An adapter translates what its platform delivers to a `MessageEvent` and passes it to the ingress. When
`accept` returns, the message is on disk, and only then may the adapter acknowledge it to its platform.
The gateway decides who may speak, whose files are kept, which conversation is meant, and what is sent.
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
from hermes_cli.plugin_context import PluginContext
from hermes_core.errors import HermesError

ErrorKind = Literal["", "rate_limited", "network", "unsure", "refused", "too_long"]
"""Why a send failed. `network`: it did not arrive. `unsure`: it may have. `refused`: it never will."""

Resend = Literal["same", "checked", "marked"]
"""How to repeat a piece that may have arrived before a crash: under the same key, which the platform
deduplicates; after a search for it; or with a visible mark, where the platform has neither."""


Finish = Literal["stop", "length", "refusal"]
"""Why a reply ends: it is complete, it reached the length limit, or the model declined."""


class MessageType(Enum):
    """The type of a message, by its main part."""

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
    """Raises PlatformError; the text of the message then says so."""
    is_needed: bool = False
    """Whether the message is refused without it, with that error."""


def at_hand(content: bytes) -> Callable[[], Awaitable[bytes]]:
    """Return the `fetch` of a file whose content came with its message."""

    async def fetch() -> bytes:
        return content

    return fetch


class Attachment(NamedTuple):
    """A file that came with a message, stored in the home."""

    path: Path
    kind: str
    """Its media type, found from its content."""
    name: str


@dataclass
class MessageEvent:
    """A message of any platform, as the gateway accepts it."""

    text: str
    message_type: MessageType = MessageType.TEXT
    source: SessionSource | None = None
    raw_message: Any = None
    message_id: str | None = None
    """Its id on the platform, unique within its chat: a second delivery has the same."""
    named_within: str | None = None
    """The scope of its id, if that is not its chat: the key of a client counts in all conversations."""
    platform_update_id: int | None = None
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
    is_forwarded: bool = False
    """Whether somebody else wrote the text."""
    is_mention: bool = False
    """Whether a message in a group is meant for us: named, replied to, or a command for us."""
    names_nobody: bool = False
    """Whether it is a command in a group without the name of a bot."""
    edits: str | None = None
    """The message that this one is a new version of."""
    parts: list[str] = field(default_factory=list[str])
    """The ids of the messages that it consists of, as in an album."""
    part_sizes: list[int] = field(default_factory=list[int])
    """The lengths of the texts of these messages in `text`, when a client cut one text into them."""
    answers: str | None = None
    """The question that a pressed button answers; `text` is the choice."""
    can_be_asked: bool = True
    """Whether its sender is shown what the agent asks before it has answered, and can answer that."""
    must_be_known: bool = False
    """Whether to accept it only as the repeat of an accepted message; a new one is ignored."""
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    """Options of a program: `session_id`, `model`, `instructions`, `history`, `has_results`."""
    internal: bool = False
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    timestamp: datetime = field(default_factory=datetime.now)

    def is_command(self) -> bool:
        return self.text.startswith("/")

    @property
    def quotes_others(self) -> bool:
        """Return whether it has text of somebody else than its sender and the bot.

        A program that sends results of tools in its history has let them read anything.
        """
        is_group = self.source is not None and self.source.is_group
        is_quote = bool(self.reply_to_text) and is_group and not self.reply_to_is_own_message
        return self.is_forwarded or is_quote or bool(self.options.get("has_results"))

    def get_command(self) -> str | None:
        """Return the name after the slash, in lower case without `@bot`; None for paths and texts."""
        first, *_ = self.text.split(maxsplit=1) if self.is_command() else ("",)
        name = first[1:].lower().partition("@")[0]
        return name if name and "/" not in name else None

    def get_command_args(self) -> str:
        """Return the text after the name; the whole text when it is not a command."""
        if not self.is_command():
            return self.text
        _, *rest = self.text.split(maxsplit=1)
        return "".join(rest).strip()


@dataclass
class SendResult:
    """The outcome of a send."""

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
    """A button: its label and the choice that it stands for."""

    label: str
    choice: str


class SendMetadata(TypedDict, total=False):
    """Options of a piece."""

    thread_id: str
    key: str
    """The key of the piece, the same at every attempt: a transaction id or a Message-ID."""
    question: str
    """The question that the buttons answer."""
    buttons: list[Button]
    files: list[str]
    """Paths of files to send after the text."""
    whole: bool
    """Whether the piece fails when a file cannot be sent; see `Abilities.can_send_whole`."""
    subject: str
    final: bool
    """Whether an edit is the last one."""
    plain: bool
    """Whether the text is shown as it stands, without Markdown."""


class Abilities(msgspec.Struct, frozen=True, kw_only=True):
    """The abilities of a platform; the gateway adapts to them."""

    text_limit: int
    """The size limit of one message, as `measure` counts."""
    measure: Callable[[str], int] = len
    resend: Resend = "marked"
    can_edit: bool = False
    edit_every_s: float = 1.0
    """The shortest time between two edits of a message."""
    has_typing: bool = False
    typing_every_s: float = 4.0
    has_buttons: bool = False
    can_send_files: bool = False
    can_send_whole: bool = False
    """Whether `send` fails when a file of a piece marked `whole` does not arrive."""
    command_prefix: str = "/"
    """The prefix of commands, where clients keep the slash for themselves."""
    answers_in_place: bool = False
    """Whether the reply goes back on the request itself, so there is nothing to deliver."""


class PlatformError(HermesError):
    """A platform cannot be used: now, or (`is_fatal`) until its settings change."""

    code = "platform"

    def __init__(self, message: str, *, fix: str = "", is_fatal: bool = False) -> None:
        super().__init__(message, fix=fix)
        self.is_fatal = is_fatal


class Receipt(NamedTuple):
    """The outcome of accepting a message; by then it is on disk."""

    outcome: Literal["turn", "command", "ignored"]
    turn_id: str | None = None
    session_id: str | None = None
    is_new: bool = True
    """False: it was delivered before, and this is the outcome of that time."""
    reply: str = ""
    """The output of a command. It is in the outbox too, unless the platform answers in place."""
    is_over: bool = True
    """False: it is a command that was delivered before and still runs."""


class TurnResult(NamedTuple):
    """The end of a turn, from the store."""

    status: Literal["answered", "failed", "interrupted"]
    text: str
    """The text for the person, also when the turn failed."""
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
    """The interface of the gateway for adapters."""

    async def accept(self, event: MessageEvent) -> Receipt:
        """Accept a message with its files; one that is ignored, such as a stranger's, without them.

        Raises StoreError when it was not stored; it must not be acknowledged then, and the same event
        may be passed in again.
        """
        ...

    async def may_invite(self, source: SessionSource) -> bool:
        """Return whether to join a chat when this person asks us to.

        Those who may write to the agent do, and anybody before somebody may: the first one needs a
        pairing code. Raises StoreError.
        """
        ...

    async def moved(self, platform: Platform, old_chat: str, new_chat: str) -> None:
        """Record that a chat has a new id; a repeat changes nothing.

        Its conversations and outbound messages follow. Ids of messages and threads do not: they are
        valid in the chat that assigned them. Raises StoreError when it was not recorded.
        """
        ...

    def watch(self, turn_id: str) -> AsyncIterator[Event]:
        """Yield the events of a turn from now on, until it has ended."""
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
    """The position in the messages of an account, shared by all gateways of this machine.

    For a platform whose server does not store it. Messages before it are on disk in some home, and not
    for a gateway that takes the account over; so it is written after a message is, never before.
    """

    def read(self) -> str | None:
        """Return the last position, in the format of the platform; None when there is none."""
        ...

    def write(self, position: str, /) -> None:
        """Write it. Does not raise: with an old position, messages are only read again."""
        ...


class _NullMark:
    """The mark of an adapter without an account."""

    def read(self) -> str | None:
        return None

    def write(self, position: str, /) -> None:
        """Store nothing."""


class BasePlatformAdapter(ABC):
    """One connection to one platform."""

    abilities: ClassVar[Abilities]

    def __init__(self, config: PlatformConfig, platform: Platform) -> None:
        self.config = config
        self.platform = platform
        self.mark: Mark = _NullMark()
        """The position in the account; set by the gateway before it connects."""
        self._ingress: Ingress | None = None
        self._on_lost: Callable[[PlatformError], None] = _ignore

    @property
    def ingress(self) -> Ingress:
        if self._ingress is None:
            raise RuntimeError("The adapter has not been given an ingress.")
        return self._ingress

    def set_ingress(
        self, ingress: Ingress, on_lost: Callable[[PlatformError], None] | None = None
    ) -> None:
        """Set the target of messages, and the listener for a lost connection."""
        self._ingress = ingress
        self._on_lost = on_lost or _ignore

    def lost(self, error: PlatformError) -> None:
        """Tell the gateway that the connection broke; it disconnects and connects again, later."""
        self._on_lost(error)

    def check(self) -> None:  # noqa: B027 -- not every platform can tell
        """Raise PlatformError when the settings cannot work; does not connect."""

    @abstractmethod
    async def connect(self, *, is_reconnect: bool = False) -> bool:
        """Connect and start passing messages on; raises PlatformError."""

    @abstractmethod
    async def disconnect(self) -> None:
        """Stop accepting messages and close the connection. May be called at any time."""

    @abstractmethod
    async def send(
        self,
        chat_id: str,
        content: str,
        reply_to: str | None = None,
        metadata: SendMetadata | None = None,
    ) -> SendResult:
        """Send one piece, which fits into the limit. Does not raise and does not retry."""

    def address(self) -> str:
        """Describe its address for programs, once it is connected; empty where people write to a bot."""
        return ""

    def invitation(self, code: str) -> str:
        """Tell a person how to send it a code, once it is connected."""
        return f"Send the bot this code: {code}"

    async def edit_message(
        self, chat_id: str, message_id: str, content: str, metadata: SendMetadata | None = None
    ) -> SendResult:
        """Replace the text of a message, and remove its buttons; where `abilities.can_edit`."""
        del chat_id, message_id, content, metadata
        return SendResult(success=False, error="Messages cannot be edited.", error_kind="refused")

    async def find_sent(self, chat_id: str, key: str) -> str | None:
        """Return the id of a piece that may have arrived; where `abilities.resend` is "checked".

        None: it is not there. Raises PlatformError when that is unknown now.
        """
        del chat_id, key
        return None

    async def send_typing(  # noqa: B027 -- where there is nothing to show, nothing is done
        self, chat_id: str, metadata: SendMetadata | None = None
    ) -> None:
        """Show the typing indicator; where `abilities.has_typing`."""

    async def stop_typing(  # noqa: B027 -- see above
        self, chat_id: str, metadata: SendMetadata | None = None
    ) -> None:
        """Hide it, where it does not end by itself."""

    async def announce_commands(  # noqa: B027 -- see above
        self, commands: Sequence[tuple[str, str]]
    ) -> None:
        """Register commands (name and help), where the platform has such a thing.

        Raises PlatformError when that fails now; it is retried later.
        """


def _ignore(_error: PlatformError) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Manifest:
    """The description of a platform, before its library is loaded."""

    name: str
    title: str
    settings: type[msgspec.Struct]
    """The schema of `[gateway.platforms.NAME]` in config.toml, without `enabled`."""
    make: Callable[[PlatformConfig, Any, Path], BasePlatformAdapter]
    """Builds the adapter from its configuration, its settings and a folder of its own in the home;
    imports the platform's library."""
    identity: Callable[[Any], str]
    """The account of these settings: two gateways must not use the same at once."""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """Environment variables, and the setting of each."""
    tables: Sequence[str] = ()
    """Settings that are tables by name of which there must be one: a setup asks for the first."""
    guide: Sequence[str] = ()
    """How a person gets the settings: lines that a set-up shows before it asks."""
    extra: str = ""
    """The extra that installs the platform's library."""
    needs_pairing: bool = True
    """False: anybody with the token is an owner; there are no strangers."""
    greets_strangers: bool = True
    """Whether a stranger may be answered at all; where senders can be forged, they must not be."""
    carries_outside_text: bool = False
    """Whether strangers write parts of its messages, whoever sends them: mail, events of programs."""
    guarantee: str = ""
    """One sentence for people: the guarantee when the process dies while it sends."""

    def register(self, ctx: PluginContext) -> None:
        """Register the platform; the `register(ctx)` of a plugin that has no more to do."""
        ctx.platform(self.name, lambda: self)


def describe(text: str, **limits: Any) -> Any:  # noqa: ANN401 -- msgspec's own
    """Return the description of a setting, with its limits, for `Annotated`."""
    return msgspec.Meta(description=text, **limits)
