"""Run shell commands of the person."""

from pathlib import Path
from typing import Annotated, TypedDict

from hermes_protocol.errors import BAD_ARGUMENT
from tui_gateway import folder, shell
from tui_gateway.params import Params, says
from tui_gateway.protocol import RpcError
from tui_gateway.runtime import Runtime

_MAX_TIMEOUT_S = 3600.0


class ShellParams(Params, frozen=True):
    """A command line."""

    command: Annotated[str, says("The command, for /bin/sh.")] = ""
    session_id: Annotated[
        str,
        says("The open session whose folder it runs in; the default is the latest of the client."),
    ] = ""
    timeout: Annotated[float, says("Timeout in seconds.", gt=0, le=_MAX_TIMEOUT_S)] = 60.0


class ShellResult(TypedDict):
    """The output of the command and its exit status: 124 after a timeout, 130 after an interrupt."""

    stdout: str
    stderr: str
    code: int


def execute(rt: Runtime, params: ShellParams) -> ShellResult:
    """Run a shell command of the person, without approval; `session.interrupt` stops it."""
    if not params.command.strip() or "\0" in params.command:
        raise RpcError(BAD_ARGUMENT, "The command is empty or not valid.")
    cwd = _folder(rt, params.session_id)
    found = shell.run(params.command, cwd, rt.transport, params.timeout)
    return {"stdout": found.stdout, "stderr": found.stderr, "code": found.code}


def _folder(rt: Runtime, sid: str) -> Path:
    if sid:
        return rt.live(rt.session(sid)).cwd
    opened = map(rt.live, list(rt.sessions.values()))
    of_client = [live for live in opened if rt.transport in live.watchers]
    if not of_client:
        return folder.current()
    return max(of_client, key=lambda live: live.created_at).cwd
