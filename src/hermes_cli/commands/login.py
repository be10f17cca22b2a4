"""`hermes login` and `hermes logout`: store and remove the keys of model providers."""

import sys

import click

from hermes_cli.commands import model_choice, model_dialogue, prompts
from hermes_cli.commands.app import App, json_option, pass_app
from hermes_cli.commands.model_choice import KeyTrial
from hermes_core import config
from hermes_core.errors import ModelMissingError, UsageError

_FLAGS = "Write: hermes login PROVIDER --key-stdin < FILE."


def key_options(command: click.decorators.FC) -> click.decorators.FC:
    """Add the options that say where a key comes from, and whether it is tested."""
    command = click.option("--no-test", is_flag=True, help="Store the key without a trial.")(
        command
    )
    return click.option(
        "--key-stdin", is_flag=True, help="Read the API key from standard input; do not ask."
    )(command)


def read_key() -> str:
    """Read a key from stdin. Raises UsageError when there is none."""
    key = sys.stdin.readline().strip()
    if not key:
        raise UsageError("There is no key on standard input.", fix="Pipe it: … --key-stdin < FILE.")
    return key


@click.command("login")
@click.argument("provider", required=False)
@key_options
@json_option
@pass_app
def login(app: App, provider: str | None, key_stdin: bool, no_test: bool) -> int:
    """Store the API key of PROVIDER, after one tiny request with it.

    The key goes to config.toml in the home, which only you may read.
    """
    config.refuse_in_command("store keys")
    if provider is None:
        prompts.require_terminal(_FLAGS)
        provider = _ask_provider(app)
    chosen = model_choice.provider_named(app, provider)
    if key_stdin:
        store(app, KeyTrial(app, chosen, read_key()), is_tested=not no_test)
    else:
        prompts.require_terminal(_FLAGS)
        if not model_dialogue.ask_for_key(app, chosen):
            raise UsageError("No key was stored.")
    _report(app, chosen.name)
    return 0


def store(app: App, trial: KeyTrial, *, is_tested: bool, model: str = "") -> None:
    """Test a key that was piped in, and store it. Raises ModelError."""
    if is_tested:
        app.say(f"The key works: {trial.check(model)}.")
    trial.store()
    app.say(f"Stored the key for {trial.provider.name} in {app.home.config}.")


def _ask_provider(app: App) -> str:
    keys = app.settings.model.keys
    providers = model_choice.providers_of(app).hosted
    rows = [
        prompts.Row(provider.title or provider.name, "has a key" if provider.name in keys else "")
        for provider in providers
    ]
    return providers[prompts.choose("Provider", rows)].name


def _report(app: App, provider: str) -> None:
    """Say which model answers now; another one may be chosen."""
    used, _ = model_choice.chosen(model_choice.registry_of(app))
    label = used.label if used is not None else ""
    if app.as_json:
        app.emit({"provider": provider, "model": label})
    elif used is not None and used.provider == provider:
        app.say(f"Using {label}. Choose another model with: hermes model")
    else:
        app.say(f"{label or 'Nothing'} still answers. Switch with: hermes model use {provider}/…")


@click.command("logout")
@click.argument("provider", required=False)
@json_option
@pass_app
def logout(app: App, provider: str | None) -> int:
    """Remove the stored API key of PROVIDER."""
    config.refuse_in_command("remove keys")
    stored = app.settings.model.keys
    if provider is None and len(stored) != 1:
        fix = f"Write hermes logout with one of: {', '.join(stored)}." if stored else ""
        raise UsageError("Which key?" if stored else "No key is stored.", fix=fix)
    name = (provider or next(iter(stored))).lower()
    if name not in stored:
        raise UsageError(
            f"No key is stored for {name}.",
            fix=f"Stored are: {', '.join(stored) or 'none'}. `hermes config unset model.api_key`"
            " removes that of model.base_url.",
        )

    def without(old: dict[str, str]) -> dict[str, str] | None:
        return {key: value for key, value in old.items() if key != name} or None

    config.update(app.home, "model.keys", without)
    model_choice.reload(app)
    if app.as_json:
        app.emit({"removed": name})
    app.say(f"Removed the key for {name}.")
    _mention_rest(app, name)
    return 0


def _mention_rest(app: App, name: str) -> None:
    """Say what still uses the provider: a variable, or the chosen model."""
    providers = model_choice.providers_of(app)
    variable = providers.get(name).key_variable
    if variable in providers.credentials():
        app.say(f"{variable} is still set in the environment.")
        return
    try:
        model_choice.registry_of(app).discovery.chosen()
    except ModelMissingError as error:
        app.say(f"No model can answer now. {error.message} Choose one with: hermes model")
