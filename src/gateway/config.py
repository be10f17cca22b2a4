"""Configuration of the gateway: platforms, reset policies, limits.

`load` makes a `GatewayConfig` from the settings. `from_dict` is lenient, because it also reads what
other programs wrote. The manifest of a platform describes its own settings.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

from hermes_core import config
from hermes_core.settings import GatewaySettings

ResetMode = Literal["none", "idle", "daily", "both"]

DEFAULT_MAX_AGE_DAYS = 90


class Platform(Enum):
    """The known platforms; `register` adds those of plugins."""

    LOCAL = "local"
    TELEGRAM = "telegram"
    DISCORD = "discord"
    WHATSAPP = "whatsapp"
    WHATSAPP_CLOUD = "whatsapp_cloud"
    SLACK = "slack"
    SIGNAL = "signal"
    MATTERMOST = "mattermost"
    MATRIX = "matrix"
    HOMEASSISTANT = "homeassistant"
    EMAIL = "email"
    SMS = "sms"
    DINGTALK = "dingtalk"
    API_SERVER = "api_server"
    WEBHOOK = "webhook"
    MSGRAPH_WEBHOOK = "msgraph_webhook"
    FEISHU = "feishu"
    WECOM = "wecom"
    WECOM_CALLBACK = "wecom_callback"
    WEIXIN = "weixin"
    BLUEBUBBLES = "bluebubbles"
    QQBOT = "qqbot"
    YUANBAO = "yuanbao"
    RELAY = "relay"

    @classmethod
    def _missing_(cls, value: object) -> "Platform | None":
        name = str(value).lower()
        return _registered.get(name) or next(
            (member for member in cls if member.value == name), None
        )

    @classmethod
    def register(cls, name: str) -> "Platform":
        """Return the platform of a name, created if need be."""
        try:
            return cls(name)
        except ValueError:
            member = object.__new__(cls)
            member._name_, member._value_ = name.upper(), name.lower()
            return _registered.setdefault(name.lower(), member)


_registered: dict[str, Platform] = {}


@dataclass
class SessionResetPolicy:
    """Says when the conversation of a chat is reset automatically."""

    mode: ResetMode = "none"
    at_hour: int = 4
    idle_minutes: int = 1440
    notify: bool = True

    def reason_to_reset(self, updated_at: datetime, now: datetime) -> str | None:
        """Return `idle` or `daily` when a new conversation is due, else None."""
        idle_since = updated_at + timedelta(minutes=self.idle_minutes)
        if self.mode in ("idle", "both") and now > idle_since:
            return "idle"
        if self.mode in ("daily", "both") and updated_at < self._last_boundary(now):
            return "daily"
        return None

    def _last_boundary(self, now: datetime) -> datetime:
        today = now.replace(hour=self.at_hour, minute=0, second=0, microsecond=0)
        return today if now >= today else today - timedelta(days=1)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "SessionResetPolicy":
        mode = data.get("mode")
        return cls(
            mode=mode if mode in ("none", "idle", "daily", "both") else "none",
            at_hour=min(23, _number(data.get("at_hour"), 4)),
            idle_minutes=_number(data.get("idle_minutes"), 1440),
            notify=bool(data.get("notify", True)),
        )


@dataclass
class PlatformConfig:
    """One platform of this gateway."""

    enabled: bool = False
    token: str | None = None
    api_key: str | None = None
    extra: dict[str, Any] = field(default_factory=dict[str, Any])
    """The platform's own table of config.toml."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "PlatformConfig":
        extra = data.get("extra")
        return cls(
            enabled=bool(data.get("enabled", False)),
            token=data.get("token"),
            api_key=data.get("api_key"),
            extra=dict(cast("Mapping[str, Any]", extra)) if isinstance(extra, Mapping) else {},
        )


@dataclass
class GatewayConfig:
    """The configuration of a gateway."""

    platforms: dict[Platform, PlatformConfig] = field(
        default_factory=dict[Platform, PlatformConfig]
    )
    default_reset_policy: SessionResetPolicy = field(default_factory=SessionResetPolicy)
    reset_by_type: dict[str, SessionResetPolicy] = field(
        default_factory=dict[str, SessionResetPolicy]
    )
    reset_by_platform: dict[Platform, SessionResetPolicy] = field(
        default_factory=dict[Platform, SessionResetPolicy]
    )
    sessions_dir: Path = field(default_factory=lambda: config.home().sessions)
    write_sessions_json: bool = True
    group_sessions_per_user: bool = True
    thread_sessions_per_user: bool = False
    session_store_max_age_days: int = DEFAULT_MAX_AGE_DAYS

    _LENIENT: ClassVar[tuple[str, ...]] = (
        "write_sessions_json",
        "group_sessions_per_user",
        "thread_sessions_per_user",
    )

    def get_reset_policy(
        self, platform: Platform | None = None, session_type: str | None = None
    ) -> SessionResetPolicy:
        """Return the policy of a platform, else of a chat type, else the default."""
        if platform is not None and platform in self.reset_by_platform:
            return self.reset_by_platform[platform]
        return self.reset_by_type.get(session_type or "", self.default_reset_policy)

    def to_dict(self) -> dict[str, Any]:
        return {
            "platforms": {name.value: config.to_dict() for name, config in self.platforms.items()},
            "default_reset_policy": self.default_reset_policy.to_dict(),
            "reset_by_type": {name: each.to_dict() for name, each in self.reset_by_type.items()},
            "reset_by_platform": {
                name.value: policy.to_dict() for name, policy in self.reset_by_platform.items()
            },
            "sessions_dir": str(self.sessions_dir),
            "session_store_max_age_days": self.session_store_max_age_days,
            **{name: getattr(self, name) for name in self._LENIENT},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "GatewayConfig":
        """Read a configuration; values that are not valid get their defaults."""
        policy = SessionResetPolicy.from_dict
        config = cls(
            platforms=_by_platform(data.get("platforms"), PlatformConfig.from_dict),
            default_reset_policy=policy(_table(data.get("default_reset_policy"))),
            reset_by_type={
                name: policy(_table(each))
                for name, each in _table(data.get("reset_by_type")).items()
            },
            reset_by_platform=_by_platform(data.get("reset_by_platform"), policy),
            session_store_max_age_days=_number(
                data.get("session_store_max_age_days"), DEFAULT_MAX_AGE_DAYS
            ),
        )
        if isinstance(data.get("sessions_dir"), str):
            config.sessions_dir = Path(data["sessions_dir"])
        for name in cls._LENIENT:
            setattr(config, name, bool(data.get(name, getattr(config, name))))
        return config


def load(settings: GatewaySettings, sessions_dir: Path) -> GatewayConfig:
    """Return the configuration that the settings describe."""
    general = SessionResetPolicy(
        settings.reset, settings.reset_hour, settings.reset_idle_minutes, settings.reset_notify
    )
    return GatewayConfig(
        platforms={
            Platform.register(name): PlatformConfig(
                enabled=bool(table.get("enabled", True)),
                extra={key: value for key, value in table.items() if key != "enabled"},
            )
            for name, table in settings.platforms.items()
        },
        default_reset_policy=general,
        sessions_dir=sessions_dir,
        group_sessions_per_user=settings.group_sessions_per_user,
        thread_sessions_per_user=settings.thread_sessions_per_user,
        session_store_max_age_days=settings.forget_after_days,
    )


def _by_platform(value: object, read: Any) -> dict[Platform, Any]:  # noqa: ANN401 -- either kind
    by_platform: dict[Platform, Any] = {}
    for name, each in _table(value).items():
        try:
            by_platform[Platform(name)] = read(_table(each))
        except ValueError:
            continue  # an unknown platform
    return by_platform


def _table(value: object) -> dict[str, Any]:
    return dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else {}


def _number(value: object, default: int) -> int:
    """Return a whole number, at least 0; the default for anything that is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return default
    try:
        return max(0, int(value))
    except ValueError:
        return default
