"""Segmentation maps measured batch by batch: pixels per second and peak memory.

    python benchmarks/segmentation.py [IMAGES] [HEIGHT] [WIDTH] [CLASSES]

By default 500 images of 512 x 1024 pixels and 19 classes, as Cityscapes' validation set has: 20
GB of float32 scores, made two images at a time and never held together. Prints wall-clock and
processor seconds of the measuring alone (the generator is not counted), with the compiled kernels
and, for a tenth of the images, with their NumPy twins. On a machine that does other work, processor
seconds divided by the cores say more than the wall clock.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np

from calibrant import kernels
from calibrant.streaming import Accumulator

BATCH = 2
CORES = 2
UNLABELLED = 255


def batches(
    images: int, classes: int, height: int, width: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Scores (2, K, H, W) and labels (2, H, W) of which a tenth is unlabelled.

    One random pair of images; its classes change places from batch to batch, which costs little.
    """
    rng = np.random.default_rng(0)
    maps = rng.standard_normal((BATCH, classes, height, width), dtype=np.float32) * 3
    noise = rng.gumbel(size=maps.shape).astype(np.float32)
    truth = (maps / 1.5 + noise).argmax(axis=1)
    left_out = rng.random(truth.shape) < 0.1
    for start in range(0, images, BATCH):
        shift = start // BATCH % classes
        labels = np.where(left_out, UNLABELLED, (truth + shift) % classes)
        yield np.roll(maps, shift, axis=1), labels


def measure(images: int, height: int, width: int, classes: int) -> None:
    """Print one line."""
    stream = Accumulator(num_classes=classes)
    wall = cpu = 0.0
    for maps, labels in batches(images, classes, height, width):
        begun, used = time.perf_counter(), time.process_time()
        stream.update(logits=maps, labels=labels, ignore_index=UNLABELLED)
        wall += time.perf_counter() - begun
        cpu += time.process_time() - used
    begun = time.perf_counter()
    found = stream.result()
    last = time.perf_counter() - begun
    pixels = images * height * width / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"kernels: {kernels()}; images: {images}; pixels: {pixels:.1f} M; "
        f"wall: {wall:.2f} s ({pixels / wall:.2f} M/s); processor: {cpu:.2f} s "
        f"({CORES * pixels / cpu:.2f} M/s on {CORES} cores); result: {last:.2f} s; "
        f"peak memory: {peak:.2f} GiB; ECE: {found['ece']:.6f}",
        flush=True,
    )


def main(images: int = 500, height: int = 512, width: int = 1024, classes: int = 19) -> None:
    """Measure with the compiled kernels, and a tenth in a process without them."""
    measure(images, height, width, classes)
    if kernels() != "numpy":
        few = max(images // 10, BATCH)
        numbers = map(str, (few, height, width, classes))
        subprocess.run(
            [sys.executable, __file__, *numbers],
            check=True,
            env={**os.environ, "CALIBRANT_KERNELS": "numpy"},
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
