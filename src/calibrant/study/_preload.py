"""Modules that the fork server loads once for all workers.

Loading PyTorch takes seconds, in which the server does not listen to anybody.
"""

from __future__ import annotations

import importlib
import os
import threading

PERIOD = 0.2  # seconds


def load(module: str) -> None:
    """Import a module; if the parent process dies meanwhile, so does this one."""
    parent, loaded = os.getppid(), threading.Event()

    def watch() -> None:
        while not loaded.wait(PERIOD):
            if os.getppid() != parent:
                os._exit(1)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        importlib.import_module(module)
    finally:
        loaded.set()
        thread.join()  # a process with threads must not fork


load("calibrant.train")
