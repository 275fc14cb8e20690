"""The command line called in this process: what it prints and its exit code.

A new process spends a second or more on imports. Tests of signals, of terminals and of what a
command loads start real ones.
"""

from __future__ import annotations

import io
import os
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from typing import Any
from unittest.mock import patch

from typer.main import get_command

from calibrant.cli import app

NAME = "python -m calibrant.cli"  # as the help of a real test process shows it


@dataclass(frozen=True)
class Done:
    """A finished command; unexpected exceptions propagate to the test."""

    returncode: int
    stdout: str
    stderr: str


DETECTION = "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"  # read when the options are built


@cache
def _command(_detection: str | None) -> Any:
    """The commands with their options, built once: that takes 40 ms."""
    return get_command(app)


def call(*arguments: object) -> Done:
    """Run ``calibrant`` with these arguments, on a screen of the usual width."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), patch.dict(os.environ, COLUMNS="80"):
        try:
            _command(os.environ.get(DETECTION))(
                [str(argument) for argument in arguments], prog_name=NAME
            )
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return Done(code, out.getvalue(), err.getvalue())
