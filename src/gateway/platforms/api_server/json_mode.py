"""JSON mode: a reply that is one JSON object, as the client asked for it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from gateway.platforms.refusal import FINAL, RefusedRequest
from hermes_agent.tools import schema as schemas
from hermes_core.errors import ToolError

_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n[ \t]*```", re.DOTALL)


@dataclass(frozen=True)
class JsonFormat:
    """The form of a reply: any object, or one that fits a schema."""

    schema: Mapping[str, Any] | None = None
    is_strict: bool = False

    @property
    def demand(self) -> str:
        """Return what the model is told after the message."""
        text = "[The program that reads your final reply needs one JSON object and nothing else"
        if self.schema is None:
            return f"{text}.]"
        return f"{text}, which fits this JSON Schema: {msgspec.json.encode(self.schema).decode()}]"

    def extract(self, reply: str) -> str:
        """Return the JSON object in a reply; raises RefusedRequest when there is none that fits."""
        for text in (reply.strip(), *reversed(_FENCED.findall(reply))):
            try:
                value = msgspec.json.decode(text)
            except msgspec.DecodeError:
                continue
            if isinstance(value, dict):
                self._check(cast("dict[str, Any]", value))
                return text
        raise _unfit("The reply is not one JSON object.")

    def _check(self, value: dict[str, Any]) -> None:
        if self.schema is None or not self.is_strict:
            return
        try:
            schemas.check(self.schema, value)
        except ToolError as error:
            raise _unfit(f"The reply does not fit the schema: {error.message}") from error


def _unfit(message: str) -> RefusedRequest:
    return RefusedRequest(502, message, code="reply_not_json", headers=FINAL)
