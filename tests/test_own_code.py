"""The user's own network, loss and data: as objects, and by import path in studies."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from calibrant import InputError, Predictions
from calibrant._core.import_paths import import_path_of, source_hash
from calibrant.data import Dataset, from_arrays, load
from calibrant.losses import Objective
from calibrant.results import Store, read_all
from calibrant.study import Study, status
from calibrant.study import _execute as execution
from calibrant.train import Recipe, predict, train

RECIPE = Recipe(epochs=2, batch_size=32, optimizer="adamw", learning_rate=0.01)
CODE = """
import numpy as np
import torch
from torch import nn
from calibrant.data import from_arrays

def load(count=90):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 2 * count)
    x = rng.normal(size=(2 * count, 4)) + y[:, None]
    return from_arrays(x[:count], y[:count], x[count:], y[count:], name="points")

def make(num_classes, size, width=8):
    return nn.Sequential(nn.Linear(size[0], width), nn.ReLU(), nn.Linear(width, num_classes))

def one_too_many(num_classes, size):
    return nn.Linear(size[0], num_classes + 1)

def per_sample(logits, labels, strength=1.0):
    return strength * nn.functional.cross_entropy(logits, labels, reduction="none")

def whole(logits, labels):
    return per_sample(logits, labels).mean()
"""


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of the user's, importable as ``users_own``."""
    (tmp_path / "users_own.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield importlib.import_module("users_own")
    sys.modules.pop("users_own", None)


def study(**changes: Any) -> Study:
    return Study.parse(
        {
            "data": {"name": "users_own:load", "count": 60},
            "models": {"name": "users_own:make", "width": 6},
            "objectives": [{"objective": "users_own:per_sample:strength=2", "label": "mine"}],
            "recipe": {"name": "quick", "epochs": 1},
            "metrics": ["accuracy", "nll"],
            **changes,
        }
    )


def test_a_module_and_a_function_as_objects(code: Any, tmp_path: Path) -> None:
    data = code.load()
    network = code.make(3, (4,))
    before = [p.clone() for p in network.parameters()]
    trained = train(data, model=network, recipe=RECIPE, out=tmp_path / "run")
    assert all(torch.equal(a, b) for a, b in zip(before, network.parameters(), strict=True))
    again = predict(tmp_path / "run", data, model=network)
    np.testing.assert_array_equal(again.logits, trained.predictions["test"].logits)
    with pytest.raises(InputError, match="model must be given again"):
        predict(tmp_path / "run", data)
    made = train(data, model=code.make, model_options={"width": 5}, recipe=RECIPE, seed=3)
    named = train(
        data,
        model="users_own:make",
        model_options={"width": 5},
        recipe=RECIPE,
        seed=3,
        out=tmp_path / "named",
    )
    for a, b in zip(made.model.parameters(), named.model.parameters(), strict=True):
        assert torch.equal(a, b)  # the seed determines the weights
    assert named.settings["model_source"] == source_hash("users_own:make") != ""
    assert len(predict(tmp_path / "named", data)) == len(data.y_test)
    local = train(
        data, model=lambda num_classes, size: nn.Linear(size[0], num_classes), recipe=RECIPE
    )
    assert len(local.predictions["test"]) == len(data.y_test)


def test_what_is_no_network(code: Any) -> None:
    data = code.load()
    for model, message in (
        (3, "model must be a name, a torch.nn.Module or a function"),
        ("users_own:one_too_many", r"model must return logits \\(N, 3\\)"),
        ("users_own:load", "model must be callable with num_classes="),
        ("users_own:nothing", "has no 'nothing'"),
        ("nowhere_at_all:make", "cannot be imported"),
        ("resnet", "must name a known network, or be an import path"),
    ):
        with pytest.raises(InputError, match=message.replace("\\\\", "\\")):
            train(data, model=model, recipe=RECIPE)


def test_losses_by_import_path(code: Any) -> None:
    z, y = torch.randn(7, 3, generator=torch.Generator().manual_seed(0)), torch.arange(7) % 3
    plain = float(nn.functional.cross_entropy(z, y))
    for text, want in (
        ("users_own:per_sample", plain),
        ("users_own:whole", plain),
        ("users_own:per_sample:strength=2", 2 * plain),
        ("cross_entropy + 0.5*users_own:whole", 1.5 * plain),
        ("users_own:whole + 0.5*users_own:per_sample:strength=2", 2 * plain),
    ):
        assert float(Objective.parse(text)(z, y)) == pytest.approx(want, rel=1e-6), text
    for text, message in (
        ("users_own:per_sample:strenght=2", "Did you mean 'strength'"),
        ("users_own:nothing", "has no 'nothing'"),
        ("focal:gamma", "options as name=value"),
    ):
        with pytest.raises(InputError, match=message):
            Objective.parse(text)


def test_data_by_import_path_and_from_arrays(code: Any) -> None:
    assert len(load("users_own:load", count=20).y_train) == 20
    with pytest.raises(InputError, match="Did you mean 'count'"):
        load("users_own:load", cuont=20)
    with pytest.raises(InputError, match=r"must return a calibrant\.data\.Dataset"):
        load("users_own:make", num_classes=2, size=(3,))
    x, y = np.zeros((6, 8, 8, 3), np.uint8), np.arange(6) % 2
    assert from_arrays(x, y, x, y).x_train.shape == (6, 3, 8, 8)
    pairs = torch.utils.data.TensorDataset(torch.zeros(6, 4), torch.tensor(y))
    stacked = [np.stack(part) for part in zip(*pairs, strict=True)]
    made = from_arrays(*stacked, *stacked, classes=("no", "yes"))
    assert isinstance(made, Dataset)
    assert (made.kind, made.classes) == ("vector", ("no", "yes"))
    with pytest.raises(InputError, match="of one shape"):
        from_arrays(np.zeros((6, 4)), y, np.zeros((6, 5)), y)


def test_a_study_by_import_path(code: Any, tmp_path: Path) -> None:
    asked = study()
    (run,) = asked.runs
    assert execution.execute(run, asked.evaluation, Store(tmp_path / "out"))
    assert (failure := Store(tmp_path / "out").failure(run.key)) is None, failure
    rows = read_all(tmp_path / "out").to_pylist()
    assert {row["objective"] for row in rows} == {"mine"}
    p = Predictions.load(Store(tmp_path / "out").run_folder(run.key) / "test.npz")
    assert p.num_samples == 60
    assert status(study(), tmp_path / "out").count("done") == 1
    (tmp_path / "users_own.py").write_text(CODE + "# changed\n")
    importlib.invalidate_caches()
    assert study().runs[0].key != run.key  # changed code is another run
    assert status(study(), tmp_path / "out").count("missing") == 1
    built_in = study(data="signals", models="cnn1d", objectives=["focal:gamma=3"]).runs[0]
    assert built_in.sources == ""


def test_import_paths_of_objects(code: Any) -> None:
    assert import_path_of(code.make) == "users_own:make"
    assert import_path_of(lambda: 0) is None
    assert source_hash("nowhere_at_all:make") == ""
    assert source_hash("users_own:make") == source_hash("users_own:load")
