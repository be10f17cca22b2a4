"""The scripted server as a command, and scripts written as JSON files.

A script is a list of steps, or {"steps": [...], "repeat": true}. A step is a text, or
{"say": "text", "reasoning": "…", "delay_s": 0.05, "calls": [{"name": "…", "arguments": {…}}]}, or
{"status": 503, "message": "…"}, or {"fault": "cut", "after": "Half of"} with one of FAULTS.
"""

import argparse
import itertools
import json
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec

from hermes_agent.testing import faults
from hermes_agent.testing.scripted import Quiet, Step, as_step, raw_call, say, silence, together
from hermes_agent.testing.server import Play, Recorded, Script, ScriptedServer
from hermes_core.errors import UsageError

Fields = dict[str, Any]

FAULTS: dict[str, Callable[[Fields], Play]] = {
    "cut": lambda step: faults.Cut(step.get("after", "")),
    "break": lambda step: faults.Break(step.get("message", "broken"), after=step.get("after", "")),
    "hold": lambda _: faults.Hold(Quiet()),
    "silence": lambda step: silence(after=step.get("after", "")),
    "garbage": lambda _: faults.garbage(),
    "wrong_key": lambda _: faults.wrong_key(),
    "no_quota": lambda _: faults.no_quota(),
    "no_credits": lambda _: faults.no_credits(),
    "overloaded": lambda _: faults.overloaded(),
    "rate_limited": lambda step: faults.rate_limited(step.get("retry_after")),
    "unknown_model": lambda step: faults.unknown_model(step.get("model", "scripted")),
    "context_too_long": lambda step: faults.context_too_long(step.get("wording", "openai")),
}


def read_script(text: str) -> Script:
    """A script from JSON; raises UsageError for what is none."""
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise UsageError(f"The script is not JSON: {error}.") from error
    fields = cast("Fields", parsed) if isinstance(parsed, dict) else {"steps": parsed}
    steps = [_step(step) for step in cast("list[object]", fields.get("steps") or [])]
    if not steps:
        raise UsageError("The script has no steps.", fix='Write for example ["Hello."].')
    if not fields.get("repeat"):
        return steps
    again = itertools.cycle(steps)
    return lambda _request: next(again)


def _step(written: object) -> Play:
    if isinstance(written, str):
        return as_step(written)
    fields = cast("Fields", written) if isinstance(written, dict) else {}
    if (make := FAULTS.get(str(fields.get("fault")))) is not None:
        return make(fields)
    if "status" in fields:
        return faults.Refuse(int(fields["status"]), str(fields.get("message", "refused")))
    if "say" in fields or "calls" in fields:
        return _reply(fields)
    kinds = ", ".join(FAULTS)
    raise UsageError(
        f"{written!r} is not a step.", fix=f"Give say, calls, status or a fault: {kinds}."
    )


def _reply(fields: Fields) -> Step:
    calls = [
        raw_call(call["name"], msgspec.json.encode(call.get("arguments", {})).decode())
        for call in fields.get("calls", [])
    ]
    text = say(
        fields.get("say", ""),
        reasoning=fields.get("reasoning", ""),
        delay_s=float(fields.get("delay_s", 0)),
    )
    return together(text, *calls)


def main(arguments: list[str] | None = None) -> None:
    """Serve until a signal comes; the first line of the output is the address."""
    options = _parser().parse_args(arguments)
    try:
        script = read_script(Path(options.script).read_text("utf-8")) if options.script else None
    except (UsageError, OSError) as error:
        sys.exit(f"{options.script}: {error}")
    window = {"context_length": options.window} if options.window else {}
    server = ScriptedServer(
        script, port=options.port, key=options.key, models={options.model: window}
    )
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: ended.set())
    with server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        ended.wait()
    if options.record:
        lines = b"".join(map(_line, server.requests))
        Path(options.record).write_bytes(lines)


def _line(request: Recorded) -> bytes:
    body = request.body.decode("utf-8", "replace")
    return (
        msgspec.json.encode({"path": request.path, "headers": request.headers, "body": body})
        + b"\n"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m hermes_agent.testing.server",
        description="A scripted server that speaks OpenAI chat completions and Anthropic messages.",
        epilog=f"Faults in a script: {', '.join(FAULTS)}.",
    )
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0: any free one")
    parser.add_argument(
        "--script", default="", help="JSON file with the steps; without it: an echo"
    )
    parser.add_argument("--key", default="", help="the only key that is let in")
    parser.add_argument("--model", default="scripted", help="name in the list of models")
    parser.add_argument("--window", type=int, default=0, help="context window in that list")
    parser.add_argument("--record", default="", help="file for the requests, written at the end")
    return parser
