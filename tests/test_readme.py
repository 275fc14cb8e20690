"""The documents run: Python and shell blocks of the README and the guides."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = (
    "README.md",
    "docs/index.md",
    "docs/measure.md",
    "docs/calibrate.md",
    "docs/cli.md",
    "docs/intervals.md",
    "docs/losses/index.md",
    "docs/losses/ranking.md",
    "docs/train.md",
    "docs/data.md",
    "docs/study.md",
    "docs/plots.md",
    "docs/papers/index.md",
    "docs/report.md",
    "docs/quickstart.md",
    "docs/deploy.md",
    "docs/cluster.md",
    "docs/which.md",
    "docs/benchmarks.md",
    "docs/comparison.md",
)


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_run(page: str) -> None:
    code = "\n".join(blocks(page, "python"))
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        cwd=ROOT,
        timeout=300,
        env=environment,
        capture_output=True,
    )


@pytest.mark.parametrize("page", PAGES)
def test_shell_blocks_run(page: str, tmp_path: Path) -> None:
    (tmp_path / "src").symlink_to(ROOT / "src")  # what they write stays out of the project
    for line in filter(None, "\n".join(blocks(page, "bash")).splitlines()):
        command = shlex.split(line)
        if command[0] == "make":  # the suite must not run itself; the target must exist
            subprocess.run([*command, "--dry-run"], check=True, cwd=ROOT, capture_output=True)
            continue
        assert command[0] == "calibrant", line
        command[:1] = [sys.executable, "-m", "calibrant.cli"]
        subprocess.run(command, check=True, cwd=tmp_path, timeout=300, capture_output=True)


def test_the_readme_starts_with_exactly_two_commands() -> None:
    first = blocks("README.md", "bash")[0]
    assert first.split("\n") == ["make demo", "make test", ""]


def test_continuous_integration_runs_the_readmes_test_command() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "make test" in script
    assert re.search(r"^make .*\blint\b.*\bdocs\b", script, re.MULTILINE)


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
            assert ((ROOT / page).parent / target).exists(), f"{page}: {target}"
