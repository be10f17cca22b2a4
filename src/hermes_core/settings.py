"""The settings schema: every setting there is, with its default and its description."""

from typing import Annotated, Any, Literal

import msgspec


def _says(text: str, **limits: Any) -> Any:  # noqa: ANN401 -- msgspec's own
    return msgspec.Meta(description=text, **limits)


YEAR_S = 31_536_000.0
"""Longer than anybody waits, and short enough for every clock."""


class StoreSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The session store."""

    busy_timeout_s: Annotated[
        float,
        msgspec.Meta(
            gt=0,
            le=YEAR_S,
            description="How long a write waits for another process before it fails.",
        ),
    ] = 30.0


class SessionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long conversations are kept."""

    retention_days: Annotated[
        int, msgspec.Meta(ge=1, description="Age in days after which `prune` takes a conversation.")
    ] = 90


class PluginSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which plugins are loaded."""

    enabled: Annotated[
        list[str], msgspec.Meta(description="Plugins to load; all others stay off.")
    ] = []
    settings: Annotated[
        dict[str, dict[str, Any]],
        msgspec.Meta(description="One table a plugin, handed to it as it stands."),
    ] = {}


class LogSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is written to logs/hermes.log."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        msgspec.Meta(description="The least severe records that are kept."),
    ] = "info"


class ModelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which model answers. With nothing set, Hermes takes what it finds (`hermes model`)."""

    name: Annotated[
        str,
        _says("The model, for example gpt-6.1-terra, claude-sonnet-5-5 or embedded."),
    ] = ""
    provider: Annotated[
        str,
        _says("Provider of the model; empty: found from keys, base_url and local servers."),
    ] = ""
    base_url: Annotated[str, _says("Address of an OpenAI-compatible server.")] = ""
    api_key: Annotated[str, _says("Key for base_url; better kept in the environment variable.")] = (
        ""
    )
    fallbacks: Annotated[
        list[str],
        _says("Models asked in this order when the first cannot answer: provider/model."),
    ] = []
    context_window: Annotated[
        int, _says("Window in tokens; 0: from the server or the table.", ge=0)
    ] = 0
    max_output_tokens: Annotated[
        int, _says("Most tokens of one answer; 0: the model's own limit.", ge=0)
    ] = 0
    timeout_s: Annotated[
        float,
        _says("Seconds to wait for model output; a reply may take 24 times that.", gt=0, le=YEAR_S),
    ] = 300.0
    retries: Annotated[int, _says("Times a failed call is made again.", ge=0)] = 4
    hub: Annotated[
        str,
        _says("Model hub that `hermes model pull` asks; empty: none is asked."),
    ] = "https://huggingface.co"
    small: Annotated[
        Literal["auto", "on", "off"],
        _says("Short prompt and constrained steps, for models that are weak at tools."),
    ] = "auto"


class AgentSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far a turn may go. A limit of 0 does not limit."""

    max_steps: Annotated[int, _says("Model calls of one turn.", ge=0)] = 90
    max_tokens: Annotated[int, _says("Tokens of one turn, in and out.", ge=0)] = 0
    max_cost_usd: Annotated[float, _says("Money of one turn.", ge=0)] = 0.0
    max_cost_per_day_usd: Annotated[
        float, _says("Money of one day (UTC), all conversations together.", ge=0)
    ] = 0.0
    max_seconds: Annotated[float, _says("Working time of one turn.", ge=0)] = 0.0
    instructions: Annotated[str, _says("Text added to the system prompt of new conversations.")] = (
        ""
    )
    titles: Annotated[bool, _says("Give conversations a title after the first reply.")] = True


class ToolSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What tools may do and where."""

    sandbox: Annotated[
        Literal["auto", "bubblewrap", "container", "host"],
        _says("Where commands run; auto: bubblewrap when present, else the host."),
    ] = "auto"
    container_image: Annotated[str, _says("Image for the container sandbox.")] = "python:3.11-slim"
    container_command: Annotated[str, _says("docker or podman.")] = "docker"
    network: Annotated[bool, _says("Whether sandboxed commands reach the network.")] = True
    timeout_s: Annotated[
        float,
        _says("Time of a foreground command unless the model asks for more.", gt=0, le=YEAR_S),
    ] = 120.0
    output_limit: Annotated[
        int, _says("Characters of a tool's output that the model is shown.", ge=1000)
    ] = 20_000
    disabled: Annotated[list[str], _says("Tools that are not offered to the model.")] = []
    search_url: Annotated[
        str, _says("A SearXNG server for web_search; empty: the keyless provider.")
    ] = ""


class ApprovalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What needs a person's yes. `policy.toml` in the home allows and denies patterns."""

    mode: Annotated[
        Literal["ask", "deny", "allow"],
        _says("Dangerous calls: ask a person, deny at once, or allow everything."),
    ] = "ask"
    timeout_s: Annotated[
        float, _says("How long a question waits for an answer; then it is a no.", gt=0, le=YEAR_S)
    ] = 3600.0


class CompactionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When and how a long conversation is shortened."""

    enabled: Annotated[bool, _says("Shorten conversations that outgrow the window.")] = True
    threshold: Annotated[float, _says("Share of the window at which it starts.", gt=0.1, lt=1)] = (
        0.75
    )
    tail: Annotated[
        float, _says("Share of the window kept word for word at the end.", gt=0, lt=0.6)
    ] = 0.2


class TerminalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The terminal interface and the server behind it."""

    busy: Annotated[
        Literal["queue", "steer", "interrupt"],
        _says(
            "What a prompt does while a turn runs: wait, be said to the turn, or stop it and be next."
        ),
    ] = "queue"


class GatewaySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The messaging gateway."""

    busy: Annotated[
        Literal["queue", "steer", "interrupt"],
        _says("What a message does while a turn runs: wait, be said to the turn, or stop it."),
    ] = "queue"
    turns_at_once: Annotated[int, _says("Turns that run at the same time.", ge=1, le=1000)] = 64
    streaming: Annotated[
        bool, _says("Show a reply while it is written, where the platform can edit messages.")
    ] = True
    reset: Annotated[
        Literal["none", "idle", "daily", "both"],
        _says("When a chat's conversation starts afresh by itself."),
    ] = "none"
    reset_hour: Annotated[int, _says("Hour of the daily reset, local time.", ge=0, le=23)] = 4
    reset_idle_minutes: Annotated[int, _says("Silence after which it is idle.", ge=1)] = 1440
    reset_notify: Annotated[bool, _says("Tell the chat when that happened.")] = True
    group_sessions_per_user: Annotated[
        bool, _says("In groups everybody has a conversation of their own.")
    ] = True
    thread_sessions_per_user: Annotated[bool, _says("The same in threads.")] = False
    groups_need_mention: Annotated[
        bool, _says("In groups answer only when named or replied to.")
    ] = True
    forget_after_days: Annotated[
        int, _says("Age at which the route of a silent chat is forgotten; 0: never.", ge=0)
    ] = 90
    drain_s: Annotated[
        float,
        _says(
            "How long a stop waits for running turns before it interrupts them.", ge=0, le=YEAR_S
        ),
    ] = 30.0
    attachment_limit_mb: Annotated[int, _says("Largest file that is taken in.", ge=1)] = 20
    health_port: Annotated[
        int, _says("Port on loopback for health and metrics; 0: none.", ge=0, le=65535)
    ] = 0
    allow: Annotated[
        dict[str, list[str]],
        _says("Who may speak without pairing: a list of user ids each platform."),
    ] = {}
    owners: Annotated[
        dict[str, list[str]], _says("Who of them is an owner: a list of user ids each platform.")
    ] = {}
    strangers: Annotated[
        Literal["pair", "ignore"], _says("What strangers get in a direct chat: a code, or silence.")
    ] = "pair"
    platforms: Annotated[
        dict[str, dict[str, Any]], _says("One table a platform; it is off with enabled = false.")
    ] = {}


class RoleSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What each role may do in chats. The tool "*" means all tools; a limit of 0 does not limit."""

    owner_tools: Annotated[list[str], _says("Tools of owners.")] = msgspec.field(
        default_factory=lambda: ["*"]
    )
    owner_usd_per_day: Annotated[float, _says("Money of one owner a day.", ge=0)] = 0.0
    member_tools: Annotated[list[str], _says("Tools of members.")] = msgspec.field(
        default_factory=lambda: ["clarify", "todo", "web_search", "web_fetch", "session_search"]
    )
    member_usd_per_day: Annotated[float, _says("Money of one member a day.", ge=0)] = 0.0
    guest_tools: Annotated[list[str], _says("Tools of guests.")] = msgspec.field(
        default_factory=lambda: ["clarify"]
    )
    guest_usd_per_day: Annotated[float, _says("Money of one guest a day.", ge=0)] = 0.5


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every setting there is."""

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
