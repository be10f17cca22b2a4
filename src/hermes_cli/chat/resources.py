"""Resources of a chat, from the settings and the command line: model, tools, store, conversation."""

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from hermes_agent.assembly import Assembly, SharedModel
from hermes_agent.models.discovery import Finding
from hermes_cli import plugins
from hermes_cli.commands.app import App, is_interactive
from hermes_cli.commands.sessions import find_session
from hermes_core import log
from hermes_core.errors import ModelMissingError, SessionNotFoundError, UsageError
from hermes_state import SessionDB
from hermes_state.ledger import lineage, sessions

SOURCE = "cli"


@dataclass(frozen=True)
class ChatOptions:
    """Options of the command line."""

    query: str | None = None
    continue_last: bool = False
    resume: str | None = None
    model: str = ""
    workspace: Path | None = None
    pull: bool = False
    """Download the embedded model without asking if no other model is available."""

    def check(self) -> None:
        """Raise UsageError for options that cannot be used."""
        if self.workspace is not None and not self.workspace.is_dir():
            raise UsageError(
                f"Folder {self.workspace} does not exist.", fix="Create it, or choose another."
            )
        if self.continue_last and self.resume is not None:
            raise UsageError("--continue and --resume cannot be combined.", fix="Use one of them.")


@dataclass
class ChatResources:
    """Model, tools and store that the conversations of one chat share."""

    app: App
    options: ChatOptions
    store: SessionDB
    assembly: Assembly
    model_name: str
    """The model as the user named it; empty: the one from the settings."""
    folders_lost: list[str] = field(default_factory=list[str])
    """Folders of resumed conversations that no longer exist."""

    @property
    def workspace(self) -> Path:
        return self.options.workspace or Path.cwd()

    @property
    def finding(self) -> Finding:
        """Return where the model is, and why it is used."""
        return self.assembly.registry(self.model_name).discovery.chosen()

    @property
    def findings(self) -> list[Finding]:
        """Return all models that were found."""
        return self.assembly.registry().discovery.found()

    def use_model(self, name: str) -> SharedModel:
        """Switch to another model."""
        model = self.assembly.model(name)
        self.model_name = name
        return model

    def reopen(self, session_id: str) -> None:
        """Reopen a stored conversation, in the folder that the user chose."""
        row = self.store.read(sessions.find, session_id)
        if row is None:
            return
        if row["ended_at"] is not None:
            self.store.write(sessions.reopen, session_id)
        is_lost = bool(row["cwd"]) and not Path(row["cwd"]).is_dir()
        if is_lost:
            self.folders_lost.append(row["cwd"])
        if self.options.workspace is not None or is_lost:
            self.store.write(sessions.change, session_id, cwd=str(self.workspace))

    def session_to_open(self) -> str | None:
        """Return the session that the command line names; None: a new one."""
        if self.options.resume is not None:
            return self.store.read(lineage.tip, find_session(self.store, self.options.resume))
        if not self.options.continue_last:
            return None
        latest = self.store.list_sessions_rich(limit=1, source=SOURCE)
        if not latest:
            raise SessionNotFoundError(
                "There is no conversation to continue.", fix="Start one: hermes chat."
            )
        return latest[0]["id"]

    def close(self) -> None:
        """Release models and store."""
        self.assembly.close()
        self.store.close()


def open_resources(
    app: App, options: ChatOptions, store: SessionDB, *, titles: bool = True
) -> ChatResources:
    """Open the resources of a chat. Raises ModelMissingError when there is no model."""
    log.set_up(app.home.logs, app.settings.log.level)
    settings = app.settings
    if not titles:
        agent = msgspec.structs.replace(settings.agent, titles=False)
        settings = msgspec.structs.replace(settings, agent=agent)
    assembly = Assembly(app.home, settings, store, plugins)
    _find_model(app, assembly, options)
    return ChatResources(app, options, store, assembly, options.model)


def _find_model(app: App, assembly: Assembly, options: ChatOptions) -> None:
    """Make sure that there is a model; set one up if the user asked for or agrees to that."""
    try:
        assembly.model(options.model)
    except ModelMissingError as error:
        # the catalog, hashing and archives: needed only to get a model
        from hermes_cli.commands import model_dialogue, prompts  # noqa: PLC0415

        can_agree = is_interactive()
        is_next = assembly.registry(options.model).discovery.is_download_next
        is_named = bool(options.model or app.settings.model.name or app.settings.model.provider)
        if is_next and (options.pull or (can_agree and is_named)):
            is_done = model_dialogue.download(app, yes=options.pull)
        elif can_agree and not is_named:
            prompts.say(f"{error.message} Choose one:")
            is_done = model_dialogue.ask_for_model(app, keeps="Quit", lists_models=False)
        else:
            raise
        if not is_done:
            raise
        assembly.renew(msgspec.structs.replace(assembly.settings, model=app.settings.model))
        assembly.model(options.model)
