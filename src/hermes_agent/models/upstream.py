"""The server of a remote model: post a request to it, and say in plain words what it refused."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from hermes_agent.models import refusals
from hermes_agent.models.base import Facts
from hermes_agent.models.http_client import Endpoint, Response, encode
from hermes_agent.models.providers import OURS, Provider
from hermes_agent.turn.stop import Stop
from hermes_core.errors import ModelError, ModelUnreachableError

_LIST_TIMEOUT_S = 10.0
"""For the names of all models."""
_SUGGESTION_TIMEOUT_S = 3.0
"""For the same, when the requested model does not exist."""


class Upstream:
    """The server of one model."""

    def __init__(
        self,
        facts: Facts,
        base_url: str,
        headers: Mapping[str, str],
        *,
        provider: Provider | None = None,
        key_name: str = "",
        timeout_s: float = 300.0,
        list_path: str = "/models",
    ) -> None:
        """`provider` is the one of that name in our table unless it is given.

        `key_name` is where the key comes from, for messages about it.
        """
        self.provider = provider or OURS.get(facts.provider)
        self._facts = facts
        self._endpoint = Endpoint(
            base_url, headers, provider=self.provider.subject, timeout_s=timeout_s
        )
        self._key_name = key_name
        self._list_path = list_path

    @contextmanager
    def post(self, path: str, body: Mapping[str, Any], stop: Stop) -> Generator[Response]:
        """Send a request and yield the response; raises ModelError and Interrupted."""
        with self._endpoint.post(path, encode(body), stop) as response:
            if response.status != 200:
                raise refusals.error_from(
                    response.status, response.headers, response.read(), self._who(stop)
                )
            yield response

    def model_names(self, stop: Stop) -> list[str]:
        """Return the names of all models of the server; none where it does not tell them."""
        return self._names(stop, _LIST_TIMEOUT_S)

    def refused_in_stream(self, error: object, stop: Stop) -> ModelError:
        """Return the error that a server sent in place of an event."""
        return refusals.error_in_stream(error, self._who(stop))

    def unreadable(self, data: bytes) -> ModelError:
        """Return the error for data that is not in the wire format."""
        return refusals.unreadable(data, self._who(Stop()))

    def broken_off(self) -> ModelError:
        """Return the error for a stream that ended before its reply."""
        return ModelUnreachableError(
            f"{self.provider.subject} broke off the stream before the reply was complete.",
            fix="Ask again.",
            retryable=True,
            provider=self._facts.provider,
        )

    def close(self) -> None:
        """Close the connections."""
        self._endpoint.close()

    def _who(self, stop: Stop) -> refusals.ModelSource:
        return refusals.ModelSource(
            self.provider.subject,
            self._facts.name,
            self._key_name,
            self._endpoint.base_url,
            lambda: self._names(stop, _SUGGESTION_TIMEOUT_S),
        )

    def _names(self, stop: Stop, timeout_s: float) -> list[str]:
        page = self._endpoint.get(self._list_path, stop, timeout_s=timeout_s)
        return refusals.names_in(page.body) if page.status == 200 else []
