"""A loopback platform that shows what it is sent; its address is the first line of the output."""

import threading

from tests.support.loopback.server import LoopbackServer


def main() -> None:
    """Serve until terminated."""
    with LoopbackServer() as server:
        print(server.address, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
