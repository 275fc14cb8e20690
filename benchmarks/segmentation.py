"""Segmentation maps: pixels per second and peak memory; rewrites docs/benchmarks.md.

    python benchmarks/segmentation.py [IMAGES]

Images of 512 x 1024 pixels and 19 classes, as street scenes have them, two at a time. ``ECE`` is
that of maps in memory; ``Accumulator`` adds up every metric that streams, batch by batch, in memory
that does not grow. Making the maps is not counted.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np

from calibrant import Predictions, kernels, metrics
from calibrant.streaming import Accumulator
from common import BENCHMARKS, best, fill, machine, table

BATCH, CLASSES, HEIGHT, WIDTH = 2, 19, 512, 1024
UNLABELLED = 255
Maps = tuple[np.ndarray, np.ndarray]


def batches(images: int) -> Iterator[Maps]:
    """Scores (2, K, H, W) and labels (2, H, W) of which a tenth is unlabelled.

    One random pair of images; its classes change places from batch to batch, which costs little.
    """
    rng = np.random.default_rng(0)
    maps = rng.standard_normal((BATCH, CLASSES, HEIGHT, WIDTH), dtype=np.float32) * 3
    noise = rng.gumbel(size=maps.shape).astype(np.float32)
    truth = (maps / 1.5 + noise).argmax(axis=1)
    left_out = rng.random(truth.shape) < 0.1
    for start in range(0, images, BATCH):
        shift = start // BATCH % CLASSES
        labels = np.where(left_out, UNLABELLED, (truth + shift) % CLASSES)
        yield np.roll(maps, shift, axis=1), labels


def rates(images: int) -> Iterator[tuple[str, float]]:
    """Millions of pixels per second, and what else was measured."""
    maps, labels = next(batches(BATCH))
    found = best(
        {
            "ECE": lambda: metrics.ece(
                Predictions(logits=maps, labels=labels, ignore_index=UNLABELLED)
            )
        }
    )
    yield "ECE", labels.size / found["ECE"] / 1e6
    stream = Accumulator(num_classes=CLASSES)
    seconds = 0.0
    for maps, labels in batches(images):
        begun = time.perf_counter()
        stream.update(logits=maps, labels=labels, ignore_index=UNLABELLED)
        seconds += time.perf_counter() - begun
    yield "Accumulator", images * HEIGHT * WIDTH / seconds / 1e6
    begun = time.perf_counter()
    stream.result()
    yield "result", time.perf_counter() - begun
    yield "memory", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def in_numpy(images: int) -> dict[str, float]:
    """The same in a process without the compiled kernels."""
    done = subprocess.run(
        [sys.executable, __file__, str(images), "numpy"],
        check=True,
        env={**os.environ, "CALIBRANT_KERNELS": "numpy"},
        capture_output=True,
        text=True,
    )
    return {name: float(value) for name, value in map(str.split, done.stdout.splitlines())}


def main(images: int = 100) -> None:
    if sys.argv[2:] == ["numpy"]:
        for name, value in rates(images):
            print(name, value)
        return
    found, plain = dict(rates(images)), in_numpy(max(images // 10, BATCH))
    pixels = f"{images * HEIGHT * WIDTH / 1e6:.0f} million pixels"
    rows = [
        ("ECE of two images", f"{found['ECE']:.1f} M pixels/s", "≥ 30"),
        (f"`Accumulator`, {pixels}", f"{found['Accumulator']:.1f} M pixels/s", "≥ 30"),
        ("… its result", f"{found['result']:.2f} s", ""),
        ("… peak memory of the process", f"{found['memory']:.2f} GiB", ""),
        (
            "without the extension: ECE, `Accumulator`",
            f"{plain['ECE']:.1f}, {plain['Accumulator']:.1f} M pixels/s",
            "",
        ),
    ]
    text = f"Kernels: {kernels()}. {machine()}\n\n{table(rows)}"
    fill(BENCHMARKS, "segmentation", text)
    print(text)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
