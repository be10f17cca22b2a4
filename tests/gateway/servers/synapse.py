"""A real Matrix homeserver on loopback, for as long as a test session."""

import base64
import hashlib
import hmac
import json
import os
import secrets
import signal
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from tests.gateway.servers.ports import free_port

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / ".venv-synapse" / "bin" / "python"
MISSING = "Synapse is not installed; `make servers` installs it for these tests"
SERVER_NAME = "localhost"

_SHARED_SECRET = "for tests alone"
_UNLIMITED = {"per_second": 10_000, "burst_count": 10_000}
_SLOW = {"per_second": 1 / 8, "burst_count": 1}
_READY_WITHIN_S = 100


@dataclass(frozen=True)
class Account:
    """Somebody who is registered, with the device of the registration."""

    user_id: str
    password: str
    access_token: str
    device_id: str


class Synapse:
    """The server's process; `start` it once and `stop` it at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._admin = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        key = base64.b64encode(secrets.token_bytes(32)).decode().rstrip("=")
        (self.folder / "signing.key").write_text(f"ed25519 a_test {key}\n", encoding="utf-8")
        config = self.folder / "homeserver.yaml"
        config.write_text(json.dumps(self._config()), encoding="utf-8")  # JSON is YAML
        with (self.folder / "output").open("wb") as output:
            self._process = subprocess.Popen(
                [str(PYTHON), "-m", "synapse.app.homeserver", "-c", str(config)],
                cwd=self.folder,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._wait_until_ready(self._process)
        self._admin = self._register("root", is_admin=True).access_token

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)  # nothing of it is wanted any more
            self._process.wait(timeout=30)

    def register(self, name: str) -> Account:
        """A new account, which may write as fast as it likes; the name is made unique."""
        account = self._register(name)
        self.ask("POST", _limits(account), {"messages_per_second": 0}, self._admin)
        return account

    def limit(self, account: Account) -> None:
        """Let an account write one message in eight seconds from now on."""
        self.ask("DELETE", _limits(account), None, self._admin)

    def _register(self, name: str, *, is_admin: bool = False) -> Account:
        user, password = f"{name}-{secrets.token_hex(4)}", secrets.token_hex(8)
        path = "/_synapse/admin/v1/register"
        nonce = self.ask("GET", path)["nonce"]
        signed = "\0".join([nonce, user, password, "admin" if is_admin else "notadmin"])
        mac = hmac.new(_SHARED_SECRET.encode(), signed.encode(), hashlib.sha1).hexdigest()
        response = self.ask(
            "POST",
            path,
            {
                "nonce": nonce,
                "username": user,
                "password": password,
                "displayname": name.title(),
                "admin": is_admin,
                "mac": mac,
            },
        )
        return Account(
            response["user_id"], password, response["access_token"], response["device_id"]
        )

    def log_in(self, account: Account, device_id: str = "") -> Account:
        """Another device of the same account, or the same one with another token."""
        response = self.ask(
            "POST",
            "/_matrix/client/v3/login",
            {
                "type": "m.login.password",
                "identifier": {"type": "m.id.user", "user": account.user_id},
                "password": account.password,
            }
            | ({"device_id": device_id} if device_id else {}),
        )
        return Account(
            account.user_id, account.password, response["access_token"], response["device_id"]
        )

    def ask(
        self, method: str, path: str, body: dict[str, Any] | None = None, token: str = ""
    ) -> dict[str, Any]:
        """One request; raises HTTPError."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {token}"} if token else {},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return cast("dict[str, Any]", json.load(answer))

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _READY_WITHIN_S
        while time.monotonic() < deadline:
            try:
                self.ask("GET", "/_matrix/client/versions")
            except (urllib.error.URLError, OSError):
                if process.poll() is not None:
                    break
                time.sleep(0.1)  # another process has nothing else to wait on
            else:
                return
        self.stop()
        raise RuntimeError((self.folder / "output").read_text(encoding="utf-8")[-4000:])

    def _config(self) -> dict[str, Any]:
        both = {"local": _UNLIMITED, "remote": _UNLIMITED}
        return {
            "server_name": SERVER_NAME,
            "report_stats": False,
            "pid_file": str(self.folder / "pid"),
            "signing_key_path": str(self.folder / "signing.key"),
            "media_store_path": str(self.folder / "media"),
            "database": {"name": "sqlite3", "args": {"database": str(self.folder / "hs.db")}},
            "listeners": [
                {
                    "port": self.port,
                    "bind_addresses": ["127.0.0.1"],
                    "type": "http",
                    "resources": [{"names": ["client"]}],
                }
            ],
            "trusted_key_servers": [],
            "suppress_key_server_warning": True,
            "federation_domain_whitelist": [],
            "url_preview_enabled": False,
            "registration_shared_secret": _SHARED_SECRET,
            "bcrypt_rounds": 4,
            "rc_message": _SLOW,  # for those who are not exempt
            "rc_registration": _UNLIMITED,
            "rc_login": {
                "address": _UNLIMITED,
                "account": _UNLIMITED,
                "failed_attempts": _UNLIMITED,
            },
            "rc_joins": both,
            "rc_invites": {
                "per_room": _UNLIMITED,
                "per_user": _UNLIMITED,
                "per_issuer": _UNLIMITED,
            },
            "rc_room_creation": _UNLIMITED,
        }


def is_installed() -> bool:
    """Whether its tests run; in CI they do, and fail where the server is missing."""
    return PYTHON.exists() or "CI" in os.environ


def _limits(account: Account) -> str:
    return f"/_synapse/admin/v1/users/{account.user_id}/override_ratelimit"
