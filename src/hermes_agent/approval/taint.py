"""Taint: what a conversation has read, and what has to be asked for that reason.

Outside text may hold instructions of somebody else; private data is what they would want. A conversation
that has read both asks before anything is sent or kept, and the question names what was read. With
private data alone, or with outside text and a secret in the workspace, addresses that a model composed
follow the rules for hosts of commands; with outside text alone, lasting notes are shown first
(docs/adr/0022-taint.md).
"""

import hashlib
import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from hermes_agent.approval.danger import Access, Danger, access_of, places
from hermes_agent.approval.danger.kinds import HOST_KEY, REGISTRIES_KEY, TAINTED_KEY
from hermes_agent.permissions import Permissions, is_owner
from hermes_agent.sandbox import hosts
from hermes_agent.sandbox.hosts import HostGrants
from hermes_core.paths import Home
from hermes_state.ledger import questions, sessions
from hermes_state.ledger import taint as taint_ledger
from hermes_state.ledger.scope import DELEGATE
from hermes_state.store import Store
from hermes_state.values import TaintSource

if TYPE_CHECKING:
    from hermes_agent.tools.base import Args, Tool, ToolContext

NOTES = TaintSource("private", "your notes")
_MAX_NAMED = 3
_LEAVING = frozenset({"exfiltration", "privilege", "remote_code", "unconfined", "outside"})
"""The dangers of calls that send something, or keep it outside the workspace."""

_NETWORK = re.compile(
    r"://|\b(?:curl|wget|aria2c|http|https|xh|ssh|scp|sftp|rsync|ftp|lftp|nc|ncat|socat|telnet|dig|whois"
    r"|pip\d?|pipx|uv|uvx|poetry|conda|npm|npx|pnpm|yarn|bun|deno|cargo|gem|bundle|composer|brew|apt"
    r"|apt-get|dnf|apk|go (?:get|install|mod)|docker|podman|kubectl|helm|gh|glab|aws|gcloud|az|psql"
    r"|git[^|;&\n]* (?:clone|fetch|pull|push|ls-remote|submodule|remote)|urllib|requests|httpx2?|aiohttp"
    r"|socket|smtplib|imaplib|ftplib|fetch\()"
)
"""Text of commands and code that use the network."""

_LINK_TOOLS = ("web_search", "web_fetch")
"""Tools whose results name addresses that no model composed."""
_URL_END = re.compile(r"[\s\"'<>()\[\]{}|\\^`]|$")
_AFTER_URL = "/.,;:!?*_"
_BEFORE_URL = re.compile(r"(?:^|://|[\s\"'<>()\[\]{}|\\^`*_,;:!])$")


class Sending(NamedTuple):
    """Describes what a call sends, and to whom."""

    reason: str
    """For the person: what would happen, as a sentence without its full stop."""
    to: str = "any host"
    """The only receiver: a yes for the conversation is for this one."""
    is_host: bool = False
    """Whether the receiver is a host, as `name` or `name:port`, which the rules for hosts may allow."""


class Taint(NamedTuple):
    """Lists what a conversation has read, by kind, in that order."""

    outside: tuple[str, ...] = ()
    private: tuple[str, ...] = ()

    @property
    def is_mixed(self) -> bool:
        """Return whether there is outside text as well as private data."""
        return bool(self.outside and self.private)

    @property
    def sentence(self) -> str:
        """Name what was read."""
        kinds = dict.fromkeys(listed(found) for found in (self.outside, self.private) if found)
        return f"This conversation has read {' and '.join(kinds)}"

    @property
    def has_only_notes(self) -> bool:
        """Return whether nothing private was read but what is in every prompt."""
        return self.private == (NOTES.source,)

    def grant_key(self, to: str, *, is_host: bool = True) -> str:
        """Return the key of a grant for a receiver; other private data needs another one.

        The registries of this machine's package tools are one receiver while notes are all there is.
        """
        if is_host and self.has_only_notes and hosts.is_registry(to):
            return REGISTRIES_KEY
        digest = hashlib.sha256("\n".join([to, *sorted(self.private)]).encode()).hexdigest()[:32]
        return f"{TAINTED_KEY}{to}:{digest}"


def listed(sources: Sequence[str]) -> str:
    """Name the last sources, which are the likeliest to be at work now."""
    more = len(sources) - _MAX_NAMED
    named = ", ".join(sources[-_MAX_NAMED:])
    return f"{named} ({more} more before)" if more > 0 else named


def of(store: Store, session_id: str) -> Taint:
    """Return the taint of the conversation of a session."""
    rows = store.read(taint_ledger.of, session_id)
    outside, private = (
        tuple(row["source"] for row in rows if row["kind"] == kind)
        for kind in ("outside", "private")
    )
    return Taint(outside, private)


def note_once(store: Store, session_id: str, source: TaintSource, turn_id: str) -> None:
    """Record what a conversation has read, unless that is on record."""
    taint = of(store, session_id)
    if source.source not in (taint.outside if source.kind == "outside" else taint.private):
        store.write(taint_ledger.note, session_id, [source], turn_id)


# -- what a call brings ----------------------------------------------------------------------------


def of_path(path: str, place: places.Place, home: Home) -> list[TaintSource]:
    """Return what reading a resolved path brings."""
    if places.is_under(path, os.path.realpath(home.attachments)):
        return [TaintSource("outside", f"the attachment {Path(path).name}")]
    if not places.is_secret(path, place) and _is_open(path, place, home):
        return []
    own_home = places.own_home()
    name = f"~{path[len(own_home) :]}" if places.is_under(path, own_home) else path
    return [TaintSource("private", f"{'files in ' if Path(path).is_dir() else ''}{name}")]


def _is_open(path: str, place: places.Place, home: Home) -> bool:
    """Return whether a path is the conversation's own, or came with the system."""
    if places.is_inside(path, place) or places.is_of_system(path):
        return True
    own = (place.outputs, os.path.realpath(home.skills), "/dev")
    return any(places.is_under(path, folder) for folder in own if folder)


def of_command(args: "Args", bench: "ToolContext", access: Access) -> list[TaintSource]:
    """Return what a command or code brings.

    Hosts that it has to ask for are noted when it reaches them. Where nobody sees them, its text
    decides: a model that has not read outside text yet has no reason to hide what it does.
    """
    if access.unconfined:
        source = "the output of commands outside the sandbox"
        return [TaintSource("outside", source), TaintSource("private", source)]
    found = [source for path in access.reads for source in of_path(path, bench.place, bench.home)]
    text = str(args.get("command") or args.get("code") or "")
    if bench.processes.sandbox.network.is_open and _NETWORK.search(text):
        found.append(TaintSource("outside", "the output of commands that use the network"))
    return found


def sending_of_command(args: "Args", bench: "ToolContext", access: Access) -> Sending | None:
    """Return what a command sends, as far as no proxy asks for each host."""
    del args
    is_open = access.unconfined or bench.processes.sandbox.network.is_open
    return Sending("Runs a command that may reach any host") if is_open else None


# -- what has to be asked --------------------------------------------------------------------------


def dangers(
    tool: "Tool",
    args: "Args",
    bench: "ToolContext",
    session_id: str,
    others: Collection[Danger],
) -> list[Danger]:
    """Return what needs an approval because of what was read, beside the other dangers of a call."""
    keeps = tool.persists is not None and tool.persists(args)
    leaves = any(danger.kind in _LEAVING for danger in others)
    if not (keeps or leaves or tool.sends):
        return []
    taint = of(bench.store, session_id)
    found: list[Danger] = []
    if keeps and taint.outside:
        found.append(Danger("taint", "Keeps something for later conversations", "taint:keeps"))
    if tool.sends is not None and (taint.private or (taint.outside and _has_secrets(bench))):
        sending = tool.sends(args, bench, access_of(others))
        found += _of_sending(sending, taint, bench) if sending is not None else ()
    if not found and not (leaves and taint.is_mixed):
        return []
    grant = "" if leaves or keeps else found[0].grant
    kind = found[0].kind if found else "taint"
    return [*found, Danger(kind, taint.sentence, "taint:read", grant=grant)]


def _has_secrets(bench: "ToolContext") -> bool:
    """Return whether secrets lie at the top of the workspace, where commands read them unseen."""
    try:
        return any(places.is_secret(str(path), bench.place) for path in bench.workspace.iterdir())
    except OSError:
        return False


def receiver_of(key: str) -> str:
    """Return the host or other receiver that a grant key names."""
    if key == REGISTRIES_KEY:
        return "package registries"
    if key.startswith(TAINTED_KEY):
        return key.removeprefix(TAINTED_KEY).rpartition(":")[0]
    return key.removeprefix(HOST_KEY)


def _of_sending(sending: Sending, taint: Taint, bench: "ToolContext") -> list[Danger]:
    reason, to, is_host = sending
    if taint.is_mixed:
        return [Danger("taint", reason, f"taint:{to}", grant=taint.grant_key(to, is_host=is_host))]
    if not is_host or bench.settings.tools.network == "open":
        return []
    allowed = bench.settings.tools.allowed_hosts
    grants = host_grants(bench.store, bench.conversation_id, bench.permissions)
    if hosts.passes(*hosts.split(to), allowed, grants):
        return []
    key = f"{HOST_KEY}{to}"
    return [Danger("exfiltration", reason, key, grant=key)]


def of_host(store: Store, session_id: str, host: str) -> list[Danger]:
    """Return what to ask before a command reaches a host."""
    taint, reason = of(store, session_id), f"Connects to {host}"
    if not taint.is_mixed:
        key = f"{HOST_KEY}{host}"
        return [Danger("exfiltration", reason, key, grant=key)]
    grant = taint.grant_key(host)
    return [
        Danger("taint", reason, f"taint:{host}", grant=grant),
        Danger("taint", taint.sentence, "taint:read", grant=grant),
    ]


def host_grants(store: Store, conversation_id: str, permissions: Permissions | None) -> HostGrants:
    """Return the hosts that a person allowed, here or (if an owner is spoken for) everywhere."""
    taint = of(store, conversation_id)
    keys = store.read(questions.granted, conversation_id, everywhere=is_owner(permissions))
    tainted = [receiver_of(key) for key in keys if key.startswith(TAINTED_KEY)]
    despite = [to for to in tainted if taint.grant_key(to, is_host=False) in keys]
    if REGISTRIES_KEY in keys and taint.has_only_notes:
        despite += hosts.configured_hosts()
    return HostGrants(
        [key.removeprefix(HOST_KEY) for key in keys if key.startswith(HOST_KEY)],
        asks_for_all=taint.is_mixed,
        despite=despite,
    )


# -- addresses -------------------------------------------------------------------------------------


def is_named(store: Store, session_id: str, url: str) -> bool:
    """Return whether an address stands in what a person wrote, or in what the web said, as it is.

    The task of a sub-agent does not count, as a model wrote it; its parent's conversation does.
    """
    words = _without_scheme(url)
    while words and session_id:
        session = store.read(sessions.find, session_id)
        is_delegate = session is not None and session["source"] == DELEGATE
        texts = store.read(
            taint_ledger.texts_with, session_id, words, _LINK_TOOLS, people=not is_delegate
        )
        if any(_stands_in(words, text) for text in texts):
            return True
        session_id = session["parent_session_id"] if session is not None and is_delegate else ""
    return False


def _without_scheme(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(scheme="", fragment="").geturl().removeprefix("//").rstrip("/")


def _stands_in(words: str, text: str) -> bool:
    """Return whether an address stands in a text from its beginning to its end."""
    start = text.find(words)
    while start >= 0:
        end = start + len(words)
        found = _URL_END.search(text, end)
        rest = text[end : found.start() if found else len(text)]
        is_whole = rest.startswith("#") or not rest.strip(_AFTER_URL)
        if is_whole and _BEFORE_URL.search(text[max(start - 3, 0) : start]):
            return True
        start = text.find(words, start + 1)
    return False
