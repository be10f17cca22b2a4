"""The whole error family, sorted by who must act on it.

HermesError                      message for a person, fix for the same person, code for a program
├── ConfigError                  the user: names the file, the key and the fix
├── UsageError                   the user: the command was not understood
├── PluginError                  the user or the plugin's author
├── ModelError                   the retry policy: `retryable`, `retry_after_s`, `status`, `provider`
│   ├── ModelRefusedError        wrong key, no quota, unknown model, blocked: asking again is no use
│   ├── ModelUnreachableError    refused connection, no route, time-out, cut stream
│   ├── ContextTooLongError      the request does not fit into the model's window
│   └── ModelMissingError        the embedded model has not been fetched
├── ConversationBusyError        the user: another process runs this conversation now
├── ToolError                    the model: it is told and goes on
│   └── ToolDeniedError          a person or a policy said no
└── StoreError                   the operator
    ├── StoreBusyError           another process holds the lock past the timeout
    ├── StoreFullError           no space left; nothing acknowledged is lost
    ├── StoreReadOnlyError       the file may be read but not written
    ├── StorePermissionError     the file may not be opened at all
    ├── StoreIOError             the disk failed
    ├── StoreGoneError           the file was removed or replaced under this process
    ├── StoreCorruptError        a page is damaged; says what repair does
    ├── StoreVersionError        written by a newer Hermes, or SQLite is too old
    ├── ForeignStoreError        somebody else's database, or no database
    ├── StoreMemoryError         the process has no memory left; temporary
    ├── StoreFilesError          the process has no file descriptors left; temporary
    ├── SessionNotFoundError     no such session
    ├── TurnNotFoundError        no such turn
    ├── NothingSaidError         a conversation with nothing in it, where something is needed
    ├── TitleError               a title that cannot be taken (also a ValueError)
    ├── AlreadySettledError      a delivery that was dealt with before: nothing is to be done
    ├── IllegalTransitionError   the database refused a change of state
    └── LeaseLostError           somebody else runs this conversation now

Signals, which are no failures and are caught by the loop alone: Interrupted, BudgetSpent.
"""

import errno


class HermesError(Exception):
    """Something a person can be told: what happened, and what to do about it."""

    code = "error"
    exit_status = 1

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message} {self.fix}".rstrip()


class ConfigError(HermesError):
    """A setting cannot be used; names the file, the key and the fix."""

    code = "config"
    exit_status = 78


class UsageError(HermesError):
    """A command asked for something that cannot be done as written."""

    code = "usage"
    exit_status = 2


class PluginError(HermesError):
    """A plugin cannot be found, read or loaded."""

    code = "plugin"


class ModelError(HermesError):
    """A model call failed; says whether it may be made again, and when."""

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
    """The provider will not answer this: key, quota, model name or content."""

    code = "model.refused"
    exit_status = 77


class ModelUnreachableError(ModelError):
    """The provider could not be reached, or the stream was cut."""

    code = "model.unreachable"
    exit_status = 69


class ContextTooLongError(ModelError):
    """The request does not fit into the model's window."""

    code = "model.context_too_long"


class ModelMissingError(ModelError):
    """There is no model to ask: nothing is configured and the embedded one is not here."""

    code = "model.missing"
    exit_status = 3


class ConversationBusyError(HermesError):
    """Another process runs this conversation; what was sent to it waits there."""

    code = "conversation.busy"
    exit_status = 75


class ToolError(HermesError):
    """A tool could not do what it was asked; the model is told and goes on."""

    code = "tool"


class ToolDeniedError(ToolError):
    """A person or a policy did not allow a call."""

    code = "tool.denied"


class StoreError(HermesError):
    """The session store could not do what it was asked."""

    code = "store"


class StoreBusyError(StoreError):
    """Another process held the write lock for longer than the timeout."""

    code = "store.busy"
    exit_status = 75


class StoreFullError(StoreError):
    """The disk is full; what was acknowledged is safe, this write was not made."""

    code = "store.full"


class StoreMemoryError(StoreError):
    """The process has no memory left for this; nothing was written."""

    code = "store.memory"
    exit_status = 75


class StoreFilesError(StoreError):
    """The process may open no more files; nothing was written."""

    code = "store.files"
    exit_status = 75


def is_exhausted(error: BaseException) -> bool:
    """Return whether an error means that this process has no memory or descriptors left."""
    if isinstance(error, MemoryError | StoreMemoryError | StoreFilesError):
        return True
    if isinstance(error, RuntimeError):
        return "can't start new thread" in str(error)
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class StoreReadOnlyError(StoreError):
    """The store was opened read-only or lies on a read-only place."""

    code = "store.read_only"


class StorePermissionError(StoreError):
    """The store's file or folder may not be opened by this user."""

    code = "store.permission"
    exit_status = 77


class StoreIOError(StoreError):
    """The disk reported a failure."""

    code = "store.io"
    exit_status = 74


class StoreGoneError(StoreError):
    """The store's file was removed or replaced while it was open; this write is in no file."""

    code = "store.gone"
    exit_status = 74


class StoreCorruptError(StoreError):
    """A page of the store is damaged."""

    code = "store.corrupt"


class StoreVersionError(StoreError):
    """The file or the library has a version this program cannot work with."""

    code = "store.version"


class ForeignStoreError(StoreError):
    """The file belongs to another program or is no database at all."""

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
    """The conversation holds nothing that this could be done with."""

    code = "session.empty"


class TitleError(StoreError, ValueError):
    """The title is too long or belongs to another conversation."""

    code = "session.title"

    def __init__(self, message: str, *, fix: str = "", holder: str = "") -> None:
        super().__init__(message, fix=fix)
        self.holder = holder
        """The session that has the title, if one has."""


class IllegalTransitionError(StoreError):
    """A row may not go from the state it has to the state that was asked for."""

    code = "store.transition"


class EarlierTurnError(StoreError):
    """A turn cannot start because an earlier one of its conversation has no end yet."""

    code = "store.earlier_turn"

    def __init__(self, message: str, turn_id: str, *, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.turn_id = turn_id
        """The earliest turn without an end."""


class TurnMovedError(StoreError):
    """A turn is not in this conversation any more: its chat has taken it along into another one."""

    code = "store.turn_moved"


class RowGoneError(StoreError):
    """What was to be changed is not there any more: it went with its conversation."""

    code = "store.row_gone"


class AlreadySettledError(StoreError):
    """A platform delivered again what was dealt with before; there is nothing left to do."""

    code = "store.settled"


class ConversationOverError(StoreError):
    """A conversation was ended for good; what is said next belongs to a new one."""

    code = "store.over"


class LeaseLostError(StoreError):
    """The lease that this write was made under has passed to somebody else."""

    code = "store.lease_lost"


class Interrupted(Exception):
    """The person asked for the turn to stop."""


class BudgetSpent(Exception):
    """A limit of the turn or of the day is reached; the text says which."""


def in_words(error: BaseException) -> str:
    """What kind of error it is and what it says, also of one that cannot say it."""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 -- it is somebody else's, and may be broken itself
        text = "it cannot be shown"
    return f"{type(error).__name__}: {text}".rstrip(": ")
