"""Errors of calls to the server."""

from hermes_core.errors import HermesError


class CallError(HermesError):
    """The server answered with an error."""

    code = "rpc"

    def __init__(self, message: str, number: int = 0, *, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.number = number


class ConnectionLostError(HermesError):
    """The server went away before it answered; nobody knows whether it did what was asked."""

    code = "rpc.lost"
