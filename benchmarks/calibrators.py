"""Calibrators: speed as ratios in one run, and memory; rewrites docs/benchmarks.md."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import torch

from calibrant import Predictions
from calibrant.calibrators import (
    StructuredVectorScaling,
    TemperatureScaling,
    VectorScaling,
    automatic,
)
from common import BENCHMARKS, best, fill, machine, table

N, K = 50_000, 1_000


def draw(num_samples: int, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    z = rng.standard_normal((num_samples, num_classes), dtype=np.float32) * 3
    noise = rng.gumbel(size=z.shape).astype(np.float32)
    return z, (z * 0.5 + noise).argmax(axis=1)


def temperature_speed(z: np.ndarray, labels: np.ndarray) -> list[tuple[str, str, str]]:
    from netcal.scaling import TemperatureScaling as Netcal
    from probmetrics.calibrators import get_calibrator

    t, out = torch.from_numpy(z), torch.empty(z.shape)
    probs = torch.softmax(t, 1).numpy()
    ours = best(
        {
            "floor": lambda: torch.log_softmax(t, 1, out=out),
            "ours": lambda: TemperatureScaling().fit(Predictions(logits=z, labels=labels)),
        },
        rounds=5,
    )
    exact = probs.astype(np.float64)  # netcal's temperature does not move in float32
    theirs = best(
        {
            "ours": lambda: TemperatureScaling().fit(Predictions(probs=probs, labels=labels)),
            "probmetrics": lambda: get_calibrator("temp-scaling").fit(probs, labels),
            "netcal": lambda: Netcal().fit(exact, labels),
        },
        rounds=2,
    )
    return [
        ("temperature by NLL", f"{ours['ours'] / ours['floor']:.2f} × floor", "≤ 3"),
        (
            "… against probmetrics (given probabilities)",
            f"{ours['ours'] / theirs['probmetrics']:.3f} × its time",
            "≤ 0.1",
        ),
        (
            "… against netcal (given float64 probabilities; in float32 it stays at 1)",
            f"{ours['ours'] / theirs['netcal']:.3f} × its time",
            "≤ 0.1",
        ),
        (
            "… when we too are given probabilities",
            f"{theirs['ours'] / theirs['probmetrics']:.3f}, "
            f"{theirs['ours'] / theirs['netcal']:.3f}",
            "",
        ),
    ]


def grid_speed(z: np.ndarray, labels: np.ndarray) -> list[tuple[str, str, str]]:
    small = Predictions(logits=z[:10_000, :100], labels=labels[:10_000] % 100)
    # The bound that narrows the search is weakest where errors of both signs remain.
    mixed = Predictions(
        logits=small.logits * np.where(np.arange(10_000) % 2, 0.2, 3)[:, None],
        labels=draw(10_000, 100)[1],
    )
    large = Predictions(logits=z, labels=labels)
    times = best(
        {
            "small": lambda: TemperatureScaling(objective="ece").fit(small),
            "mixed": lambda: TemperatureScaling(objective="ece").fit(mixed),
            "large": lambda: TemperatureScaling(objective="ece").fit(large),
            "soft": lambda: TemperatureScaling(objective="soft_ece").fit(small),
        },
        rounds=2,
    )
    return [
        ("1,000 temperatures by ECE, 10,000 × 100", f"{times['small']:.2f} s", "≤ 1.5 s"),
        ("… where over- and underconfidence mix", f"{times['mixed']:.2f} s", "≤ 1.5 s"),
        ("1,000 temperatures by ECE, 50,000 × 1,000", f"{times['large']:.2f} s", "≤ 25 s"),
        ("temperature by soft ECE, 10,000 × 100", f"{times['soft']:.2f} s", ""),
    ]


def vector_speed(z: np.ndarray, labels: np.ndarray) -> list[tuple[str, str, str]]:
    from probmetrics.calibrators import get_calibrator

    probs = torch.softmax(torch.from_numpy(z), 1).numpy()
    p = Predictions(logits=z, labels=labels)
    times = best(
        {
            "svs": lambda: StructuredVectorScaling(strength=1.0).fit(p),
            "svs cv": lambda: StructuredVectorScaling().fit(p),
            "vector": lambda: VectorScaling().fit(p),
            "probmetrics": lambda: get_calibrator("svs").fit(probs, labels),
        },
        rounds=2,
    )
    rows = [
        (
            f"{what}, against probmetrics svs",
            f"{times[key] / times['probmetrics']:.3f} × its time",
            "≤ 0.2",
        )
        for key, what in (
            ("svs", "structured vector scaling, same penalty"),
            ("svs cv", "structured vector scaling, penalty chosen"),
            ("vector", "vector scaling, penalty chosen"),
        )
    ]
    for name, c in (
        ("temperature", TemperatureScaling()),
        ("vector", VectorScaling()),
        ("structured vector", StructuredVectorScaling()),
    ):
        tracemalloc.start()
        c.fit(p)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        share = f"{100 * peak / z.nbytes:.0f} % of the input"
        rows.append((f"peak extra memory, {name}", share, "a chunk, not N × K"))
    return rows


def automatic_speed(z: np.ndarray, labels: np.ndarray) -> list[tuple[str, str, str]]:
    """The selection behind ``auto``; which methods it leaves out depends on the size."""
    rows = []
    for samples, classes, bar in ((5_000, 100, "≤ 10 s"), (25_000, 1_000, "≤ 60 s")):
        p = Predictions(logits=z[:samples, :classes], labels=labels[:samples] % classes)
        seconds = best({"auto": lambda p=p: automatic(p)}, rounds=1)["auto"]
        rows.append((f"auto, {samples:,} × {classes:,}", f"{seconds:.1f} s", bar))
    return rows


def main() -> None:
    warnings.filterwarnings("ignore")  # the peers'
    z, labels = draw(N, K)
    rows = temperature_speed(z, labels) + grid_speed(z, labels) + vector_speed(z, labels)
    rows += automatic_speed(z, labels)
    for row in rows:
        print(" | ".join(row))
    fill(BENCHMARKS, "calibrators", f"{machine()}\n\n{table(rows)}")


if __name__ == "__main__":
    main()
