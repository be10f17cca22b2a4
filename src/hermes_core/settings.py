"""The settings schema: every setting with its default and its description."""

from typing import Annotated, Any, Literal

import msgspec


def _meta(description: str, **limits: Any) -> Any:  # noqa: ANN401 -- msgspec's own
    return msgspec.Meta(description=description, **limits)


YEAR_S = 31_536_000.0
"""Longest timeout: short enough for every clock."""


class StoreSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The session store."""

    busy_timeout_s: Annotated[
        float,
        _meta("Seconds a write waits for another process before it fails.", gt=0, le=YEAR_S),
    ] = 30.0


class SessionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Retention of conversations."""

    retention_days: Annotated[
        int, _meta("Age in days after which `prune` deletes a conversation.", ge=1)
    ] = 90


class PluginSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The plugins to load, and their own settings."""

    enabled: Annotated[list[str], _meta("Plugins to load; all others stay off.")] = []
    settings: Annotated[
        dict[str, dict[str, Any]], _meta("One table per plugin, passed to it unchanged.")
    ] = {}


class LogSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The log file, logs/hermes.log."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"], _meta("Minimum severity to log.")
    ] = "info"


class ModelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The model that answers. With nothing set, Hermes uses what it finds (`hermes model`)."""

    name: Annotated[
        str, _meta("The model, for example gpt-6.1-terra, claude-sonnet-5-5 or embedded.")
    ] = ""
    provider: Annotated[
        str, _meta("Provider of the model; empty: found from keys, base_url and local servers.")
    ] = ""
    base_url: Annotated[str, _meta("Address of an OpenAI-compatible server.")] = ""
    api_key: Annotated[
        str, _meta("API key for the provider or base_url; better set as environment variable.")
    ] = ""
    keys: Annotated[
        dict[str, str], _meta("API keys of providers by name; `hermes login` writes them.")
    ] = {}
    fallbacks: Annotated[
        list[str], _meta("Models to try in this order when the first one fails: provider/model.")
    ] = []
    context_window: Annotated[
        int, _meta("Context window in tokens; 0: from the server or the built-in table.", ge=0)
    ] = 0
    images: Annotated[
        Literal["auto", "on", "off"],
        _meta("Whether the model sees images; auto: from the server or the built-in table."),
    ] = "auto"
    max_output_tokens: Annotated[
        int, _meta("Maximum tokens per reply; 0: the limit of the model.", ge=0)
    ] = 0
    timeout_s: Annotated[
        float,
        _meta("Seconds to wait for model output; a reply may take 24 times that.", gt=0, le=YEAR_S),
    ] = 300.0
    retries: Annotated[int, _meta("Retries of a failed model call.", ge=0)] = 4
    hub: Annotated[
        str, _meta("Model hub that `hermes model pull` downloads from; empty: none.")
    ] = "https://huggingface.co"
    small: Annotated[
        Literal["auto", "on", "off"],
        _meta("Short prompt and constrained steps, for models that are weak at tools."),
    ] = "auto"


class AgentSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of a turn; 0 means no limit."""

    max_steps: Annotated[int, _meta("Maximum model calls per turn.", ge=0)] = 90
    max_tokens: Annotated[int, _meta("Maximum tokens per turn, input and output.", ge=0)] = 0
    max_cost_usd: Annotated[float, _meta("Maximum cost per turn in USD.", ge=0)] = 0.0
    max_cost_per_day_usd: Annotated[
        float, _meta("Maximum cost per day (UTC) in USD, all conversations together.", ge=0)
    ] = 0.0
    max_seconds: Annotated[float, _meta("Maximum running time per turn in seconds.", ge=0)] = 0.0
    instructions: Annotated[
        str, _meta("Text to add to the system prompt of new conversations.")
    ] = ""
    titles: Annotated[bool, _meta("Give conversations a title after the first reply.")] = True


class ToolSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tools and the sandbox they run in."""

    sandbox: Annotated[
        Literal["auto", "bubblewrap", "landlock", "seatbelt", "container", "host"],
        _meta("Where commands run; auto: the first that works; without one, every command asks."),
    ] = "auto"
    container_image: Annotated[str, _meta("Image for the container sandbox.")] = "python:3.11-slim"
    container_command: Annotated[str, _meta("docker or podman.")] = "docker"
    network: Annotated[
        Literal["ask", "open", "off"],
        _meta(
            "Network of sandboxed commands: ask before each new host (needs bubblewrap and nsenter;"
            " elsewhere it is off), open, or off."
        ),
    ] = "ask"
    allowed_hosts: Annotated[
        list[str],
        _meta(
            "Hosts that sandboxed commands reach without a question when network is ask: name,"
            " name:port or *.name."
        ),
    ] = []
    environment: Annotated[
        list[str],
        _meta("More environment variables for commands, by name; * stands for any characters."),
    ] = []
    timeout_s: Annotated[
        float,
        _meta("Timeout of a foreground command unless the model sets one.", gt=0, le=YEAR_S),
    ] = 120.0
    output_limit: Annotated[
        int, _meta("Maximum characters of tool output that the model sees.", ge=1000)
    ] = 20_000
    disabled: Annotated[list[str], _meta("Tools that the model is not offered.")] = []
    checkpoints: Annotated[
        bool, _meta("Keep what files held before each turn, so that /undo --files restores them.")
    ] = True
    checkpoint_file_mb: Annotated[
        int, _meta("Size in MB up to which a file is kept in checkpoints.", ge=1, le=1024)
    ] = 25
    checkpoint_total_mb: Annotated[
        int,
        _meta("Size in MB of new files up to which a checkpoint is taken.", ge=1, le=1_000_000),
    ] = 2000
    checkpoint_days: Annotated[
        int, _meta("Age in days after which checkpoints are deleted.", ge=1, le=36_500)
    ] = 30
    search_url: Annotated[
        str, _meta("SearXNG server for web_search; empty: the provider that needs no key.")
    ] = ""


class ApprovalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Approval of dangerous calls. `policy.toml` in the home allows and denies patterns."""

    mode: Annotated[
        Literal["ask", "deny", "allow"],
        _meta("Dangerous calls: ask a person, deny at once, or allow everything."),
    ] = "ask"
    edits: Annotated[
        Literal["auto", "ask"],
        _meta("Changes of files in the workspace: allow them, or ask a person with the diff."),
    ] = "auto"
    timeout_s: Annotated[
        float,
        _meta("Seconds to wait for an approval before it counts as denied.", gt=0, le=YEAR_S),
    ] = 3600.0


class CompactionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Compaction of long conversations."""

    enabled: Annotated[bool, _meta("Compact conversations that outgrow the window.")] = True
    threshold: Annotated[
        float, _meta("Share of the window at which compaction starts.", gt=0.1, lt=1)
    ] = 0.75
    tail: Annotated[
        float, _meta("Share of the window to keep word for word at the end.", gt=0, lt=0.6)
    ] = 0.2


Busy = Literal["queue", "steer", "interrupt"]


class TerminalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The terminal UI and its server."""

    busy: Annotated[
        Busy,
        _meta("A prompt during a turn: queue it, steer the turn with it, or interrupt the turn."),
    ] = "queue"


class GatewaySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The messaging gateway."""

    busy: Annotated[
        Busy,
        _meta("A message during a turn: queue it, steer the turn with it, or interrupt the turn."),
    ] = "queue"
    turns_at_once: Annotated[int, _meta("Maximum concurrent turns.", ge=1, le=1000)] = 64
    streaming: Annotated[
        bool, _meta("Show a reply while it is written, where the platform can edit messages.")
    ] = True
    tool_activity: Annotated[
        bool, _meta("Show which tool runs and for how long, where the platform can edit messages.")
    ] = True
    reset: Annotated[
        Literal["none", "idle", "daily", "both"],
        _meta("When a chat starts a new conversation by itself."),
    ] = "none"
    reset_hour: Annotated[int, _meta("Hour of the daily reset, local time.", ge=0, le=23)] = 4
    reset_idle_minutes: Annotated[int, _meta("Idle minutes before a reset.", ge=1)] = 1440
    reset_notify: Annotated[bool, _meta("Notify the chat when its conversation was reset.")] = True
    group_sessions_per_user: Annotated[
        bool, _meta("Give each person in a group their own conversation.")
    ] = True
    thread_sessions_per_user: Annotated[
        bool, _meta("Give each person in a thread their own conversation.")
    ] = False
    groups_need_mention: Annotated[bool, _meta("In groups, answer only mentions and replies.")] = (
        True
    )
    forget_after_days: Annotated[
        int, _meta("Days of silence after which a chat's route is removed; 0: never.", ge=0)
    ] = 90
    drain_s: Annotated[
        float,
        _meta("Seconds a stop waits for running turns before interrupting them.", ge=0, le=YEAR_S),
    ] = 30.0
    workspace: Annotated[
        str, _meta("Folder that chats work in; empty: `workspace` in the home of Hermes.")
    ] = ""
    workspaces: Annotated[
        dict[str, str], _meta('Folders of single chats: "PLATFORM:CHAT" = "/folder".')
    ] = {}
    broad_workspace: Annotated[
        bool, _meta("Allow a workspace that contains your home folder; chats may change all of it.")
    ] = False
    attachment_limit_mb: Annotated[int, _meta("Maximum size of an attachment in MB.", ge=1)] = 20
    health_port: Annotated[
        int, _meta("Loopback port for health and metrics; 0: off.", ge=0, le=65535)
    ] = 0
    allow: Annotated[
        dict[str, list[str]], _meta("People allowed without pairing: user ids per platform.")
    ] = {}
    owners: Annotated[dict[str, list[str]], _meta("Owners: user ids per platform.")] = {}
    strangers: Annotated[
        Literal["pair", "ignore"],
        _meta("A stranger's direct message: answer with a pairing code, or ignore it."),
    ] = "pair"
    platforms: Annotated[
        dict[str, dict[str, Any]], _meta("One table per platform; `enabled = false` turns it off.")
    ] = {}


class RoleSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tools and daily budget of each role in chats. The tool "*" means all; 0 means no limit."""

    owner_tools: Annotated[list[str], _meta("Tools of owners.")] = msgspec.field(
        default_factory=lambda: ["*"]
    )
    owner_workspace: Annotated[str, _meta("Folder owners work in; empty: gateway.workspace.")] = ""
    owner_usd_per_day: Annotated[float, _meta("Maximum USD per owner per day.", ge=0)] = 0.0
    member_tools: Annotated[list[str], _meta("Tools of members.")] = msgspec.field(
        default_factory=lambda: ["clarify", "todo", "web_search", "web_fetch", "session_search"]
    )
    member_workspace: Annotated[str, _meta("Folder members work in; empty: the same.")] = ""
    member_usd_per_day: Annotated[float, _meta("Maximum USD per member per day.", ge=0)] = 0.0
    guest_tools: Annotated[list[str], _meta("Tools of guests.")] = msgspec.field(
        default_factory=lambda: ["clarify"]
    )
    guest_workspace: Annotated[str, _meta("Folder guests work in; empty: the same.")] = ""
    guest_usd_per_day: Annotated[float, _meta("Maximum USD per guest per day.", ge=0)] = 0.5


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every setting."""

    store: StoreSettings = StoreSettings()
    sessions: SessionSettings = SessionSettings()
    plugins: PluginSettings = PluginSettings()
    log: LogSettings = LogSettings()
    model: ModelSettings = ModelSettings()
    agent: AgentSettings = AgentSettings()
    tools: ToolSettings = ToolSettings()
    approvals: ApprovalSettings = ApprovalSettings()
    compaction: CompactionSettings = CompactionSettings()
    terminal: TerminalSettings = TerminalSettings()
    gateway: GatewaySettings = GatewaySettings()
    roles: RoleSettings = RoleSettings()
