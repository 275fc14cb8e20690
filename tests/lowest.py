"""Run the core of the tests with the lowest versions that ``pyproject.toml`` allows.

    python tests/lowest.py

Makes a new environment in a temporary folder, installs each core dependency at its lower bound and
of the extras safetensors alone, and runs the tests that need no other. Typer calls click and sets
its version range: the command line is tried with the newest click that pip finds and with the
lowest that Typer allows.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = (
    "test_files.py",
    "test_measure.py",
    "test_tables.py",
    "test_run_statistics.py",
    "test_data_splits.py",
    "test_cli.py",
)
LOWEST_CLICK = "8.0.0"  # that Typer 0.16 takes; from 0.26 on Typer has its own


def lowest() -> list[str]:
    """The core dependencies, each at its lower bound.

    >>> all("==" in text for text in lowest())
    True
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    small = project["optional-dependencies"]["safetensors"]  # a file format like the others
    texts = [*project["dependencies"], *small]
    found = [re.fullmatch(r"([\w-]+)>=([\d.]+)", text) for text in texts]
    if not all(found):
        raise SystemExit("A dependency has no lower bound of the form name>=version.")
    return [f"{match[1]}=={match[2]}" for match in found if match]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="lowest-") as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder, "bin", "python"))

        def call(*arguments: str) -> None:
            subprocess.run([python, *arguments], cwd=ROOT, check=True)

        call("-m", "pip", "install", "--quiet", *lowest(), "pytest>=8.3", "hypothesis>=6.120")
        call("-m", "pip", "install", "--quiet", "--no-deps", "--editable", ".")
        call("-m", "pip", "list")
        files = [f"tests/{name}" for name in TESTS]
        call("-m", "pytest", "-q", "-p", "no:cacheprovider", *files)
        call("-m", "pip", "install", "--quiet", f"click=={LOWEST_CLICK}")
        call(
            "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_cli.py", "-k", "help or bad"
        )


if __name__ == "__main__":
    sys.exit(main())
