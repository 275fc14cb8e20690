"""The documents run: Python and shell blocks of the README and the guides."""

from __future__ import annotations

import importlib.util
import re
import runpy
import shlex
import subprocess
import warnings
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest
import torch

from calibrant._core.checks import FileNote
from calibrant.losses import LOSSES
from calibrant.metrics import METRICS
from tests.command import call
from tests.once import (
    _one_selection_per_file,  # noqa: F401
    few_candidates,  # noqa: F401
)

ROOT = Path(__file__).parents[1]
PAGES = (
    "README.md",
    "docs/index.md",
    "docs/measure.md",
    "docs/files.md",
    "docs/language_models.md",
    "docs/calibrate.md",
    "docs/cli.md",
    "docs/intervals.md",
    "docs/losses/index.md",
    "docs/losses/likelihood.md",
    "docs/losses/ranking.md",
    "docs/train.md",
    "docs/data.md",
    "docs/study.md",
    "docs/own.md",
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

# How-to pages: their blocks, Python and shell, run from top to bottom in one folder.
HOW_TO = (
    "docs/binary.md",
    "docs/groups.md",
    "docs/segmentation.md",
    "docs/multilabel.md",
    "docs/shift.md",
    "docs/monitor.md",
)

# They write whole reports, so ``make test`` leaves them out; docs/groups.md writes one too.
LONG = (
    "docs/quickstart.md",
    "docs/report.md",
    "docs/cli.md",
    "docs/language_models.md",
    "docs/binary.md",
    "docs/segmentation.md",
    "docs/multilabel.md",
)
# They train networks.
TRAINING = ("docs/study.md", "docs/cluster.md")


def every_page(pages: tuple[str, ...], *, slow: tuple[str, ...]) -> pytest.MarkDecorator:
    marked = [pytest.param(p, marks=pytest.mark.slow) if p in slow else p for p in pages]
    return pytest.mark.parametrize("page", marked)


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.usefixtures("few_candidates")
@every_page(PAGES, slow=(*LONG, *TRAINING))
def test_python_blocks_run(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    code = compile("\n".join(blocks(page, "python")), page, "exec")
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FileNote)
        exec(code, {"__name__": "__main__"})
    plt.close("all")


@pytest.mark.usefixtures("few_candidates")
@every_page(PAGES, slow=(*LONG, "README.md"))
def test_shell_blocks_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("src", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)  # what they write stays out of the project
    for line in filter(None, "\n".join(blocks(page, "bash")).splitlines()):
        command = shlex.split(line)
        if command[0] == "make":  # the suite must not run itself; the target must exist
            subprocess.run([*command, "--dry-run"], check=True, cwd=ROOT, capture_output=True)
            continue
        assert command[0] == "calibrant", line
        done = call(*command[1:])
        assert done.returncode == 0, f"{line}\n{done.stderr}"


@pytest.mark.usefixtures("few_candidates")
@every_page(HOW_TO, slow=LONG)
def test_how_to_pages_run_from_top_to_bottom(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / page).read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "__main__"}
    found = re.findall(r"^```(python|bash)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    assert {language for language, _ in found} == {"python", "bash"}
    for language, code in found:
        if language == "python":
            exec(code, names)
            continue
        for line in code.splitlines():
            command = shlex.split(line)
            assert command[0] == "calibrant", line
            done = call(*command[1:])
            assert done.returncode == 0, f"{line}: {done.stderr}"
    plt.close("all")


def test_the_readme_starts_with_exactly_two_commands() -> None:
    first = blocks("README.md", "bash")[0]
    assert first.split("\n") == ["make demo", "make test", ""]


def test_continuous_integration_runs_the_readmes_test_command() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "make test\n" in script
    lines = re.findall(r"^make .*", script, re.MULTILINE)
    targets = {word for line in lines for word in line.split()}
    left_out = {"test-numpy", "test-slow", "lint", "docs"}  # by the first command
    assert {"test"} | left_out <= targets


def test_the_comparison_counts_the_losses() -> None:
    page = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    assert f"| losses for calibration | {len(LOSSES)} |" in page


def test_links_lead_somewhere() -> None:
    for page in (*PAGES, *HOW_TO):
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


def test_the_page_on_groups_names_every_metric_that_takes_no_weights() -> None:
    text = (ROOT / "docs" / "groups.md").read_text(encoding="utf-8")
    part = text.partition("<!-- unweighted: begin -->")[2].partition("<!-- unweighted: end -->")[0]
    reasons: dict[str, list[str]] = {}
    for name, metric in METRICS.items():
        if metric.unweighted:
            reasons.setdefault(metric.unweighted, []).append(f"`{name}`")
    lines = [f"- {', '.join(names)}: {reason}." for reason, names in reasons.items()]
    assert part.strip() == "\n".join(lines)


def test_the_long_description_has_no_picture_or_link_of_the_repository(monkeypatch) -> None:
    """On a package index a relative path leads nowhere."""
    setuptools = pytest.importorskip("setuptools")
    given: dict[str, Any] = {}
    monkeypatch.setattr(setuptools, "setup", given.update)
    runpy.run_path(str(ROOT / "setup.py"))
    text = given["long_description"]
    assert text.startswith("# Calibrant\n")
    assert "pip install calibrant" in text
    assert not re.findall(r"\]\((?!https:)", text)
    assert "![" in (ROOT / "README.md").read_text(encoding="utf-8")  # where it does work


def test_the_missed_targets_are_those_of_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    missed = importlib.import_module("missed")
    assert missed.block(missed.BENCHMARKS, "missed") == missed.text() + "\n"
    rows = """
| what | measured | target | met |
| --- | --- | --- | --- |
| stream 10 from Parquet | 2.40 s |  |  |
| … rate | 0.2 | ≥ 0.25 | **no** |
| other | 3 | ≤ 2 | **no** |
| kept | 1 | ≤ 2 | yes |

| ratio | 128 × 10 | 4,096 × 1,000 | target | met |
| --- | --- | --- | --- | --- |
| focal | 2.4 | 2.1 | ≤ 2.5, ≤ 2 | yes, **no** |
"""
    text = missed.explained(list(missed.missed(rows))).splitlines()
    assert len(text) == 3
    assert "stream 10 from Parquet: rate 0.2 (target ≥ 0.25)." in text[0]
    assert text[1] == f"- **other.** {missed.UNKNOWN} Measured: other 3 (target ≤ 2)."
    assert "focal, 4,096 × 1,000 2.1 (target ≤ 2)." in text[2]
    assert missed.explained([]) == "All targets are met."
