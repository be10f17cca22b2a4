"""Loading parts when they are first needed, one thread at a time.

Two threads that load a package and a module of it at the same moment can each be handed the other's
half-made module: Python prefers that to waiting for ever.
"""

import threading

loading = threading.RLock()
"""Held by whoever loads a part of the program after the start."""
