"""Workspaces: the folders that chats work in, by chat, by the role of a person, or one for all."""

import os
from pathlib import Path

from gateway.source import SessionSource
from hermes_agent.approval.danger import places
from hermes_core.errors import ConfigError
from hermes_core.paths import Home, make_folder
from hermes_core.settings import Settings
from hermes_state.values import Role


class Workspaces:
    """Resolves workspaces. May be used from several threads."""

    def __init__(self, home: Home, settings: Settings) -> None:
        """Raise ConfigError when a folder does not exist, or may not be a workspace."""
        gateway, roles = settings.gateway, settings.roles
        self._home = home
        self._may_be_broad = gateway.broad_workspace
        by_role: dict[Role, str] = {
            "owner": roles.owner_workspace,
            "member": roles.member_workspace,
            "guest": roles.guest_workspace,
        }
        self._by_chat = {
            chat: self._checked(f'gateway.workspaces."{chat}"', text)
            for chat, text in gateway.workspaces.items()
        }
        self._by_role = {
            role: self._checked(f"roles.{role}_workspace", text)
            for role, text in by_role.items()
            if text
        }
        self.default = (
            self._checked("gateway.workspace", gateway.workspace)
            if gateway.workspace
            else home.workspace
        )
        self._refuse("The default workspace", self.default)

    def of(self, source: SessionSource, role: Role, stored: str | None = None) -> Path:
        """Return the workspace of a person in a chat; create it when it is gone.

        `stored` is the folder of a conversation that began in a terminal: an owner continues there.
        """
        if stored and role == "owner" and not self._objection(Path(stored)):
            return Path(stored)
        chat = f"{source.platform.value}:{source.chat_id}"
        folder = self._by_chat.get(chat) or self._by_role.get(role) or self.default
        return make_folder(folder)

    def describe(self) -> str:
        """Describe for people where chats work."""
        others = len(self._by_chat) + len(self._by_role)
        more = f", and {others} of their own for chats and roles" if others else ""
        return f"Chats work in {self.default}{more} (gateway.workspace)."

    def every(self) -> dict[str, Path]:
        """Return all workspaces by whose they are, the most special first."""
        chats = {f"the chat {chat}": folder for chat, folder in self._by_chat.items()}
        roles = {f"chats of {role}s": folder for role, folder in self._by_role.items()}
        return chats | roles | {"chats": self.default}

    @property
    def broad(self) -> list[Path]:
        """The folders that are broad, and allowed all the same."""
        return sorted(
            folder for folder in set(self.every().values()) if self._breadth_problem(folder)
        )

    def _checked(self, setting: str, text: str) -> Path:
        folder = Path(text).expanduser()
        if not folder.is_absolute() or not folder.is_dir():
            raise ConfigError(
                f"{setting} is {text}, which is not an existing folder.",
                fix="Create it, and write its whole path.",
            )
        self._refuse(setting, folder)
        return folder

    def _refuse(self, setting: str, folder: Path) -> None:
        if objection := self._objection(folder):
            raise ConfigError(
                f"{setting} is {folder}, {objection}",
                fix="Choose a folder of its own. To allow your home folder or `/`, set"
                " gateway.broad_workspace = true.",
            )

    def _objection(self, folder: Path) -> str:
        """Return why a folder may not be a workspace; empty when it may."""
        inside, own = os.path.realpath(folder), os.path.realpath(self._home.root)
        if places.is_under(inside, own) and not places.is_under(inside, f"{own}/workspace"):
            return "which is Hermes's own."
        return "" if self._may_be_broad else self._breadth_problem(folder)

    def _breadth_problem(self, folder: Path) -> str:
        """Return why a folder is too broad for chats; empty for one that is not."""
        inside = os.path.realpath(folder)
        holds = (places.own_home(), str(self._home.root))
        if any(places.is_under(os.path.realpath(other), inside) for other in holds):
            return "which contains your home folder: chats could change all of it without approval."
        return ""
