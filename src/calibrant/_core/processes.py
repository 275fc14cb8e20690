"""Worker processes that end with their driver and ignore Ctrl-C.

A worker is the first of a process group of its own, and so are the processes that it starts: a
signal from the terminal goes past them, and all of them are killed together.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import connection, forkserver, resource_tracker
from typing import Any

Answer = Any
DRIVER = "CALIBRANT_DRIVER"  # where the fork server finds whose it is
STARTED = "started"


class WorkerDied(Exception):
    """The process of a worker ended; ``started`` says whether it ever worked."""

    def __init__(self, *, started: bool) -> None:
        super().__init__("A worker process crashed.")
        self.started = started


class Worker:
    """A process that calls functions, one at a time, until it is killed.

    Parameters
    ----------
    preload
        Module that the fork server loads once for all workers; the same for all of a process.
    prepare
        Called in the new process before anything else, without arguments.
    """

    def __init__(self, preload: str, prepare: Callable[[], None]) -> None:
        self.task: Any = None
        self.started = False
        self._ours, theirs = multiprocessing.Pipe()
        try:
            self._process = fork_server(preload).Process(target=_serve, args=(theirs, prepare))
            self._process.start()
        finally:
            theirs.close()

    def give(self, task: Any, function: Callable[..., Answer], *arguments: Any) -> None:
        """Begin a call; ``task`` is what the driver calls it."""
        self.task = task
        with suppress(BrokenPipeError):  # it died: has_answer will notice
            self._ours.send((function, arguments))

    def has_answer(self) -> bool:
        """Whether the call has ended, or the process is dead: asked when there is news of it."""
        if self.started:
            return True
        try:
            self.started = self._ours.recv() == STARTED
        except (EOFError, OSError):
            return True
        return self._ours.poll()

    def answer(self) -> Answer:
        """What the call returned; raises what it raised, or ``WorkerDied``."""
        try:
            found = self._ours.recv()
        except (EOFError, OSError):
            raise WorkerDied(started=self.started) from None
        self.task = None
        if isinstance(found, Exception):
            raise found
        return found

    def kill(self) -> None:
        """End the process and those that it started."""
        pid = self._process.pid
        if pid is not None:
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:  # it has no process group yet, or the group is dead
                self._process.kill()
        self._ours.close()
        self._process.join()

    def fileno(self) -> int:
        """For ``multiprocessing.connection.wait``."""
        return self._ours.fileno()


def answered(workers: Sequence[Worker]) -> list[Worker]:
    """Wait for some of the workers to have an answer, or to be dead."""
    while True:
        waited_for: list[Any] = list(workers)  # wait() accepts anything with a fileno
        news: list[Any] = connection.wait(waited_for)
        found = [worker for worker in workers if worker in news and worker.has_answer()]
        if found:
            return found


@contextmanager
def crew() -> Iterator[list[Worker]]:
    """A list of workers that are killed at the end."""
    workers: list[Worker] = []
    try:
        yield workers
    finally:
        for worker in workers:
            worker.kill()


def fork_server(preload: str) -> Any:
    """The server that workers are forked from, started if need be; it ignores Ctrl-C.

    It loads the module at once and the caller does not wait: who calls this early has the first
    worker early. With the usual handler a Ctrl-C while it loads leaves half a module there, and
    every worker gets that.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([preload])
    resource_tracker.ensure_running()  # it would unblock the signal again
    os.environ[DRIVER] = str(os.getpid())
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context


def _serve(driver: Any, prepare: Callable[[], None]) -> None:
    """The main loop of a worker."""
    os.setpgid(0, 0)
    threading.Thread(target=_die_with_driver, daemon=True).start()
    prepare()
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the driver has ended
        driver.send(STARTED)
        while True:
            function, arguments = driver.recv()
            driver.send(_outcome(function, arguments))


def _outcome(function: Callable[..., Answer], arguments: Sequence[Any]) -> Answer:
    """What a call returns or raises."""
    try:
        return function(*arguments)
    except Exception as error:
        return error


def _die_with_driver() -> None:
    """However the driver ends, this process and those that it started end too."""
    driver = multiprocessing.parent_process()
    assert driver is not None
    driver.join()
    os.killpg(os.getpid(), signal.SIGKILL)
