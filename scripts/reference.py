"""The pages of docs/reference that are made from the code: checks them, or writes them anew.

A page is a row of PAGES: its path, and the function that returns its text. Each function imports
what it describes, so that one part that cannot be imported spoils its own page only.
"""

import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import msgspec

if TYPE_CHECKING:
    import click
    from msgspec.structs import FieldInfo

    from tui_gateway.methods import Method

ROOT = Path(__file__).resolve().parent.parent
NOTICE = "<!-- Made by scripts/reference.py; change the code and run `make docs WRITE=1`. -->"


def hooks_page() -> str:
    """Every hook: when it fires, what it gives, and what a return value does."""
    specs = importlib.import_module("hermes_cli.hookspecs")
    introduction = inspect.cleandoc(specs.__doc__).partition("\n\n")[2].rpartition(" `docs/")[0]
    parts = ["# Hooks", NOTICE, introduction]
    parts += (_hook(name, function) for name, function in specs.SPECS.items())
    parts += ["## What a callback may return", _returns(specs)]
    return _page(parts)


def _hook(name: str, function: Callable[..., object]) -> str:
    *text, outcome = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    given = inspect.signature(function).parameters
    about = dict(
        line.partition(": ")[::2] for block in text for line in block.splitlines() if ": " in line
    )
    prose = [block for block in text if block.partition(": ")[0] not in given]
    rows = ([f"`{p.name}`", f"`{_type(p.annotation)}`", about[p.name]] for p in given.values())
    returned = _type(inspect.signature(function).return_annotation)
    return "\n\n".join(
        [
            f"## {name}",
            f"`{name}({', '.join(given)}) -> {returned}`",
            *prose,
            _table(["Argument", "Type", "What it is"], rows),
            _outcome(outcome),
        ]
    )


def _type(annotation: object) -> str:
    text = inspect.formatannotation(annotation)
    return text.replace("typing.", "").replace("hermes_cli.hookspecs.", "")


def _outcome(text: str) -> str:
    """The last paragraph of a hook, one bullet a sentence that begins with "May" or "Observer"."""
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(("May ", "Observer")):
            lines.append(f"* {line}")
        else:
            lines.append(f"  {line}")
    return "\n".join(lines)


def _returns(specs: object) -> str:
    kinds = [v for v in vars(specs).values() if inspect.isclass(v) and hasattr(v, "__total__")]
    rows = (
        [
            f"`{kind.__name__}`",
            "`{"
            + ", ".join(
                f'"{key}": ' + (f'"{kind.__name__.lower()}"' if key == "action" else _type(value))
                for key, value in kind.__annotations__.items()
            )
            + "}`",
            inspect.cleandoc(kind.__doc__ or ""),
        ]
        for kind in kinds
    )
    return _table(["Name", "Form", "Effect"], rows)


def config_page() -> str:
    """Every setting: its key, its environment variable, type, default and description."""
    config = importlib.import_module("hermes_core.config")
    introduction = (
        "Settings stand in `config.toml` in the home (`HERMES_HOME`, else `~/.hermes`). An "
        "environment variable is stronger than the file, and `--set KEY=VALUE` on the command line "
        "is stronger than both. Lists are written with commas there: `--set plugins.enabled=a,b`."
    )
    rows = (
        [
            f"`{option.key}`",
            f"`{option.variable}`",
            config.describe(option.type),
            f"`{_toml(option.default)}`",
            option.description,
        ]
        for option in config.options()
    )
    head = ["Key", "Environment", "Type", "Default", "What it does"]
    return _page(["# Settings", NOTICE, textwrap.fill(introduction, 100), _table(head, rows)])


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def commands_page() -> str:
    """Every command with its help, arguments and options."""
    click = importlib.import_module("click")
    hermes = importlib.import_module("hermes_cli.commands.root").hermes
    context = click.Context(hermes, info_name="hermes")
    return _page(["# Commands", NOTICE, *_command(context, hermes)])


def _command(context: "click.Context", command: "click.Command") -> Iterator[str]:
    yield f"## {context.command_path}"
    yield f"`{' '.join([context.command_path, *command.collect_usage_pieces(context)])}`"
    yield _help(command)
    # Arguments stand in the usage line, and whether click describes them depends on its version.
    named = [p for p in command.params if p.param_type_name == "option"]
    if options := [record for p in named if (record := p.get_help_record(context))]:
        yield _table(["Option", "What it does"], ([f"`{name}`", text] for name, text in options))
    if hasattr(command, "list_commands"):
        for name in command.list_commands(context):  # type: ignore[attr-defined]
            inner = command.get_command(context, name)  # type: ignore[attr-defined]
            yield from _command(type(context)(inner, info_name=name, parent=context), inner)


def _help(command: "click.Command") -> str:
    # click marks a paragraph that must not be wrapped with \b, and the end of the help with \f.
    return inspect.cleandoc(command.help or "").split("\f")[0].replace("\b\n", "")


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(" ".join(cell.split()).replace("|", r"\|") for cell in line) + " |"
        for line in lines
    )


def _page(parts: Iterable[str]) -> str:
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def store_page() -> str:
    """Today's schema as a fresh store has it, and the exit status and code of every error."""
    store = importlib.import_module("hermes_state").SessionDB.in_memory()
    with store:
        schema = store.read(
            lambda c: c.tuples(
                "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL"
                " AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
            )
        )
    errors = importlib.import_module("hermes_core.errors")
    family = sorted(
        (error.code, error.exit_status, inspect.cleandoc(error.__doc__ or ""))
        for error in vars(errors).values()
        if isinstance(error, type) and issubclass(error, errors.HermesError)
    )
    parts = [
        "# The store",
        NOTICE,
        "Conversations are in `state.db` in the home, the search index in `state-search.db` beside it. "
        "The index is derived and may be deleted. What the tables are for stands in the modules of "
        "`hermes_state` that are named after them; who may be in which state is written at their top "
        "and enforced by the triggers below.",
        "## Schema",
        *("```sql\n" + sql.strip() + ";\n```" for _, _, sql in schema),
        "## Errors",
        "With `--json` an error is an object with `code`, `message` and `fix` on standard error.",
        _table(["Code", "Exit status", "Meaning"], ([f"`{c}`", str(n), d] for c, n, d in family)),
    ]
    return _page(parts)


def rpc_page() -> str:
    """Every method with what it takes and gives, every event, every error code."""
    methods = importlib.import_module("tui_gateway.methods")
    events = importlib.import_module("hermes_protocol.events").EVENTS
    codes = importlib.import_module("hermes_protocol.errors").CODES
    transport = (
        "User interfaces talk to `python -m tui_gateway.entry` over its pipes: JSON-RPC 2.0, one object"
        " a line, UTF-8. With `--ws` the server listens on this machine instead; the private file"
        " `tui_gateway.json` in the home then holds `url` and `token`, and the token goes into the"
        " header `Authorization: Bearer` or the query `?token=`. The names are those of the"
        " hermes-agent protocol; what is not listed here is an unknown method (-32601), and clients"
        " ignore events and fields that they do not know. A `session_id` is an open session, which dies"
        " with the process; the id in the store is `stored_session_id`."
    )
    messages = (
        "A message is `{role, text, id, timestamp}`, with `kind` when it is not a plain one (`partial`:"
        " cut off), `reasoning` and `images` when there are any. A tool's result is `{role: tool, name,"
        " context, tool_id, result_text, is_error}`, with `inline_diff` when it changed a file. Steps"
        " that only call tools are told by their results. The last message of a turn that was not"
        " answered has `status` (`interrupted` or `error`, then with `error`) as `message.complete` had."
    )
    durability = (
        "`prompt.submit` is answered when the prompt is on disk. Whoever has no answer yet may send it "
        "again with the same `idempotency_key`. `message.complete` comes when the end of the turn is on "
        "disk."
    )
    introduction = (textwrap.fill(text, 100) for text in (transport, durability, messages))
    parts = ["# JSON-RPC", NOTICE, *introduction]
    parts += ["## Methods", *(_method(name, methods.load(name)) for name in methods.TABLE)]
    parts += ["## Events", "`{type, session_id, payload}` in a request without id, method `event`."]
    rows = ([f"`{name}`", _members(kind), _said(kind)] for name, kind in events.items())
    parts.append(_table(["Event", "Payload", "Meaning"], rows))
    described = ([f"`{number}`", text] for number, text in codes.items())
    parts += [
        "## Errors",
        "`{code, message, data?: {code, fix?}}`.",
        _table(["Code", "Meaning"], described),
    ]
    return _page(parts)


def _method(name: str, method: "Method") -> str:
    taken = msgspec.structs.fields(method.params)
    given = inspect.signature(method.function).return_annotation
    rows = ([f"`{field.name}`", *_parameter(field)] for field in taken)
    return "\n\n".join(
        [
            f"### {name}",
            inspect.cleandoc(method.function.__doc__ or ""),
            _table(["Parameter", "Type", "Default", "What it is"], rows)
            if taken
            else "No parameters.",
            f"Result: {_members(given)}"
            if hasattr(given, "__total__") or hasattr(given, "__struct_fields__")
            else "",
        ]
    )


def _parameter(field: "FieldInfo") -> list[str]:
    kinds = [k for k in (get_args(field.type) or [field.type]) if k is not type(None)]
    described = field.type if hasattr(field.type, "__metadata__") else kinds[0]
    about = [m.description for m in getattr(described, "__metadata__", ()) if m.description]
    plain = described.__origin__ if hasattr(described, "__metadata__") else described
    default = "needed" if field.required else f"`{msgspec.json.encode(field.default).decode()}`"
    return [f"`{_plain(plain)}`", default, about[0] if about else ""]


def _members(kind: type) -> str:
    """The fields of a dictionary with their types; those that may be missing have a question mark."""
    optional: frozenset[str] = getattr(kind, "__optional_keys__", frozenset())
    named = (
        f"`{name}{'?' * (name in optional)}: {_plain(annotation)}`"
        for name, annotation in kind.__annotations__.items()
    )
    return ", ".join(named)


def _plain(annotation: object) -> str:
    text = inspect.formatannotation(annotation)
    text = re.sub(r"NotRequired\[(.*)\]", r"\1", re.sub(r"\b(?:\w+\.)+(?=[A-Z])", "", text))
    return re.sub(r"tuple\[(.*), \.\.\.\]", r"list[\1]", text)


def _said(kind: type) -> str:
    return " ".join(inspect.cleandoc(kind.__doc__ or "").split())


def providers_page() -> str:
    """Every provider of models, and the fields of the table, which plugins fill in too."""
    providers = importlib.import_module("hermes_agent.models.providers")
    parts = ["# Providers of models", NOTICE, "A key in the environment is enough to use one."]
    rows = (
        [f"`{p.name}`", p.base_url, _coded(p.key_variable), _coded(p.address_variable)]
        + [_coded(p.default_model), p.adapter]
        for p in providers.BUILT_IN
        if p.base_url
    )
    columns = ["Provider", "Address", "Key", "Another address", "Default model", "Format"]
    parts += [
        _table(columns, rows),
        "## Add one",
        inspect.cleandoc(providers.__doc__).partition("\n\n")[2],
    ]
    parts += ["The facts of a provider:", _facts(providers.Provider)]
    parts += [
        "Each of its `models`, with prices in USD per million tokens:",
        _facts(providers.KnownModel),
    ]
    return _page(parts)


def _coded(word: str) -> str:
    return f"`{word}`" if word else ""


def _facts(kind: type) -> str:
    source = inspect.getsource(kind)
    about = dict(re.findall(r'(?m)^    (\w+): .*\n    """(.+?)"""$', source))
    rows = (
        [f"`{f.name}`", f"`{_type(f.type)}`", about.get(f.name, "")]
        for f in msgspec.structs.fields(kind)
    )
    return _table(["Field", "Type", "What it is"], rows)


PAGES: list[tuple[str, Callable[[], str]]] = [
    ("docs/reference/hooks.md", hooks_page),
    ("docs/reference/config.md", config_page),
    ("docs/reference/commands.md", commands_page),
    ("docs/reference/store.md", store_page),
    ("docs/reference/rpc.md", rpc_page),
    ("docs/reference/providers.md", providers_page),
]


def main(arguments: list[str]) -> int:
    """Name the pages that are stale, or rewrite them; 0 when all is as it should be."""
    write = "--write" in arguments
    bad = 0
    for name, make in PAGES:
        path = ROOT / name
        try:
            text = make()
        except ImportError as error:
            print(f"{name}: cannot be made: {error}")
            bad += 1
            continue
        if path.exists() and path.read_text("utf-8") == text:
            continue
        if write:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
            print(f"{name}: written")
        else:
            print(f"{name}: stale; run: make docs WRITE=1")
            bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
