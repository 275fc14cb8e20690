"""Training and evaluation speed against a plain PyTorch loop; rewrites docs/benchmarks.md.

The plain loop is what a tutorial has: float32, contiguous tensors, a ``Dataset`` that crops, flips
and normalises one image at a time, and a ``DataLoader`` with two workers. The fixed batch is one
step of the same network on the same tensors again and again, without any data pipeline: what no
loop can beat. All of them run in turn, and the best round of each counts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from calibrant.data import Dataset
from calibrant.data.augment import random_crop, random_flip
from calibrant.models import build
from calibrant.train import Recipe, choose_precision, train
from calibrant.train._forward import forward, network_for
from calibrant.train._inputs import Inputs
from calibrant.train._processes import Processes
from common import BENCHMARKS, fill, machine, table

COUNT, BATCH, ROUNDS = 2560, 128, 4
RECIPE = Recipe(
    epochs=1, batch_size=BATCH, schedule="constant", learning_rate=0.01, crop=4, flip=True
)
MEAN, STD = torch.full((3, 1, 1), 0.5), torch.full((3, 1, 1), 0.25)


class OneByOne(TorchDataset):
    """Images one at a time, as tutorials have them."""

    def __init__(self, x: np.ndarray, y: np.ndarray, *, augment: bool) -> None:
        self.x, self.y, self.augment = x, y, augment

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        image = torch.from_numpy(self.x[i]).float() / 255
        if self.augment:
            image = F.pad(image, (4, 4, 4, 4))
            top, left = torch.randint(9, (2,)).tolist()
            image = image[:, top : top + 32, left : left + 32]
            if torch.rand(()) < 0.5:
                image = image.flip(2)
        return (image - MEAN) / STD, int(self.y[i])


def plain_training(name: str, data: Dataset) -> float:
    net = build(name, kind="image", num_classes=10, size=(3, 32, 32))
    optimiser = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    loader = DataLoader(
        OneByOne(data.x_train, data.y_train, augment=True), BATCH, shuffle=True, num_workers=2
    )
    start = time.perf_counter()
    for x, y in loader:
        optimiser.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimiser.step()
    return COUNT / (time.perf_counter() - start)


def plain_evaluation(name: str, data: Dataset) -> float:
    net = build(name, kind="image", num_classes=10, size=(3, 32, 32)).eval()
    loader = DataLoader(OneByOne(data.x_test, data.y_test, augment=False), BATCH, num_workers=2)
    start = time.perf_counter()
    with torch.no_grad():
        for x, _ in loader:
            net(x).argmax(1)
    return COUNT / (time.perf_counter() - start)


def our_training(name: str, data: Dataset) -> float:
    speed = []
    train(
        data,
        model=name,
        recipe=RECIPE,
        calibration=1,
        telemetry=False,
        report=lambda at: speed.append(at.images_per_second),
    )
    return speed[-1]


def our_evaluation(name: str, data: Dataset) -> float:
    settings = {"model": name, "model_options": {}, "precision": choose_precision("auto", "cpu")}
    net = network_for(data, settings, "cpu").eval()
    inputs = Inputs(data, np.arange(COUNT), "cpu")
    start = time.perf_counter()
    forward(net, inputs, "test", np.arange(COUNT), Processes(), settings)
    return COUNT / (time.perf_counter() - start)


def fixed_batch(name: str) -> float:
    net = build(name, kind="image", num_classes=10, size=(3, 32, 32))
    net = net.to(memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    x = torch.randn(BATCH, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    y = torch.randint(10, (BATCH,))
    narrow = choose_precision("auto", "cpu") == "bf16"
    start = time.perf_counter()
    for _ in range(COUNT // BATCH):
        optimiser.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=narrow):
            z = net(x)
        F.cross_entropy(z.float(), y).backward()
        optimiser.step()
    return COUNT / (time.perf_counter() - start)


def augmentation() -> float:
    """Seconds to crop and flip a batch."""
    x = torch.randint(256, (BATCH, 3, 32, 32), dtype=torch.uint8)
    best = float("inf")
    for _ in range(30):
        start = time.perf_counter()
        random_flip(random_crop(x, padding=4))
        best = min(best, time.perf_counter() - start)
    return best


def telemetry_share(data: Dataset) -> float:
    trained = train(data, model="resnet8", recipe=RECIPE.changed(epochs=3), calibration=1)
    rows = trained.epochs[:-1]  # the last looks at everything
    return sum(row["record_seconds"] for row in rows) / sum(row["seconds"] for row in rows)


def rows() -> Iterator[tuple[str, str, str]]:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (2 * COUNT, 3, 32, 32), dtype=np.uint8)
    y = rng.integers(0, 10, 2 * COUNT)
    names = tuple("abcdefghij")
    data = Dataset("noise", "image", x[:COUNT], y[:COUNT], x[COUNT:], y[COUNT:], names, {})
    yield "number format chosen", choose_precision("auto", "cpu"), ""
    for name in ("resnet8", "resnet20"):
        best: dict[str, float] = {}
        for _ in range(ROUNDS):
            for key, run in (
                ("plain", lambda n=name: plain_training(n, data)),
                ("ours", lambda n=name: our_training(n, data)),
                ("fixed", lambda n=name: fixed_batch(n)),
                ("plain evaluation", lambda n=name: plain_evaluation(n, data)),
                ("our evaluation", lambda n=name: our_evaluation(n, data)),
            ):
                best[key] = max(best.get(key, 0.0), run())
        print(name, {key: round(value) for key, value in best.items()}, flush=True)
        yield f"{name}, training", f"{best['ours']:,.0f} images/s", ""
        yield "… against the plain loop", f"{best['ours'] / best['plain']:.2f} ×", "≥ 2"
        yield "… against the fixed batch", f"{best['ours'] / best['fixed']:.2f} ×", "≥ 0.9"
        yield f"{name}, evaluation", f"{best['our evaluation']:,.0f} images/s", ""
        ratio = best["our evaluation"] / best["plain evaluation"]
        yield "… against the plain loop", f"{ratio:.2f} ×", "≥ 2"
        share = augmentation() * best["ours"] / BATCH
        yield "… crop and flip of the images", f"{100 * share:.2f} % of a step", "≤ 3 %"
    yield (
        "training history of an epoch (ResNet-8)",
        f"{100 * telemetry_share(data):.1f} % of training",
        "≤ 10 %",
    )


def main() -> None:
    text = f"{machine()}\n\n{table(rows())}"
    fill(BENCHMARKS, "training", text)
    print(text)


if __name__ == "__main__":
    main()
