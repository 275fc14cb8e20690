"""Loading modules in a fork server, which does not respond in the meantime.

Not even to the end of the process that started it.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from calibrant._core.processes import DRIVER

PERIOD = 0.2  # seconds
PR_SET_PDEATHSIG = 1


def load(module: str) -> None:
    """Import a module; if the driver ends in the meantime, so does this process."""
    # Not simply the parent: the driver may have ended before this module is reached.
    driver = int(os.environ.get(DRIVER, os.getppid()))
    if driver == os.getpid():  # no fork server
        importlib.import_module(module)
        return
    with _killed_by_the_system(), _watching(driver), _only_growing():
        importlib.import_module(module)
    atexit.unregister(os._exit)
    atexit.register(os._exit, 0)  # the last is called first: unloading libraries takes seconds


@contextmanager
def _watching(driver: int) -> Iterator[None]:
    """End this process as soon as it belongs to another one than the driver."""
    over = threading.Event()

    def watch() -> None:
        while os.getppid() == driver:
            if over.wait(PERIOD):
                return
        os._exit(1)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()  # a process with threads must not fork


@contextmanager
def _only_growing() -> Iterator[None]:
    """Do not look for garbage among objects that stay: it takes a tenth of the time.

    Afterwards they are left aside for good, so that the collections of a worker neither visit them
    nor write to their memory, which it shares with the server.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def _killed_by_the_system() -> Iterator[None]:
    """Let Linux kill this process with its parent: no thread has a turn while a library loads."""
    if sys.platform != "linux":
        yield
        return
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    try:
        yield
    finally:
        prctl(PR_SET_PDEATHSIG, 0)  # later a thread of the driver may end, and it would count
