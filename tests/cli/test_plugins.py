"""The plugin host: hooks, sources, loading, and what a failing plugin does to the others."""

import asyncio
import functools
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from gateway.platforms.registry import built_in
from hermes_agent.models.providers import BUILT_IN
from hermes_agent.tools.registry import Toolbox, default_tools
from hermes_cli import hook_answers, plugin_names, plugins
from hermes_cli.commands import root
from hermes_cli.plugins import PluginContext, PluginError, PluginHost
from hermes_core.errors import describe_error
from hermes_core.paths import Home
from hermes_core.settings import PluginSettings, Settings
from hermes_core.slash_commands import COMMANDS
from tests.support.plugins import enable

pytestmark = pytest.mark.promise("P8")

END = {
    "session_id": "s1",
    "completed": False,
    "interrupted": True,
    "model": "m",
    "platform": "cli",
}


CALL = {
    "session_id": "s1",
    "turn_id": "t1",
    "tool_call_id": "c1",
    "tool_name": "read_file",
    "arguments": {},
}


def write_plugin(folder: Path, code: str, **manifest: object) -> Path:
    values = {"name": folder.name, "version": "1.0", "description": "A test.", **manifest}
    folder.mkdir(parents=True)
    lines = (f"{key} = {msgspec.json.encode(value).decode()}" for key, value in values.items())
    (folder / "plugin.toml").write_text("\n".join(lines))
    (folder / "__init__.py").write_text(code)
    return folder


def enabling(*names: str, **settings: dict[str, Any]) -> Settings:
    return Settings(plugins=PluginSettings(enabled=list(names), settings=settings))


def install(place: Path, name: str, module: str, code: str, *, entry: str = "") -> None:
    """Lay out a distribution as pip would, with one entry point."""
    info = place / f"{name}-2.5.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.5\nSummary: Installed {name}.\n"
    )
    (info / "entry_points.txt").write_text(f"[hermes.plugins]\n{name} = {entry or module}\n")
    file = place / module.replace(".", "/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.with_suffix(".py").write_text(code)


# --- hooks ---------------------------------------------------------------------------------------


def test_without_plugins_a_hook_returns_an_empty_list() -> None:
    assert plugins.invoke_hook("on_session_end", **END) == []
    assert not plugins.has_hook("on_session_end")


def test_a_callback_gets_only_the_arguments_it_declares() -> None:
    host, got = PluginHost(), list[object]()

    def some(model: str, session_id: str, *, own: int = 3) -> None:
        got.append((model, session_id, own))

    def all_of_them(**kwargs: object) -> None:
        got.append(kwargs)

    def none() -> None:
        got.append("none")

    for callback in (some, all_of_them, none):
        host.register_hook("on_session_end", callback)
    host.invoke_hook("on_session_end", **END)
    assert got == [("m", "s1", 3), END, "none"]


def test_results_that_are_not_none_come_back_in_the_order_of_registration() -> None:
    host = PluginHost()
    for value in ("first", None, 0, "last"):
        host.register_hook("on_gateway_stop", lambda value=value: value)
    assert host.invoke_hook("on_gateway_stop", reason="x") == ["first", 0, "last"]


class Leaving(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


def test_an_error_that_ends_the_process_when_it_is_shown_is_told() -> None:
    assert describe_error(Leaving()) == "Leaving: (no message)"


class Wordless(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


DEADLY = [
    SystemExit(3),
    asyncio.CancelledError(),
    GeneratorExit(),
    BaseException("all of them"),
    KeyboardInterrupt(),
]


@pytest.mark.parametrize("error", [RuntimeError("boom"), Wordless(), *DEADLY], ids=repr)
def test_a_failing_callback_is_logged_with_its_plugin_and_the_others_go_on(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    host = PluginHost()

    def fail() -> None:
        raise error

    host.register_hook("on_gateway_stop", fail, plugin="shaky")
    host.register_hook("on_gateway_stop", lambda reason: reason)
    assert host.invoke_hook("on_gateway_stop", reason="done") == ["done"]
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage() == "Plugin shaky failed in hook on_gateway_stop"
    assert record.exc_info
    assert record.exc_info[1] is error


def press_ctrl_c(*_args: object) -> None:
    signal.raise_signal(signal.SIGINT)


def test_a_persons_ctrl_c_in_a_callback_is_not_swallowed() -> None:
    host = PluginHost()
    host.register_hook("on_gateway_stop", lambda: press_ctrl_c())
    with pytest.raises(KeyboardInterrupt):
        host.invoke_hook("on_gateway_stop", reason="x")


@pytest.mark.parametrize("presses", [1, 2])
def test_a_persons_ctrl_c_while_a_plugin_runs_a_loop_is_not_swallowed(presses: int) -> None:
    async def work() -> None:
        for _ in range(presses):
            press_ctrl_c()
        await asyncio.Event().wait()

    host = PluginHost()
    host.register_hook("on_gateway_stop", lambda: asyncio.run(work()))
    with pytest.raises(KeyboardInterrupt):
        host.invoke_hook("on_gateway_stop", reason="x")


def test_a_loop_of_a_plugin_that_raises_the_same_as_ctrl_c_fails_alone() -> None:
    async def work() -> None:
        raise KeyboardInterrupt

    host = PluginHost()
    host.register_hook("on_gateway_stop", lambda: asyncio.run(work()))
    assert host.invoke_hook("on_gateway_stop", reason="x") == []


_WAITING = """
import asyncio
async def work():
    print("it runs", flush=True)
    await asyncio.Event().wait()
def register(ctx): asyncio.run(work())
"""


def test_a_persons_ctrl_c_ends_a_command_while_a_plugin_runs_a_loop(home: Home) -> None:
    enable(home, "slow", _WAITING)
    with subprocess.Popen(
        [sys.executable, "-m", "hermes_cli.main", "plugins", "list"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "HERMES_HOME": str(home.root)},
    ) as process:
        assert process.stderr
        assert process.stderr.readline() == b"it runs\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) in (130, -signal.SIGINT)


async def _never_awaited() -> None: ...


@pytest.mark.parametrize(
    ("result", "complaint"),
    [
        ("block", "a str instead of a dict"),
        (True, "a bool instead of a dict"),
        ([], "a list instead of a dict"),
        ({}, "the action None (allowed: block, change)"),
        ({"action": ["block"]}, "the action ['block'] (allowed: block, change)"),
        ({"action": "drop", "reason": "x"}, "the action 'drop' (allowed: block, change)"),
        ({"action": "change"}, "'change' whose arguments is a NoneType"),
        ({"action": "change", "arguments": [1]}, "'change' whose arguments is a list"),
        ({"action": "change", "arguments": {"n": print}}, "'change' whose arguments are not JSON"),
        (_never_awaited, "a coroutine; use a plain function"),
        (lambda: iter(()), "a tuple_iterator instead of a dict"),
        (lambda: (n for n in "ab"), "a generator; use a plain function"),
    ],
)
def test_an_answer_that_its_hook_does_not_take_is_logged_with_the_plugin_and_ignored(
    result: Any, complaint: str, caplog: pytest.LogCaptureFixture
) -> None:
    host = PluginHost()
    host.register_hook(
        "pre_tool_call", lambda: result() if callable(result) else result, plugin="odd"
    )
    good = {"action": "change", "arguments": {"n": 1}}
    host.register_hook("pre_tool_call", lambda: good)
    assert host.invoke_hook("pre_tool_call", **CALL) == [good]
    [record] = caplog.records
    assert record.getMessage().startswith(
        f"Plugin odd answered hook pre_tool_call with {complaint}"
    )


def test_a_refusal_counts_whatever_is_wrong_with_its_words() -> None:
    host = PluginHost()
    host.register_hook("pre_tool_call", lambda: {"action": "block"})
    host.register_hook("pre_tool_call", lambda: {"action": "block", "message": 7})
    block = {"action": "block", "message": ""}
    assert host.invoke_hook("pre_tool_call", **CALL) == [block, block]


def test_an_answer_is_a_copy_that_can_be_stored() -> None:
    host, original = PluginHost(), {"path": ["a"]}
    host.register_hook("pre_tool_call", lambda: {"action": "change", "arguments": original})
    [answer] = host.invoke_hook("pre_tool_call", **CALL)
    original["path"].append("later")
    assert answer["arguments"] == {"path": ["a"]}
    host.register_hook("pre_send", lambda: {"action": "rewrite", "text": "half \ud83d", "more": 1})
    [answer] = host.invoke_hook("pre_send", platform="x", chat_id="c", session_id="s", text="hi")
    assert answer == {"action": "rewrite", "text": "half ?"}


def test_a_refusal_wins_over_every_change_and_of_several_changes_the_first_counts() -> None:
    first, second = ({"action": "change", "arguments": {"n": n}} for n in (1, 2))
    block = {"action": "block", "message": "no"}
    assert hook_answers.first_refusal_or_answer([]) is None
    assert hook_answers.first_refusal_or_answer([first, second]) is first
    assert hook_answers.first_refusal_or_answer([first, second, block]) is block


def test_calling_a_hook_that_does_not_exist_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(LookupError, match="on_nothing"):
        plugins.invoke_hook("on_nothing")


async def _async_callback() -> None: ...


class _AsyncObject:
    async def __call__(self) -> None: ...


def _generating() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("hook", "callback", "reason"),
    [
        ("on_nothing", lambda: None, "There is no hook 'on_nothing'. Use one of: on_session_start"),
        (
            "on_gateway_stop",
            lambda colour: None,
            "unknown arguments: colour.*The hook passes: reason",
        ),
        ("on_gateway_stop", lambda reason, /: None, "unknown arguments: reason"),
        ("on_gateway_stop", _async_callback, "is async"),
        ("on_gateway_stop", _AsyncObject(), "is async"),
        ("on_gateway_stop", _generating, "or a generator"),
        ("on_gateway_stop", 7, "cannot be called"),
    ],
)
def test_a_callback_that_does_not_fit_is_refused_when_it_is_registered(
    hook: str, callback: Callable[..., object], reason: str
) -> None:
    with pytest.raises(PluginError, match=reason):
        PluginHost().register_hook(hook, callback)


def test_callbacks_may_be_registered_while_a_hook_is_being_called() -> None:
    host = PluginHost()
    start, total = threading.Barrier(5), 50

    def register(owner: int) -> None:
        start.wait(30)
        for number in range(total):
            host.register_hook("on_gateway_stop", lambda mark=(owner, number): mark)

    def call() -> None:
        start.wait(30)
        for _ in range(total):
            host.invoke_hook("on_gateway_stop", reason="x")

    threads = [threading.Thread(target=register, args=(n,)) for n in range(4)]
    threads.append(threading.Thread(target=call))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(host.invoke_hook("on_gateway_stop", reason="x")) == 4 * total


# --- loading -------------------------------------------------------------------------------------


EVERY_KIND = """
import click
from . import words

def register(ctx):
    ctx.hook("on_gateway_stop", lambda: words.GREETING)
    @ctx.hook("on_gateway_start")
    def started(platforms):
        return (ctx.name, dict(ctx.settings), platforms)
    ctx.tool("Look_up", lambda: 1, description="Looks.", parameters={"type": "object"},
             read_only=True)
    ctx.command("hi", lambda: 2, description="Greets.")
    ctx.model("tiny", lambda: 3)
    ctx.platform("pager", lambda: 4)
    ctx.memory_provider("notes", lambda: 5, description="Keeps notes.")
    ctx.cli_command(click.Command("greet"))
    (ctx.data_dir / "made").touch()
"""


def test_a_home_plugin_may_register_every_kind_and_import_its_own_modules(home: Home) -> None:
    folder = write_plugin(home.plugins / "my-plugin", EVERY_KIND)
    (folder / "words.py").write_text("GREETING = 'hello'")
    path_before = list(sys.path)

    plugins.load_enabled(home, enabling("my-plugin", **{"my-plugin": {"loud": True}}))

    assert plugins.failures() == {}
    assert plugins.invoke_hook("on_gateway_stop", reason="x") == ["hello"]
    start = plugins.invoke_hook("on_gateway_start", platforms=["cli"])
    assert start == [("my-plugin", {"loud": True}, ["cli"])]
    assert plugins.tools()["Look_up"].facts == {"read_only": True}
    assert plugins.tools()["Look_up"].plugin == "my-plugin"
    assert plugins.commands()["hi"].description == "Greets."
    assert plugins.models()["tiny"].factory() == 3
    assert plugins.platforms()["pager"].factory() == 4
    assert plugins.memory_providers()["notes"].factory() == 5
    assert isinstance(plugins.cli_commands()["greet"], click.Command)
    data = home.root / "plugin-data" / "my-plugin"
    assert (data / "made").exists()
    assert data.stat().st_mode & 0o777 == 0o700
    assert sys.path == path_before


def test_loading_twice_registers_once(home: Home) -> None:
    write_plugin(home.plugins / "one", "def register(ctx): ctx.hook('on_gateway_stop', lambda: 1)")
    settings = enabling("one", "one")
    plugins.load_enabled(home, settings)
    plugins.load_enabled(home, settings)
    assert plugins.invoke_hook("on_gateway_stop", reason="x") == [1]
    assert plugins.failures() == {}


def test_a_plugin_that_is_not_enabled_does_not_run(home: Home) -> None:
    write_plugin(home.plugins / "off", "raise AssertionError('ran')")
    plugins.load_enabled(home, enabling())
    assert plugins.discover(home)["off"].error == ""
    assert plugins.loaded() == plugins.failures() == {}


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("def register(ctx:", "SyntaxError"),
        ("raise RuntimeError('no luck')", "RuntimeError: no luck"),
        ("import sys; sys.exit(4)", "SystemExit: 4"),
        ("import nowhere_to_be_found", "No module named 'nowhere_to_be_found'"),
        ("", "no function register"),
        ("def register(): pass", "TypeError"),
        ("def register(ctx): ctx.hook('on_nothing', print)", "There is no hook 'on_nothing'"),
        ("def register(ctx): ctx.command('Bad Name', print, description='')", "Invalid name"),
        ("def register(ctx): ctx.model('x', 'not callable')", "needs a callable"),
        ("def register(ctx): ctx.model('x', print); ctx.model('x', print)", "already has a"),
        ("async def register(ctx): pass", "Its register(ctx) returned a coroutine"),
        ("def register(ctx): yield", "Its register(ctx) returned a generator"),
        ("async def f(): pass\ndef register(ctx): ctx.model('x', f)", "is async or a generator"),
        ("import asyncio\nraise asyncio.CancelledError", "CancelledError"),
        ("def register(ctx): raise GeneratorExit", "GeneratorExit"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        (
            "class Bad(Exception):\n    def __str__(self): raise ValueError\nraise Bad",
            "Bad: (no message)",
        ),
        ("def register(ctx): ctx.platform('telegram', print)", "'telegram' is a built-in"),
        (
            "def register(ctx): ctx.tool('t', print, description=5, parameters={})",
            "The description of the tool 't' is not a string",
        ),
        (
            "def register(ctx): ctx.tool('t', print, description='', parameters=6)",
            "The parameters of the tool 't' are not a JSON schema",
        ),
        ("def register(ctx): ctx.command('new', print, description='')", "'new' is a built-in"),
        (
            "def register(ctx): ctx.tool('read_file', print, description='', parameters={})",
            "'read_file' is a built-in",
        ),
    ],
)
def test_a_plugin_that_cannot_be_loaded_is_kept_with_its_reason_and_others_load(
    home: Home, code: str, reason: str
) -> None:
    write_plugin(home.plugins / "bad", code)
    write_plugin(home.plugins / "good", "def register(ctx): ctx.model('fine', print)")
    plugins.load_enabled(home, enabling("bad", "good"))
    assert reason in plugins.failures()["bad"]
    assert list(plugins.loaded()) == ["good"]
    assert "fine" in plugins.models()


def test_a_persons_ctrl_c_while_a_plugin_is_loaded_is_not_swallowed(home: Home) -> None:
    code = "import signal\nsignal.raise_signal(signal.SIGINT)\ndef register(ctx): pass"
    write_plugin(home.plugins / "slow", code)
    with pytest.raises(KeyboardInterrupt):
        PluginHost().load_enabled(home, enabling("slow"))


@pytest.mark.parametrize("error", DEADLY, ids=repr)
def test_what_a_plugin_registered_raises_errors_and_nothing_stronger(
    error: BaseException, home: Home
) -> None:
    context = PluginContext("shaky", home, {})

    def fail(*_args: object) -> None:
        raise error

    context.tool("greet", fail, description="", parameters={})
    context.command("wave", fail, description="")
    context.model("mind", fail)
    context.platform("pigeon", fail)
    context.memory_provider("past", fail)
    registered = context.registered
    for called, what in (
        (registered.tools["greet"].handler, "the tool greet"),
        (registered.commands["wave"].handler, "the command wave"),
        (registered.models["mind"].factory, "the model mind"),
        (registered.platforms["pigeon"].factory, "the platform pigeon"),
        (registered.memory_providers["past"].factory, "the memory provider past"),
    ):
        with pytest.raises(PluginError, match=f"The plugin shaky failed in {what}"):
            called()


def test_what_a_plugin_registered_and_has_not_run_when_it_returns_has_failed(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    context = PluginContext("shaky", home, {})
    context.tool("greet", lambda: _never_awaited(), description="", parameters={})
    with pytest.raises(PluginError, match="failed in the tool greet: it returned a coroutine"):
        context.registered.tools["greet"].handler()
    assert "The plugin shaky failed in the tool greet" in caplog.text


def test_what_a_plugin_registered_raises_its_own_errors_and_a_persons_ctrl_c(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    context = PluginContext("shaky", home, {})
    context.command("divide", lambda: 1 / 0, description="")
    context.command("wait", press_ctrl_c, description="")
    with pytest.raises(ZeroDivisionError):
        context.registered.commands["divide"].handler()
    assert caplog.messages == ["Plugin shaky failed in the command divide"]
    with pytest.raises(KeyboardInterrupt):
        context.registered.commands["wait"].handler()


def test_every_name_of_ours_is_kept_from_plugins() -> None:
    assert {kind: set(plugin_names.reserved(kind)) for kind in plugin_names.OWNERS} == {
        "tool": {spec.name for spec in Toolbox(default_tools(Settings())).core}
        | {tool.name for tool in default_tools(Settings())},
        "command": {name for command in COMMANDS for name in (command.name, *command.aliases)},
        "model": {"embedded"},
        "provider": {provider.name for provider in BUILT_IN},
        "platform": {*built_in(), "cli", "local", "tui"},
        "sub-command": set(root.COMMANDS),
    }


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"subject": "nowhere"}, "has no argument 'nowhere'"),
        ({"small": ["nowhere"]}, "has no argument 'nowhere'"),
        ({"is_path": "yes"}, "are not valid"),
        ({"colour": "red"}, "A tool has no 'colour'"),
    ],
)
def test_a_fact_about_a_tool_that_cannot_be_is_an_error(
    facts: dict[str, Any], message: str, home: Home
) -> None:
    context = PluginContext("odd", home, {})
    with pytest.raises(PluginError, match=message):
        context.tool("odd", print, description="", parameters={"type": "object"}, **facts)


def test_a_plugin_that_fails_half_way_leaves_nothing_behind(home: Home) -> None:
    code = """
from . import part
def register(ctx):
    ctx.hook("on_gateway_stop", lambda: "left over")
    ctx.model("left-over", print)
    raise RuntimeError
"""
    folder = write_plugin(home.plugins / "half", code)
    (folder / "part.py").write_text("")
    plugins.load_enabled(home, enabling("half"))
    assert plugins.failures() == {"half": "RuntimeError"}
    assert not plugins.has_hook("on_gateway_stop")
    assert plugins.models() == {}
    assert not [name for name in sys.modules if name.startswith("hermes_plugins.half")]


def test_a_name_that_another_plugin_took_is_the_mistake_of_the_second(home: Home) -> None:
    code = "def register(ctx): ctx.hook('on_gateway_stop', lambda: ctx.name); ctx.model('x', print)"
    write_plugin(home.plugins / "early", code)
    write_plugin(home.plugins / "late", code)
    plugins.load_enabled(home, enabling("early", "late"))
    assert plugins.failures() == {"late": "The plugin early already has a model 'x'."}
    assert plugins.invoke_hook("on_gateway_stop", reason="") == ["early"]


def test_a_plugin_may_register_only_while_it_is_being_registered(home: Home) -> None:
    contexts = list[PluginContext]()
    plugins.register_hook("on_gateway_start", lambda platforms: contexts.append(platforms))
    code = """
from hermes_cli import plugins
def register(ctx):
    plugins.invoke_hook("on_gateway_start", platforms=ctx)
"""
    write_plugin(home.plugins / "late", code)
    plugins.load_enabled(home, enabling("late"))
    [context] = contexts
    with pytest.raises(PluginError, match="only in its register"):
        context.hook("on_gateway_stop", lambda: None)


def test_an_enabled_plugin_that_does_not_exist_is_a_failure_that_is_shown(home: Home) -> None:
    plugins.load_enabled(home, enabling("gone"))
    assert "no such plugin" in plugins.failures()["gone"]


def test_without_enabled_plugins_the_metadata_of_packages_is_not_read(home: Home) -> None:
    hidden = sys.modules.pop("importlib.metadata", None)
    try:
        PluginHost().load_enabled(home, enabling())
        assert "importlib.metadata" not in sys.modules
    finally:
        if hidden is not None:
            sys.modules["importlib.metadata"] = hidden


# --- sources and manifests -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        ({"colour": "red"}, "unknown field `colour`"),
        ({"version": 1}, "Expected `str`, got `int`"),
        ({"name": "other"}, "another name: 'other'"),
        ({"requires_hermes": ">=99"}, "needs Hermes >=99"),
        ({"requires_hermes": "about 3"}, "'about 3' is not valid"),
        ({"requires_hermes": ">=" + "9" * 5000}, "9' is not valid"),
        ({"name": functools.reduce(lambda inner, _: [inner], range(900), [])}, "nested too deep"),
    ],
)
def test_a_manifest_that_is_wrong_says_what_is_wrong(
    home: Home, manifest: dict[str, object], reason: str
) -> None:
    write_plugin(home.plugins / "odd", "", **manifest)
    assert reason in plugins.discover(home)["odd"].error
    plugins.load_enabled(home, enabling("odd"))
    assert reason in plugins.failures()["odd"]


def test_a_manifest_that_is_no_file_is_not_waited_for(home: Home) -> None:
    folder = write_plugin(home.plugins / "piped", "")
    (folder / "plugin.toml").unlink()
    os.mkfifo(folder / "plugin.toml")
    assert "is not a file" in plugins.discover(home)["piped"].error


@pytest.mark.parametrize("requirement", ["", ">=0.1", ">=0.1, <99", "!=0.0.1", "> 0, <= 98.7.6"])
def test_a_manifest_may_name_the_versions_of_hermes_it_works_with(
    home: Home, requirement: str
) -> None:
    write_plugin(home.plugins / "fits", "", requires_hermes=requirement)
    assert plugins.discover(home)["fits"].error == ""


def test_a_folder_without_manifest_or_with_an_impossible_name_is_shown_with_the_reason(
    home: Home,
) -> None:
    (home.plugins / "bare").mkdir(parents=True)
    write_plugin(home.plugins / "Upper Case", "")
    (home.plugins / ".git").mkdir()
    (home.plugins / "notes.txt").touch()
    found = plugins.discover(home)
    assert "plugin.toml is missing" in found["bare"].error
    assert "Invalid plugin name" in found["Upper Case"].error
    assert not {".git", "notes.txt"} & found.keys()


@pytest.mark.parametrize("name", ["..", "../elsewhere", "/etc", "a/b", ""])
def test_a_name_cannot_lead_out_of_the_plugins_folder(home: Home, name: str) -> None:
    write_plugin(home.root / "elsewhere", "raise AssertionError('ran')")
    home.plugins.mkdir()
    plugins.load_enabled(home, enabling(name))
    assert "no such plugin" in plugins.failures()[name]


def test_an_installed_package_is_found_by_its_entry_point_and_described_by_its_metadata(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "def register(ctx): ctx.model('packaged', print)"
    install(tmp_path / "site", "shipped-one", "shipped_one_code", code)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))

    found = plugins.discover(home)["shipped-one"]
    assert (found.source, found.version, found.description, found.error) == (
        "package",
        "2.5",
        "Installed shipped-one.",
        "",
    )
    assert "shipped_one_code" not in sys.modules

    plugins.load_enabled(home, enabling("shipped-one"))
    assert plugins.failures() == {}
    assert "packaged" in plugins.models()


@pytest.mark.parametrize("entry", ["nowhere_to_be_found", "sys:missing.part", "!", "sys [extra]"])
def test_an_entry_point_that_leads_nowhere_harms_only_itself(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    install(tmp_path / "site", "astray", "astray_code", "", entry=entry)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert plugins.discover(home)["astray"].version == "2.5"
    plugins.load_enabled(home, enabling("astray", "crash_recovery"))
    assert list(plugins.failures()) == ["astray"]
    assert list(plugins.loaded()) == ["crash_recovery"]


@pytest.mark.parametrize("entries", [b"[hermes.plugins]\nno equals here\n", b"[a]\nb = \xff\n"])
def test_a_package_with_broken_metadata_is_passed_over_and_named(
    home: Home,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    entries: bytes,
) -> None:
    code = "def register(ctx): ctx.model('packaged', print)"
    install(tmp_path / "site", "sound", "sound_code", code)
    install(tmp_path / "site", "damaged", "damaged_code", "")
    (tmp_path / "site" / "damaged-2.5.dist-info" / "entry_points.txt").write_bytes(entries)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert {"sound", "crash_recovery"} <= plugins.discover(home).keys()
    warnings = [
        record.getMessage() for record in caplog.records if record.levelno == logging.WARNING
    ]
    assert warnings
    assert all(str(tmp_path / "site" / "damaged-2.5.dist-info") in record for record in warnings)
    plugins.load_enabled(home, enabling("sound", "crash_recovery"))
    assert plugins.failures() == {}
    assert "packaged" in plugins.models()


def test_an_installed_package_may_bring_a_manifest_beside_its_module(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = "boxed_code.plugin:Holder.inner"
    code = """
class Holder:
    class inner:
        @staticmethod
        def register(ctx): ctx.model('boxed', print)
"""
    install(tmp_path / "site", "boxed", "boxed_code.plugin", code, entry=entry)
    (tmp_path / "site" / "boxed_code" / "__init__.py").touch()
    (tmp_path / "site" / "boxed_code" / "plugin.toml").write_text(
        'name = "boxed"\nversion = "9"\ndescription = "From the file."'
    )
    monkeypatch.syspath_prepend(str(tmp_path / "site"))

    assert plugins.discover(home)["boxed"].description == "From the file."
    assert "boxed_code" not in sys.modules
    plugins.load_enabled(home, enabling("boxed"))
    assert "boxed" in plugins.models()


def test_the_home_wins_over_a_package_and_a_package_over_a_shipped_plugin(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", "crash_recovery", "other_recovery", "def register(ctx): pass")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert plugins.discover(home)["crash_recovery"].source == "package"

    code = "def register(ctx): ctx.model('mine', print)"
    write_plugin(home.plugins / "crash_recovery", code)
    found = plugins.discover(home)["crash_recovery"]
    assert found.source == "home"
    assert [place.partition(":")[0] for place in found.hides] == ["package", "bundled"]
    plugins.load_enabled(home, enabling("crash_recovery"))
    assert list(plugins.models()) == ["mine"]
