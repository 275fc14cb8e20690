"""Estimated training cost, from the operations of the network: no GPU and no data needed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from calibrant.study import Run

Kind = Literal["image", "tokens", "trees"]

# Training samples of the data sets as published, and the size of a sample.
SIZES: dict[str, tuple[int, Kind, tuple[int, ...] | int, int]] = {
    "cifar10": (50_000, "image", (3, 32, 32), 10),
    "cifar100": (50_000, "image", (3, 32, 32), 100),
    "svhn": (73_257, "image", (3, 32, 32), 10),
    "tiny_imagenet": (100_000, "image", (3, 64, 64), 200),
    "imagenet": (1_281_167, "image", (3, 224, 224), 1000),
    "news20": (11_314, "tokens", 20_000, 20),
    "sst2": (6_920, "trees", 20_000, 2),
}
WORDS_IN_A_TEXT = 500
TREE_NODES = 37  # of a sentence of 19 words
# A backward pass costs about two forward passes.
PASSES = 3
# What a current data-centre GPU sustains on these networks in mixed precision: an assumption.
TERAFLOPS = 20.0


@dataclass(frozen=True)
class Cost:
    """What a list of runs costs."""

    runs: int
    floating_point_operations: float

    def gpu_hours(self, teraflops: float = TERAFLOPS) -> float:
        """Hours on one GPU that sustains ``teraflops``."""
        return self.floating_point_operations / (teraflops * 1e12) / 3600

    def __str__(self) -> str:
        return (
            f"{self.runs} runs, about {self.gpu_hours():,.0f} GPU-hours on GPUs that sustain "
            f"{TERAFLOPS:g} teraflops each ({self.floating_point_operations:.1e} operations)"
        )


def cost(runs: Iterable[Run]) -> Cost:
    """Estimate training runs; evaluation is not counted."""
    listed = list(runs)
    return Cost(len(listed), sum(map(_of_run, listed)))


def _of_run(run: Run) -> float:
    from calibrant.train import get_recipe

    count, *_ = SIZES[run.data]
    held = 0.0 if isinstance(run.calibration, str) else run.calibration
    samples = run.train_size or count - (held if held >= 1 else held * count)
    recipe = dict(run.recipe)
    epochs = get_recipe(recipe.pop("name"), **recipe).epochs
    options = tuple(sorted(run.model_options.items()))
    return PASSES * _forward(run.data, run.model, options) * samples * epochs


@lru_cache
def _forward(data: str, model: str, options: tuple[tuple[str, Any], ...]) -> float:
    """Floating-point operations of one forward pass on one sample."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from calibrant.models import build

    _, kind, size, classes = SIZES[data]
    with torch.device("meta"):  # sizes alone: no memory, no random numbers
        network = build(model, kind=kind, num_classes=classes, size=size, **dict(options))
    if kind == "trees":  # every node uses all weights but those of the words once
        used = [p for name, p in network.named_parameters() if "embed" not in name]
        return 2.0 * sum(p.numel() for p in used) * TREE_NODES
    shape = (1, *size) if isinstance(size, tuple) else (1, WORDS_IN_A_TEXT)
    x = torch.zeros(shape, device="meta", dtype=torch.int64 if kind == "tokens" else torch.float32)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network.eval()(x)
    return float(counter.get_total_flops())
