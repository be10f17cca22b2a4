"""Show a person what a call does before they allow it: all of it, or the call is refused.

Invisible characters are escaped, so that what a person reads is what runs. The texts are made here,
once, for every surface.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from hermes_agent.approval import policy
from hermes_agent.approval.danger import Danger, access_of, places
from hermes_agent.approval.danger.kinds import EDITS_KEY, HOST_KEY, REGISTRIES_KEY, TAINTED_KEY
from hermes_agent.tools.base import Args, Preview, Tool, ToolContext
from hermes_core.errors import ToolDeniedError
from hermes_core.text import escaped, one_line
from hermes_state.values import Grant

MAX_BYTES = 64 * 1024
"""More than that nobody reads, and chats do not take it."""
_LASTING = ('"For this conversation" and "always" cover ', '"For this conversation" covers ')
"""How the line about lasting answers begins, with and without "always" among them."""


def of_call(tool: Tool, args: Args, bench: ToolContext, path: str) -> Preview:
    """Return what a call does, whole; raises ToolDeniedError when that is too large to be shown."""
    if tool.preview is not None:
        preview = tool.preview(args, bench, path)
        return preview._replace(text=whole(preview.text))
    return Preview(whole(_text(tool, args, path)))


def whole(text: str) -> str:
    """Return a text as a person is shown it; raises ToolDeniedError when it is too large."""
    text = escaped(text).rstrip("\n")
    if (size := len(text.encode())) > MAX_BYTES:
        raise ToolDeniedError(
            f"This needs an approval, and with {size:,} bytes it is too large to be shown;"
            f" {MAX_BYTES:,} are the limit.",
            fix="Do it in smaller steps.",
        )
    return text


def _text(tool: Tool, args: Args, path: str) -> str:
    subject = policy.subject(tool, args, path)
    others = [name for name in args if tool.subject in args and name != tool.subject]
    lines = [f"{name}: {_plain(args[name])}" for name in others]
    return "\n\n".join([subject, *filter(None, ["\n".join(lines)])])


def _plain(value: Any) -> str:  # noqa: ANN401 -- whatever JSON is
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def reasons(dangers: Sequence[Danger]) -> str:
    """Return the reasons of a question in one line."""
    return "; ".join(dict.fromkeys(danger.reason for danger in dangers))


def question(dangers: Sequence[Danger], covers: str, *, may_last: bool = True) -> str:
    """Return the text of a question: the reasons, what a yes gives, and what a lasting one is for.

    `may_last` tells whether "always" is among the answers.
    """
    lines = [escaped(one_line(reason)) for reason in dict.fromkeys(d.reason for d in dangers)]
    if len(lines) > 1:
        lines = [f"• {line}" for line in lines]
    lasting = f"{_LASTING[0 if may_last else 1]}{covers}." if covers else ""
    return "\n".join(
        filter(None, [*lines, escaped(one_line(access_of(dangers).describe())), lasting])
    )


def lasting_of(text: str) -> tuple[str, str]:
    """Split the text of a question into the reasons and what a lasting yes is for."""
    reasons_, _, last = text.rpartition("\n")
    return (reasons_, last) if last.startswith(_LASTING) else (text, "")


def covered(tool: Tool, lasting: Sequence[Grant]) -> str:
    """Return what a lasting yes is for, in words."""
    return " and ".join(dict.fromkeys(_covered(tool, grant) for grant in lasting))


def _covered(tool: Tool, grant: Grant) -> str:
    if grant.key.startswith(HOST_KEY):
        return f"any command that connects to {escaped(one_line(grant.subject))}"
    if grant.key.startswith(EDITS_KEY):
        return f"all changes of files in {_named(grant.folder)}, by any tool or command"
    if grant.key == REGISTRIES_KEY:
        return (
            "all package registries that this machine is configured for, while your notes are the only"
            " private data that was read"
        )
    if grant.key.startswith(TAINTED_KEY):
        receiver = escaped(one_line(grant.subject))
        return f"calls that reach {receiver}, until this conversation reads other private data"
    what = "command" if tool.is_command else "change" if tool.preview else "call"
    return f"exactly this {what} in {_named(grant.folder)}, for the same reasons"


def _named(folder: str) -> str:
    """Return the name of a folder as a person would write it."""
    home = places.own_home()
    if home != "/" and places.is_under(folder, home):
        folder = f"~{folder.removeprefix(home)}"
    return escaped(one_line(folder))
