"""The error family, sorted by who must act on an error.

HermesError                 message for a person, fix for the same person, code for a program
├── ConfigError, UsageError, PluginError, ConversationBusyError      the user
├── ModelError              the retry policy
│   └── ModelRefusedError, ModelUnreachableError, ContextTooLongError, ModelMissingError
├── ToolError               the model
│   └── ToolDeniedError
└── StoreError              the operator, or the caller
    └── StoreBusyError, …

Interrupted and BudgetSpent are signals, not failures. Only the loop catches them.
"""

import errno


class HermesError(Exception):
    """An error with a message and a fix for a person."""

    code = "error"
    exit_status = 1

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message} {self.fix}".rstrip()


class ConfigError(HermesError):
    """A setting is not valid; names the file, the key and the fix."""

    code = "config"
    exit_status = 78


class UsageError(HermesError):
    """A command line or request is not valid."""

    code = "usage"
    exit_status = 2


class PluginError(HermesError):
    """A plugin was not found, cannot be read or failed to load."""

    code = "plugin"


class ModelError(HermesError):
    """A model call failed; says whether to retry it, and when."""

    code = "model"

    def __init__(
        self,
        message: str,
        *,
        fix: str = "",
        retryable: bool = False,
        retry_after_s: float | None = None,
        status: int | None = None,
        provider: str = "",
    ) -> None:
        super().__init__(message, fix=fix)
        self.retryable = retryable
        self.retry_after_s = retry_after_s
        self.status = status
        self.provider = provider


class ModelRefusedError(ModelError):
    """The provider refused the call: key, quota, model name or content."""

    code = "model.refused"
    exit_status = 77


class ModelUnreachableError(ModelError):
    """The provider is unreachable, or the stream broke."""

    code = "model.unreachable"
    exit_status = 69


class ContextTooLongError(ModelError):
    """The request does not fit into the model's window."""

    code = "model.context_too_long"


class ModelMissingError(ModelError):
    """No model is configured, and the embedded one is not downloaded."""

    code = "model.missing"
    exit_status = 3


class ConversationBusyError(HermesError):
    """Another process is running this conversation."""

    code = "conversation.busy"
    exit_status = 75


class ToolError(HermesError):
    """A tool failed; the model sees the message and continues."""

    code = "tool"


class ToolDeniedError(ToolError):
    """A person or a policy denied a call."""

    code = "tool.denied"


class CheckpointError(HermesError):
    """A checkpoint cannot be taken or read; the turn goes on without it."""

    code = "checkpoint"


class StoreError(HermesError):
    """The session store failed."""

    code = "store"
    is_temporary = False
    """Whether the same may succeed later, with nothing else changed: the store cannot be written now."""


class StoreBusyError(StoreError):
    """Another process held the write lock past the timeout."""

    code = "store.busy"
    is_temporary = True
    exit_status = 75


class StoreFullError(StoreError):
    """The disk is full; this write failed, acknowledged data is safe."""

    code = "store.full"
    is_temporary = True


class StoreMemoryError(StoreError):
    """The process is out of memory; nothing was written."""

    code = "store.memory"
    is_temporary = True
    exit_status = 75


class StoreFilesError(StoreError):
    """The process is out of file descriptors; nothing was written."""

    code = "store.files"
    is_temporary = True
    exit_status = 75


def failure_text(error: BaseException) -> str:
    """Describe an error that is not of this family for the person whose turn or command it ended."""
    if is_exhausted(error):
        return "Hermes is short of memory or open files. Send it again later."
    return f"Internal error: {describe_error(error)}"


def is_exhausted(error: BaseException) -> bool:
    """Return whether this process is out of memory, threads or file descriptors."""
    if isinstance(error, MemoryError | StoreMemoryError | StoreFilesError):
        return True
    if isinstance(error, RuntimeError):
        return "can't start new thread" in str(error)
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class StoreReadOnlyError(StoreError):
    """The store was opened read-only or is on a read-only file system."""

    code = "store.read_only"
    is_temporary = True


class StorePermissionError(StoreError):
    """This user has no permission to open the store's file or folder."""

    code = "store.permission"
    exit_status = 77


class StoreIOError(StoreError):
    """The disk reported an I/O error."""

    code = "store.io"
    is_temporary = True
    exit_status = 74


class StoreGoneError(StoreError):
    """The store's file was removed or replaced while open; this write is lost."""

    code = "store.gone"
    exit_status = 74


class StoreCorruptError(StoreError):
    """A page of the store is damaged."""

    code = "store.corrupt"


class StoreVersionError(StoreError):
    """The store is newer than this program, or the SQLite library is too old."""

    code = "store.version"


class ForeignStoreError(StoreError):
    """The file belongs to another program or is not a database."""

    code = "store.foreign"


class SessionNotFoundError(StoreError):
    """No session has this id."""

    code = "session.not_found"
    exit_status = 4


class TurnNotFoundError(StoreError):
    """No turn has this id."""

    code = "turn.not_found"
    exit_status = 4


class NothingSaidError(StoreError):
    """The conversation is empty."""

    code = "session.empty"


class TitleError(StoreError, ValueError):
    """The title is too long or belongs to another conversation."""

    code = "session.title"

    def __init__(self, message: str, *, fix: str = "", holder: str = "") -> None:
        super().__init__(message, fix=fix)
        self.holder = holder
        """The session that already has the title, if any."""


class IllegalTransitionError(StoreError):
    """A row cannot change from its current state to the requested one."""

    code = "store.transition"


class EarlierTurnError(StoreError):
    """A turn cannot start while an earlier one of its conversation is open."""

    code = "store.earlier_turn"

    def __init__(self, message: str, turn_id: str, *, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.turn_id = turn_id
        """The earliest open turn."""


class TurnMovedError(StoreError):
    """A turn moved to another conversation together with its chat."""

    code = "store.turn_moved"


class RowGoneError(StoreError):
    """The row to change was deleted with its conversation."""

    code = "store.row_gone"


class AlreadySettledError(StoreError):
    """A platform delivered a message again that was handled before."""

    code = "store.settled"


class ConversationOverError(StoreError):
    """The conversation was closed for good; the next input starts a new one."""

    code = "store.over"


class LeaseLostError(StoreError):
    """Another process acquired the lease that this write needs."""

    code = "store.lease_lost"


class Interrupted(Exception):
    """A person interrupted the turn."""


class BudgetSpent(Exception):
    """The turn or the day reached a limit; the text says which."""


def describe_error(error: BaseException) -> str:
    """Return the type and message of an error, even if its `__str__` fails."""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 -- `__str__` of foreign errors may raise anything
        text = "(no message)"
    return f"{type(error).__name__}: {text}".rstrip(": ")
