"""Ctrl-C, SIGTERM and SIGHUP in the first moment of the command.

``calibrant`` imports this module before all others, and it imports next to nothing: even the
imports of ``stopping``, which takes the signals over, are long enough for a Ctrl-C on a busy
machine, and Python would print a traceback.
"""

import os
import signal
import sys

UNIX = hasattr(os, "fork")  # elsewhere Ctrl-C raises KeyboardInterrupt, in the command too
SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
EARLY = "Stopped. Run the same command again."


def is_the_command() -> bool:
    """Whether this process was started as ``calibrant`` or with ``python -m``.

    A worker has the arguments of its driver in ``sys.argv``, but not in ``sys.orig_argv``.
    """
    start, original = sys.argv[0] if sys.argv else "", sys.orig_argv
    if start == "-m":
        return original[original.index("-m") + 1] in ("calibrant", "calibrant.cli")
    return os.path.basename(start) == "calibrant" and start in original  # noqa: PTH119


def catch(handler: object) -> None:
    """Give the signals a handler; those that the process was started to ignore stay ignored."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)  # type: ignore[arg-type]


def prints() -> bool:
    """Whether this process prints: only one of torchrun does."""
    return os.environ.get("RANK", "0") == "0"


def _end(number: int, _frame: object) -> None:
    """Nothing has begun yet, so there is nothing to clean up."""
    if prints():
        os.write(2, f"{EARLY}\n".encode())
    os._exit(128 + number)


if UNIX and is_the_command():
    catch(_end)
