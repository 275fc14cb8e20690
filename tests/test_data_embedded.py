"""Embedded data with known truth, the quick task that overfits, and augmentation."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest

import calibrant
from calibrant import InputError
from calibrant.data import load, signals, split, synthetic


def test_nothing_but_augment_imports_torch() -> None:
    heavy = ("torch", "sklearn", "pyarrow", "PIL", "pooch", "rich")
    code = f"import sys, calibrant.data; sys.exit(any(name in sys.modules for name in {heavy}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    data = load("digits")
    assert data.x_train.max() == 255
    assert np.bincount(data.y_test).min() >= 57
    both = np.concatenate([data.x_train, data.x_test]).reshape(1797, -1)
    assert len(np.unique(both, axis=0)) == 1797  # nothing is in both parts
    assert load("digits", seed=1).hash != data.hash
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(InputError, match=r"calibrant\[sklearn\]"):
        load("digits")


@pytest.mark.parametrize("family", ["gaussians", "teacher"])
@pytest.mark.parametrize("level", [0, 3, 5])
def test_true_probabilities_are_true(family: str, level: int) -> None:
    """The truth is calibrated, as far as 40,000 samples can tell, and nothing beats it."""
    data = synthetic(family, test_size=40_000, train_size=10, level=level)
    probs = data.meta["true_probs_test"]
    np.testing.assert_allclose(probs.sum(axis=1), 1)
    truth = calibrant.Predictions(probs=probs, labels=data.y_test)
    assert abs(calibrant.metrics.debiased_ece(truth)) < 0.012
    assert abs(1 - calibrant.metrics.accuracy(truth) - data.meta["bayes_error"]) < 0.01
    sharper = calibrant.Predictions(logits=1.2 * np.log(probs + 1e-300), labels=data.y_test)
    assert calibrant.metrics.nll(sharper) > calibrant.metrics.nll(truth)


def test_the_posterior_of_the_gaussians_is_that_of_bayes() -> None:
    from scipy.stats import multivariate_normal

    from calibrant.data._synthetic import _gaussians

    rng = np.random.default_rng(0)
    law = _gaussians(rng, 4, 3, 2.0)
    x = rng.normal(0, 3, (50, 3))
    densities = np.stack([multivariate_normal(centre).pdf(x) for centre in law.centres], axis=1)
    np.testing.assert_allclose(law.probs(x), densities / densities.sum(1, keepdims=True))


@pytest.mark.parametrize("make", [synthetic, signals])
def test_levels_change_the_test_inputs_alone(make: object) -> None:
    sets = [make(level=level, test_size=3000) for level in range(6)]
    for one in sets[1:]:
        np.testing.assert_array_equal(one.x_train, sets[0].x_train)
        np.testing.assert_array_equal(one.y_train, sets[0].y_train)
    spreads = [one.x_test.std() for one in sets]
    assert (np.diff(spreads) > 0).all()
    assert make(seed=1).hash != make(seed=2).hash
    with pytest.raises(InputError, match="level"):
        make(level=6)


def test_a_model_of_the_training_data_suffers_from_the_shift() -> None:
    from sklearn.linear_model import LogisticRegression

    gaps = []
    for level in (0, 5):
        data = synthetic("teacher", level=level, train_size=1000)
        model = LogisticRegression(max_iter=2000).fit(data.x_train, data.y_train)
        probs = model.predict_proba(data.x_test.astype(float))
        p = calibrant.Predictions(probs=probs, labels=data.y_test)
        truth = calibrant.Predictions(probs=data.meta["true_probs_test"], labels=data.y_test)
        gaps.append(calibrant.metrics.nll(p) - calibrant.metrics.nll(truth))
    assert gaps[1] > gaps[0] > 0


def test_options_that_are_refused() -> None:
    for options, match in (
        ({"family": "moons"}, "gaussians"),
        ({"num_classes": 1}, "num_classes"),
        ({"separation": -1}, "separation"),
        ({"train_size": 0}, "train_size"),
    ):
        with pytest.raises(InputError, match=match):
            synthetic(**options)
    with pytest.raises(InputError, match="label_noise"):
        signals(label_noise=1.5)
    assert signals(label_noise=0).num_classes == 6


@pytest.mark.slow
def test_a_small_network_overfits_the_signals() -> None:
    """What the quick study relies on: trained in seconds, overfitted, overconfident."""
    torch = pytest.importorskip("torch")
    from torch import nn

    data = signals()
    parts = split(data.y_train, calibration=400)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv1d(1, 32, 7, padding=3),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(64, 64, 5, padding=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(4),
        nn.Flatten(),
        nn.Linear(256, data.num_classes),
    )
    optimiser = torch.optim.Adam(network.parameters(), 5e-3)
    x, y = torch.from_numpy(data.x_train[parts.train]), torch.from_numpy(data.y_train[parts.train])
    start = time.process_time()
    for _ in range(40):
        for batch in torch.randperm(len(x)).split(50):
            loss = nn.functional.cross_entropy(network(x[batch]), y[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    seconds = time.process_time() - start
    with torch.no_grad():
        train_nll = float(nn.functional.cross_entropy(network(x), y))
        logits, held = (
            network(torch.from_numpy(z)).numpy()
            for z in (data.x_test, data.x_train[parts.calibration])
        )
    torch.set_num_threads(threads)
    test = calibrant.Predictions(logits=logits, labels=data.y_test)
    calibration = calibrant.Predictions(logits=held, labels=data.y_train[parts.calibration])
    scaling = calibrant.calibrators.TemperatureScaling().fit(calibration)
    assert train_nll < 0.1
    assert calibrant.metrics.ece(test) > 0.05
    assert scaling.temperature_ > 1.3
    assert calibrant.metrics.ece(scaling.transform(test)) < 0.5 * calibrant.metrics.ece(test)
    assert calibrant.metrics.accuracy(test) > 0.5
    assert seconds < 10


# --- augmentation -------------------------------------------------------------------------------

torch = pytest.importorskip("torch")
from calibrant.data.augment import crop_and_flip, random_crop, random_flip  # noqa: E402


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_crops_are_shifted_windows(dtype: object) -> None:
    images = (torch.rand(50, 3, 10, 12) * 200 + 1).to(dtype)
    out = random_crop(images, padding=2, generator=torch.Generator().manual_seed(0))
    assert out.dtype == dtype
    padded = torch.nn.functional.pad(images, (2, 2, 2, 2))
    seen = set()
    for one, wide in zip(out, padded, strict=True):
        places = [
            (i, j)
            for i in range(5)
            for j in range(5)
            if torch.equal(one, wide[:, i : i + 10, j : j + 12])
        ]
        assert len(places) == 1
        seen.add(places[0])
    assert len(seen) > 15


def test_flips_are_fair_and_exact() -> None:
    images = torch.rand(2000, 1, 2, 3)
    out = random_flip(images, generator=torch.Generator().manual_seed(0))
    mirrored = (out == images.flip(3)).flatten(1).all(dim=1)
    same = (out == images).flatten(1).all(dim=1)
    assert (mirrored ^ same).all()
    assert 900 < int(mirrored.sum()) < 1100


@pytest.mark.parametrize("augment", [random_crop, random_flip, crop_and_flip])
def test_generators_and_refusals(augment: object) -> None:
    images = torch.randint(0, 256, (16, 3, 32, 32), dtype=torch.uint8)
    kept = images.clone()
    one, two, other = (
        augment(images, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    assert torch.equal(images, kept)
    assert one.is_contiguous()
    assert augment(images[:0]).shape == (0, 3, 32, 32)
    with pytest.raises(InputError, match="N, channels, height, width"):
        augment(images[0])


def test_no_padding_is_no_change_and_fill_is_used() -> None:
    images = torch.rand(4, 1, 5, 5) + 1
    assert torch.equal(random_crop(images, padding=0), images)
    out = random_crop(images, padding=4, fill=-3, generator=torch.Generator().manual_seed(0))
    assert set(out[out < 0].tolist()) == {-3.0}
    with pytest.raises(InputError, match="padding"):
        random_crop(images, padding=-1)


def test_augmentation_costs_little() -> None:
    """Well under 3 % of a ResNet-20 step of 160 ms: the best of 30, one thread."""
    images = torch.randint(0, 256, (128, 3, 32, 32), dtype=torch.uint8)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    times = []
    for _ in range(30):
        start = time.perf_counter()
        crop_and_flip(images)
        times.append(time.perf_counter() - start)
    torch.set_num_threads(threads)
    assert min(times) < 0.0048
