"""AdaFocal: the rule that adapts its exponents, and training with it."""

from __future__ import annotations

import math

import pytest
import torch

from calibrant import InputError
from calibrant.data import load
from calibrant.losses import AdaFocalGammas, Objective
from calibrant.train import Recipe, train
from tests.close import assert_close


def brute_update(
    gammas: list[float], confidence: list[float], correct: list[bool], **options: float
) -> tuple[list[float], list[float]]:
    """One update in plain loops: new exponents and the edges of the bins."""
    count, n = len(gammas), len(confidence)
    order = sorted(range(n), key=confidence.__getitem__)
    sizes = [n // count + (b < n % count) for b in range(count)]
    found, edges, start = [], [], 0
    for b, size in enumerate(sizes):
        members, start = order[start : start + size], start + size
        gap = sum(confidence[i] - correct[i] for i in members) / size if size else 0.0
        sign = math.copysign(1, gammas[b])
        new = gammas[b] * math.exp(options["rate"] * sign * gap)
        if abs(new) < options["switch"]:
            new = -options["switch"] * sign
        found.append(min(max(new, options["smallest"]), options["largest"]))
        if b + 1 < count:
            edge = (
                (confidence[order[start - 1]] + confidence[order[start]]) / 2 if start < n else 1.0
            )
            edges.append(edge)
    return found, edges


@pytest.mark.parametrize(("n", "bins"), [(100, 7), (31, 15), (4, 15), (1, 3), (50, 1)])
def test_the_update_is_the_rule(n: int, bins: int) -> None:
    """Several updates, so that signs change and bounds are reached."""
    options = {"rate": 5.0, "switch": 0.2, "largest": 3.0, "smallest": -0.8}
    gammas = AdaFocalGammas(bins, **options)
    state = [1.0] * bins
    signs = set()
    for seed in range(12):
        generator = torch.Generator().manual_seed(seed)
        z = 2 * torch.randn((n, 4), generator=generator)
        right = torch.rand(n, generator=generator) < (0.95 if seed < 6 else 0.2)
        y = torch.where(right, z.argmax(1), (z.argmax(1) + 1) % 4)
        gammas.update(z, y)
        confidence = z.softmax(1).amax(1).tolist()
        state, edges = brute_update(state, confidence, right.tolist(), **options)
        assert_close(gammas.gammas, torch.tensor(state), rtol=1e-5, atol=1e-6)
        assert_close(gammas.edges, torch.tensor(edges, dtype=torch.float32), rtol=1e-6, atol=1e-7)
        signs |= {g > 0 for g in state}
    if n == 100:
        assert signs == {True, False}


def test_samples_are_looked_up_by_the_probability_of_their_class() -> None:
    gammas = AdaFocalGammas(4)
    gammas.gammas.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    p = torch.tensor([0.1, 0.3, 0.6, 0.9])
    z = torch.stack([p.log(), (1 - p).log()], 1)
    zeros = torch.zeros(4, dtype=torch.int64)
    assert gammas.of(z, zeros).tolist() == [1, 2, 3, 4]
    assert gammas.of(z, 1 - zeros).tolist() == [4, 3, 2, 1]
    assert gammas.of(z, torch.full((4, 2), 0.5)).tolist() == [3, 3, 3, 3]  # 0.5 opens a bin
    maps = z.reshape(2, 2, 2).movedim(-1, 1)
    assert gammas.of(maps, zeros.reshape(2, 2)).tolist() == [[1, 2], [3, 4]]


def test_training_adapts_to_the_held_out_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """After every epoch, from the network's current predictions for them."""
    seen = []
    update = AdaFocalGammas.update

    def spy(self: AdaFocalGammas, logits: torch.Tensor, labels: torch.Tensor) -> None:
        update(self, logits, labels)
        seen.append((len(labels), self.gammas.tolist()))

    monkeypatch.setattr(AdaFocalGammas, "update", spy)
    recipe = Recipe(epochs=2, batch_size=64, optimizer="adamw", learning_rate=0.003)
    options = {"model": "cnn1d", "recipe": recipe, "objective": "adafocal", "telemetry": False}
    trained = train(load("signals"), calibration=90, **options)
    assert [count for count, _ in seen] == [90, 90]
    assert seen[0][1] != seen[1][1]
    assert trained.predictions["calibration"].num_samples == 90
    with pytest.raises(InputError, match="objective needs calibration samples for adafocal"):
        train(load("signals"), calibration=0, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bins": 0}, "bins"),
        ({"rate": -1}, "rate"),
        ({"switch": -0.1}, "switch"),
        ({"smallest": 0.5}, "smallest must be below 0"),
    ],
)
def test_bad_options(options: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        AdaFocalGammas(**options)  # type: ignore[arg-type]


def test_the_objective_asks_for_it() -> None:
    objective = Objective("adafocal")
    assert objective.per_batch == ("gamma",)
    z, y = torch.randn(3, 2), torch.tensor([0, 1, 0])
    with pytest.raises(InputError, match="gamma must be given with every batch"):
        objective(z, y)
    assert objective(z, y, gamma=torch.zeros(3)).isclose(torch.nn.functional.cross_entropy(z, y))
