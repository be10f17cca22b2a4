"""`hermes setup`: choose the model, the workspace and the sandbox, and connect a messenger."""

import importlib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

from hermes_cli.commands import model_choice, model_dialogue, prompts
from hermes_cli.commands.app import App, is_interactive, json_option, pass_app
from hermes_cli.commands.login import key_options, read_key
from hermes_cli.commands.login import store as store_key
from hermes_cli.commands.model_choice import KeyTrial, ServerTrial
from hermes_cli.commands.prompts import Row
from hermes_core import config
from hermes_core.errors import ConfigError, HermesError, ModelMissingError, UsageError
from hermes_core.paths import make_folder

_FLAGS = (
    "Name what you want: --provider NAME with --key-stdin, --base-url URL, --model NAME, --workspace"
    " FOLDER, --sandbox NAME, --platform NAME; or --yes for what Hermes finds."
)
_LATER = "Skip"
_INTRO = (
    "Enter takes the answer in brackets. Ctrl+C stops; what you confirmed until then is kept.\n"
    "hermes login, hermes model and hermes gateway setup repeat single steps.\n"
)


class Options(msgspec.Struct, frozen=True):
    """The answers of the command line."""

    provider: str = ""
    base_url: str = ""
    model: str = ""
    workspace: str = ""
    sandbox: str = ""
    platform: str = ""
    key_stdin: bool = False
    no_test: bool = False
    yes: bool = False

    @property
    def names_model(self) -> bool:
        return bool(self.provider or self.base_url or self.model)


@click.command("setup")
@click.option("--provider", default="", metavar="NAME", help="Provider of the model; or embedded.")
@click.option(
    "--base-url", default="", metavar="URL", help="Address of an OpenAI-compatible server."
)
@click.option("--model", default="", metavar="NAME", help="Model of that provider or server.")
@key_options
@click.option("--workspace", default="", metavar="FOLDER", help="Folder that chats work in.")
@click.option(
    "--sandbox",
    default="",
    metavar="NAME",
    help="Where commands run: auto, bubblewrap, landlock, seatbelt, container or host.",
)
@click.option("--platform", default="", metavar="NAME", help="Connect this messenger.")
@click.option("--yes", is_flag=True, help="Ask nothing; use the model that Hermes finds.")
@json_option
@pass_app
def command(app: App, **answers: object) -> int:
    """Set up Hermes: the model, the workspace, the sandbox and a messenger.

    On a terminal it asks, and can be repeated. Each option answers a question, for scripts.
    """
    config.refuse_in_command("set up Hermes")
    options = msgspec.convert(answers, Options)
    if options == Options():
        prompts.require_terminal(_FLAGS)
    if options.sandbox:
        config.parse_value("tools.sandbox", options.sandbox)
    run(app, options)
    return 0


def offer(app: App) -> None:
    """Offer the set-up to a person who starts Hermes for the first time without a model."""
    used, _ = model_choice.chosen(model_choice.registry_of(app))
    if used is not None:
        return
    prompts.say("Welcome to Hermes. There is no model yet: no API key, no local server.")
    if prompts.confirm("Set it up now? It takes a minute.", default=True):
        run(app, Options())


def run(app: App, options: Options) -> None:
    """Take the steps; those without an option are asked for if somebody can answer."""
    asks = is_interactive() and not options.yes and not app.as_json
    if asks:
        prompts.say(f"Setting up Hermes in {app.home.root}\n{_INTRO}")
    with _kept_on_stop(asks):
        _model(app, options, asks=asks)
        _place(app, options, asks=asks)
        _platform(app, options, asks=asks)
    _finish(app)


@contextmanager
def _kept_on_stop(asks: bool) -> Generator[None]:
    """Say after Ctrl+C that confirmed steps are kept."""
    try:
        yield
    except (click.Abort, KeyboardInterrupt):
        if asks:
            prompts.say("\nWhat you confirmed is kept. Continue with: hermes setup")
        raise


# -- the model -------------------------------------------------------------------------------


def _model(app: App, options: Options, *, asks: bool) -> None:
    if options.names_model:
        _named_model(app, options, asks=asks)
    elif options.key_stdin:
        raise UsageError(
            "--key-stdin needs a provider.", fix="Add --provider NAME or --base-url URL."
        )
    elif asks:
        prompts.say("1. The model that answers")
        model_dialogue.ask_for_model(app, keeps=_LATER, lists_models=False)
        prompts.say("")
    elif options.yes:
        _found_model(app)


def _named_model(app: App, options: Options, *, asks: bool) -> None:
    """Set the model that the options name, after a trial; ask for a key that is missing."""
    if options.base_url:
        _server(app, options)
        return
    hosted = {provider.name for provider in model_choice.providers_of(app).hosted}
    provider = options.provider.lower()
    if provider == "embedded":
        model_dialogue.download(app, yes=True)
        return
    if provider in hosted and options.key_stdin:
        trial = KeyTrial(app, model_choice.provider_named(app, provider), read_key())
        store_key(app, trial, is_tested=not options.no_test, model=options.model)
    elif asks and provider in hosted and not _gets_key(app, provider):
        raise UsageError("No key was stored.")
    name = f"{provider}/{options.model}" if provider and options.model else options.model
    if name:
        model_choice.use(app, name)
    else:
        registry = model_choice.registry_of(app)
        model_choice.use_finding(app, registry, registry.discovery.named("", provider))


def _gets_key(app: App, provider: str) -> bool:
    """Return whether there is a key for a provider; ask for one if there is none."""
    try:
        model_choice.registry_of(app).discovery.named("", provider)
    except ModelMissingError:
        return model_dialogue.ask_for_key(app, model_choice.provider_named(app, provider))
    return True


def _server(app: App, options: Options) -> None:
    server = ServerTrial(app, options.base_url, read_key() if options.key_stdin else "")
    names = server.names() if not (options.model and options.no_test) else []
    model = options.model or next(iter(names), "")
    if not model:
        raise UsageError(f"{server.base_url} lists no models.", fix="Add --model NAME.")
    if not options.no_test:
        app.say(f"The server works: {server.check(model)}.")
    server.store(model)


def _found_model(app: App) -> None:
    """Use the first model that is found, else the built-in one."""
    try:
        used = model_choice.registry_of(app).discovery.chosen()
    except ModelMissingError:
        model_dialogue.download(app, yes=True)
    else:
        app.say(f"Using {used.label}: {used.reason}.")


# -- workspace and sandbox -------------------------------------------------------------------


def _place(app: App, options: Options, *, asks: bool) -> None:
    if options.workspace:
        _set_workspace(app, options.workspace)
    if options.sandbox:
        _set_sandbox(app, options.sandbox)
    if asks and not (options.workspace or options.sandbox):
        _ask_place(app)


def _ask_place(app: App) -> None:
    # slow to import: looks at what this machine can confine commands with
    from hermes_agent.sandbox import detect  # noqa: PLC0415

    prompts.say("2. Where it works")
    while True:
        folder = app.settings.gateway.workspace or str(app.home.workspace)
        rows = [
            Row("Keep these"),
            Row("Other folder for chats", folder),
            Row("Other sandbox", detect.summary(app.settings)),
        ]
        prompts.say("  In a terminal, Hermes works in the folder where you start it.")
        place = prompts.choose("Choose", rows)
        if place == 0:
            prompts.say("")
            return
        try:
            if place == 1:
                _ask_workspace(app, folder)
            else:
                _ask_sandbox(app)
        except HermesError as error:
            prompts.say(f"  {error}")


def _ask_workspace(app: App, folder: str) -> None:
    if answer := prompts.line("  Folder for chats from messengers", folder):
        _set_workspace(app, answer)


def _ask_sandbox(app: App) -> None:
    from hermes_agent.sandbox import detect  # noqa: PLC0415 -- as above

    found = {"auto": "the first that works", **detect.survey(app.settings)}
    rows = [Row(name, state) for name, state in found.items()]
    names = list(found)
    now = names.index(app.settings.tools.sandbox)
    _set_sandbox(app, names[prompts.choose("  Sandbox", rows, now)])


def _set_workspace(app: App, text: str) -> None:
    """Set the folder that chats work in; creates it. Raises ConfigError if it is too broad."""
    # slow to import, and rarely asked for
    from gateway.workspaces import Workspaces  # noqa: PLC0415

    folder = Path(text).expanduser().absolute()
    is_new = not folder.exists()
    make_folder(folder)
    try:
        gateway = msgspec.structs.replace(app.settings.gateway, workspace=str(folder))
        Workspaces(app.home, msgspec.structs.replace(app.settings, gateway=gateway))
    except ConfigError:
        if is_new:
            folder.rmdir()
        raise
    config.change(app.home, "gateway.workspace", str(folder))
    model_choice.reload(app)
    app.say(f"Chats work in {folder}.")


def _set_sandbox(app: App, name: str) -> None:
    """Set where commands run. Raises ConfigError if that does not work here."""
    from hermes_agent.sandbox import detect  # noqa: PLC0415 -- as above

    value = config.parse_value("tools.sandbox", name)
    tools = msgspec.structs.replace(app.settings.tools, sandbox=value)
    settings = msgspec.structs.replace(app.settings, tools=tools)
    chosen = detect.choose(settings)
    config.change(app.home, "tools.sandbox", value)
    model_choice.reload(app)
    app.say(chosen.summary())


# -- the messenger ---------------------------------------------------------------------------


def _platform(app: App, options: Options, *, asks: bool) -> None:
    if options.platform:
        _connect(options.platform)
    elif asks:
        prompts.say("3. A messenger to reach it from")
        registry = importlib.import_module("gateway.platforms.registry")
        manifests = sorted(registry.manifests().items())
        on = app.settings.gateway.platforms
        rows = [
            Row("None for now"),
            *(Row(m.title, "set up" if n in on else "") for n, m in manifests),
        ]
        place = prompts.choose("Choose", rows)
        if place:
            _try_to_connect(manifests[place - 1][0])
        prompts.say("")


def _try_to_connect(platform: str) -> None:
    """Connect a platform; a failure does not end the dialogue."""
    try:
        _connect(platform)
    except HermesError as error:
        prompts.say(f"  {error}\n  Repeat this step with: hermes gateway setup {platform}")


def _connect(platform: str) -> None:
    """Run `hermes gateway setup` for a platform."""
    gateway_setup = importlib.import_module("hermes_cli.commands.gateway_setup")
    click.get_current_context().invoke(gateway_setup.setup, platform=platform)


def _finish(app: App) -> None:
    model_choice.reload(app)
    registry = model_choice.registry_of(app)
    used, _ = model_choice.chosen(registry)
    label = used.label if used is not None else ""
    advice = ""
    if used is not None and used.base_url:
        advice = registry.facts(used, registry.server_facts(used)).window_advice
    if advice:
        app.say(advice)
    if app.as_json:
        platforms = sorted(app.settings.gateway.platforms)
        app.emit({"model": label, "sandbox": app.settings.tools.sandbox, "platforms": platforms})
    elif used is not None:
        app.say(f"Ready: {label} answers. Start with: hermes")
    else:
        app.say("No model is set up yet. Choose one with: hermes model")
