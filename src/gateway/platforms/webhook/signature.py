"""Signatures: they prove that a request is recent and that its sender knows the secret.

Ours is HMAC-SHA256 over `timestamp.delivery.body`, or `timestamp.body` without a delivery id, as
`sha256=HEX`. The body is a JSON object or list, so one can never be read as the other. GitHub's covers
the body alone, without a time or an id, so the body itself is the id: a request that is replayed is a
repeat, whatever its headers say.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping

from gateway.platforms.refusal import RefusedRequest
from gateway.platforms.webhook.manifest import Style
from hermes_core import clock

SIGNATURE = "X-Hermes-Signature"
TIMESTAMP = "X-Hermes-Timestamp"
DELIVERY = "X-Hermes-Delivery"
GITHUB_SIGNATURE = "X-Hub-Signature-256"

_DELIVERY_ID = re.compile(r"[\w.:-]{1,128}", re.ASCII)
_SECONDS = re.compile(r"\d{1,12}", re.ASCII)


def sign(style: Style, secret: str, delivery: str, body: bytes) -> dict[str, str]:
    """Return the headers that sign a request of ours."""
    if style == "github":
        return {GITHUB_SIGNATURE: _digest(secret, body), DELIVERY: delivery}
    timestamp = str(int(clock.now()))
    return {
        SIGNATURE: _digest(secret, _prefix(timestamp, delivery), body),
        TIMESTAMP: timestamp,
        DELIVERY: delivery,
    }


def checked(
    style: Style, secret: str, window_s: float, headers: Mapping[str, str], body: bytes
) -> str:
    """Check the signature of a delivery and return its id; raises RefusedRequest."""
    if style == "github":
        _compare(headers.get(GITHUB_SIGNATURE, ""), _digest(secret, body), GITHUB_SIGNATURE)
        return hashlib.sha256(body).hexdigest()
    delivery = headers.get(DELIVERY, "")
    if delivery and not _DELIVERY_ID.fullmatch(delivery):
        raise RefusedRequest(
            400, "The delivery id is not valid.", code="invalid_delivery", param=DELIVERY
        )
    timestamp = headers.get(TIMESTAMP, "")
    prefix = _prefix(timestamp, delivery)
    _compare(headers.get(SIGNATURE, ""), _digest(secret, prefix, body), SIGNATURE)
    if not _SECONDS.fullmatch(timestamp) or abs(clock.now() - int(timestamp)) > window_s:
        raise _refused("The request is too old, or one of the clocks is wrong.", TIMESTAMP)
    return delivery or hashlib.sha256(prefix + body).hexdigest()


def _prefix(timestamp: str, delivery: str) -> bytes:
    return f"{timestamp}.{delivery}.".encode() if delivery else f"{timestamp}.".encode()


def _digest(secret: str, *parts: bytes) -> str:
    mac = hmac.new(secret.encode(), digestmod=hashlib.sha256)
    for part in parts:
        mac.update(part)
    return f"sha256={mac.hexdigest()}"


def _compare(signature: str, expected: str, header: str) -> None:
    if not hmac.compare_digest(signature.encode(), expected.encode()):
        raise _refused("The signature is missing or wrong.", header)


def _refused(message: str, header: str) -> RefusedRequest:
    return RefusedRequest(401, message, code="invalid_signature", param=header)
