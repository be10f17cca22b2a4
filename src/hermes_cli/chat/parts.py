"""What a chat is made of, from the settings and the command line: model, tools, store, conversation."""

import sys
from dataclasses import dataclass, field
from pathlib import Path

import click
import msgspec

from hermes_agent.assembly import Assembly, SharedModel
from hermes_agent.models import embedded
from hermes_agent.models.discovery import Finding
from hermes_cli import plugins
from hermes_cli.commands.app import App
from hermes_cli.commands.sessions import chosen
from hermes_core import log
from hermes_core.errors import ModelMissingError, SessionNotFoundError, UsageError
from hermes_state import SessionDB
from hermes_state.ledger import lineage, sessions

SOURCE = "cli"


@dataclass(frozen=True)
class Wishes:
    """What the command line asks for."""

    query: str | None = None
    continues: bool = False
    resume: str | None = None
    model: str = ""
    workspace: Path | None = None
    pull: bool = False
    """Fetch the embedded model without asking, when there is nobody else to ask."""

    def check(self) -> None:
        """Raise UsageError for what cannot be done."""
        if self.workspace is not None and not self.workspace.is_dir():
            raise UsageError(f"{self.workspace} is no folder.", fix="Make it, or name another.")
        if self.continues and self.resume is not None:
            raise UsageError("--continue and --resume exclude each other.", fix="Give one of them.")


@dataclass
class Parts:
    """What the conversations of one chat share, and how one is opened."""

    app: App
    wishes: Wishes
    store: SessionDB
    assembly: Assembly
    model_name: str
    """What the person calls the model; empty: the one that the settings give."""
    folders_lost: list[str] = field(default_factory=list[str])
    """Folders of resumed conversations that are not there any more."""

    @property
    def workspace(self) -> Path:
        return self.wishes.workspace or Path.cwd()

    @property
    def finding(self) -> Finding:
        """Return where the model is, and why it is used."""
        return self.assembly.registry(self.model_name).discovery.chosen()

    @property
    def findings(self) -> list[Finding]:
        """All models that were found."""
        return self.assembly.registry().discovery.found()

    def use_model(self, name: str) -> SharedModel:
        """Have another model answer from now on."""
        model = self.assembly.model(name)
        self.model_name = name
        return model

    def reopen(self, session_id: str) -> None:
        """Open a conversation that was there before again, and work where the person wants it."""
        row = self.store.read(sessions.find, session_id)
        if row is None:
            return
        if row["ended_at"] is not None:
            self.store.write(sessions.reopen, session_id)
        is_lost = bool(row["cwd"]) and not Path(row["cwd"]).is_dir()
        if is_lost:
            self.folders_lost.append(row["cwd"])
        if self.wishes.workspace is not None or is_lost:
            self.store.write(sessions.change, session_id, cwd=str(self.workspace))

    def wanted_session(self) -> str | None:
        """The session that the command line asks for; None: a new one."""
        if self.wishes.resume is not None:
            return self.store.read(lineage.tip, chosen(self.store, self.wishes.resume))
        if not self.wishes.continues:
            return None
        latest = self.store.list_sessions_rich(limit=1, source=SOURCE)
        if not latest:
            raise SessionNotFoundError(
                "There is no conversation to continue.", fix="Start one: hermes chat."
            )
        return latest[0]["id"]

    def close(self) -> None:
        """Let go of models and store."""
        self.assembly.close()
        self.store.close()


def gather(app: App, wishes: Wishes, store: SessionDB, *, titles: bool = True) -> Parts:
    """Put together what a chat takes; raises ModelMissingError when there is nobody to ask."""
    log.set_up(app.home.logs, app.settings.log.level)
    settings = app.settings
    if not titles:
        agent = msgspec.structs.replace(settings.agent, titles=False)
        settings = msgspec.structs.replace(settings, agent=agent)
    assembly = Assembly(app.home, settings, store, plugins)
    _find_model(app, assembly, wishes)
    return Parts(app, wishes, store, assembly, wishes.model)


def _find_model(app: App, assembly: Assembly, wishes: Wishes) -> None:
    """Make sure that there is a model, fetched first when that is wished or agreed to."""
    try:
        assembly.model(wishes.model)
    except ModelMissingError:
        can_agree = sys.stdin.isatty() and sys.stderr.isatty()
        is_next = assembly.registry(wishes.model).discovery.is_embedded_next
        if not is_next or not (wishes.pull or can_agree):
            raise
        _obtain(app, yes=wishes.pull)
        assembly.model(wishes.model)


def _obtain(app: App, *, yes: bool) -> None:
    # the catalog, hashing and archives: only for who has no model yet
    from hermes_cli.commands import model_pull  # noqa: PLC0415

    if not yes:
        click.echo(
            f"There is no model yet: no key, no local server.\n{embedded.advice()}", err=True
        )
    try:
        model_pull.obtain(app, yes=yes)
    except click.Abort:
        raise ModelMissingError(
            "There is no model to ask.",
            fix="Set a key, start a local server, or fetch the small one: hermes model pull.",
        ) from None
