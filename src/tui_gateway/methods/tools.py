"""List tools, and list and end background processes of a session."""

from typing import Annotated, Any, TypedDict

from hermes_agent.agent import Agent
from hermes_core.errors import ToolError
from hermes_protocol.errors import BAD_ARGUMENT
from tui_gateway import agents
from tui_gateway.params import Params, Session, says
from tui_gateway.protocol import RpcError
from tui_gateway.runtime import Runtime


class Ask(Params, frozen=True):
    """For whom."""

    session_id: Annotated[str, says("The open session.")] = ""


class Tools(TypedDict):
    """Tools by the set they belong to; the core is offered in every request."""

    toolsets: list[dict[str, Any]]


def list_tools(rt: Runtime, params: Ask) -> Tools:
    """List the tools in each request, and those that the model can request."""
    del params
    toolbox = rt.assembly().toolbox
    core = [{"name": spec.name, "description": spec.description} for spec in toolbox.core]
    further = {
        name: [{"name": tool.name, "description": tool.description} for tool in tools]
        for name, tools in toolbox.toolsets.items()
    }
    sets = {"core": core, **further}
    return {
        "toolsets": [
            {"name": name, "enabled": True, "tools": tools, "tool_count": len(tools)}
            for name, tools in sets.items()
        ]
    }


class Processes(TypedDict):
    """Background processes, oldest first."""

    processes: list[dict[str, Any]]


def list_processes(rt: Runtime, params: Session) -> Processes:
    """List the background processes of a session's conversation."""
    agent = _agent(rt, params.session_id)
    return {
        "processes": [
            {
                "process_id": process.id,
                "command": process.command,
                "status": "running" if process.is_running else "exited",
                "exit_code": process.exit_code,
                "started_at": process.started_at,
            }
            for process in agent.tool_context.processes.of(agent.conversation_id)
        ]
    }


class Kill(Session, frozen=True):
    """A process."""

    process_id: Annotated[str, says("Its id.")]


class Killed(TypedDict):
    """The number of ended processes."""

    killed: int


def kill_process(rt: Runtime, params: Kill) -> Killed:
    """End a background process and its children."""
    agent = _agent(rt, params.session_id)
    try:
        process = agent.tool_context.processes.get(agent.conversation_id, params.process_id)
    except ToolError as error:
        raise RpcError(BAD_ARGUMENT, error.message, fix=error.fix) from error
    was_running = process.is_running
    process.kill()
    return {"killed": int(was_running)}


def stop_processes(rt: Runtime, params: Ask) -> Killed:
    """End every background process of a session's conversation; without a session, of all open ones."""
    ready = [sid for sid, session in list(rt.sessions.items()) if session.get("agent") is not None]
    sids = [params.session_id] if params.session_id else ready
    running = [
        process
        for agent in [_agent(rt, sid) for sid in sids]
        for process in agent.tool_context.processes.of(agent.conversation_id)
        if process.is_running
    ]
    for process in running:
        process.kill()
    return {"killed": len(running)}


def _agent(rt: Runtime, sid: str) -> Agent:
    return agents.get(rt, sid, rt.session(sid))
