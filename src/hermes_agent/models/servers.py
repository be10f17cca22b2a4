"""Ask a model server about itself: its models, and the window of each.

Every kind of server says it in another place. The window that counts is the one that is loaded, not the
one the model was made for: local servers cut longer requests without a word.
"""

import re
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

import msgspec

from hermes_agent.models.http_client import Endpoint, Page
from hermes_agent.models.model_facts import UNKNOWN_LOCAL_WINDOW, Prices, ServerFacts
from hermes_agent.turn.stop import Stop
from hermes_core.errors import ModelError

OLLAMA_WINDOW = 4096
"""What Ollama gives a model unless it is told otherwise."""

Fields = dict[str, Any]
_NUM_CTX = re.compile(r"^num_ctx\s+(\d+)", re.MULTILINE)


class Served(NamedTuple):
    """One model of a server."""

    name: str
    fields: Fields
    """Whatever the server's list says of it."""


class Server:
    """One address that lists models in OpenAI's way."""

    def __init__(self, base_url: str, api_key: str = "", *, probe_timeout_s: float = 3.0) -> None:
        """`base_url` usually ends in /v1; `probe_timeout_s` is for each question."""
        self.base_url = base_url.rstrip("/")
        self._patience_s = probe_timeout_s
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        parts = urlsplit(self.base_url)
        root = f"{parts.scheme}://{parts.netloc}"
        self._endpoint = Endpoint(
            root,
            headers,
            provider="server",
            timeout_s=probe_timeout_s,
            connect_timeout_s=probe_timeout_s,
        )
        self._prefix = self.base_url.removeprefix(root)

    def close(self) -> None:
        self._endpoint.close()

    def models(self, stop: Stop | None = None) -> list[Served]:
        """The models there are; raises ModelError when nobody answers as a model's server does."""
        page = self._get(f"{self._prefix}/models", stop)
        listed = _object(page.body)
        if page.status != 200 or not isinstance(listed.get("data"), list):
            raise ModelError(
                f"{self.base_url} does not list models ({page.status}).",
                fix="Check the address; it usually ends in /v1.",
                status=page.status,
            )
        entries = _entries(listed["data"])
        return [Served(str(entry["id"]), entry) for entry in entries if entry.get("id")]

    def facts(self, served: Served, stop: Stop | None = None) -> ServerFacts:
        """Ask the server about one of its models; empty where it is silent."""
        listed = _listed(served.fields)
        if listed.window:
            return listed
        owner = str(served.fields.get("owned_by") or "")
        try:
            if owner == "library" or ":11434" in self.base_url:
                return self._ollama(served.name, stop)
            if owner == "llamacpp":
                return self._llama_cpp(served.fields, stop)
            found = self._lm_studio(served.name, stop)
        except ModelError:
            found = listed
        return found if found.window else _trained(served.fields, found)

    def _ollama(self, name: str, stop: Stop | None) -> ServerFacts:
        info = _object(self._post("/api/show", {"model": name}, stop).body)
        skills = _texts(info.get("capabilities")) or []
        loaded = self._loaded_by_ollama(name, stop)
        parameter = _NUM_CTX.search(str(info.get("parameters") or ""))
        window = loaded or (int(parameter[1]) if parameter else OLLAMA_WINDOW)
        details = _fields(info.get("details"))
        return ServerFacts(
            window=window,
            images="vision" in skills if skills else None,
            tools="tools" in skills if skills else None,
            billions=_billions(details.get("parameter_size")),
            note="" if loaded or parameter else "Ollama's own default; raise OLLAMA_CONTEXT_LENGTH",
        )

    def _loaded_by_ollama(self, name: str, stop: Stop | None) -> int:
        running = _entries(_object(self._get("/api/ps", stop).body).get("models"))
        found = (model for model in running if name in (model.get("name"), model.get("model")))
        return _positive_int(next(found, Fields()).get("context_length"))

    def _llama_cpp(self, fields: Fields, stop: Stop | None) -> ServerFacts:
        props = _object(self._get("/props", stop).body)
        settings = _fields(props.get("default_generation_settings"))
        meta = _fields(fields.get("meta"))
        modes = _fields(props.get("modalities"))
        return ServerFacts(
            window=_positive_int(settings.get("n_ctx")) or _positive_int(meta.get("n_ctx_train")),
            images=bool(modes["vision"]) if "vision" in modes else None,
            billions=_positive_int(meta.get("n_params")) / 1e9,
        )

    def _lm_studio(self, name: str, stop: Stop | None) -> ServerFacts:
        entries = _entries(_object(self._get("/api/v0/models", stop).body).get("data"))
        entry = next((entry for entry in entries if entry.get("id") == name), Fields())
        skills = _texts(entry.get("capabilities"))
        # One that is not loaded yet will be loaded with less than it could have.
        most = min(_positive_int(entry.get("max_context_length")), UNKNOWN_LOCAL_WINDOW)
        return ServerFacts(
            window=_positive_int(entry.get("loaded_context_length")) or most,
            images=entry["type"] == "vlm" if "type" in entry else None,
            tools="tool_use" in skills if skills is not None else None,
        )

    def _get(self, path: str, stop: Stop | None) -> Page:
        return self._endpoint.get(path, stop or Stop(), timeout_s=self._patience_s)

    def _post(self, path: str, body: Fields, stop: Stop | None) -> Page:
        with self._endpoint.post(path, msgspec.json.encode(body), stop or Stop()) as answer:
            return Page(answer.status, answer.read())


def _listed(fields: Fields) -> ServerFacts:
    """Read the facts in the list itself: vLLM, llama.cpp, OpenRouter and others."""
    meta = _fields(fields.get("meta"))
    top = _fields(fields.get("top_provider"))
    window = (
        _positive_int(fields.get("max_model_len"))
        or _positive_int(meta.get("n_ctx"))
        or _positive_int(top.get("context_length"))
        or _positive_int(fields.get("context_length"))
        or _positive_int(fields.get("context_window"))
        or _positive_int(fields.get("max_context_length"))
    )
    modes = _texts(_fields(fields.get("architecture")).get("input_modalities"))
    skills = _texts(fields.get("supported_parameters"))
    return ServerFacts(
        window=window,
        max_output=_positive_int(top.get("max_completion_tokens")),
        images="image" in modes if modes is not None else None,
        tools="tools" in skills if skills is not None else None,
        billions=_positive_int(meta.get("n_params")) / 1e9,
        prices=_prices(fields.get("pricing")),
    )


def _trained(fields: Fields, found: ServerFacts) -> ServerFacts:
    """Add the window that a model was made for, which its server does not change for all we know."""
    window = _positive_int(_fields(fields.get("meta")).get("n_ctx_train"))
    window = window or _positive_int(fields.get("n_ctx_train"))
    if not window:
        return found
    return msgspec.structs.replace(found, window=window, note="what the model was made for")


def _prices(listed: object) -> Prices | None:
    """OpenRouter's prices, which are texts in USD for one token."""
    if not (fields := _fields(listed)):
        return None
    keys = ("prompt", "completion", "input_cache_read", "input_cache_write")
    try:
        prices = [float(fields.get(key) or 0) * 1e6 for key in keys]
    except (TypeError, ValueError):
        return None
    # A route that picks the model itself says -1: the price is known only afterwards.
    return Prices(*prices) if min(prices) >= 0 else None


def _object(body: bytes) -> Fields:
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    return _fields(value)


def _fields(value: object) -> Fields:
    return cast("Fields", value) if isinstance(value, dict) else {}


def _texts(value: object) -> list[str] | None:
    return list(map(str, cast("list[object]", value))) if isinstance(value, list) else None


def _entries(value: object) -> list[Fields]:
    found = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("Fields", entry) for entry in found if isinstance(entry, dict)]


def _positive_int(value: object) -> int:
    return int(value) if isinstance(value, int | float) and value > 0 else 0


def _billions(value: object) -> float:
    """A size such as `7.6B` or `135M`."""
    found = re.fullmatch(r"([\d.]+)\s*([BM])", str(value or ""))
    return float(found[1]) / (1000 if found[2] == "M" else 1) if found else 0.0
