"""The public names, and what importing them costs."""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import calibrant


def test_names() -> None:
    assert set(calibrant.__all__) == {
        "Comparison",
        "Confidences",
        "FitSummary",
        "GroupedPanel",
        "InputError",
        "LabelPanels",
        "LabelShift",
        "MultiLabel",
        "Panel",
        "Predictions",
        "Scores",
        "__version__",
        "calibrators",
        "compare",
        "fit_summary",
        "kernels",
        "label_shift",
        "load",
        "load_calibrator",
        "losses",
        "measure",
        "metrics",
    }
    for name in calibrant.__all__:
        assert hasattr(calibrant, name)
    for module in (calibrant.metrics, calibrant.calibrators, calibrant.losses):
        for name in module.__all__:
            assert hasattr(module, name)


def test_designed_calibrators() -> None:
    """The names that the design fixes."""
    designed = """TemperatureScaling HistogramBinning Isotonic Platt Beta VectorScaling
    MatrixScaling Dirichlet StructuredVectorScaling StructuredMatrixScaling EnsembleTemperature
    ScalingBinning Spline ConfidNet TrustScore"""
    assert set(designed.split()) <= set(calibrant.calibrators.__all__)


def test_designed_losses() -> None:
    """The names that the design fixes."""
    designed = """cross_entropy label_smoothing focal sample_dependent_focal dual_focal
    inverse_focal brier squared_error logit_norm negative_entropy mmce mmce_weighted avuc
    soft_avuc soft_binned_ece mdca dca margin_smoothing correctness_ranking mixup cutmix
    Objective LOSSES"""
    assert set(designed.split()) <= set(calibrant.losses.__all__)


HEAVY = {"torch", "matplotlib", "sklearn", "pyarrow", "scipy", "rich", "lightning"}
# They load Lightning, Transformers, Ray and scikit-learn, which takes several times as long as all
# others together.
SLOWLY = {"huggingface", "lightning", "ray_data", "sklearn", "torchmetrics"}


@pytest.mark.parametrize(
    "left_out", [SLOWLY, pytest.param(set(), marks=pytest.mark.slow)], ids=["most", "all"]
)
def test_modules_load_when_they_are_first_used(left_out: set[str]) -> None:
    """In a new process: every public module works after ``import calibrant`` alone.

    By modules loaded, not by time: none of the heavy ones is imported before it is needed, nor
    PyTorch to measure arrays of others.
    """
    found = {module.name for module in pkgutil.iter_modules(calibrant.__path__)}
    public = sorted(name for name in found - left_out if name[0] != "_")
    code = (
        "import sys, calibrant\n"
        f"heavy = {HEAVY} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "p = calibrant.Predictions(logits=[[1., 0.]] * 3, labels=[0, 0, 1])\n"
        "calibrant.measure(p, replicates=20)\n"
        "assert 'torch' not in sys.modules\n"
        f"names = {public}\n"
        "assert set(names) <= set(dir(calibrant))\n"
        "assert all(getattr(calibrant, n).__name__ == f'calibrant.{n}' for n in names)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_package_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "calibrant", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"calibrant {calibrant.__version__} (kernels: ")


@pytest.mark.slow  # it loads Lightning and Transformers
def test_the_training_page_names_what_exists() -> None:
    """The expressions for other training loops work after ``import calibrant``."""
    text = (ROOT / "docs" / "train.md").read_text()
    found = re.findall(r"`(Trainer\(.*?\))`", text)
    made = [eval(call, {"calibrant": calibrant, "Trainer": dict}) for call in found]
    assert [set(options) for options in made] == [
        {"callbacks"},
        {"compute_loss_func", "compute_metrics"},
    ]


def test_unknown_names() -> None:
    with pytest.raises(AttributeError, match="no attribute 'loses'"):
        _ = calibrant.loses


DESIGNED = """num_samples num_classes logits log_probs probs predicted confidence correct entropy
labels meta save load split"""


def test_documented_attributes() -> None:
    """The attributes of Predictions that the design fixes."""
    for name in DESIGNED.split():
        kinds = calibrant.Predictions.__mro__
        noted = any(name in vars(kind).get("__annotations__", {}) for kind in kinds)
        assert noted or hasattr(calibrant.Predictions, name)


def test_every_module_imports() -> None:
    for module in pkgutil.walk_packages(calibrant.__path__, "calibrant."):
        importlib.import_module(module.name)


# --- the reference names everything -----------------------------------------------------------

ROOT = Path(__file__).parents[1]
MODULES = (
    "calibrators",
    "data",
    "inference",
    "losses",
    "metrics",
    "models",
    "papers",
    "plots",
    "report",
    "results",
    "study",
    "train",
)


@pytest.mark.parametrize("module", MODULES)
def test_the_reference_has_every_public_name(module: str) -> None:
    pages = "\n".join(path.read_text() for path in (ROOT / "docs" / "api").glob("*.md"))
    block = rf"^::: calibrant\.{module}\n    options:\n      members: (true|\[.*\])$"
    (members,) = re.findall(block, pages, re.MULTILINE)
    public = set(importlib.import_module(f"calibrant.{module}").__all__)
    assert members == "true" or public <= set(re.findall(r"\w+", members))


def test_the_guide_of_the_command_line_has_every_command() -> None:
    from typer.main import get_command

    from calibrant.cli import app

    headings = re.findall(r"^## (.*)$", (ROOT / "docs" / "cli.md").read_text(), re.MULTILINE)
    commands = get_command(app).commands
    assert {f"`calibrant {name}`" for name in commands} <= set(
        re.findall(r"`[^`]+`", "".join(headings))
    )


def test_the_version_is_the_same_everywhere() -> None:
    """Unreleased code has the version of the next release, and ``dev0``; releases are cited."""
    text = (ROOT / "CHANGELOG.md").read_text()
    next_one = re.search(r"^## \[(.*)\] - Unreleased$", text, re.MULTILINE)
    released = re.search(r"^## \[(.*)\] - \d{4}-\d\d-\d\d$", text, re.MULTILINE)[1]
    assert calibrant.__version__ == (f"{next_one[1]}.dev0" if next_one else released)
    cited = (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^version: (.*)$", cited, re.MULTILINE)[1] == released
