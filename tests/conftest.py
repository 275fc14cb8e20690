"""Shared data and settings of the tests."""

from __future__ import annotations

import fcntl
import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from calibrant import Predictions
from calibrant._core.arrays import num_threads

settings.register_profile(
    "fixed", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("fixed")

SHARED = Path(os.environ.get("CALIBRANT_SHARED", Path(__file__).parents[2] / "shared"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real logits and golden numbers that are not part of the project."""
    if not SHARED.is_dir():
        pytest.skip("the folder with real logits and golden numbers is absent (CALIBRANT_SHARED)")
    return SHARED


@pytest.fixture(scope="session")
def unpacked(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real images and texts as plain files, unpacked by the first process that needs them."""
    script = shared / "data" / "unpack.py"
    if not script.is_file():
        pytest.skip("the folder with real data is absent")
    pytest.importorskip("PIL")
    ours = tmp_path_factory.getbasetemp()
    every = ours.parent if "PYTEST_XDIST_WORKER" in os.environ else ours
    folder, ready = every / "data", every / "data is ready"
    with (every / "data is locked").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            subprocess.run([sys.executable, script, folder], check=True, timeout=300)
            ready.touch()
    return folder


@pytest.fixture(scope="session")
def data_folder(request: pytest.FixtureRequest) -> Path:
    """Real images and texts as plain files: CALIBRANT_DATA, or unpacked for this session."""
    if "CALIBRANT_DATA" in os.environ:
        return Path(os.environ["CALIBRANT_DATA"])
    return request.getfixturevalue("unpacked")


def draw(
    num_samples: int,
    num_classes: int,
    *,
    spread: float = 2.0,
    temperature: float = 1.3,
    seed: int = 0,
    dtype: str = "float32",
) -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels of a model whose calibration error has mixed signs after a small warp."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, spread, (num_samples, num_classes)).astype(dtype)
    labels = (z / temperature + 0.3 * np.sin(3 * z) + rng.gumbel(size=z.shape)).argmax(axis=1)
    return z, labels


def case_ties() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    return np.round(rng.normal(size=(800, 4)) * 2).astype("float32"), rng.integers(0, 4, 800)


# Data on which implementations differ, by name.
CASES = {
    "mixed signs": draw(997, 10),
    "N % bins = 1": draw(601, 37, spread=1.5, seed=1),
    "two classes": draw(64, 2, seed=2),
    "saturated float32": draw(500, 5, spread=40, temperature=3, seed=3),
    "ties": case_ties(),
    "many classes": draw(120, 1000, spread=3, seed=4),
    "one sample": draw(1, 3, seed=6),
    "fewer samples than bins": draw(7, 12, seed=7),
    "float64": draw(400, 20, seed=8, dtype="float64"),
}


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> tuple[np.ndarray, np.ndarray]:
    return CASES[request.param]


@pytest.fixture
def predictions() -> Predictions:
    z, labels = CASES["mixed signs"]
    return Predictions(logits=z, labels=labels)


# Files whose tests share something costly: a cluster, a browser, a study, real data, fits. One
# process runs such a file, the slow tests too. (pytest-xdist has marks for this, but since pytest
# 9.2 they have no effect: https://github.com/pytest-dev/pytest-xdist/issues/1386.)
COSTLY = (
    "test_ray_cluster.py",
    "test_all_calibrators.py",
    "test_report_browser.py",
    "test_study.py",
    "test_readme.py",
    "test_papers_figures.py",
    "test_data_real.py",
)
# Files that import Lightning, TorchMetrics and Transformers: one process runs them all.
IMPORTING = (
    "test_doctests.py",
    "test_public_api.py",
    "test_integrations.py",
    "test_torchmetrics.py",
)
# Slow tests that trace networks: one process loads the compiler of PyTorch, which takes seconds.
COMPILING = (
    "test_all_calibrators.py",
    "test_all_losses.py",
    "test_train.py::test_compiled_is_the_same_network",
    "test_train.py::test_optimisers_are_those_of_pytorch",
)
# Files that judge the evidence, which is read once.
JUDGING = ("test_pages.py", "test_papers_collected.py", "test_papers_claims.py")
# Other long files, those that mostly wait for processes first.
LONG = (
    "test_stopping.py",
    "test_study_ray.py",
    "test_stream_remote.py",
    *IMPORTING,
    *JUDGING,
    "test_papers.py",
    "test_hostile.py",
    "test_losses_distributed.py",
    "test_clusters.py",
    "test_models.py",
    "test_multilabel.py",
    "test_calibrator_oracles.py",
    "test_report.py",
    "test_train.py",
    "test_plots.py",
    "test_streaming.py",
    "test_cli.py",
    "test_all_losses.py",
    "test_inference.py",
)


def _all_near(near: Any, actual: Any) -> bool:
    """Whether ``pytest.approx`` of an array holds, by one comparison of whole arrays."""
    found, wanted = np.asarray(actual), near.expected
    if found.shape != wanted.shape or found.dtype.kind not in "biuf" or wanted.dtype.kind != "f":
        return False
    found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    allowed = near.abs
    if near.rel is not None or near.abs is None:
        rel = 1e-6 if near.rel is None else near.rel
        allowed = np.maximum(rel * np.abs(wanted), 1e-12 if near.abs is None else near.abs)
    with np.errstate(invalid="ignore"):
        close = (np.abs(wanted - found) <= allowed) & np.isfinite(wanted)
    return bool((close | (found == wanted)).all())


def pytest_configure() -> None:
    """Compare arrays at once, as pytest takes 6 microseconds per element.

    Where they are not close, pytest itself decides and explains.
    """
    kind = type(pytest.approx(np.zeros(1)))
    one_by_one = kind.__eq__
    kind.__eq__ = lambda self, actual: _all_near(self, actual) or one_by_one(self, actual)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long files first: started last, one would keep a single worker busy."""
    places = {name: place for place, name in enumerate(COSTLY + LONG)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


def pytest_collection_finish() -> None:
    """Thousands of tests and the modules of PyTorch stay: the garbage collector may skip them."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One process more than there are cores: tests wait for files, browsers and other processes."""
    return num_threads() + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """A free process takes the next file, whose imports and fixtures it then needs only once.

    Slow tests are distributed one by one, except those of costly files and of costly imports.
    """
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False  # keep our order: many tests need not take long
    one_by_one = config.option.markexpr == "slow"

    class Files(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            name = Path(nodeid.partition("::")[0]).name
            if name in IMPORTING:
                return "importing"
            if name in JUDGING:
                return "judging"
            if one_by_one and nodeid.rpartition("/")[2].startswith(COMPILING):
                return "compiling"
            return nodeid if one_by_one and name not in COSTLY else name

    return Files(config, log)
