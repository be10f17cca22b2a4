"""`clarify`: ask the person a question and wait for the answer."""

from hermes_agent.tools import schema
from hermes_agent.tools.base import Args, Call, Tool
from hermes_core.errors import ToolError

_MAX_CHOICES = 8
_A_WEEK_S = 7 * 24 * 3600.0


def _run(args: Args, call: Call) -> str:
    question = args["question"].strip()
    if not question:
        raise ToolError("The question is empty.", fix="Say what you want to know.")
    choices = [choice for choice in args.get("choices", []) if choice.strip()]
    if len(choices) > _MAX_CHOICES:
        raise ToolError("Too many choices.", fix=f"Offer at most {_MAX_CHOICES}.")
    return call.ask_user(question, choices)


TOOL = Tool(
    name="clarify",
    description="Ask the user when you cannot go on without an answer.",
    parameters=schema.of(
        ["question"], question="", choices={"type": "array", "items": {"type": "string"}}
    ),
    run=_run,
    read_only=True,
    timeout_s=_A_WEEK_S,
)
