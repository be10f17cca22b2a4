"""The dialogue that leads to a model that answers: found ones, keys, servers, the built-in one."""

from dataclasses import dataclass

import click
import msgspec

from hermes_agent.models import embedded, trial
from hermes_agent.models.discovery import Finding
from hermes_agent.models.embedded import catalog, pull
from hermes_agent.models.providers import Provider
from hermes_agent.models.registry import Registry
from hermes_cli.commands import prompts
from hermes_cli.commands.app import App
from hermes_cli.commands.model_choice import (
    KeyTrial,
    ServerTrial,
    chosen,
    providers_of,
    refuses_key,
    registry_of,
    try_out,
    use,
    use_finding,
    with_used,
)
from hermes_cli.commands.prompts import Row
from hermes_core.errors import ModelError, ModelUnreachableError, UsageError
from hermes_core.secrets import without_passwords
from hermes_core.text import human_size


def ask_for_key(app: App, provider: Provider) -> bool:
    """Ask for the key of a provider until one works, and store it; False if the person gives up."""
    if provider.key_page:
        prompts.say(f"  Create a key at {provider.key_page}")
    while key := prompts.secret(f"  API key for {_name(provider)} (hidden; Enter goes back)"):
        candidate = KeyTrial(app, provider, key)
        try:
            candidate.check_form()
            prompts.say(f"  Asking {provider.name} …")
            prompts.say(f"  The key works: {candidate.check()}.")
        except UsageError as error:
            prompts.say(f"  {error}")
            continue
        except ModelError as error:
            prompts.say(f"  {error.message}")
            if refuses_key(error) or not _is_kept(error):
                continue
        candidate.store()
        prompts.say(f"  Stored in {app.home.config}, which only you may read.")
        _mention_variables(app, provider)
        return True
    return False


def _name(provider: Provider) -> str:
    return provider.title.partition(",")[0] or provider.name


def _is_kept(error: ModelError) -> bool:
    """Ask whether to store a key that could not be tested; one that lacks credit is right."""
    is_tested = not isinstance(error, ModelUnreachableError)
    return prompts.confirm("  Store the key all the same?", default=is_tested)


def _mention_variables(app: App, provider: Provider) -> None:
    """Say which variables of the environment override a stored key."""
    found = providers_of(app).credentials()
    if provider.key_variable in found:
        prompts.say(f"  {provider.key_variable} is set too, and overrides the stored key.")
    if provider.address_variable in found:
        prompts.say(
            f"  {provider.address_variable} is set, so requests go to"
            f" {without_passwords(found[provider.address_variable])}, without this key."
        )


def ask_for_server(app: App) -> bool:
    """Ask for the address of a server until one answers; False if the person gives up."""
    while address := prompts.line("  Address, such as http://host:8000/v1 (Enter goes back)"):
        try:
            server, names = _reach(app, address)
            place = prompts.choose("  Model", [Row(name) for name in names])
            prompts.say(f"  Asking {names[place]} …")
            prompts.say(f"  It works: {server.check(names[place])}.")
        except (UsageError, ModelError) as error:
            prompts.say(f"  {error}")
            continue
        server.store(names[place])
        return True
    return False


def _reach(app: App, address: str) -> tuple[ServerTrial, list[str]]:
    """Return a server and its models; asks for a key if it wants one. Raises ModelError."""
    key = ""
    while True:
        server = ServerTrial(app, address, key)
        try:
            return server, server.names() or [_ask_name()]
        except ModelError as error:
            if not refuses_key(error):
                raise
            prompts.say("  It does not accept this key." if key else "  It wants an API key.")
            if not (key := prompts.secret("  API key for this server (hidden; Enter goes back)")):
                raise


def _ask_name() -> str:
    name = prompts.line("  It does not list its models. Name of the model")
    if not name:
        raise UsageError("No model was named.")
    return name


@dataclass
class Way:
    """A way to a model that a person can choose."""

    row: Row
    finding: Finding | None = None
    provider: Provider | None = None
    kind: str = ""
    """`server` or `download`, if it is neither found nor a provider; empty: none of these."""


def ways(app: App, *, keeps: str = "") -> tuple[list[Way], int]:
    """Return the ways to a model that are open here, and the place of the one to suggest.

    `keeps` is the label of a way that changes nothing.
    """
    registry = registry_of(app)
    used = chosen(registry)[0]
    found = [finding for finding in with_used(used, registry.discovery.found()) if finding.model]
    listed = [Way(_row_of(finding), finding) for finding in found]
    with_key = {finding.provider for finding in found}
    hosted = [p for p in providers_of(app).hosted if p.name not in with_key]
    listed += [Way(Row(_title(p), "paste an API key"), provider=p) for p in hosted]
    listed.append(Way(Row("Another server", "by its address"), kind="server"))
    suggested = 0
    if not any(registry.provider(finding).is_in_process for finding in found):
        entry = catalog.get(pull.choose(app.home).name)
        about = f"downloads {human_size(entry.bytes)}; small, runs on this machine, no key"
        listed.append(Way(Row("Built-in model", about), kind="download"))
        suggested = 0 if found else len(listed) - 1
    if keeps:
        listed.append(Way(Row(keeps)))
    return listed, suggested


def _title(provider: Provider) -> str:
    return provider.title or provider.name


def _row_of(finding: Finding) -> Row:
    more = f" and {len(finding.others)} more" if finding.others else ""
    return Row(f"{finding.label}{more}", finding.reason)


def ask_for_model(app: App, *, keeps: str, lists_models: bool) -> bool:
    """Let the person choose who answers until that works; False if they keep what there is.

    `lists_models` also asks which model of a provider it should be.
    """
    while True:
        listed, suggested = ways(app, keeps=keeps)
        way = listed[prompts.choose("Choose", [way.row for way in listed], suggested)]
        if way == listed[-1]:
            return False
        try:
            if _take(app, way, lists_models=lists_models):
                return True
        except (ModelError, UsageError) as error:
            prompts.say(f"  {error}")


def _take(app: App, way: Way, *, lists_models: bool) -> bool:
    if way.kind == "server":
        return ask_for_server(app)
    if way.kind == "download":  # its size was shown in the list
        return download(app, yes=True)
    if way.provider is not None:
        return ask_for_key(app, way.provider) and _take_hosted(app, way.provider, lists_models)
    assert way.finding is not None
    return _take_found(app, way.finding, lists_models=lists_models)


def _take_hosted(app: App, provider: Provider, lists_models: bool) -> bool:
    """Use a provider whose key was just tested."""
    registry = registry_of(app)
    finding = registry.discovery.named("", provider.name)
    if lists_models:
        finding = _with_listed(registry, finding)
    use_finding(app, registry, finding)
    return True


def _take_found(app: App, finding: Finding, *, lists_models: bool) -> bool:
    """Use a model that was found, after a trial."""
    registry = registry_of(app, trial.for_trial(app.settings.model))
    is_hosted = bool(registry.provider(finding).base_url)
    if lists_models or (finding.others and not is_hosted):
        finding = _with_listed(registry, finding)
    if not registry.provider(finding).is_in_process:
        prompts.say(f"  Asking {finding.label} …")
        try:
            prompts.say(f"  It works: {try_out(registry, finding)}.")
        except ModelError as error:
            prompts.say(f"  {error}")
            if not prompts.confirm("  Use it all the same?", default=False):
                return False
    use_finding(app, registry, finding)
    return True


def _with_listed(registry: Registry, finding: Finding) -> Finding:
    """Let the person choose one of the models where this one was found."""
    try:
        listed = registry.model_names(finding)
    except ModelError as error:
        prompts.say(f"  The models cannot be listed. {error}")
        listed = []
    names = list(dict.fromkeys([finding.model, *listed, *finding.others]))
    if len(names) == 1:
        return finding
    place = prompts.choose("Model", [Row(name) for name in names])
    return msgspec.structs.replace(finding, model=names[place])


def download(app: App, *, yes: bool = False) -> bool:
    """Download the built-in model and use it; False if the person does not want to."""
    # hashing and archives: needed only to download a model
    from hermes_cli.commands import model_pull  # noqa: PLC0415

    if not yes:
        prompts.say(embedded.advice())
    try:
        model_pull.obtain(app, yes=yes)
    except click.Abort:
        return False
    use(app, "embedded")
    return True
