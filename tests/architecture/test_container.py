"""Dockerfile and compose.yaml: rules for every machine, and a smoke test where an engine runs."""

import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD_TIMEOUT_S = 900
HEALTH_TIMEOUT_S = 120
IMAGE = "hermes-durable-test"


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, each with its arguments on one line."""
    text = re.sub(r"(?m)^#.*\n", "", (ROOT / "Dockerfile").read_text("utf-8"))
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(line.split()[0], line.partition(" ")[2]) for line in lines if line]


def values(name: str) -> list[str]:
    return [value for word, value in instructions() if word == name]


def test_the_image_has_a_pinned_slim_base_and_no_root_user() -> None:
    bases = [value.split()[0] for value in values("FROM")]
    assert len(set(bases)) == 1
    assert re.fullmatch(r"python:3\.\d+-slim-\w+", bases[0])
    assert all(re.fullmatch(r"[1-9]\d*:[1-9]\d*", user) for user in values("USER"))
    names = [word for word, _ in instructions()]
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert "ADD" not in names


def test_the_image_leaves_no_caches_and_needs_only_files_of_the_clone() -> None:
    for command in values("RUN"):
        for call in re.findall(r"pip (?:wheel|install)\b[^&]*", command):
            assert "--no-cache-dir" in call
        if "apt-get install" in command:
            assert "--no-install-recommends" in command
            assert "rm -rf /var/lib/apt/lists/*" in command
    sources = [
        name for value in values("COPY") if "--from" not in value for name in value.split()[:-1]
    ]
    ignored = (ROOT / ".dockerignore").read_text("utf-8").split()
    assert ignored[0] == "*"
    for source in sources:
        assert (ROOT / source).exists()
        assert f"!{source}" in ignored


def test_the_image_is_healthy_without_a_platform_and_runs_the_gateway() -> None:
    (health,) = values("HEALTHCHECK")
    assert "hermes gateway status" in health
    assert "-eq 4" in health
    assert values("ENTRYPOINT") == ['["hermes"]']
    assert values("CMD") == ['["gateway", "run"]']
    (environment,) = values("ENV")
    assert "HERMES_HOME=/data/hermes" in environment
    assert values("VOLUME") == ["/data"]


def test_the_service_is_read_only_and_has_no_rights() -> None:
    text = (ROOT / "compose.yaml").read_text("utf-8")
    for line in (
        "read_only: true",
        "cap_drop: [ALL]",
        'security_opt: ["no-new-privileges:true"]',
        'volumes: ["hermes:/data"]',
        "hostname: hermes",
    ):
        assert f"    {line}\n" in text
    (user,) = re.findall(r'user: "(.*)"', text)
    assert user == "${HERMES_UID:-10001}:${HERMES_GID:-10001}"
    assert "privileged: true" not in text


def engine() -> str:
    """The container engine of this machine; skips without one."""
    for name in ("docker", "podman"):
        if shutil.which(name) and _run(name, "info", status=None).returncode == 0:
            return name
    pytest.skip("no container engine runs here")


def _run(*words: str, status: int | None = 0) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
    )
    assert status is None or done.returncode == status, done.stderr
    return done


@pytest.mark.e2e
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("user", ["10001:10001", "1234:1234"])
def test_the_gateway_runs_in_a_container_of_any_user(user: str) -> None:
    program = engine()
    _run(program, "build", "--tag", IMAGE, str(ROOT))
    options = ["--read-only", "--tmpfs", "/tmp", "--user", user, "--cap-drop", "ALL"]
    assert "hermes " in _run(program, "run", "--rm", *options, IMAGE, "--version").stdout
    settings = (
        "printf '[gateway.platforms.api_server]\\nport = 0\\ntoken = \"0123456789abcdef\"\\n'"
    )
    script = f"mkdir -m 700 hermes && {settings} > hermes/config.toml && exec hermes gateway run"
    started = _run(program, "run", "--detach", *options, "--entrypoint", "sh", IMAGE, "-c", script)
    container = started.stdout.strip()
    try:
        deadline = time.monotonic() + HEALTH_TIMEOUT_S
        status = ["exec", container, "hermes", "gateway", "status"]
        while _run(program, *status, status=None).returncode != 0:
            assert time.monotonic() < deadline, _run(program, "logs", container).stdout
            time.sleep(0.5)
        _run(program, "stop", "--time", "60", container)
    finally:
        _run(program, "rm", "--force", "--volumes", container, status=None)
