"""The methods: one table from a name to the function that does it, loaded when it is first called.

A method is a plain function `(rt, params) -> result`; the type of `params` says what it takes, and
it is checked before the function is called. It raises RpcError or another HermesError to say no, and
returns None when it answers later.
"""

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import msgspec

from hermes_core.loading import loading
from hermes_protocol.errors import INVALID_PARAMS, SERVER_ERROR, UNKNOWN_METHOD
from tui_gateway.protocol import Result, RpcError
from tui_gateway.runtime import Runtime

Function = Callable[[Runtime, Any], Any]

_LARGEST = 2**53
"""Beyond it, programs that read JSON do not agree on whole numbers, and the store has none."""


class Entry(NamedTuple):
    """The place of a method."""

    module: str
    function: str
    is_long: bool = False
    """Whether it may take a while, and therefore runs beside the others."""
    waits: bool = False
    """Whether it may wait for a model or a plugin, and therefore must not keep a place that others
    need."""
    code: int = SERVER_ERROR
    """The number of the error when it fails and the error has no number of its own."""


class Method(NamedTuple):
    """A method, loaded."""

    function: Function
    params: type[msgspec.Struct]


TABLE: dict[str, Entry] = {
    "session.create": Entry("opening", "create"),
    "session.resume": Entry("opening", "resume", is_long=True, waits=True, code=5000),
    "session.activate": Entry("opening", "activate", is_long=True),
    "session.branch": Entry("opening", "branch", is_long=True, waits=True, code=5008),
    "session.close": Entry("opening", "close", is_long=True, waits=True),
    "session.list": Entry("listing", "list_", is_long=True, code=5006),
    "session.most_recent": Entry("listing", "most_recent", is_long=True, code=5006),
    "session.active_list": Entry("listing", "active_list", is_long=True, code=5006),
    "session.search": Entry("listing", "search", is_long=True, code=5006),
    "session.tree": Entry("listing", "tree", is_long=True, code=5006),
    "session.delete": Entry("listing", "delete", is_long=True, waits=True, code=5036),
    "session.title": Entry("session", "title", is_long=True, waits=True, code=5007),
    "session.interrupt": Entry("session", "interrupt"),
    "session.steer": Entry("session", "steer"),
    "session.undo": Entry("session", "undo", is_long=True),
    "session.compress": Entry("session", "compress", is_long=True, waits=True, code=5005),
    "session.history": Entry("session", "history", is_long=True),
    "session.usage": Entry("session", "usage", is_long=True),
    "session.context_breakdown": Entry("session", "context_breakdown", is_long=True),
    "session.save": Entry("saving", "save", is_long=True),
    "session.status": Entry("commands", "status", is_long=True),
    "session.cwd.set": Entry("session", "set_cwd"),
    "terminal.resize": Entry("session", "resize"),
    "prompt.submit": Entry("prompt", "submit"),
    "prompt.background": Entry("background", "submit", is_long=True),
    "prompt.queue": Entry("prompt", "queue"),
    "prompt.unqueue": Entry("prompt", "unqueue"),
    "approval.respond": Entry("questions", "approve", code=5004),
    "clarify.respond": Entry("questions", "clarify", code=5004),
    "slash.exec": Entry("commands", "execute", is_long=True, waits=True, code=5030),
    "command.dispatch": Entry("commands", "dispatch", is_long=True, waits=True, code=5030),
    "command.resolve": Entry("commands", "resolve", is_long=True),
    "commands.catalog": Entry("commands", "catalog", is_long=True),
    "complete.path": Entry("completion", "path", is_long=True),
    "complete.slash": Entry("completion", "slash", is_long=True),
    "paste.collapse": Entry("attachments", "collapse"),
    "input.detect_drop": Entry("attachments", "detect_drop"),
    "image.attach": Entry("attachments", "attach_image"),
    "image.attach_bytes": Entry("attachments", "attach_image_bytes"),
    "image.detach": Entry("attachments", "detach_image"),
    "file.attach": Entry("attachments", "attach_file"),
    "file.describe": Entry("attachments", "describe_files", is_long=True),
    "config.get": Entry("configuration", "get"),
    "config.set": Entry("configuration", "set_", is_long=True),
    "config.show": Entry("configuration", "show"),
    "model.options": Entry("models", "options", is_long=True),
    "model.pull": Entry("models", "pull"),
    "model.pull.stop": Entry("models", "stop_pull"),
    "setup.status": Entry("models", "status", is_long=True),
    "setup.runtime_check": Entry("models", "check", is_long=True),
    "tools.list": Entry("tools", "list_tools", is_long=True),
    "process.list": Entry("tools", "list_processes", is_long=True),
    "process.kill": Entry("tools", "kill_process", is_long=True),
    "process.stop": Entry("tools", "stop_processes", is_long=True),
    "shell.exec": Entry("shell", "execute", is_long=True, waits=True),
    "skills.manage": Entry("extensions", "manage_skills", is_long=True),
    "skills.reload": Entry("extensions", "reload_skills", is_long=True),
    "plugins.list": Entry("extensions", "list_plugins", is_long=True, waits=True),
    "plugins.manage": Entry("extensions", "manage_plugins", is_long=True, waits=True),
    "rollback.list": Entry("rollback", "list_", is_long=True),
    "rollback.diff": Entry("rollback", "diff", is_long=True),
    "rollback.restore": Entry("rollback", "restore", is_long=True),
    "pet.cells": Entry("absent", "pet"),
    "delegation.status": Entry("absent", "delegation"),
}

_UNSUPPORTED = {
    "billing": "billing",
    "browser": "a browser",
    "clipboard": "reading the clipboard; paste the name of a file instead",
    "delegation.pause": "pausing sub-agents",
    "learning": "a learning journal",
    "model.disconnect": "keys typed here; set them in the environment",
    "model.save_key": "keys typed here; set them in the environment",
    "pet": "pets",
    "reload": "reloading while it runs; start it again",
    "secret": "questions for a secret",
    "spawn_tree": "a history of sub-agents",
    "subagent": "stopping a single sub-agent",
    "subscription": "subscriptions",
    "sudo": "questions for a password",
    "tools.configure": "switching tools here; set tools.disabled",
    "voice": "voice",
}
"""What other servers have by method, or by the first part of its name, in words for a person."""


def unknown(name: str) -> RpcError:
    """The error for a method that is not in the table."""
    feature = _UNSUPPORTED.get(name) or _UNSUPPORTED.get(name.partition(".")[0])
    text = f"Hermes does not support {feature}." if feature else f"There is no method {name!r}."
    return RpcError(UNKNOWN_METHOD, text)


@cache
def load(name: str) -> Method:
    """The function of a method and what it takes."""
    entry = TABLE[name]
    with loading:
        module = importlib.import_module(f"tui_gateway.methods.{entry.module}")
    function: Function = getattr(module, entry.function)
    return Method(function, function.__annotations__["params"])


def call(rt: Runtime, name: str, params: dict[str, Any]) -> Result | None:
    """Do what a method does; raises HermesError. A parameter that is null counts as not given."""
    function, kind = load(name)
    present = {key: value for key, value in params.items() if value is not None}
    try:
        checked = msgspec.convert(present, kind, strict=False)
    except msgspec.ValidationError as error:
        raise RpcError(INVALID_PARAMS, f"{name}: {error}.") from error
    for field, value in msgspec.structs.asdict(checked).items():
        if isinstance(value, int) and abs(value) > _LARGEST:
            raise RpcError(INVALID_PARAMS, f"{name}: {field} is too large a number.")
    return function(rt, checked)
