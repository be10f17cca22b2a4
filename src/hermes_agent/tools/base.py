"""The definition of a tool: a schema for the model, a function, and what it declares about itself.

A tool's function gets its arguments, checked against the schema, and the `Call` it runs under. It
returns text or a Result, raises ToolError for what the model should know, and comes back soon after
`call.stop` is set.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import msgspec

from hermes_agent.approval import taint
from hermes_agent.approval.danger import Access, Danger, of_command, places
from hermes_agent.approval.taint import Sending
from hermes_agent.models.base import ToolSpec
from hermes_agent.permissions import Permissions
from hermes_agent.turn.stop import Stop
from hermes_core.paths import Home
from hermes_core.settings import Settings
from hermes_state.store import Store
from hermes_state.values import TaintSource

if TYPE_CHECKING:
    from hermes_agent.approval.gate import Permit
    from hermes_agent.checkpoints.recorder import Checkpoints
    from hermes_agent.sandbox.sandboxes import AskHost
    from hermes_agent.tools.processes import Processes

Args = dict[str, Any]
Reads = Literal["outside", "private", ""]


class Result(NamedTuple):
    """The result of a tool call."""

    text: str
    is_error: bool = False
    diff: str = ""
    """A unified diff for a person to look at; the model is not shown it."""
    images: Sequence[str] = ()
    """Data addresses of pictures that belong to the result."""
    exit_code: int = 0
    """What a command ended with, when it was not 0."""


class Preview(NamedTuple):
    """The change that a call would make, for the person who is asked to allow it."""

    text: str
    basis: str = ""
    """A digest of the file that was compared; the call fails when the file is another one by then."""


class ToolContext(msgspec.Struct):
    """State of a conversation that outlives a call: where it works, and what it has running."""

    home: Home
    settings: Settings
    store: Store
    processes: "Processes"
    workspace: Path
    """The folder this conversation works in; outside of it, changes need an approval."""
    cwd: Path
    """Where the next command starts; `cd` in one command is kept for the next."""
    environment: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    """For commands: ours without the secrets."""
    permissions: Permissions | None = None
    """What the person that it works for may see; None: everything."""
    manner: str = ""
    """What the prompt says of how replies are heard on the surface."""
    conversation_id: str = ""
    checkpoints: "Checkpoints | None" = None
    """None where nothing is restored, as in tests of a single tool."""

    @property
    def outputs(self) -> Path:
        """The folder with the long outputs of this conversation; an id may be any text."""
        return (
            self.home.outputs
            / hashlib.sha256(self.conversation_id.encode("utf-8", "replace")).hexdigest()[:32]
        )

    @property
    def folders(self) -> tuple[Path, Path, Path, Path]:
        """The folders that commands are judged by."""
        return self.cwd, self.workspace, self.home.root, self.outputs

    @property
    def place(self) -> places.Place:
        """The folders that paths are judged by."""
        return places.place_of(*self.folders[1:])


class AskUser(Protocol):
    """Puts a question to a person and waits for the answer; raises ToolError when nobody can."""

    def __call__(self, question: str, choices: Sequence[str]) -> str: ...


class RunTool(Protocol):
    """Runs another tool through the same gate, for tools that call tools."""

    def __call__(self, name: str, arguments: Args) -> Result: ...


class Delegate(Protocol):
    """Run a task in a sub-agent with its own budget, durably; return its report."""

    def __call__(self, task: str, context: str) -> Result: ...


NoteRead = Callable[[TaintSource], None]


class Call(msgspec.Struct, frozen=True):
    """One run of a tool, which the gate has let through."""

    id: str
    session_id: str
    turn_id: str
    bench: ToolContext
    stop: Stop
    permit: "Permit"
    """Proof that the gate was passed; starting a process asks for it."""
    progress: Callable[[str], None]
    ask_user: AskUser
    ask_host: "AskHost"
    note_host: Callable[[str], None]
    """Notes a host that the call reaches."""
    run_tool: RunTool
    delegate: Delegate
    note_read: NoteRead
    """Record what the conversation reads by this call, beside what the tool's facts say."""


class Tool(msgspec.Struct, frozen=True):
    """Something a model may do, with all that the rest of Hermes needs to know about it."""

    name: str
    description: str
    """One or two short sentences: every request pays for them."""
    parameters: Mapping[str, Any]
    """JSON schema of the arguments, an object."""
    run: Callable[[Args, Call], Result | str]
    subject: str = ""
    """The argument that says what a call is about: people are shown it, and patterns of the policy are
    compared with it. Empty: all arguments."""
    is_path: bool = False
    """The subject is the path of a file or a folder."""
    is_command: bool = False
    """The subject is a shell command line."""
    runs_commands: bool = False
    """Starts processes, which may change files."""
    writes: bool = False
    """Changes files."""
    read_only: bool = False
    """Changes nothing: may run beside others, and again after a crash."""
    resumes: bool = False
    """May be started again after a crash although it changes things: it finds its own work."""
    inner: Callable[[str], str] | None = None
    """For a tool that runs another: the name of that one, from the text of the arguments."""
    dangers: Callable[[Args, ToolContext], Sequence[Danger]] | None = None
    """What about these arguments needs an approval. None: what is dangerous about the subject, when that
    is a path or a command."""
    preview: Callable[[Args, ToolContext, str], Preview] | None = None
    """What these arguments would change at a path; shown with the question, whole. None: the subject and
    the other arguments say it all."""
    reads: Reads | Callable[[Args, ToolContext, Access], Sequence[TaintSource]] | None = None
    """The taint that its results bring; of paths, None stands for what the path says."""
    sends: Callable[[Args, ToolContext, Access], Sending | None] | None = None
    """What a call sends that the model composed, and where to."""
    persists: Callable[[Args], bool] | None = None
    """Whether a call keeps what it gets beyond the conversation."""
    reads_notes: bool = False
    """Reads and writes the notes of the home, which belong to its owner."""
    timeout_s: float = 60.0
    toolset: str = "core"
    """`core` is always offered; others are listed by name and loaded when the model asks."""
    small: Sequence[str] | None = None
    """The arguments that a small model gives; None: it is not offered this tool."""
    one_line: str = ""
    """For small models: at most a line. Empty: the first sentence of the description."""
    small_advice: str = ""
    """Advice on its use, for small models."""
    small_examples: str = ""
    """Example exchanges, for small models; left out where there is no room."""

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, self.parameters, self.writes)

    def dangers_of(self, args: Args, bench: ToolContext) -> Sequence[Danger]:
        """Return what about these arguments needs an approval; links in a path are resolved."""
        if self.dangers is not None:
            return self.dangers(args, bench)
        if self.is_path:
            place = bench.place
            path = args.get(self.subject, ".")
            return places.of_write(path, place) if self.writes else places.of_read(path, place)
        if not self.is_command:
            return ()
        return of_command(args.get(self.subject, ""), *bench.folders)

    def reads_of(self, args: Args, bench: ToolContext, access: Access) -> Sequence[TaintSource]:
        """Return the taint that a call brings; links in a path are resolved."""
        if callable(self.reads):
            return self.reads(args, bench, access)
        if self.reads:
            return [TaintSource(self.reads, f"results of {self.name}")]
        if self.is_path and self.reads is None:
            return taint.of_path(args.get(self.subject, "."), bench.place, bench.home)
        return ()
