"""A model that repeats what it is told, word by word, in about `SECONDS`."""

import random
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
        # Real models do not all end at the same moment.
        seconds = random.uniform(0.5, 1.5) * answer_s
        return replace(step, delay_s=seconds / max(1, len(step.chunks)))

    with ScriptedServer(answer) as server:
        print(server.url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
