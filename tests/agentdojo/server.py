"""Runs in an environment of its own, with AgentDojo in it: its tasks, tools and checks, over JSON lines.

AgentDojo loads the clients of all model providers with its first import. None is used here, so they are
not installed; empty modules stand in for them.
"""

import functools
import importlib.abc
import importlib.machinery
import json
import sys
import types
from typing import Any

VERSION = "v1.2.2"
_UNUSED = ("anthropic", "cohere", "google", "langchain", "openai", "torch", "transformers")


def _unused(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _Meta(name, (), {"__class_getitem__": classmethod(lambda cls, _: cls)})


class _Meta(type):
    """The type of a class in which every name is another such class."""

    def __getattr__(cls, name: str) -> Any:
        return _unused(name)


class _Unused(types.ModuleType):
    """A module in which every name is such a class."""

    def __getattr__(self, name: str) -> Any:
        return _unused(name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        del path, target
        if fullname.partition(".")[0] in _UNUSED:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Unused(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


sys.meta_path.insert(0, _Finder())

from agentdojo.agent_pipeline.tool_execution import (  # noqa: E402 # pyright: ignore[reportMissingImports]
    tool_result_to_str,
)
from agentdojo.functions_runtime import (  # noqa: E402 # pyright: ignore[reportMissingImports]
    FunctionCall,
    FunctionsRuntime,
)
from agentdojo.task_suite.load_suites import (  # noqa: E402 # pyright: ignore[reportMissingImports]
    get_suites,
)

SUITES = get_suites(VERSION)


@functools.cache
def _environment(suite: str) -> Any:
    """Load an environment as it is without an injection: the scripted model needs no persuasion."""
    return SUITES[suite].load_and_inject_default_environment({})


class Case:
    """A user's task, and what somebody else put into the way."""

    def __init__(self, suite: str, user: str, injection: str) -> None:
        self._suite = SUITES[suite]
        self._user = self._suite.user_tasks[user]
        self._injection = self._suite.injection_tasks[injection] if injection else None
        created = _environment(suite).model_copy(deep=True)
        self._now = self._user.init_environment(created)
        self._before = self._now.model_copy(deep=True)
        self._runtime = FunctionsRuntime(self._suite.tools)
        self._trace: list[Any] = []

    def describe(self) -> dict[str, Any]:
        scratch = self._before.model_copy(deep=True)
        ours = self._user.ground_truth(scratch)
        theirs = self._injection.ground_truth(scratch) if self._injection else []
        return {
            "prompt": self._user.PROMPT,
            "user": [{"name": call.function, "args": dict(call.args)} for call in ours],
            "injection": [{"name": call.function, "args": dict(call.args)} for call in theirs],
            "output": self._user.GROUND_TRUTH_OUTPUT,
        }

    def call(self, name: str, args: dict[str, Any]) -> dict[str, Any]:
        result, error = self._runtime.run_function(self._now, name, args)
        self._trace.append(FunctionCall(function=name, args=args))
        return {"result": tool_result_to_str(result), "error": error}

    def check(self, output: str) -> dict[str, Any]:
        """Ask AgentDojo whether the task was done, and whether the goal was reached."""
        states = (output, self._before, self._now)
        useful = self._user.utility_from_traces(*states, self._trace)
        if useful is None:
            useful = self._user.utility(*states)
        reached = False
        if self._injection is not None:
            found = self._injection.security_from_traces(*states, self._trace)
            reached = self._injection.security(*states) if found is None else found
        return {"utility": bool(useful), "reached": bool(reached)}


def suites() -> dict[str, Any]:
    return {
        name: {
            "users": list(suite.user_tasks),
            "injections": list(suite.injection_tasks),
            "tools": [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters.model_json_schema(),
                }
                for tool in suite.tools
            ],
        }
        for name, suite in SUITES.items()
    }


def main() -> None:
    case: Any = None
    answers = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        name, *args = json.loads(line)
        if name == "suites":
            answer = suites()
        elif name == "case":
            case = Case(*args)
            answer = case.describe()
        else:
            answer = getattr(case, name)(*args)
        answers.write(json.dumps(answer, default=str) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
