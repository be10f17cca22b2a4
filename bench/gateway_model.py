"""A model that repeats what it is told, word by word: `python -m bench.gateway_model SECONDS`."""

import sys
import threading
from dataclasses import replace

from hermes_agent.testing import echo
from hermes_agent.testing.server import Play, Recorded, ScriptedServer


def main() -> None:
    """Serve until terminated; the address is the first line of the output."""
    answer_s = float(sys.argv[1])

    def answer(asked: Recorded) -> Play:
        server.requests.clear()  # a long run must not remember every request
        step = echo.step(asked)
        return replace(step, delay_s=answer_s / max(1, len(step.chunks)))

    with ScriptedServer(answer) as server:
        print(server.url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
