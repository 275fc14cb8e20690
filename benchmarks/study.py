"""The study engine: its overhead, two workers against one, evaluation of kept logits."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from functools import partial

import numpy as np

from calibrant import Predictions
from calibrant.metrics import METRICS
from calibrant.results import Store
from calibrant.study import Local, Study, run_study
from calibrant.study._execute import evaluate
from common import BENCHMARKS, best, fill, machine, table

SEEDS = 5
RUNS = 2 * SEEDS  # each with two losses
SLOW = ("kde_ece", "skce", "mmce", "sweep_ece")  # quadratic, or seconds on purpose


def study(seeds: int) -> Study:
    return Study.parse(
        {
            "data": "signals",
            "models": "cnn1d",
            "recipe": {"name": "quick", "epochs": 40},
            "calibration": 0.5,
            "seeds": seeds,
            "shifts": ["signals/3"],
            "metrics": ["ece", "nll"],
            "objectives": ["cross_entropy", "focal"],
            "calibrators": ["none", "temperature", "histogram"],
        }
    )


def timed(workers: int, seeds: int) -> tuple[float, float, float]:
    """Seconds of a study, of its training, and of what each run costs beside its training."""
    with tempfile.TemporaryDirectory() as folder:
        chosen = study(seeds)
        start = time.perf_counter()
        run_study(chosen, folder, executor=Local(workers, 1))
        seconds = time.perf_counter() - start
        facts = [Store(folder).facts(run.key) for run in chosen.runs]
        trained = sum(found["train_seconds"] for found in facts if found)
        beside = sum(found["seconds"] for found in facts if found) - trained
    return seconds, trained, beside / len(facts)


def evaluation() -> float:
    rng = np.random.default_rng(0)
    z = (2 * rng.standard_normal((20_000, 100))).astype(np.float32)
    y = (z + rng.gumbel(size=z.shape)).argmax(1)
    kept = {
        "calibration": Predictions(logits=z[:10_000], labels=y[:10_000]),
        "test": Predictions(logits=2 * z[10_000:], labels=y[10_000:]),
    }
    names = [n for n, m in METRICS.items() if n not in SLOW and m.view == "top label"]
    chosen = Study.parse(
        {
            "data": "signals",
            "models": "cnn1d",
            "objectives": ["focal"],
            "metrics": names,
            "calibrators": ["none", "temperature", "histogram", "ensemble_temperature"],
        }
    )
    start = time.perf_counter()
    rows = evaluate(chosen.runs[0], chosen.evaluation, kept)
    seconds = time.perf_counter() - start
    print(f"{len(names)} metrics, {len(rows)} values")
    return seconds


def importing() -> float:
    """Seconds of PyTorch's import in a new process, which a worker cannot do without."""
    command = [sys.executable, "-c", "import torch"]
    return best({"torch": partial(subprocess.run, command, check=True)}, rounds=5)["torch"]


def main() -> None:
    one, trained, beside = timed(1, SEEDS)
    two, _, _ = timed(2, SEEDS)
    start = one - trained - RUNS * beside
    rows = [
        (f"{RUNS} runs, one worker of one thread", f"{one:.1f} s", ""),
        ("… training of a run", f"{trained / RUNS:.2f} s", ""),
        (
            "… time outside training, relative to training",
            f"{100 * (one / trained - 1):.1f} %",
            "≤ 2 %",
        ),
        ("… of which: evaluating and writing a run", f"{1e3 * beside:.0f} ms", ""),
        ("… of which: starting the workers, once", f"{start:.1f} s", "< 1 s"),
        ("… of which: a new Python that imports torch", f"{importing():.1f} s", ""),
        (
            "extrapolated to 20 runs of one minute",
            f"{100 * (20 * beside + start) / 1200:.2f} %",
            "≤ 2 %",
        ),
        ("… two workers against one", f"{two / one:.2f} ×", "≤ 0.65"),
        ("4 calibrators × 20 metrics on 10,000 × 100", f"{evaluation():.2f} s", "≤ 3 s"),
    ]
    text = f"{machine()}\n\n{table(rows)}"
    fill(BENCHMARKS, "studies", text)
    print(text)


if __name__ == "__main__":
    main()
