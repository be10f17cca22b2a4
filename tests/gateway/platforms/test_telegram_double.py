"""The Bot API double is as strict as the real one, so that what works here works there."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.gateway.servers.telegram import ANNA, TOKEN, BotApi, Cut
from tests.gateway.servers.telegram_methods import FILE_LIMIT


@pytest.fixture
def api() -> Iterator[BotApi]:
    with BotApi() as api:
        api.world.write("hello")
        yield api


def post(url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """What the server answers, whatever the status."""
    data, headers = json.dumps(body or {}).encode(), {"Content-Type": "application/json"}
    try:
        with urlopen(Request(url, data, headers), timeout=20) as response:
            return json.load(response)
    except HTTPError as error:
        with error:
            return json.load(error)


def ask(api: BotApi, method: str, **params: Any) -> Any:
    answer = post(f"{api.url}/bot{api.token}/{method}", params)
    return answer["result"] if answer["ok"] else (answer["error_code"], answer["description"])


BUTTON = {"text": "x", "callback_data": "y"}


@pytest.mark.parametrize(
    ("method", "params", "code", "words"),
    [
        ("sendMessage", {"chat_id": 5, "text": "x"}, 400, "chat not found"),
        ("sendMessage", {"chat_id": ANNA.id, "text": "  "}, 400, "text is empty"),
        ("sendMessage", {"chat_id": ANNA.id, "text": "😀" * 2049}, 400, "message is too long"),
        ("sendMessage", {"chat_id": ANNA.id, "text": "x", "parse_mode": "X"}, 400, "parse_mode"),
        (
            "sendMessage",
            {"chat_id": ANNA.id, "text": "x", "reply_parameters": {"message_id": 99}},
            400,
            "message to be replied not found",
        ),
        ("sendMessage", {"chat_id": ANNA.id, "text": "x", "message_thread_id": 3}, 400, "thread"),
        ("sendMessage", {"chat_id": "x y", "text": "x"}, 400, "chat_id"),
        ("editMessageText", {"chat_id": ANNA.id, "message_id": 9, "text": "x"}, 400, "not found"),
        ("editMessageText", {"chat_id": ANNA.id, "message_id": 1, "text": "x"}, 400, "can't be"),
        ("deleteMessage", {"chat_id": ANNA.id, "message_id": 9}, 400, "not found"),
        ("sendChatAction", {"chat_id": ANNA.id, "action": "dancing"}, 400, "action"),
        ("setMyCommands", {"commands": [{"command": "A", "description": "x"}]}, 400, "INVALID"),
        ("setMyCommands", {"commands": [{"command": "a", "description": ""}]}, 400, "DESCRIPTION"),
        ("answerCallbackQuery", {"callback_query_id": "1"}, 400, "query is too old"),
        ("getFile", {"file_id": "x"}, 400, "invalid file_id"),
        ("sendDocument", {"chat_id": ANNA.id}, 400, "no document"),
        ("getUpdates", {"limit": 101}, 400, "limit"),
        ("setWebhook", {"url": "http://example.org/"}, 400, "HTTPS"),
        ("danceAround", {}, 404, "Not Found"),
    ],
)
def test_what_telegram_refuses_is_refused_in_its_words(
    api: BotApi, method: str, params: dict[str, Any], code: int, words: str
) -> None:
    refused = ask(api, method, **params)

    assert refused[0] == code
    assert words in refused[1]


@pytest.mark.parametrize(
    ("entities", "is_taken"),
    [
        ([{"type": "bold", "offset": 0, "length": 5}], True),
        ([{"type": "bold", "offset": 0, "length": 6}], False),
        ([{"type": "bold", "offset": 4, "length": 1}], False),
        ([{"type": "bold", "offset": 0, "length": 0}], False),
        ([{"type": "loud", "offset": 0, "length": 1}], False),
        ([{"type": "text_link", "offset": 0, "length": 1}], False),
        (
            [
                {"type": "bold", "offset": 0, "length": 2},
                {"type": "italic", "offset": 1, "length": 2},
            ],
            False,
        ),
        (
            [
                {"type": "bold", "offset": 0, "length": 3},
                {"type": "code", "offset": 1, "length": 1},
            ],
            False,
        ),
        (
            [
                {"type": "blockquote", "offset": 0, "length": 3},
                {"type": "pre", "offset": 0, "length": 1},
            ],
            True,
        ),
    ],
)
def test_entities_lie_within_the_text_and_nest(
    api: BotApi, entities: list[dict[str, Any]], is_taken: bool
) -> None:
    sent = ask(api, "sendMessage", chat_id=ANNA.id, text="abc😀", entities=entities)

    assert isinstance(sent, dict) is is_taken


@pytest.mark.parametrize(
    "button",
    [{"text": " ", "callback_data": "x"}, {"text": "x"}, BUTTON | {"callback_data": "y" * 65}],
)
def test_a_button_needs_a_text_and_short_data(api: BotApi, button: dict[str, str]) -> None:
    markup = {"inline_keyboard": [[button]]}

    assert ask(api, "sendMessage", chat_id=ANNA.id, text="x", reply_markup=markup)[0] == 400


def test_an_edit_that_changes_nothing_is_refused(api: BotApi) -> None:
    markup = {"inline_keyboard": [[BUTTON]]}
    sent = ask(api, "sendMessage", chat_id=ANNA.id, text="x", reply_markup=markup)
    where = {"chat_id": ANNA.id, "message_id": sent["message_id"]}

    same = ask(api, "editMessageText", text="x", reply_markup=markup, **where)
    assert "message is not modified" in same[1]
    assert ask(api, "editMessageText", text="x", **where)["text"] == "x"
    assert ask(api, "deleteMessage", **where) is True
    assert api.world.replies() == []


def test_wrong_tokens_are_told_apart(api: BotApi) -> None:
    assert post(f"{api.url}/bot4242:other/getMe")["error_code"] == 401
    assert post(f"{api.url}/botnothing/getMe")["error_code"] == 404


def test_updates_stay_until_a_later_one_is_asked_for(api: BotApi) -> None:
    api.world.write("two")
    first, second = ask(api, "getUpdates")
    assert [first["message"]["text"], second["message"]["text"]] == ["hello", "two"]
    assert ask(api, "getUpdates", limit=1) == [first]
    assert ask(api, "getUpdates", offset=-1) == [second]
    assert ask(api, "getUpdates", offset=second["update_id"] + 1) == []
    assert api.world.updates == []


def test_a_poll_waits_for_news_and_hears_only_what_it_asked_for(api: BotApi) -> None:
    ask(api, "getUpdates", offset=10**12, allowed_updates=["message"])
    updates: list[Any] = []
    poll = threading.Thread(target=lambda: updates.extend(ask(api, "getUpdates", timeout=20)))
    poll.start()
    api.world.edit(1, "edited")
    api.world.write("news")
    poll.join(20)

    assert [update["message"]["text"] for update in updates] == ["news"]


def test_of_two_polls_the_older_one_ends_with_a_conflict(api: BotApi) -> None:
    ask(api, "getUpdates", offset=10**12)
    answers: list[Any] = []
    poll = threading.Thread(target=lambda: answers.append(ask(api, "getUpdates", timeout=20)))
    poll.start()
    api.world.wait_for(lambda: api._poll == 2)
    assert ask(api, "getUpdates") == []
    poll.join(20)

    assert answers[0][0] == 409
    assert "only one bot instance" in answers[0][1]


def test_with_a_webhook_there_is_no_poll_and_each_update_is_pushed_until_it_is_taken(
    api: BotApi,
) -> None:
    came: list[tuple[str, str | None]] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            came.append((body["message"]["text"], self.headers["X-Telegram-Bot-Api-Secret-Token"]))
            self.send_response(200 if len(came) > 2 else 500)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Hook) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        api.world.write("two")
        url = f"http://127.0.0.1:{server.server_address[1]}/hook"
        assert ask(api, "setWebhook", url=url, secret_token="s") is True
        assert ask(api, "getUpdates")[0] == 409
        api.world.wait_for(lambda: not api.world.updates)
        assert ask(api, "getWebhookInfo")["url"] == url
        assert ask(api, "deleteWebhook") is True
        server.shutdown()
        thread.join(10)

    assert came == [("hello", "s")] * 3 + [("two", "s")]
    assert ask(api, "getUpdates") == []


def test_files_are_handed_out_up_to_a_size(api: BotApi) -> None:
    api.world.attach("document", b"content", about={"file_name": "a b.txt"})
    api.world.attach("document", bytes(FILE_LIMIT + 1))
    small, large = (update["message"]["document"] for update in ask(api, "getUpdates")[1:])
    path = ask(api, "getFile", file_id=small["file_id"])["file_path"].replace(" ", "%20")
    with urlopen(f"{api.url}/file/bot{api.token}/{path}", timeout=20) as response:
        assert response.read() == b"content"

    assert "too big" in ask(api, "getFile", file_id=large["file_id"])[1]


def test_a_cut_connection_gives_no_answer(api: BotApi) -> None:
    for when, times in (("before", 0), ("after", 1)):
        api.fail("sendMessage", Cut(when))  # pyright: ignore[reportArgumentType] -- both are
        with pytest.raises(OSError):
            ask(api, "sendMessage", chat_id=ANNA.id, text="x")
        assert api.count("sendMessage") == times


def test_it_runs_as_a_process_of_its_own() -> None:
    command = [sys.executable, "-m", "tests.gateway.servers.telegram"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        try:
            person = [1002, "Ben", "ben"]
            assert post(f"{url}/world/write", {"text": "hi", "person": person})["result"] == 1
            bot = f"{url}/bot{TOKEN}"
            assert post(f"{bot}/getUpdates")["result"][0]["message"]["text"] == "hi"
            assert post(f"{bot}/sendMessage", {"chat_id": 1002, "text": "ho"})["ok"]
            assert post(f"{url}/world/replies", {"chat": 1002})["result"] == ["ho"]
            messages = post(f"{url}/world/shown", {"chat": 1002})["result"]
            assert [message["is_bot"] for message in messages] == [False, True]
            assert post(f"{url}/world/calls")["result"]["sendMessage"] == 1
            assert post(f"{url}/world/dance")["error_code"] == 404
            forum = {"chat_id": -7, "kind": "supergroup", "topics": {"7": "Plans"}}
            assert post(f"{url}/world/add_chat", forum)["result"] == -7
            topic = {"chat_id": -7, "text": "there", "message_thread_id": 7}
            assert post(f"{bot}/sendMessage", topic)["ok"]
            there = post(f"{url}/world/replies", {"chat": -7, "thread": 7})["result"]
            assert there == ["there"]
            fault = {"method": "getMe", "fault": "fail", "code": 502}
            assert post(f"{url}/world/fail", fault)["ok"]
            assert post(f"{bot}/getMe")["error_code"] == 502
            assert post(
                f"{url}/world/fail", {"method": "getMe", "fault": "delay", "seconds": 0.01}
            )["ok"]
            assert post(f"{bot}/getMe")["result"]["is_bot"]
        finally:
            process.terminate()
