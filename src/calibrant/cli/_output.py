"""Standard output and standard error of the command."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any

from calibrant._core.stopping import end

NOT_WRITTEN = 2
SIGPIPE = 13  # not in Python's list where the system has no such signal
READER_GONE = 128 + SIGPIPE  # what a shell reports for cat in "cat FILE | head -1"


class _Descriptor(io.FileIO):
    """Where the bytes go; the command ends if they cannot, and silently if nobody reads them."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            end(READER_GONE)
        except OSError as error:
            end(NOT_WRITTEN, f"calibrant: the output cannot be written: {error.strerror}.")


def prepare_streams() -> None:
    """Give the command streams that end it quietly when their reader is gone, as in ``| head``.

    A character that a terminal cannot show is printed as a question mark. What goes to a stream
    that was closed before the start, as in ``>&-``, is dropped.
    """
    sys.stdout, sys.stderr = _prepared(sys.stdout), _prepared(sys.stderr)


def _prepared(stream: Any) -> Any:
    if stream is None:
        return Path(os.devnull).open("w", encoding="utf-8")
    if not isinstance(stream, io.TextIOWrapper):  # a notebook or a test has its own
        return stream
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Descriptor(stream.fileno(), "w", closefd=False)),
        encoding=stream.encoding,
        errors="replace",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
