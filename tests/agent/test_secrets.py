"""Secrets: whatever a tool or a person brings up, their values pass no sink."""

import base64
import json
import logging
import textwrap
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote_from_bytes, quote_plus

import msgspec
import pytest

from hermes_agent.models.registry import Registry
from hermes_agent.testing.scripted import call
from hermes_agent.testing.server import ScriptedServer
from hermes_agent.tools.base import Args, Call, Result
from hermes_agent.tools.registry import default_tools
from hermes_core import config, log, secrets
from hermes_core.paths import Home
from hermes_core.settings import (
    AgentSettings,
    ApprovalSettings,
    ModelSettings,
    Settings,
    ToolSettings,
)
from hermes_state.ledger import messages
from tests.agent.conftest import Counting, MakeChat

pytestmark = pytest.mark.promise("P7")

SECRET = "tok-9f8e7d6c5b4a"
HIDDEN = "[secret DEPLOY_TOKEN]"


@pytest.fixture(autouse=True)
def registered() -> None:
    secrets.register({"DEPLOY_TOKEN": SECRET})


def test_a_secret_in_the_output_of_a_tool_reaches_neither_model_store_nor_events(
    make_chat: MakeChat,
) -> None:
    def leak(_args: Args, call_: Call) -> Result:
        call_.progress(f"using {SECRET}")
        return Result(f"DEPLOY_TOKEN={SECRET}", diff=f"+{SECRET}")

    chat = make_chat([call("count"), f"The token is {SECRET}."], [Counting(then=leak).tool()])
    result = chat.say(f"my token is {SECRET}")
    seen = [
        str(result),
        str(chat.model.requests),
        str(chat.store.read(messages.of_session, chat.agent.session_id)),
        msgspec.json.encode(
            [e for e in chat.sink.events if "delta" not in type(e).__name__.lower()]
        ),
        str(list(chat.store.export_lines())),
        str(chat.hooks.of("post_tool_call")),
    ]
    assert all(SECRET not in str(text) for text in seen), [SECRET in str(t) for t in seen]
    assert HIDDEN in str(seen[0])


def test_a_secret_does_not_reach_a_model_server_even_when_it_was_stored_before(
    make_chat: MakeChat, home: Home
) -> None:
    with ScriptedServer(["ok"]) as server:
        settings = Settings(model=ModelSettings(name="scripted", provider="openai"))
        keys = {"OPENAI_API_KEY": "sk-another-key", "OPENAI_BASE_URL": server.openai_url}
        chat = make_chat([])
        secrets.clear()
        chat.store.create_session("old", "cli")
        chat.store.append_message("old", "user", f"once upon a {SECRET}")
        secrets.register({"DEPLOY_TOKEN": SECRET})
        later = make_chat([], session_id="old")
        later.agent.model = Registry(settings.model, keys, home).build()
        assert later.say("and now?")["completed"]
        body = server.model_requests[0].body
    assert SECRET.encode() not in body
    assert json.loads(body)["messages"][1]["content"] == f"once upon a {HIDDEN}"


def test_a_secret_does_not_reach_the_log(home: Home) -> None:
    log.set_up(home.logs, "info")
    try:
        raise RuntimeError(f"bad token {SECRET}")
    except RuntimeError:
        logging.getLogger("test").exception("failed with %s", SECRET)
    logging.shutdown()
    text = (home.logs / "hermes.log").read_text("utf-8")
    assert SECRET not in text
    assert text.count(HIDDEN) == 2


def test_secrets_are_what_the_environment_and_the_settings_call_so() -> None:
    environment = {
        "OPENAI_API_KEY": "sk-1234567890",
        "GITHUB_TOKEN": "ghp_1234567890",
        "DB_PASSWORD": "correct horse",
        "AWS_SECRET_ACCESS_KEY": "abcdefghijkl",
        "PGPASSWORD": "tea-for-two",
        "DB_PASS": "lemon-and-ginger",
        "MYSQL_PWD": "sugar-and-milk",
        "DATABASE_URL": "postgres://ann:cinn%40mon-1@db/x",
        "DEV_URL": "postgres://postgres:postgres@localhost/x",
        "PATH": "/usr/bin:/bin",
        "PWD": "/srv/ann/work",
        "KEYBOARD": "qwertz-layout",
        "TOKEN": "short",
    }
    settings = Settings(model=ModelSettings(api_key="from-the-file"))
    found = config.secrets(settings, environment)
    harmless = {"PATH", "PWD", "KEYBOARD", "TOKEN"}
    passwords = {"DATABASE_URL password 1", "DATABASE_URL password 1 decoded"}
    assert set(found) == environment.keys() - harmless | passwords | {"model.api_key"}
    assert found["DATABASE_URL password 1 decoded"] == "cinn@mon-1"
    assert set(config.child_environment(environment)) == {"PATH", "PWD", "KEYBOARD"}


def test_commands_get_the_variables_that_are_allowed_and_no_other() -> None:
    environment = {
        "PATH": "/bin",
        "LC_ALL": "C",
        "VIRTUAL_ENV": "/venv",
        "XDG_CACHE_HOME": "/cache",
        "https_proxy": "http://proxy:3128",
        "HTTP_PROXY": "http://ann:secret@proxy:3128",
        "PIP_INDEX_URL": "https://ann:secret@pypi.example/simple",
        "DATABASE_URL": "postgres://ann:secret@db/x",
        "PGPASSWORD": "tea",
        "STRIPE": "tea",
        "SSH_AUTH_SOCK": "/tmp/agent",
        "MY_FLAG": "1",
    }
    allowed = {
        "PATH",
        "LC_ALL",
        "VIRTUAL_ENV",
        "XDG_CACHE_HOME",
        "https_proxy",
        "HERMES_IN_COMMAND",
    }
    assert config.command_environment(Settings(), environment).keys() == allowed
    settings = Settings(tools=ToolSettings(environment=["MY_*", "PGPASSWORD"]))
    more = config.command_environment(settings, environment)
    assert more.keys() == allowed | {"MY_FLAG", "PGPASSWORD"}


@pytest.mark.parametrize("name", ["DB_PASS", "PGPASSWORD", "DATABASE_URL"])
def test_a_command_cannot_print_a_secret_of_any_name(
    make_chat: MakeChat, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, f"postgres://ann:{SECRET}@db/x")
    tools = [tool for tool in default_tools(Settings()) if tool.name == "terminal"]
    host = Settings(
        agent=AgentSettings(titles=False),
        tools=ToolSettings(sandbox="host"),
        approvals=ApprovalSettings(mode="allow"),
    )
    chat = make_chat(
        [call("terminal", command=f"rev <<<${name}; env | rev"), "ok"], tools, settings=host
    )
    chat.say()
    assert SECRET[::-1] not in chat.transcript()[2][1]


def test_a_command_of_the_model_does_not_see_our_secrets(
    make_chat: MakeChat, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", SECRET)
    chat = make_chat([])
    assert "DEPLOY_TOKEN" not in chat.agent.tool_context.environment


@pytest.mark.parametrize(
    "encode",
    [
        lambda secret: base64.b64encode(secret).decode(),
        lambda secret: base64.b64encode(b"x" + secret).decode(),
        lambda secret: base64.urlsafe_b64encode(b"xy" + secret + b"tail").decode(),
        lambda secret: base64.encodebytes(b"key: " * 12 + secret * 3).decode(),
        lambda secret: secret.hex(),
        lambda secret: secret.hex().upper(),
        lambda secret: "\n".join(textwrap.wrap(secret.hex(), 7)),
        lambda secret: quote_from_bytes(secret, safe=""),
        lambda secret: quote_from_bytes(secret, safe="").lower(),
        lambda secret: quote_plus(secret),
        lambda secret: secret.decode()[::-1],
    ],
)
def test_an_encoded_secret_is_redacted(encode: Callable[[bytes], str]) -> None:
    secret = "s/f+p? ü-0123456789"
    secrets.register({"ODD_KEY": secret})
    encoded = encode(secret.encode())
    for text in (secrets.redact(f"<{encoded}>"), secrets.redact_bytes(encoded.encode()).decode()):
        assert text.count("[secret ODD_KEY]") == (3 if len(encoded) > 120 else 1)


def test_short_secrets_and_harmless_texts_are_not_taken_for_encodings() -> None:
    secrets.register({"PIN": "abc", "LONG": "correct horse"})
    for text in (
        base64.b64encode(b"abc").decode(),
        b"abc".hex(),
        "cba",
        "correct",
        "horse\ncorrect",
    ):
        assert secrets.redact(text) == text
