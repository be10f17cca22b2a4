"""Runs inside the child of `execute_code`: the code, and calls of tools back to Hermes.

Its source is handed to another interpreter, so it uses nothing but the standard library. The first line
on its input is the code; calls go out on what was its standard output, answers come in on its input;
whatever the code prints goes to the error stream, which the parent shows.
"""

import json
import os
import sys
import threading
import traceback
import types
from typing import Any


class ToolError(Exception):
    """A tool could not do what it was asked, or was not allowed to."""


class Line:
    """The line to Hermes: one call at a time."""

    def __init__(self) -> None:
        self._incoming = os.fdopen(os.dup(0), "rb")
        self._outgoing = os.fdopen(os.dup(1), "wb", buffering=0)
        self._lock = threading.Lock()
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)

    def receive(self) -> Any:  # noqa: ANN401 -- whatever JSON is
        line = self._incoming.readline()
        if not line:
            raise ToolError("The connection to Hermes is closed.")
        return json.loads(line)

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        with self._lock:
            question = json.dumps({"tool": name, "arguments": arguments}, default=str)
            self._outgoing.write(question.encode() + b"\n")
            answer = self.receive()
        if answer["is_error"]:
            raise ToolError(answer["text"])
        return answer["text"]


def module_of(line: Line) -> types.ModuleType:
    """The module `hermes`: tool(name, **arguments), and every tool as a function of its name."""

    def tool(name: str, **arguments: Any) -> str:  # noqa: ANN401 -- the tool's own
        return line.call(name, arguments)

    def named(name: str) -> Any:  # noqa: ANN401 -- a function of any arguments
        if name.startswith("__"):
            raise AttributeError(name)

        def call(**arguments: Any) -> str:  # noqa: ANN401 -- the tool's own
            return line.call(name, arguments)

        return call

    module = types.ModuleType("hermes", "Tools of Hermes.")
    vars(module).update({"tool": tool, "ToolError": ToolError, "__getattr__": named})
    return module


def main() -> None:
    """Run the code."""
    line = Line()
    code = line.receive()["code"]
    sys.modules["hermes"] = module_of(line)
    sys.path.insert(0, "")
    sys.argv = ["code"]
    try:
        exec(compile(code, "<code>", "exec"), {"__name__": "__main__"})
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 -- shown as the interpreter would show it
        # The first frame is this one, which means nothing to whoever wrote the code.
        trace = error.__traceback__.tb_next if error.__traceback__ else None
        traceback.print_exception(type(error), error, trace)
        sys.stderr.flush()
        os._exit(1)


if __name__ == "__main__":
    main()
