"""Speed and memory as ratios, measured in one interleaved run; rewrites docs/benchmarks.md.

The floor is one ``torch.log_softmax(t, 1, out=preallocated)`` of the same array on all cores. Each
contestant runs in turn, several rounds, and the best round of each counts: other work on a machine
slows all of them, and ratios of the best rounds are what remains.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tracemalloc
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import torch

import calibrant
from calibrant import Predictions, metrics
from calibrant.inference import intervals
from calibrant.streaming import accumulate_parquet
from common import BENCHMARKS, PEERS, best, fill, machine, table

N, K = 50_000, 1_000
PANEL_ROUNDS = 20  # short, and close to its target
MANY = 20_000  # samples from which a few rounds are enough
STREAM_ROWS, STREAM_CLASSES, STREAM_SHARDS = 10_000_000, 10, 10


PANEL = metrics.default_metrics("panel")


def data(num_samples: int, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    z = rng.standard_normal((num_samples, num_classes), dtype=np.float32) * 2
    labels = (z * 0.6 + rng.gumbel(size=z.shape).astype(np.float32)).argmax(axis=1)
    return z, labels


def panel(z: np.ndarray, labels: np.ndarray) -> list[tuple[str, str, str]]:
    t, out = torch.from_numpy(z), torch.empty(z.shape)
    times = best(
        {
            "floor": lambda: torch.log_softmax(t, 1, out=out),
            "panel": lambda: calibrant.measure(
                Predictions(logits=z, labels=labels), intervals=False
            ),
            "classwise": lambda: metrics.classwise_ece(Predictions(logits=z, labels=labels)),
            "ece": lambda: metrics.ece(Predictions(logits=z, labels=labels)),
        },
        rounds=PANEL_ROUNDS,
    )
    tracemalloc.start()
    calibrant.measure(Predictions(logits=z, labels=labels), intervals=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    floor = times["floor"]
    return [
        ("floor: torch.log_softmax, preallocated", f"{1e3 * floor:.0f} ms", ""),
        ("whole panel, no intervals", f"{times['panel'] / floor:.2f} × floor", "≤ 1.2"),
        ("ECE alone", f"{times['ece'] / floor:.2f} × floor", "≤ 0.6"),
        ("classwise ECE alone", f"{times['classwise'] / floor:.2f} × floor", "≤ 1"),
        ("peak extra memory of the panel", f"{100 * peak / z.nbytes:.1f} % of input", "< 5 %"),
    ]


NUMPY_CODE = """
import calibrant, metrics, torch
from calibrant import Predictions
from common import best
assert calibrant.kernels() == "numpy"
z, labels = metrics.data(metrics.N, metrics.K)
t, out = torch.from_numpy(z), torch.empty(z.shape)
times = best({
    "floor": lambda: torch.log_softmax(t, 1, out=out),
    "panel": lambda: calibrant.measure(Predictions(logits=z, labels=labels), intervals=False),
})
print(times["panel"] / times["floor"])
"""


def without_kernels() -> list[tuple[str, str, str]]:
    """The panel where no compiler was found; the target is what it took before the extension."""
    found = subprocess.run(
        [sys.executable, "-c", NUMPY_CODE],
        cwd=Path(__file__).parent,
        env={**os.environ, "CALIBRANT_KERNELS": "numpy"},
        capture_output=True,
        text=True,
        check=True,
    )
    return [("whole panel without the extension", f"{float(found.stdout):.2f} × floor", "≤ 2.8")]


def peers(z: np.ndarray, labels: np.ndarray, bars: dict[str, str]) -> list[tuple[str, str, str]]:
    """ECE of the same scores: what a user has to call in each package; its target by package."""
    t, y = torch.from_numpy(z), torch.from_numpy(labels)
    probs = torch.softmax(t, 1)
    rows = []
    for what, calls in (("logits", ece_of_logits(t, y)), ("probabilities", ece_of_probs(probs, y))):
        times = best(calls, rounds=5 if len(z) > MANY else 25)
        ours = times.pop("calibrant")
        shape = f"{len(z):,} × {z.shape[1]:,}"
        rows += [
            (
                f"ECE from {what}, {shape}, against {name}",
                f"{ours / s:.3f} × its time",
                bars.get(name, ""),
            )
            for name, s in times.items()
        ]
    return rows


def ece_of_logits(t: torch.Tensor, y: torch.Tensor) -> dict[str, Callable[[], object]]:
    """Two packages take no logits: they are given the softmax, whose time is included."""
    import calibration
    from netcal.metrics import ECE
    from probmetrics.metrics import Metrics
    from torchmetrics.functional.classification import multiclass_calibration_error

    z, labels, classes = t.numpy(), y.numpy(), t.shape[1]
    theirs = Metrics.from_names(["ece-15"])
    return {
        "calibrant": lambda: metrics.ece(Predictions(logits=z, labels=labels)),
        "torchmetrics": lambda: multiclass_calibration_error(t, y, num_classes=classes),
        "netcal": lambda: ECE(15).measure(torch.softmax(t, 1).numpy(), labels),
        "probmetrics": lambda: theirs.compute_all_from_labels_logits(y, t),
        "uncertainty-calibration": lambda: calibration.get_ece(torch.softmax(t, 1).numpy(), labels),
    }


def ece_of_probs(t: torch.Tensor, y: torch.Tensor) -> dict[str, Callable[[], object]]:
    import calibration
    from netcal.metrics import ECE
    from probmetrics.metrics import Metrics
    from torchmetrics.functional.classification import multiclass_calibration_error

    probs, labels, classes = t.numpy(), y.numpy(), t.shape[1]
    theirs = Metrics.from_names(["ece-15"])
    return {
        "calibrant": lambda: metrics.ece(Predictions(probs=probs, labels=labels)),
        "torchmetrics": lambda: multiclass_calibration_error(t, y, num_classes=classes),
        "netcal": lambda: ECE(15).measure(probs, labels),
        "probmetrics": lambda: theirs.compute_all_from_labels_probs(y, t),
        "uncertainty-calibration": lambda: calibration.get_ece(probs, labels),
    }


def bootstrap(z: np.ndarray, labels: np.ndarray) -> list[tuple[str, str, str]]:
    rows = []
    for classes, bar in ((K, "≤ 10 s"), (10, "≤ 2 s")):
        p = Predictions(logits=z[:, :classes], labels=labels % classes)
        run = partial(intervals, p, PANEL, replicates=1000)
        seconds = best({"intervals": run}, rounds=2)["intervals"]
        what = f"1,000 replicates of the panel, {N:,} × {classes:,}"
        rows.append((what, f"{seconds:.1f} s", bar))
    return rows


def make_shards(folder: Path) -> None:
    rng = np.random.default_rng(0)
    size = STREAM_ROWS // STREAM_SHARDS
    for k in range(STREAM_SHARDS):
        z = rng.standard_normal((size, STREAM_CLASSES), dtype=np.float32) * 3
        labels = (z + rng.gumbel(size=z.shape).astype(np.float32)).argmax(axis=1)
        columns = {f"logit_{j}": z[:, j] for j in range(STREAM_CLASSES)}
        pq.write_table(pa.table({"label": labels, **columns}), folder / f"{k}.parquet")


STREAM_CODE = """
import sys
from calibrant.streaming import accumulate_parquet
accumulate_parquet(sys.argv[1:])
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak.split()[1]) * 1024)
"""


def stream() -> list[tuple[str, str, str]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_shards(folder)
        files = sorted(map(str, folder.glob("*.parquet")))

        def scan() -> None:
            for batch in ds.dataset(files).to_batches():
                batch.num_rows  # noqa: B018

        def columns() -> None:
            for batch in ds.dataset(files).to_batches():
                np.stack([c.to_numpy() for c in batch.columns[1:]])

        ours = partial(accumulate_parquet, files)
        times = best({"scan": scan, "columns": columns, "ours": ours}, rounds=4)
        done = subprocess.run(
            [sys.executable, "-c", STREAM_CODE, *files], capture_output=True, text=True, check=True
        )
    seconds, memory = times["ours"], int(done.stdout)
    rows = f"{STREAM_ROWS:,} × {STREAM_CLASSES} from Parquet"
    return [
        (f"stream {rows}", f"{seconds:.2f} s, {STREAM_ROWS / seconds / 1e6:.1f} M rows/s", ""),
        ("… rate against PyArrow's bare scan", f"{times['scan'] / seconds:.3f}", "≥ 0.25"),
        ("… rate against PyArrow's scan into NumPy", f"{times['columns'] / seconds:.3f}", ""),
        ("… resident memory, Python included", f"{memory / 2**20:.0f} MiB", "< 1024 MiB"),
    ]


def imports() -> list[tuple[str, str, str]]:
    def load(code: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, "-c", code], check=True)

    times = best(
        {
            "numpy": load("import numpy"),
            "calibrant": load("import calibrant"),
            "python": load("pass"),
        },
        rounds=5,
    )
    return [
        *small_file(),
        (
            "import calibrant (minus Python's own startup)",
            f"{times['calibrant'] - times['python']:.3f} s",
            "< 0.3 s",
        ),
        ("… of which NumPy", f"{times['numpy'] - times['python']:.3f} s", ""),
    ]


def small_file() -> list[tuple[str, str, str]]:
    """The command from start to end, intervals included."""
    z, labels = data(1_000, 10)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "predictions.npz"
        np.savez(path, logits=z, labels=labels)
        command = [sys.executable, "-m", "calibrant", "measure", str(path)]
        run = partial(subprocess.run, command, check=True, stdout=subprocess.DEVNULL)
        times = best({"measure": run}, rounds=5)
    return [
        ("calibrant measure, 1,000 × 10, whole command", f"{times['measure']:.2f} s", "< 0.6 s")
    ]


def main() -> None:
    warnings.filterwarnings("ignore")  # the peers'
    z, labels = data(N, K)
    small = [(z[:10_000, :classes].copy(), labels[:10_000] % classes) for classes in (100, 10)]
    rows = panel(z, labels)
    rows += peers(z, labels, dict.fromkeys(("torchmetrics", "netcal"), "≤ 0.333"))
    for few, their in small:
        rows += peers(few, their, dict.fromkeys(PEERS, "< 1"))
    rows += without_kernels() + bootstrap(z, labels) + stream() + imports()
    for row in rows:
        print(" | ".join(row))
    kernels = f"Kernels: {calibrant.kernels()}."
    shape = f"Arrays are {N:,} × {K:,} float32 unless stated. {kernels} {machine()}"
    fill(BENCHMARKS, "metrics", f"{shape}\n\n{table(rows)}")


if __name__ == "__main__":
    main()
