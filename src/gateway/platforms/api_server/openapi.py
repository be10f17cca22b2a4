"""The OpenAPI description of the API. Request bodies come from the types that parse them."""

from functools import cache
from typing import Any

import msgspec

from gateway.platforms.api_server import exchange, parsing
from gateway.platforms.api_server.schema import ChatBody, ResponseBody
from hermes_core.version import VERSION

Json = dict[str, Any]

_OBJECT: Json = {"type": "object"}
_TEXT: Json = {"type": "string"}
_NUMBER: Json = {"type": "integer"}
_ERRORS = {
    400: "The request is not valid; nothing was run.",
    401: "The token is missing or wrong.",
    403: "The host, the page or the user is not allowed.",
    404: "There is nothing with this id or name.",
    405: "The path has no such method.",
    408: "The body did not arrive in time.",
    409: "The command still runs, the turn was stopped, or the response is in use.",
    410: "The conversation was deleted, and the reply with it.",
    413: "The body is too large.",
    431: "The headers are too large.",
    500: "Hermes has an internal error; see its log.",
    502: "The turn failed.",
    503: "Hermes or its store is not available now; Retry-After says when to repeat the request.",
}
_HEADERS = {
    parsing.CONVERSATION: "The conversation to continue, by a name of your own.",
    parsing.SESSION: "The session to continue, by its id.",
    parsing.KEY: "A repeat with the same key gets the reply of the first request.",
}
_ID_PARAMETER: Json = {"name": "id", "in": "path", "required": True, "schema": _TEXT}
_HELLO: Json = {"role": "user", "content": "Hello"}
_READ_ERRORS = (401, 403, 405, 500, 503)
_ANSWER_ERRORS = tuple(_ERRORS)


@cache
def document() -> Json:
    """Build the description."""
    bodies, components = msgspec.json.schema_components(
        [ChatBody, ResponseBody], ref_template="#/components/schemas/{name}"
    )
    chat, response = bodies
    return {
        "openapi": "3.1.0",
        "info": {"title": "Hermes", "version": VERSION},
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": {
            "/health": {"get": _health()},
            "/v1/health": {"get": _health()},
            "/openapi.json": {"get": _open(_operation("This description.", _OBJECT))},
            "/v1/models": {"get": _operation("List the models.", _ref("ModelList"))},
            "/v1/models/{name}": {
                "get": _operation("Get a model.", _ref("Model"), 404),
                "parameters": [_ID_PARAMETER | {"name": "name"}],
            },
            "/v1/chat/completions": {
                "post": _answer("Answer a chat.", chat, "ChatCompletion", {"messages": [_HELLO]}),
            },
            "/v1/responses": {
                "post": _answer("Answer a message.", response, "Response", {"input": "Hello"}),
            },
            "/v1/responses/{id}": {
                "parameters": [_ID_PARAMETER],
                "get": _operation("Get a stored response.", _ref("Response"), 400, 404),
                "delete": _operation(
                    "Delete a response with its conversation, if nothing else is in that.",
                    _ref("Deleted"),
                    404,
                    409,
                ),
            },
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {**components, **_ANSWERS},
        },
    }


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _body(schema: Json, kind: str = "application/json") -> Json:
    return {kind: {"schema": schema}}


def _operation(summary: str, schema: Json, *errors: int) -> Json:
    statuses = sorted({*_READ_ERRORS, *errors})
    failures = {str(status): _failure(status) for status in statuses}
    success = {"description": "Success.", "content": _body(schema)}
    return {"summary": summary, "responses": {"200": success, **failures}}


def _open(operation: Json) -> Json:
    """Describe an operation that needs no token."""
    return operation | {"security": []}


def _health() -> Json:
    operation = _open(_operation("Whether Hermes works.", _ref("Health")))
    operation["responses"]["503"] = {
        "description": "It does not work now.",
        "content": _body(_ref("Health")),
    }
    return operation


def _answer(summary: str, body: Json, name: str, example: Json) -> Json:
    operation = _operation(summary, _ref(name), *_ANSWER_ERRORS)
    success: Json = operation["responses"]["200"]
    success["content"] |= _body({}, "text/event-stream")
    success["headers"] = {
        header: {"schema": _TEXT}
        for header in (exchange.TURN, parsing.SESSION, parsing.CONVERSATION)
    }
    return operation | {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": body, "example": example}},
        },
        "parameters": [
            {"name": name, "in": "header", "description": text, "schema": _TEXT}
            for name, text in _HEADERS.items()
        ],
    }


def _failure(status: int) -> Json:
    return {"description": _ERRORS[status], "content": _body(_ref("Error"))}


def _object(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _list(items: Json) -> Json:
    return {"type": "array", "items": items}


def _constant(value: str) -> Json:
    return {"const": value}


_OPTIONAL_TEXT: Json = {"type": ["string", "null"]}
_ANSWERS: Json = {
    "Error": _object(
        error=_object(message=_TEXT, type=_TEXT, param=_OPTIONAL_TEXT, code=_OPTIONAL_TEXT)
    ),
    "Health": _object(status=_TEXT),
    "Model": _object(id=_TEXT, object=_constant("model"), created=_NUMBER, owned_by=_TEXT),
    "ModelList": _object(object=_constant("list"), data=_list(_ref("Model"))),
    "Deleted": _object(id=_TEXT, object=_constant("response"), deleted={"type": "boolean"}),
    "ChatCompletion": _object(
        id=_TEXT,
        object=_constant("chat.completion"),
        created=_NUMBER,
        model=_TEXT,
        choices=_list(
            _object(
                index=_NUMBER,
                message=_object(role=_constant("assistant"), content=_TEXT),
                finish_reason={"enum": ["stop", "length", "content_filter"]},
            )
        ),
        usage=_object(prompt_tokens=_NUMBER, completion_tokens=_NUMBER, total_tokens=_NUMBER),
    ),
    "Response": _object(
        id=_TEXT,
        object=_constant("response"),
        created_at=_NUMBER,
        status={"enum": ["in_progress", "completed", "incomplete", "failed", "cancelled"]},
        model=_TEXT,
        output=_list({"oneOf": [_ref("OutputMessage"), _ref("ToolCall")]}),
        error={"type": ["object", "null"]},
        usage={"type": ["object", "null"]},
    ),
    "OutputMessage": _object(
        id=_TEXT,
        type=_constant("message"),
        status=_TEXT,
        role=_constant("assistant"),
        content=_list(_object(type=_constant("output_text"), text=_TEXT)),
    ),
    "ToolCall": _object(
        id=_TEXT,
        type=_constant("mcp_call"),
        server_label=_TEXT,
        name=_TEXT,
        arguments=_TEXT,
        output=_OPTIONAL_TEXT,
        status=_TEXT,
    ),
}
