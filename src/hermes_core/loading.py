"""Lock for lazy imports.

Two threads that import a package and one of its modules at the same time can each get the other's
half-initialized module: Python prefers that to a deadlock.
"""

import threading

loading = threading.RLock()
"""Held during imports after startup."""
