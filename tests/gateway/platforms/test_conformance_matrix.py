"""Matrix passes the kit, on a real homeserver."""

import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from uuid import uuid4

import pytest

from gateway.config import PlatformConfig
from gateway.platforms.base import BasePlatformAdapter
from gateway.platforms.matrix.manifest import MANIFEST, MatrixSettings
from gateway.platforms.testing.conformance import PlatformConformance
from gateway.platforms.testing.network import Proxy
from gateway.platforms.testing.world import World
from tests.gateway.servers import synapse as server
from tests.gateway.servers.matrix import synapse
from tests.gateway.servers.synapse import Account, Synapse

__all__ = ["synapse"]

_CLIENT = "/_matrix/client/v3"


class MatrixWorld(World):
    patience_s = 30.0

    def __init__(self, synapse: Synapse, proxy: Proxy, folder: Path) -> None:
        self._synapse = synapse
        self._proxy = proxy
        self._folder = folder
        self._fetching: threading.Event | None = None
        self._bot, self._ann = synapse.register("hermes"), synapse.register("ann")
        self.chat = self._room(self._bot.user_id)
        self._ask(self._bot, "POST", f"/join/{quote(self.chat)}")

    def make(self) -> BasePlatformAdapter:
        settings = MatrixSettings(
            homeserver=f"http://{self._proxy.address}", access_token=self._bot.access_token
        )
        return MANIFEST.make(PlatformConfig(enabled=True), settings, self._folder)

    def write(self, text: str) -> str:
        return self._say({"msgtype": "m.text", "body": text})

    def edit(self, name: str, text: str) -> None:
        new = {"msgtype": "m.text", "body": text}
        relation = {"rel_type": "m.replace", "event_id": name}
        self._say(new | {"m.new_content": new, "m.relates_to": relation})

    def attach(self, content: bytes, name: str, text: str) -> None:
        request = urllib.request.Request(
            f"{self._synapse.url}/_matrix/media/v3/upload",
            data=content,
            headers={"Authorization": f"Bearer {self._ann.access_token}"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            url = json.load(answer)["content_uri"]
        about = {"size": len(content)}
        self._say({"msgtype": "m.file", "body": text, "filename": name, "url": url, "info": about})

    def fetched(self) -> int:
        if self._fetching is None:  # nothing but the proxy sees it, from now on
            self._fetching = self._proxy.cut_before_response(b"/media/download/")
        return int(self._fetching.is_set())

    def write_odd(self) -> None:
        for odd in ({}, {"msgtype": 5}, {"msgtype": "m.text", "body": {"a": 1}}, {"body": "?"}):
            with suppress(HTTPError):  # some the server keeps to itself
                self._say(odd)
        self._say({"msgtype": "m.file", "body": "no file", "url": "mxc://nowhere"})
        self._say({"of": ["next", "year"]}, kind="test.something.new")

    def visible_texts(self) -> list[str]:
        texts: dict[str, str] = {}
        for event in self._events():
            content = event["content"]
            relation = content.get("m.relates_to", {})
            if relation.get("rel_type") == "m.replace":
                texts[relation["event_id"]] = content["m.new_content"]["body"]
            elif "body" in content:
                texts[event["event_id"]] = content["body"]
        return list(texts.values())

    def typed(self) -> int:
        room = self._ask(self._ann, "GET", "/sync?timeout=0")["rooms"]["join"][self.chat]
        typing = [event for event in room["ephemeral"]["events"] if event["type"] == "m.typing"]
        return sum(self._bot.user_id in event["content"]["user_ids"] for event in typing)

    def files(self) -> list[bytes]:
        urls = [event["content"].get("url", "") for event in self._events()]
        return [self._download(url) for url in urls if url]

    def cut(self) -> None:
        self._proxy.refuse()
        self._proxy.cut()

    def heal(self) -> None:
        self._proxy.accept()

    def lose_next_answer(self) -> None:
        self._proxy.cut_before_response(b"/send/m.room.message")

    def limit_next_send(self) -> None:
        self._synapse.limit(self._bot)
        with suppress(HTTPError):  # what came before may have been enough
            self._say({"msgtype": "m.text", "body": "one too many"}, self._bot)

    def closed_chat(self) -> str:
        return self._room()

    def _room(self, *invited: str) -> str:
        options = {"preset": "private_chat", "invite": list(invited), "is_direct": True}
        return str(self._ask(self._ann, "POST", "/createRoom", options)["room_id"])

    def _say(
        self, content: dict[str, Any], who: Account | None = None, kind: str = "m.room.message"
    ) -> str:
        path = f"/rooms/{quote(self.chat)}/send/{kind}/{uuid4().hex}"
        return str(self._ask(who or self._ann, "PUT", path, content)["event_id"])

    def _events(self) -> list[dict[str, Any]]:
        """The bot's messages in the room, oldest first."""
        path = f"/rooms/{quote(self.chat)}/messages?dir=f&limit=500"
        found = self._ask(self._ann, "GET", path)["chunk"]
        return [
            event
            for event in found
            if event["sender"] == self._bot.user_id and event["type"] == "m.room.message"
        ]

    def _download(self, url: str) -> bytes:
        request = urllib.request.Request(
            f"{self._synapse.url}/_matrix/client/v1/media/download/{url.removeprefix('mxc://')}",
            headers={"Authorization": f"Bearer {self._ann.access_token}"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.read()

    def _ask(
        self, who: Account, method: str, path: str, body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        payload = {} if body is None and method != "GET" else body
        return self._synapse.ask(method, _CLIENT + path, payload, who.access_token)


@pytest.mark.servers
@pytest.mark.skipif(not server.is_installed(), reason=server.MISSING)
class TestMatrix(PlatformConformance):
    @pytest.fixture
    def world(self, synapse: Synapse, tmp_path: Path) -> Iterator[MatrixWorld]:
        with Proxy("127.0.0.1", synapse.port) as proxy:
            yield MatrixWorld(synapse, proxy, tmp_path)
