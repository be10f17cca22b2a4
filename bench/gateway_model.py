"""A model that repeats what it is told, after a while: `python -m bench.gateway_model SECONDS`."""

import sys
import threading

from hermes_agent.testing import echo
from hermes_agent.testing.server import Play, Recorded, ScriptedServer


def main() -> None:
    """Serve until terminated; the address is the first line of the output."""
    wait_s = float(sys.argv[1])

    def answer(asked: Recorded) -> Play:
        server.requests.clear()  # a long run must not remember every request
        server.stop.wait(wait_s)
        return echo.step(asked)

    with ScriptedServer(answer) as server:
        print(server.url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
