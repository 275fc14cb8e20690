"""The documents run: Python and shell blocks of the README and the guides."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
import torch

from tests.command import call

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

# They write whole reports; the README and the other pages stand for them in ``make test``.
LONG = ("docs/quickstart.md", "docs/report.md", "docs/cli.md")
every = pytest.mark.parametrize(
    "page", [pytest.param(p, marks=pytest.mark.slow) if p in LONG else p for p in PAGES]
)


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


@every
def test_python_blocks_run(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    code = compile("\n".join(blocks(page, "python")), page, "exec")
    with torch.random.fork_rng():
        exec(code, {"__name__": "__main__"})
    plt.close("all")


@every
def test_shell_blocks_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").symlink_to(ROOT / "src")  # what they write stays out of the project
    for line in filter(None, "\n".join(blocks(page, "bash")).splitlines()):
        command = shlex.split(line)
        if command[0] == "make":  # the suite must not run itself; the target must exist
            subprocess.run([*command, "--dry-run"], check=True, cwd=ROOT, capture_output=True)
            continue
        assert command[0] == "calibrant", line
        done = call(*command[1:])
        assert done.returncode == 0, done.stderr


def test_the_readme_starts_with_exactly_two_commands() -> None:
    first = blocks("README.md", "bash")[0]
    assert first.split("\n") == ["make demo", "make test", ""]


def test_continuous_integration_runs_the_readmes_test_command() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "make test\n" in script
    assert "make test-slow\n" in script  # and what that leaves out
    assert re.search(r"^make .*\blint\b.*\bdocs\b", script, re.MULTILINE)


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
            assert ((ROOT / page).parent / target).exists(), f"{page}: {target}"


def test_the_coverage_tables_are_those_of_the_evidence() -> None:
    name = "coverage_tables"
    path = ROOT / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.page() == module.PAGE.read_text()
