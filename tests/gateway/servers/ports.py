"""Ports for servers that are told theirs: no two tests get the same one, nor does a client by chance."""

import itertools
import os
import socket

_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_PER_WORKER = 1000
_ports = itertools.count(20_000 + _PER_WORKER * (_WORKER % 12))
"""Below those that the system gives to clients, a stretch for each process that runs tests."""


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    for port in _ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("every port is taken")
