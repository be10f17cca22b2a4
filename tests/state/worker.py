"""The writer that is killed: runs scripts on a store and reports every acknowledgement."""

import sys
import threading

from tests.state import workload
from tests.support.worker import Order, describe, reporter, run_threads, serve, trapped_store


def live(order: Order, pipe: int) -> None:
    """Run scripts in as many threads as there are names; report to the pipe."""
    report = reporter(pipe)
    together = threading.Barrier(len(order.threads))
    with trapped_store(order, report) as (store, reach):

        def run(number: int, name: str) -> None:
            try:
                together.wait(10)
                steps = 0
                for script in range(order.scripts):
                    for _ in workload.conversation(store, f"{name}c{script}"):
                        steps += 1
                        reach("acknowledge")
                        report(f"{number} {steps}")
            except BaseException as error:  # noqa: BLE001 -- the parent must hear of it
                report(describe(error))

        run_threads(order.threads, run)
    report("done")


if __name__ == "__main__":
    serve(int(sys.argv[1]), live)
