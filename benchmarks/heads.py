"""Ten heads of a setting, one after another and as one batched program: is it worth it?

    python benchmarks/heads.py

Heads as at the scale ``features``: 1280 features, a hidden layer, batches of 128, AdamW. The
batched program stacks the weights of all seeds and multiplies them with ``torch.baddbmm``; every
seed sees its own batches. Prints the seconds of both, best of several interleaved rounds on one
thread, and the largest difference of a logit afterwards.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from common import best, markdown

SEEDS, FEATURES, HIDDEN, CLASSES, BATCH, STEPS = 10, 1280, 64, 10, 128, 40
Weights = list[Tensor]


def start(seed: int) -> Weights:
    torch.manual_seed(seed)
    body, head = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, CLASSES)
    return [p.detach().clone() for p in (body.weight, body.bias, head.weight, head.bias)]


def batches(seed: int) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    x = torch.rand(STEPS, BATCH, FEATURES, generator=rng)
    return x, torch.randint(CLASSES, (STEPS, BATCH), generator=rng)


def stacked(x: Tensor, w: Weights) -> Tensor:
    """Logits (seeds, batch, classes) of all heads, each on its own batch."""
    a, b, c, d = w
    hidden = torch.baddbmm(b[:, None], x, a.transpose(1, 2)).relu()
    return torch.baddbmm(d[:, None], hidden, c.transpose(1, 2))


def train(weights: Weights, x: Tensor, y: Tensor) -> Weights:
    """Train stacked weights; x has the shape (seeds, steps, batch, features)."""
    found = [w.clone().requires_grad_() for w in weights]
    optimizer = torch.optim.AdamW(found, 0.002, weight_decay=0.0)
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        z = stacked(x[:, step], found)
        # The sum over heads: each head gets the gradient of its own mean loss.
        loss = nn.functional.cross_entropy(z.flatten(0, 1), y[:, step].flatten(), reduction="sum")
        (loss / BATCH).backward()
        optimizer.step()
    return [w.detach() for w in found]


def main() -> None:
    torch.set_num_threads(1)
    data = [batches(seed) for seed in range(SEEDS)]
    x, y = (torch.stack(some) for some in zip(*data, strict=True))
    first = [start(seed) for seed in range(SEEDS)]
    together = [torch.stack(some) for some in zip(*first, strict=True)]

    def one_by_one() -> list[Weights]:
        return [
            train([w[None] for w in weights], x[s : s + 1], y[s : s + 1])
            for s, weights in enumerate(first)
        ]

    apart, joint = one_by_one(), train(together, x, y)
    with torch.no_grad():
        single = torch.cat([stacked(x[s : s + 1, 0], w) for s, w in enumerate(apart)])
        difference = float((single - stacked(x[:, 0], joint)).abs().max())
    contestants = {"one by one": one_by_one, "batched": lambda: train(together, x, y)}
    seconds = best(contestants, rounds=3)
    rows = [[name, f"{value:.2f}"] for name, value in seconds.items()]
    print(markdown([f"{SEEDS} heads, {STEPS} steps", "seconds"], rows))
    print(f"batched is {seconds['one by one'] / seconds['batched']:.2f} times as fast;", end=" ")
    print(f"largest difference of a logit {difference:.1e}")


if __name__ == "__main__":
    main()
